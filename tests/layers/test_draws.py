"""With sigma > 0 a pass equals passes of the stock layer with the drawn weights put in by hand."""

import copy

import pytest
import torch
from layer_cases import BATCH_NORMS, CASES, LINEARS, assert_equal, each, written_out
from torch import nn
from torch.func import functional_call

import leanbayes as lb
from leanbayes.forms import Flipped, Moments, PerDraw
from leanbayes.layers import Host
from leanbayes.noise import KeyedNoise
from leanbayes.plan import MEAN

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

METHOD = lb.MeanField(init_log_std=(-1.5, -0.5))
SEED = 5
# Without running statistics the rows of all groups are normalised together, as in training.
SEPARABLE = [case for case in CASES if case.name != "BatchNorm2d-untracked"]


def twins(case, method=METHOD):
    """A converted layer in evaluation mode, and an untouched copy of what it was."""
    layer = case.layer()
    stock = copy.deepcopy(layer).eval()
    return lb.bayesianize(layer, method, example=case.inputs()).eval(), stock


def keyed(samples):
    return lb.Plan(groups=len(samples), noise=KeyedNoise(SEED, samples))


def drawn_by_hand(model, samples):
    """`base + exp(log_std) * noise` of every parameter, one dict a sample."""
    draws = [{} for _ in samples]
    for _, _, posterior, base in model.posteriors():
        noise = KeyedNoise(SEED, samples).normal(posterior.key, len(samples), base.shape, base)
        if posterior.random is not None:
            noise = noise * posterior.random
        for draw, value in zip(draws, base + posterior.log_std.exp() * noise, strict=True):
            draw[posterior.key] = value.detach()
    return draws


@each(SEPARABLE)
def test_keyed_groups_equal_stock_passes_with_the_drawn_weights(case):
    model, stock = twins(case)
    x, samples = case.inputs(), range(3)
    found = model(x, plan=keyed(samples))
    draws = drawn_by_hand(model, samples)
    expected = [
        functional_call(stock, draw, block) for draw, block in zip(draws, x.chunk(3), strict=True)
    ]
    assert_equal(found, torch.cat(expected))


@each(CASES)
def test_rows_of_a_group_share_the_draw_and_groups_differ(case):
    model, _ = twins(case)
    x = case.inputs(rows=1, seed=4).repeat(6, *(1,) * len(case.shape))
    y = model(x, plan=keyed(range(3))).unflatten(0, (3, 2))
    assert_equal(y[:, 0], y[:, 1])
    assert all((y[a, 0] - y[b, 0]).abs().max() > 1e-2 for a, b in ((0, 1), (0, 2), (1, 2)))


@each(CASES)
def test_a_sample_is_the_same_in_any_chunk(case):
    model, _ = twins(case)
    x = case.inputs(rows=2)
    folded = model(x.repeat(3, *(1,) * len(case.shape)), plan=keyed([4, 0, 7])).chunk(3)
    for found, sample in zip(folded, (4, 0, 7), strict=True):
        assert_equal(found, model(x, plan=keyed([sample])))


@pytest.fixture
def recorded(monkeypatch):
    """The forms that hosts took in the last pass, by slot."""
    forms, form = {}, Host.form

    def recording(self, slot, *args):
        forms[slot] = form(self, slot, *args)
        return forms[slot]

    monkeypatch.setattr(Host, "form", recording)
    return forms


@pytest.mark.parametrize("estimator", ["flipout", "exemplar"])
@each([case for case in CASES if case not in BATCH_NORMS])
def test_training_rows_equal_stock_passes_with_the_draws_they_took(case, estimator, recorded):
    model, stock = twins(case, lb.MeanField(init_log_std=(-1.5, -0.5), estimator=estimator))
    model.train()
    for rows in (2, 6):
        x = case.inputs(rows=rows)
        found = model(x)
        forms = {slot: form for slot, form in recorded.items() if form is not None}
        assert isinstance(next(iter(forms.values())), expected_form(case, estimator))
        groups = getattr(stock, "groups", 1)
        values = {slot: written_out(form, rows, groups) for slot, form in forms.items()}
        expected = [
            functional_call(stock, {slot: value[row] for slot, value in values.items()}, x[[row]])
            for row in range(rows)
        ]
        assert_equal(found, torch.cat(expected))
        assert_same_gradients(model, found, torch.cat(expected))


