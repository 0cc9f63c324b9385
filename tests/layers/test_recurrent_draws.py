"""Every form of a draw in a recurrent layer equals stock passes with the drawn weights, by row."""

import pytest
import torch
from layer_cases import written_out
from recurrent_cases import (
    CASES,
    HIDDEN,
    QUIET,
    ROWS,
    SMALL,
    STEPS,
    WIDTH,
    assert_same,
    build,
    each,
    inputs,
    joined,
    leaves,
    packed,
    row_of,
    states,
    twin,
)
from torch.func import functional_call
from torch.nn.utils.rnn import pad_packed_sequence

import leanbayes as lb
from leanbayes.forms import Flipped, LowRank, PerDraw, Selected
from leanbayes.layers import Host
from leanbayes.methods.base import Method
from leanbayes.methods.mixture import MixtureMethod
from leanbayes.noise import KeyedNoise
from leanbayes.ops import candidate
from leanbayes.posteriors.low_rank import LowRankScale

pytestmark = QUIET
BASE = {"init_log_std": (-1.5, -0.5)}


class Candidates(MixtureMethod):
    """Low-rank candidates of every matrix; without a name it is in no list of methods."""

    def slots(self, site):
        tensors = site.tensors.items()
        return {
            slot: LowRankScale(tensor, members=3, rank=2, spread=0.5)
            for slot, tensor in tensors
            if tensor.dim() > 1
        }


METHODS: dict[str, tuple[Method, type]] = {
    "explicit": (lb.MeanField(estimator="exemplar", **BASE), PerDraw),
    "flipped": (lb.MeanField(estimator="flipout", **BASE), Flipped),
    "auto": (lb.MeanField(**BASE), Flipped),
    "bank": (
        lb.Patching(members=3, where="all", scope="network", granularity="row", init_std=0.5),
        Selected,
    ),
    "layer_bank": (lb.Patching(members=3, where="all", granularity="row", init_std=0.5), Selected),
    "low_rank": (Candidates(members=3), LowRank),
}


@pytest.fixture
def recorded(monkeypatch):
    """The forms that hosts took in the last pass, by slot."""
    forms, form = {}, Host.form

    def recording(self, slot, *args):
        forms[slot] = form(self, slot, *args)
        return forms[slot]

    monkeypatch.setattr(Host, "form", recording)
    return forms


def values_of(form, draws):
    """The value of a tensor in every draw."""
    match form:
        case Selected(values, index):
            return list(values[index])
        case LowRank(component=index):
            return [candidate(form, int(k)) for k in index]
        case _:
            return written_out(form, draws)


def weights_of(forms, draws):
    """The stock tensors of every draw, with factors multiplied in."""
    found = [{} for _ in range(draws)]
    for slot, form in forms.items():
        if form is not None and "scale" not in slot:
            for draw, value in zip(found, values_of(form, draws), strict=True):
                draw[slot] = value
    for slot, form in forms.items():
        if form is not None and "scale" in slot:
            side, _, product = slot.partition("_scale_")
            for draw, value in zip(found, values_of(form, draws), strict=True):
                name = f"weight_{product}"
                draw[name] = draw[name] * (value if side == "in" else value[:, None])
    return found


def by_row(stock, draws, x, start=None):
    """Stock passes, a row each; draws are contiguous blocks of rows."""
    each_draw = len(x) // len(draws)
    return joined(
        [
            functional_call(
                stock,
                draws[row // each_draw],
                (x[[row]],) if start is None else (x[[row]], row_of(start, row)),
            )
            for row in range(len(x))
        ]
    )


@pytest.mark.parametrize("name", METHODS)
@each(CASES)
def test_every_row_is_a_stock_pass_with_the_weights_it_drew(case, name, recorded):
    method, form = METHODS[name]
    layer = build(case)
    stock = twin(layer)
    model = lb.bayesianize(layer, method).train()
    start = states(stock)
    for given in ((), (start,)):
        found = model(inputs(), *given)
        assert isinstance(recorded["weight_hh_l0"], form)
        assert_same(found, by_row(stock, weights_of(recorded, ROWS), inputs(), *given))


@each(SMALL)
def test_gradients_are_those_of_the_stock_passes(case, recorded):
    for name in ("explicit", "flipped", "bank", "low_rank"):
        layer = build(case)
        stock = twin(layer)
        model = lb.bayesianize(layer, METHODS[name][0]).train()
        found = model(inputs())
        expected = by_row(stock, weights_of(recorded, ROWS), inputs())
        parameters = [p for p in model.parameters() if p.requires_grad]
        grads = [
            torch.autograd.grad(
                sum(x.sin().sum() for x in leaves(y)), parameters, retain_graph=True
            )
            for y in (found, expected)
        ]
        torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "method",
    [
        lb.RankOne(members=2, init_std=0.4, init_scale=0.3),
        lb.Implicit(members=2, init_std=0.4, init_scale=0.3),
        lb.BatchEnsemble(members=2, init_std=0.4),
    ],
    ids=["rank_one", "implicit", "batch_ensemble"],
)
@each(CASES)
def test_factors_scale_inputs_states_and_gates_before_the_bias(case, method, recorded):
    layer = build(case)
    stock = twin(layer)
    model = lb.bayesianize(layer, method).train()
    found = model(inputs())
    draws = model.scope.draws("row")
    assert_same(found, by_row(stock, weights_of(recorded, draws), inputs()))
    model.eval()
    plan = method.prediction_plan(range(2), KeyedNoise(3, range(2)))
    found = model(inputs(), plan=plan)
    assert_same(found, by_row(stock, weights_of(recorded, 2), inputs()))
    plan = method.prediction_plan([1], KeyedNoise(3, [1]))  # one draw: the stock kernel
    found = model(inputs(), plan=plan)
    assert_same(found, by_row(stock, weights_of(recorded, 1), inputs()))
    assert_same(lb.collapse(model)(inputs()), model(inputs()))
    assert_same(
        lb.collapse(model, member=1)(inputs()),
        by_row(stock, [lb.collapse(model, member=1).state_dict()], inputs()),
    )


