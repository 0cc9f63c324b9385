"""Attention with factors or copies of its weights equals stock passes with the drawn weights."""

import copy

import pytest
import torch
from layer_cases import assert_equal
from torch import nn
from torch.func import functional_call

import leanbayes as lb
from leanbayes.forms import LowRank, PerDraw, Selected, Shared
from leanbayes.layers import Host
from leanbayes.ops import candidate

ROWS, TOKENS, WIDTH = 4, 3, 6
OPTIONS = {"plain": {}, "no_bias": {"bias": False}, "key_value_dims": {"kdim": 4, "vdim": 2}}
METHODS = {
    "rank_one": lb.RankOne(members=2, init_std=0.4, init_scale=0.3),
    "implicit": lb.Implicit(members=2, init_std=0.4, init_scale=0.3),
    "batch_ensemble": lb.BatchEnsemble(members=2, init_std=0.4),
    "shared_ensemble": lb.SharedEnsemble(members=2, init_std=0.5),
    "bank": lb.Patching(members=2, where="all", granularity="row", init_std=0.5),
}


def build(options):
    torch.manual_seed(3)
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():  # the stock biases start at 0
            parameter.uniform_(-1, 1)
    return layer


def inputs_of(layer, to_itself):
    generator = torch.Generator().manual_seed(8)
    sizes = (WIDTH, layer.kdim, layer.vdim)
    parts = [torch.randn(ROWS, TOKENS, size, generator=generator).double() for size in sizes]
    return (parts[0],) * 3 if to_itself else tuple(parts)


@pytest.fixture
def recorded(monkeypatch):
    """The forms that hosts took in the last pass, by host and slot."""
    forms, form = {}, Host.form

    def recording(self, slot, *args):
        prefix = "out_proj." if isinstance(self, nn.Linear) else ""
        forms[prefix, slot] = form(self, slot, *args)
        return forms[prefix, slot]

    monkeypatch.setattr(Host, "form", recording)
    return forms


def value_of(form, row, rows=ROWS):
    """The value that one row uses."""
    match form:
        case Shared(value):
            return value
        case PerDraw(value):
            return value[row * len(value) // rows]
        case Selected(values, index):
            return values[index[row * len(index) // rows]]
        case LowRank(component=index):
            return candidate(form, int(index[row * len(index) // rows]))


def weights_of(forms, row):
    """The stock tensors of one row, with factors multiplied in."""
    found = {p + s: value_of(f, row) for (p, s), f in forms.items() if f and "scale" not in s}
    for (prefix, slot), form in forms.items():
        if "scale" in slot and form is not None:
            side, _, name = slot.partition("_scale")
            own = f"{name[1:]}_proj_weight" if name else "in_proj_weight"
            key = f"{prefix}weight" if prefix else own
            factor = value_of(form, row)
            found[key] = found[key] * (factor if side == "in" else factor[:, None])
    return found


@pytest.mark.parametrize(
    ("options", "to_itself"),
    [*((name, False) for name in OPTIONS), ("plain", True), ("no_bias", True)],
)
@pytest.mark.parametrize("name", METHODS)
def test_every_row_is_a_stock_pass_with_the_weights_it_drew(name, options, to_itself, recorded):
    layer = build(OPTIONS[options])
    stock = copy.deepcopy(layer)
    model = lb.bayesianize(layer, METHODS[name]).train()
    x = inputs_of(layer, to_itself)
    found, _ = model(*x)
    for row in range(ROWS):
        expected, _ = functional_call(
            stock, weights_of(recorded, row), tuple(part[[row]] for part in x)
        )
        assert_equal(found[[row]], expected)
    found.sin().sum().backward()
    slots = [p for key, p in model.named_parameters() if ".slots." in key]
    assert all(p.grad is not None for p in slots)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["rank_one", "implicit", "batch_ensemble", "shared_ensemble"])
def test_collapse_multiplies_the_mean_factors_into_the_projections(name, options):
    layer = build(OPTIONS[options])
    model = lb.bayesianize(layer, METHODS[name]).eval()
    x = inputs_of(layer, to_itself=False)
    plain = lb.collapse(model)
    assert type(plain) is nn.MultiheadAttention
    assert_equal(plain(*x)[0], model(*x)[0])


def test_the_three_projections_share_their_input_factors_where_they_share_a_matrix():
    model = lb.bayesianize(build({}), lb.RankOne())
    slots = {c.name: c.slots for c in model.report.converted}
    assert slots[""] == ("in_scale", "out_scale", "in_proj_bias")
    assert model.net.posterior("out_scale").location.shape == (4, 3 * WIDTH)
    apart = lb.bayesianize(build({"kdim": 4, "vdim": 2}), lb.Implicit())
    found = {s: apart.net.posterior(s).location.shape[1] for s in apart.net.slots}
    assert found == {"in_scale_q": WIDTH, "in_scale_k": 4, "in_scale_v": 2}