def assert_same_gradients(model, found, expected):
    """Of the stock parameters and of the scales."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    for gradients in zip(
        *(
            torch.autograd.grad(y.sin().sum(), parameters, retain_graph=True, allow_unused=True)
            for y in (found, expected)
        ),
        strict=True,
    ):
        assert_equal(*gradients)


def expected_form(case, estimator):
    """Norms draw explicitly whatever the estimator, and so do kernels that are standardised."""
    explicit = estimator == "exemplar" or "Norm" in case.name or "StdConv" in case.name
    return PerDraw if explicit else Flipped


@each(LINEARS)
def test_auto_integrates_the_noise_out_for_rows_and_flips_signs_for_tokens(case, recorded):
    model, _ = twins(case)
    model.train()
    local = Moments if len(case.shape) == 1 else Flipped
    model(case.inputs())
    assert isinstance(recorded["weight"], local)
    model(case.inputs(), plan=lb.Plan(groups=6))
    assert isinstance(recorded["weight"], local)
    model(case.inputs(), plan=lb.Plan(groups=3))  # two rows a draw: not independent
    assert isinstance(recorded["weight"], Flipped)
    model(case.inputs(), plan=keyed(range(6)))  # prediction never estimates
    assert isinstance(recorded["weight"], PerDraw)


@each(BATCH_NORMS)
def test_batch_statistics_are_pooled_over_the_draws_before_the_affine_map(case):
    model, stock = twins(case)
    model.train()
    stock.train()
    x, samples = case.inputs(), range(3)
    found = model(x, plan=keyed(samples))
    plain = {name: torch.full_like(p, name == "weight") for name, p in stock.named_parameters()}
    normed = functional_call(stock, plain, x)
    dims = (1, -1, *(1,) * (x.dim() - 2))
    expected = []
    for draw, block in zip(drawn_by_hand(model, samples), normed.chunk(3), strict=True):
        y = block * draw["weight"].reshape(dims)
        expected.append(y + draw["bias"].reshape(dims) if "bias" in draw else y)
    assert_equal(found, torch.cat(expected))
    for name, buffer in stock.named_buffers():
        assert_equal(model.net.get_buffer(name), buffer)


@each(SEPARABLE)
def test_gradients_of_the_scales_are_those_of_the_drawn_weights(case):
    """d log_std = d weight * exp(log_std) * noise, summed over the groups."""
    model, stock = twins(case)
    x, samples = case.inputs(), range(2)
    model(x, plan=keyed(samples)).sin().sum().backward()
    draws = drawn_by_hand(model, samples)
    total = 0
    for draw, block in zip(draws, x.chunk(2), strict=True):
        for value in draw.values():
            value.requires_grad_()
        total = total + functional_call(stock, draw, block).sin().sum()
    total.backward()
    for _, slot, posterior, base in model.posteriors():
        parts = [draw[slot].grad * (draw[slot] - base) for draw in draws]
        assert_equal(posterior.log_std.grad, sum(parts).detach())
        assert_equal(base.grad, sum(draw[slot].grad for draw in draws))


@pytest.mark.parametrize("method", [lb.MeanField(), lb.RankOne(members=2), lb.DropConnect()])
def test_a_vector_without_a_batch_takes_one_draw_and_is_refused_under_more(method):
    """Features were taken for rows: eight of them are no eight rows."""
    model = lb.bayesianize(nn.Linear(8, 3).double(), method).eval()
    x = torch.randn(8, dtype=torch.float64)
    for plan in (MEAN, method.prediction_plan([1], KeyedNoise(0, [1]))):
        torch.testing.assert_close(model(x, plan=plan), model(x[None], plan=plan)[0])
    with pytest.raises(lb.PlanError, match="without a batch"):
        model(x, plan=method.prediction_plan(range(2), KeyedNoise(0, range(2))))
