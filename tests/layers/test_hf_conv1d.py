"""Hugging Face's Conv1D, by a look-alike of its name: a Linear whose weight lies the other way."""

import copy
import pickle
import sys
from types import ModuleType

import pytest
import torch
from layer_cases import assert_equal
from torch import nn

import leanbayes as lb
from leanbayes.forms import Flipped, LowRank, Moments, PerDraw, Selected, Shared
from leanbayes.layers import Host, host_of
from leanbayes.layers.conv1d import transposed
from leanbayes.layers.linear import BayesianLinear
from leanbayes.noise import KeyedNoise
from leanbayes.ops import candidate

ROWS, IN, OUT = 6, 4, 3


class Conv1D(nn.Module):
    """What `transformers` has under this name."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return flat.reshape(*x.shape[:-1], self.nf)


Conv1D.__module__ = "transformers.pytorch_utils"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Give the look-alike the import path of its name, for pickle."""
    for name in ("transformers", "transformers.pytorch_utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["transformers.pytorch_utils"].Conv1D = Conv1D


def layer():
    torch.manual_seed(3)
    return Conv1D(OUT, IN).double()


def linear_of(conv):
    """The Linear that computes the same."""
    linear = nn.Linear(IN, OUT).double()
    with torch.no_grad():
        linear.weight.copy_(conv.weight.T)
        linear.bias.copy_(conv.bias)
    return linear


def inputs(*shape, seed=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, *shape, IN, generator=generator, dtype=torch.float64)


def test_the_type_is_known_by_its_name_alone():
    class Other(nn.Module):
        pass

    host = host_of(Conv1D)
    assert host.kind == "linear"
    assert host.widths(layer()) == (IN, OUT)
    assert host_of(type("Sub", (Conv1D,), {})) is host
    assert host_of(Other) is None
    report = lb.bayesianize(layer(), lb.MeanField(select=lb.select.linears)).report
    assert report.converted[0].slots == ("weight", "bias")
    assert report.added == IN * OUT + OUT


def test_a_subclass_with_a_forward_of_its_own_is_left():
    class Twice(Conv1D):
        def forward(self, x):
            return 2 * super().forward(x)

    for example in (None, inputs().float()):
        net = nn.Sequential(Twice(OUT, IN), nn.Linear(OUT, 2))
        report = lb.bayesianize(net, lb.MeanField(), example=example).report
        assert "overrides forward of Conv1D, which a host would replace" in report.skipped[0].reason


@pytest.mark.parametrize("estimator", ["auto", "flipout", "exemplar", "shared"])
@pytest.mark.parametrize("shape", [(), (2,)], ids=["rows", "tokens"])
def test_without_noise_every_plan_gives_the_stock_result(estimator, shape):
    conv = layer()
    stock = copy.deepcopy(conv)
    x = inputs(*shape)
    model = lb.bayesianize(conv, lb.MeanField(init_std=0.0, estimator=estimator), example=x).train()
    plans = (None, lb.Plan(), lb.Plan(groups=2), lb.Plan(groups=ROWS, per_row=True))
    for plan in plans:
        assert_equal(model(x, plan=plan), stock(x))


@pytest.fixture
def recorded(monkeypatch):
    """The untransposed forms that hosts took in the last pass, by slot."""
    forms, form = {}, Host.form

    def recording(self, slot, *args):
        forms[slot] = form(self, slot, *args)
        return forms[slot]

    monkeypatch.setattr(Host, "form", recording)
    return forms


def weight_of(form, row):
    """The weight [I, O] of one draw."""
    match form:
        case PerDraw(value):
            return value[row]
        case Flipped(mean, delta, sign0, sign1):
            return mean + delta * torch.outer(sign0[row], sign1[row])
        case Selected(values, index):
            return values[index[row]]
        case LowRank(component=index):
            return candidate(form, int(index[row]))


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (lb.MeanField(estimator="exemplar", init_std=0.3), PerDraw),
        (lb.MeanField(estimator="flipout", init_std=0.3), Flipped),
        (
            lb.Patching(members=3, scope="network", granularity="row", init_std=0.5, where="all"),
            Selected,
        ),
        (lb.SharedEnsemble(members=3, rank=2, init_std=0.5), LowRank),
    ],
    ids=["explicit", "flipped", "bank", "low_rank"],
)
@pytest.mark.parametrize("shape", [(), (2,)], ids=["rows", "tokens"])
def test_every_row_uses_the_weight_it_drew(method, form, shape, recorded):
    conv = layer()
    model = lb.bayesianize(conv, method).train()
    x = inputs(*shape)
    found = model(x)
    weight, bias = recorded["weight"], recorded["bias"]
    assert isinstance(weight, form)
    shifts = bias.value if isinstance(bias, PerDraw) else bias.value.expand(ROWS, OUT)
    expected = [x[row] @ weight_of(weight, row) + shifts[row] for row in range(ROWS)]
    assert_equal(found, torch.stack(expected))
    found.sin().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_local_draws_have_the_moments_of_an_equal_linear(recorded):
    """Equal seeds draw equal pre-activations: the variances are those of the transposed weight."""
    conv = layer()
    linear = linear_of(conv)
    models = [lb.bayesianize(net, lb.MeanField()).train() for net in (conv, linear)]
    with torch.no_grad():
        linear.slots["weight"].log_std.copy_(conv.slots["weight"].log_std.T)
        linear.slots["bias"].log_std.copy_(conv.slots["bias"].log_std)
    results = []
    for model in models:
        torch.manual_seed(0)
        results.append(model(inputs()))
        assert isinstance(recorded["weight"], Moments)
    assert_equal(*results)


