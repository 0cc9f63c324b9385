"""Diversity of members against an explicit double loop, and the warning when they are one."""

import math
import warnings

import pytest
import torch
from torch import nn

import leanbayes as lb

CATEGORICAL = lb.Categorical()


def ensemble(init_std=0.5, **options):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return lb.bayesianize(net, lb.BatchEnsemble(init_std=init_std, **options))


def data(rows=40):
    return torch.randn(rows, 4), torch.arange(rows) % 3


def loops(probs, target):
    """Everything by hand from probabilities [S][M][C] as lists."""
    members, rows = len(probs), len(target)
    label = [[max(range(len(p)), key=p.__getitem__) for p in member] for member in probs]
    differ = kl = distance = 0.0
    pairs = 0
    for s in range(members):
        for t in range(members):
            if s == t:
                continue
            pairs += 1
            for m in range(rows):
                p, q = probs[s][m], probs[t][m]
                differ += label[s][m] != label[t][m]
                kl += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
                gap = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
                distance = max(distance, gap)
    right = sum(label[s][m] == target[m] for s in range(members) for m in range(rows))
    accuracy = right / (members * rows)
    disagreement = differ / (pairs * rows)
    return {
        "disagreement": disagreement,
        "accuracy": accuracy,
        "normalised": disagreement / (1 - accuracy),
        "kl": kl / (pairs * rows),
        "distance": distance,
    }


def check(found, expected):
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9), name


def test_members_are_compared_as_by_a_double_loop():
    model, (x, y) = ensemble(), data()
    found = lb.diversity(model, x, y, likelihood=CATEGORICAL)
    probs = [
        torch.softmax(lb.collapse(model, k)(x).double(), 1).tolist()
        for k in range(model.method.members)
    ]
    expected = loops(probs, y.tolist())
    assert expected["disagreement"] > 0.05
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-5), name
    mean = torch.tensor(probs).mean(0)
    right = (mean.argmax(1) == y).float().mean().item()
    assert found.ensemble_accuracy == pytest.approx(right)
    assert found.ensemble_nll == pytest.approx(nn.functional.nll_loss(mean.log(), y).item())
    assert found.members == 4
    assert not found.collapsed


def test_samples_are_members_where_there_is_no_index():
    net = nn.Linear(4, 3)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.7), likelihood=CATEGORICAL)
    x, y = data()
    found = lb.diversity(model, x, y, samples=5, seed=3)
    kept = lb.predict(model, x, samples=5, seed=3, keep_samples=True).samples
    check(found, loops(kept.tolist(), y.tolist()))
    assert found.members == 5


def test_draws_of_a_member_are_averaged_first():
    model, (x, y) = lb.bayesianize(nn.Linear(4, 3), lb.Implicit(members=3)), data()
    found = lb.diversity(model, x, y, likelihood=CATEGORICAL, samples=12, seed=1)
    kept = lb.predict(
        model, x, likelihood=CATEGORICAL, samples=12, seed=1, keep_samples=True
    ).samples
    check(found, loops(kept.reshape(4, 3, 40, 3).mean(0).tolist(), y.tolist()))
    assert found.members == 3


def test_a_loader_gives_what_one_batch_gives_in_any_order():
    model, (x, y) = ensemble(), data(41)
    whole = lb.diversity(model, x, y, likelihood=CATEGORICAL)
    loader = [(x[i : i + 10], y[i : i + 10]) for i in range(0, 41, 10)]
    for batches in (loader, loader[::-1], (b for b in loader)):
        parts = lb.diversity(model, batches, likelihood=CATEGORICAL)
        for name in ("disagreement", "accuracy", "normalised", "kl", "distance"):
            assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-5)


def test_dense_labels_count_by_pixel_and_ignored_ones_not_at_all():
    model = lb.bayesianize(nn.Conv2d(2, 3, 1), lb.BatchEnsemble(init_std=0.8))
    x, y = torch.randn(2, 2, 3, 4), torch.randint(0, 3, (2, 3, 4))
    y[0, 0], y[1, 2, 3] = -100, -100
    found = lb.diversity(model, x, y, likelihood=CATEGORICAL)
    samples = lb.predict(model, x, likelihood=CATEGORICAL, keep_samples=True).samples
    pixels = samples.permute(0, 1, 3, 4, 2).reshape(4, 24, 3)
    labelled = y.flatten() != -100
    check(found, loops(pixels[:, labelled].tolist(), y.flatten()[labelled].tolist()))