def test_an_lstm_has_a_factor_pair_for_each_product_and_a_bank_for_each_bias():
    layer = build(("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}))
    model = lb.bayesianize(layer, lb.RankOne(members=2))
    slots = model.report.converted[0].slots
    assert len(slots) == 4 * (4 + 2)
    sizes = {slot: layer.posterior(slot).location.shape[1] for slot in slots if "scale" in slot}
    assert [sizes[f"{s}_scale_ih_l0"] for s in ("in", "out")] == [WIDTH, 4 * HIDDEN]
    assert [sizes[f"{s}_scale_hh_l0_reverse"] for s in ("in", "out")] == [2, 4 * HIDDEN]
    assert sizes["in_scale_ih_l1"] == 4
    assert not any("hr" in slot for slot in slots)
    inner = lb.bayesianize(build(("GRU", "plain")), lb.Implicit())
    assert inner.report.converted[0].slots == ("in_scale_ih_l0", "in_scale_hh_l0")


@pytest.mark.parametrize("name", METHODS)
@each(SMALL)
def test_packed_rows_take_the_draw_of_their_place_in_the_batch(case, name, recorded):
    layer = build(case)
    stock = twin(layer)
    model = lb.bayesianize(layer, METHODS[name][0])
    lengths = (2, 4, 1, 3, 4, 2)
    model.enter(METHODS[name][0].training_plan(ROWS, step=1), ROWS)
    start = states(stock)
    output, ends = layer(packed(inputs(), lengths), start)
    padded, _ = pad_packed_sequence(output, batch_first=True)
    draws = weights_of(recorded, ROWS)
    ends = ends if isinstance(ends, tuple) else (ends,)
    for row, length in enumerate(lengths):
        x = inputs()[[row], :length]
        y, end = functional_call(stock, draws[row], (x, row_of(start, row)))
        end = end if isinstance(end, tuple) else (end,)
        torch.testing.assert_close(padded[row, :length], y[0], rtol=1e-12, atol=1e-12)
        assert not padded[row, length:].any()
        for found, expected in zip(ends, end, strict=True):
            torch.testing.assert_close(found[:, row], expected[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_one_draw_serves_all_steps_of_a_sequence(kind, name):
    """Without recurrence equal inputs give equal gates at every step, noise included."""
    model = lb.bayesianize(build((kind, "plain")), METHODS[name][0]).train()
    with torch.no_grad():
        for key, parameter in model.net.named_parameters():
            if "weight_hh" in key:
                parameter.fill_(-60.0 if "log_std" in key else 0.0)
    x = inputs()[:, :1].expand(ROWS, STEPS, WIDTH)
    torch.manual_seed(2)
    y, _ = model(x)
    torch.manual_seed(2)
    first, _ = model(x[:, :1])
    torch.testing.assert_close(y[:, :1], first)
    if kind == "RNN":
        torch.testing.assert_close(y, first.expand_as(y))
    same = x[:1].expand_as(x)
    rows = model(same, plan=METHODS[name][0].training_plan(ROWS, step=0))[0][:, 0]
    assert (rows - rows[0]).abs().max() > 1e-3


@each(SMALL)
def test_groups_share_a_draw_and_a_sample_is_the_same_in_any_chunk(case):
    model = lb.bayesianize(build(case), METHODS["auto"][0]).eval()

    def drawn(x, samples):
        return model(x, plan=lb.Plan(groups=len(samples), noise=KeyedNoise(5, samples)))

    x = inputs(rows=2)
    folded, _ = drawn(x.repeat(3, 1, 1), [4, 0, 7])
    for found, sample in zip(folded.chunk(3), (4, 0, 7), strict=True):
        torch.testing.assert_close(found, drawn(x, [sample])[0], rtol=1e-12, atol=1e-12)
    twice = drawn(x[:1].repeat(6, 1, 1), [4, 0, 7])[0].unflatten(0, (3, 2))
    torch.testing.assert_close(twice[:, 0], twice[:, 1], rtol=1e-12, atol=1e-12)
    assert (twice[0, 0] - twice[1, 0]).abs().max() > 1e-3