@pytest.mark.parametrize(
    "method",
    [
        lb.RankOne(members=2, init_std=0.4, init_scale=0.3),
        lb.Implicit(members=2, init_std=0.4, init_scale=0.3, side="out"),
        lb.BatchEnsemble(members=2, init_std=0.4),
    ],
    ids=["rank_one", "implicit", "batch_ensemble"],
)
def test_factors_are_those_of_an_equal_linear_and_collapse_into_the_weight(method):
    conv = layer()
    linear = linear_of(conv)
    models = []
    for net in (conv, linear):
        torch.manual_seed(1)
        models.append(lb.bayesianize(net, method).eval())
    plan = method.prediction_plan(range(2), KeyedNoise(0, range(2)))
    for x in (inputs(), inputs(2)):
        assert_equal(models[0](x, plan=plan), models[1](x, plan=plan))
        for member in (None, 1):
            plain = [lb.collapse(model, member) for model in models]
            assert type(plain[0]) is Conv1D
            assert_equal(plain[0](x), plain[1](x))
        assert_equal(lb.collapse(models[0])(x), models[0](x))


def test_copies_and_collapse_keep_class_keys_and_bits():
    conv = layer()
    stock = copy.deepcopy(conv)
    model = lb.bayesianize(conv, lb.MeanField())
    assert isinstance(conv, Conv1D)
    assert not isinstance(conv, BayesianLinear)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        plain = lb.collapse(other)
        assert type(plain) is Conv1D
        assert plain.state_dict().keys() == stock.state_dict().keys()
        assert torch.equal(plain(inputs()), stock(inputs()))


def test_a_transposed_draw_is_the_draw_of_the_transposed_matrix():
    torch.manual_seed(0)
    index = torch.tensor([1, 0])
    signs = torch.randn(2, IN).sign(), torch.randn(2, OUT).sign()
    forms = [
        PerDraw(torch.randn(2, IN, OUT)),
        Flipped(torch.randn(IN, OUT), torch.randn(IN, OUT), *signs),
        Selected(torch.randn(2, IN, OUT), index),
        LowRank(torch.randn(IN, OUT), torch.randn(2, IN, 3), torch.randn(2, 3, OUT), index),
    ]
    for form in forms:
        for row in range(2):
            assert_equal(weight_of(transposed(form), row), weight_of(form, row).T, 1e-6)
    value = torch.randn(IN, OUT)
    assert torch.equal(transposed(Shared(value)).value, value.T)
    assert torch.equal(transposed(Moments(value, value**2)).variance, (value**2).T)
