"""The OOD regulariser: its value against closed forms, and its draws."""

import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.regularizer import _without_replacement, mutual_information

F64 = torch.float64


def opposites(members=2, granularity="row"):
    """Members that are sure of different classes, whatever the input."""
    net = nn.Linear(4, members)
    method = lb.Patching(
        members=members, scope="network", where="output", granularity=granularity, init_std=0.0
    )
    model = lb.bayesianize(net, method).train()
    with torch.no_grad():
        for slot, tensor in (("weight", net.weight), ("bias", net.bias)):
            tensor.zero_()
            net.slots[slot].further.zero_()
        net.bias[0] = 1000.0
        for k in range(1, members):
            net.slots["bias"].further[k - 1, k] = 1000.0
    return model


def normalised_net(width=5):
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))


def reference(logits):
    """H(mean p) - mean H(p) by explicit loops over rows, draws and classes, in float64."""
    draws, rows, classes = logits.shape
    values = []
    for b in range(rows):
        probs = [torch.softmax(logits[s, b].double(), 0).tolist() for s in range(draws)]
        mean = [sum(p[c] for p in probs) / draws for c in range(classes)]
        total = -sum(m * math.log(m) for m in mean if m > 0)
        values.append(total + sum(q * math.log(q) for p in probs for q in p if q > 0) / draws)
    return values


def test_mutual_information_is_entropy_of_the_mean_minus_mean_entropy():
    logits = 3 * torch.randn(3, 5, 4, dtype=F64)
    assert mutual_information(logits).tolist() == pytest.approx(reference(logits), abs=1e-14)