def test_binary_members_are_compared_by_both_classes():
    model = lb.bayesianize(nn.Linear(4, 1), lb.BatchEnsemble(init_std=0.8))
    x, y = torch.randn(30, 4), torch.arange(30) % 2
    found = lb.diversity(model, x, y, likelihood=lb.Bernoulli())
    p = lb.predict(model, x, likelihood=lb.Bernoulli(), keep_samples=True).samples[..., 0]
    check(found, loops(torch.stack([1 - p, p], -1).tolist(), y.tolist()))


def test_collapsed_members_are_reported_with_what_to_do():
    model, (x, y) = ensemble(init_std=0.0), data()
    with pytest.warns(lb.CollapsedMembers, match=r"4 members have collapsed.*init_std.*tied_sign"):
        found = lb.diversity(model, x, y, likelihood=CATEGORICAL)
    assert found.collapsed
    assert (found.disagreement, found.normalised) == (0.0, 0.0)
    assert found.kl == pytest.approx(0.0, abs=1e-12)
    assert "collapsed" in str(found)
    assert issubclass(lb.CollapsedMembers, UserWarning)


def test_equal_labels_with_different_probabilities_are_no_collapse():
    net = nn.Linear(4, 3)
    nn.init.zeros_(net.weight)
    with torch.no_grad():
        net.bias.copy_(torch.tensor([3.0, 0.0, 0.0]))
    model = lb.bayesianize(net, lb.BatchEnsemble(init_std=0.0))
    with torch.no_grad():
        net.slots["bias"].further[0, 0] += 0.5
    x = torch.randn(10, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = lb.diversity(model, x, torch.zeros(10).long(), likelihood=CATEGORICAL)
    assert not found.collapsed
    assert found.disagreement == 0
    assert (found.accuracy, found.normalised) == (1.0, 0.0)
    probs = [torch.softmax(torch.tensor([b, 0.0, 0.0]), 0)[0].item() for b in (3.0, 3.5)]
    assert found.distance == pytest.approx(probs[1] - probs[0], rel=1e-4)


def test_members_that_are_almost_sure_of_yes_have_finite_figures():
    """P(no) of a logit of 60 is exp(-60), and not 1 - 1; nor is its logarithm that of 1e-308."""
    net = nn.Linear(1, 1)
    with torch.no_grad():
        net.weight.fill_(0.0)
        net.bias.fill_(60.0)
    model = lb.bayesianize(net, lb.BatchEnsemble(members=2, init_std=0.0))
    with torch.no_grad():
        net.slots["bias"].further[0, 0] = 0.0
    found = lb.diversity(model, torch.zeros(3, 1), torch.zeros(3), likelihood=lb.Bernoulli())
    assert found.ensemble_nll == pytest.approx(math.log(4))  # (0 + 1/2) / 2
    between = 0.5 * (60 + 2 * math.log(0.5)) + math.log(2)  # KL(1/2, 1/2 || 1, exp(-60)), and back
    assert found.kl == pytest.approx(between / 2)


X, Y = torch.zeros(6, 4), torch.arange(6) % 3


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((X, Y), {"likelihood": None}, "likelihood=lb.Categorical"),
        ((X, Y), {"likelihood": lb.Gaussian()}, "predicted labels"),
        ((X,), {}, "needs labels"),
        (([X],), {}, "needs labels"),
        ((iter([X]), Y), {}, "own targets"),
        (([],), {}, "nothing to compare"),
        ((X, Y[:3]), {}, "labels of shape"),
        ((X, Y + 1), {}, "label 3 is none of the 3 classes"),
        ((X, Y), {"samples": 1}, "at least 2"),
    ],
)
def test_bad_requests_are_refused(arguments, options, words):
    with pytest.raises(lb.ConfigError, match=words):
        lb.diversity(ensemble(), *arguments, **{"likelihood": CATEGORICAL, **options})


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_labels_that_are_no_yes_and_no_no_are_refused(wrong):
    model = lb.bayesianize(nn.Linear(4, 1), lb.MeanField(), likelihood=lb.Bernoulli())
    y = torch.tensor([1.0, wrong, 0.0])
    with pytest.raises(lb.ConfigError, match=f"label {wrong:g}: expected 0 or 1"):
        lb.diversity(model, torch.zeros(3, 4), y, samples=2)


def test_a_point_estimate_has_no_members_to_compare():
    model = lb.bayesianize(nn.Linear(4, 3), lb.MAP(), likelihood=CATEGORICAL)
    with pytest.raises(lb.ConfigError, match="no members to compare"):
        lb.diversity(model, X, Y, samples=3)