@pytest.mark.parametrize("samples", [2, 3, 6])
def test_mutual_information_lies_between_zero_and_ln_of_the_draws(samples):
    values = mutual_information(10 * torch.randn(samples, 200, 6))
    assert values.min() >= -1e-6
    assert values.max() <= math.log(samples) + 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_vanished_probabilities_give_no_nan_in_value_or_gradient(dtype):
    logits = torch.tensor([[[300.0, -300, 0]], [[-300.0, 300, 0]]], dtype=dtype, requires_grad=True)
    reg = lb.OODRegularizer(gamma=None)
    value = reg.penalty(logits.reshape(2, 3))
    (grad,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx(-3 * math.log(2), rel=1e-6)
    assert grad.isfinite().all()
    masked = torch.tensor([[[1.0, -math.inf]], [[2.0, -math.inf]]], requires_grad=True)
    (grad,) = torch.autograd.grad(mutual_information(masked).sum(), masked)
    assert grad.isfinite().all()


def test_the_gradient_is_that_of_the_definition():
    logits = torch.randn(2, 3, 4, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(mutual_information, (logits,))


def test_the_penalty_is_a_margin_loss_by_row():
    logits = 4 * torch.randn(2, 7, 3, dtype=F64)
    values = reference(logits)
    assert min(values) < 0.2 < max(values)
    penalty = lb.OODRegularizer(alpha=3.0, gamma=0.2).penalty(logits.reshape(14, 3))
    expected = 3 * sum(max(0.0, 0.2 - v) for v in values) / 7
    assert penalty.item() == pytest.approx(expected, abs=1e-14)
    no_margin = lb.OODRegularizer(alpha=2.0, gamma=None).penalty(logits.reshape(14, 3))
    assert no_margin.item() == pytest.approx(-2 * sum(values) / 7, abs=1e-14)


def test_every_pixel_of_a_dense_output_counts():
    logits = torch.randn(4, 3, 2, 5, dtype=F64)
    flat = logits.reshape(2, 2, 3, 2, 5).permute(0, 1, 3, 4, 2).reshape(40, 3)
    reg = lb.OODRegularizer()
    torch.testing.assert_close(reg.penalty(logits), reg.penalty(flat))


def test_an_inert_margin_is_an_error_and_in_the_papers_preset_a_warning():
    with pytest.raises(lb.ConfigError, match=r"ln 2 = 0\.6931"):
        lb.OODRegularizer(gamma=math.log(2))
    with pytest.warns(UserWarning, match="gamma=0.75 is inert"):
        paper = lb.OODRegularizer(preset="paper")
    assert paper.gamma == 0.75
    assert lb.OODRegularizer().gamma == 0.5
    assert lb.OODRegularizer(gamma=0.75, samples=3).gamma == 0.75
    # With two draws the margin never binds: the same objective as none, up to a constant.
    logits = 50 * torch.randn(40, 3, dtype=F64)
    free = lb.OODRegularizer(gamma=None).penalty(logits)
    torch.testing.assert_close(paper.penalty(logits), free + 3 * 0.75)


@pytest.mark.parametrize("granularity", ["row", "batch"])
def test_members_of_a_row_are_never_the_same(granularity):
    """Two sure and opposite members: ln 2 for every row; with replacement half of them give 0."""
    model = opposites(2, granularity)
    reg = lb.OODRegularizer(alpha=1.0, gamma=None)
    for rows in (1, 7):
        assert reg(model, torch.randn(rows, 4)).item() == pytest.approx(-math.log(2), rel=1e-6)
    three = lb.OODRegularizer(alpha=1.0, gamma=None, samples=3)
    value = three(opposites(3, granularity), torch.randn(5, 4))
    assert value.item() == pytest.approx(-math.log(3), rel=1e-6)


@pytest.mark.parametrize(("groups", "rows", "blocks"), [(4, 8, 4), (4, 6, 3), (4, 1, 1), (1, 8, 1)])
def test_foreign_rows_have_as_many_pairs_of_members_as_clean_rows_have_members(
    groups, rows, blocks
):
    """One pair for all of them would take the whole gradient of a step."""
    model = lb.bayesianize(nn.Linear(4, 3), lb.SharedEnsemble(members=20, groups=groups)).train()
    found = [lb.OODRegularizer().plan(model, rows) for _ in range(50)]
    assert {(plan.groups, plan.per_row) for plan in found} == {(2 * blocks, False)}
    first, second = torch.stack([plan.component for plan in found]).reshape(50, 2, -1).unbind(1)
    assert (first != second).all()  # of a row
    if blocks > 1:
        assert (first != first[:, :1]).any()  # blocks draw for themselves
    assert len(first.unique()) > 10


def test_all_pairs_of_members_are_drawn_equally_often():
    first, second = _without_replacement(12_000, 4, 2).reshape(2, -1)
    assert (first != second).all()
    counts = torch.bincount(4 * first + second, minlength=16).reshape(4, 4)
    off = counts[~torch.eye(4, dtype=torch.bool)]
    assert off.min() > 880
    assert off.max() < 1120


@pytest.mark.parametrize("estimator", ["auto", "shared", "exemplar"])
def test_draws_of_other_methods_are_independent(estimator):
    """Weights N(0, s^2) on input 1: the two draws' logits of a row are uncorrelated."""
    net = nn.Linear(1, 2, bias=False)
    model = lb.bayesianize(net, lb.MeanField(estimator=estimator, init_std=1.0)).train()
    nn.init.zeros_(net.weight)
    seen = []
    net.register_forward_hook(lambda _m, _x, y: seen.append(y.detach()))
    reg = lb.OODRegularizer()
    for _ in range(400):
        reg(model, torch.ones(3, 1))
    draws = torch.stack(seen).reshape(400, 2, 3, 2)[:, :, 0]
    correlation = torch.corrcoef(draws[..., 0].T)[0, 1]
    assert abs(correlation) < 0.15
    assert draws.std().item() == pytest.approx(1.0, abs=0.1)


def test_training_on_the_penalty_raises_the_mutual_information():
    torch.manual_seed(2)
    model = lb.bayesianize(normalised_net(16), lb.BatchEnsemble()).train()
    reg, x = lb.OODRegularizer(), torch.randn(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    first = reg(model, x).item()
    for _ in range(60):
        optimizer.zero_grad()
        reg(model, x).backward()
        optimizer.step()
    assert reg(model, x).item() < 0.5 * first


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lb.OODRegularizer(samples=1), "the MI of one draw is 0"),
        (lambda: lb.OODRegularizer(alpha=-1.0), "alpha must be"),
        (lambda: lb.OODRegularizer(gamma=-0.1), "gamma must be a positive number"),
        (lambda: lb.OODRegularizer(passes=3), "passes is 1"),
        (lambda: lb.OODRegularizer(preset="authors"), "'recommended' or 'paper'"),
        (lambda: lb.OODRegularizer(samples=3)(opposites(2), torch.zeros(2, 4)), "from 2"),
        (lambda: lb.OODRegularizer()(opposites(2), torch.zeros(0, 4)), "no rows"),
        (
            lambda: lb.OODRegularizer()(
                lb.bayesianize(nn.Linear(4, 3), lb.MAP()), torch.zeros(2, 4)
            ),
            "same network",
        ),
        (
            lambda: lb.OODRegularizer()(
                lb.bayesianize(nn.Linear(4, 3), lb.MeanField(), likelihood=lb.Gaussian()),
                torch.zeros(2, 4),
            ),
            "expected lb.Categorical",
        ),
        (
            lambda: lb.OODRegularizer()(
                lb.bayesianize(nn.Linear(4, 1), lb.MeanField()), torch.zeros(2, 4)
            ),
            "class logits in dim 1",
        ),
    ],
)
def test_bad_settings_are_refused(make, words):
    with pytest.raises(lb.ConfigError, match=words):
        make()


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("method", [lb.SWAG(), lb.Laplace()], ids=lambda method: method.name)
def test_methods_that_train_as_a_point_are_refused(method, passes):
    """In one pass the clean rows were drawn from a law that nobody had fitted yet."""
    model = lb.bayesianize(nn.Linear(4, 3), method).train()
    batch, reg = (torch.randn(8, 4), torch.arange(8) % 3), lb.OODRegularizer(passes=passes)
    with pytest.raises(lb.ConfigError, match=f"training draw of {method.name} is the same"):
        reg.objective(model, batch, torch.randn(4, 4), lb.Categorical(), num_data=10)
