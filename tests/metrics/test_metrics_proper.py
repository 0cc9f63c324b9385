import math

import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss

from leanbayes.metrics import accuracy, brier, nll, nll_of_samples


def labels_of(probs):
    return list(range(probs.shape[1]))


def test_nll_equals_scikit_learn(random_cases):
    for probs, target in random_cases:
        expected = log_loss(target.numpy(), probs.numpy(), labels=labels_of(probs))
        assert nll(probs, target).item() == pytest.approx(expected, rel=1e-12)


def test_brier_equals_scikit_learn(random_cases):
    for probs, target in random_cases:
        expected = brier_score_loss(
            target.numpy(), probs.numpy(), labels=labels_of(probs), scale_by_half=False
        )
        assert brier(probs, target).item() == pytest.approx(expected, rel=1e-12)


def test_accuracy_equals_a_loop_for_every_top(random_cases):
    for probs, target in random_cases:
        for top in range(1, probs.shape[1] + 1):
            hits = 0
            for row, label in zip(probs.tolist(), target.tolist(), strict=True):
                # Python's sort is stable: of equal probabilities the lower index comes first.
                hits += label in sorted(range(len(row)), key=lambda c: -row[c])[:top]
            assert accuracy(probs, target, top=top).item() == hits / len(target)


def test_nll_of_samples_equals_nll_of_the_mean(random_cases):
    for probs, target in random_cases:
        samples = torch.stack([probs, probs.flip(1), probs.roll(1, dims=1)])
        own = samples.gather(2, target.expand(3, -1).unsqueeze(2)).squeeze(2)
        expected = nll(samples.mean(dim=0), target).item()
        assert nll_of_samples(own.log()).item() == pytest.approx(expected, rel=1e-12)


def test_nll_of_samples_does_not_underflow():
    log_probs = torch.tensor([[-2000.0], [-2000.0 + math.log(3.0)]], dtype=torch.float64)
    assert nll_of_samples(log_probs).item() == pytest.approx(2000 - math.log(2), rel=1e-15)


def test_nll_of_samples_of_an_impossible_sample_and_of_none_possible():
    half = torch.tensor([[-math.inf], [0.0]])
    assert nll_of_samples(half).item() == pytest.approx(math.log(2))
    assert nll_of_samples(torch.full((3, 1), -math.inf)).item() == math.inf


def test_one_sample_and_one_example():
    probs, target = torch.tensor([[0.25, 0.75]]), torch.tensor([0])
    assert accuracy(probs, target).item() == 0.0
    assert nll(probs, target).item() == pytest.approx(math.log(4))
    assert brier(probs, target).item() == 2 * 0.75**2
    assert nll_of_samples(torch.tensor([[-1.5]])).item() == 1.5


def test_one_class_is_always_right():
    probs, target = torch.ones(4, 1), torch.zeros(4, dtype=torch.int64)
    assert accuracy(probs, target).item() == 1.0
    assert nll(probs, target).item() == 0.0
    assert brier(probs, target).item() == 0.0


def test_perfect_and_worst_predictions():
    target = torch.tensor([0, 1, 2])
    perfect, worst = torch.eye(3), torch.eye(3).roll(1, dims=0)
    assert (accuracy(perfect, target).item(), brier(perfect, target).item()) == (1.0, 0.0)
    assert math.copysign(1.0, nll(perfect, target).item()) == 1.0
    assert (accuracy(worst, target).item(), brier(worst, target).item()) == (0.0, 2.0)
    assert nll(worst, target).item() == math.inf


def test_ties_go_to_the_lower_index_as_in_argmax():
    probs = torch.full((4, 4), 0.25)
    target = torch.arange(4)
    assert [accuracy(probs, target, top=top).item() for top in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1]
    assert probs.argmax(dim=1).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("metric", [accuracy, nll, brier])
def test_dense_equals_rows(metric, random_cases):
    probs, target = random_cases[59]
    dense = probs.reshape(3, 4, 5, -1).movedim(-1, 1)
    expected = metric(probs, target).item()
    assert metric(dense, target.reshape(3, 4, 5)).item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("metric", [accuracy, nll, brier])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float64(metric, dtype, random_cases):
    for probs, target in random_cases[::4]:
        rounded = probs.to(dtype)
        value = metric(rounded, target)
        # The same rounded numbers, taken through the float64 formulas without validation.
        rows = rounded.double()
        own = rows[torch.arange(len(target)), target]
        reference = {
            "accuracy": (rows.argmax(dim=1) == target).double().mean(),
            "nll": -own.log().mean(),
            "brier": (rows.square().sum(dim=1) - 2 * own + 1).mean(),
        }[metric.__name__]
        assert value.dtype == torch.float64
        assert value.item() == pytest.approx(reference.item(), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_any_integer_target(dtype):
    probs = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    assert brier(probs, torch.tensor([1, 0], dtype=dtype)).item() == (0.125 + 0.5) / 2


def test_results_are_detached():
    logits = torch.tensor([[0.0, 1.0]], requires_grad=True)
    target = torch.tensor([1])
    expected = math.log1p(math.exp(-1))
    value = nll(logits.softmax(dim=1), target)
    assert not value.requires_grad
    assert float(value) == pytest.approx(expected, rel=1e-6)
    log_probs = logits.log_softmax(dim=1)[:, 1:]
    assert float(nll_of_samples(log_probs)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("top", [0, -1, 4])
def test_top_outside_the_classes(top):
    message = rf"^top = {top}; expected 1 to 3\. Write: top=1$"
    with pytest.raises(ValueError, match=message):
        accuracy(torch.eye(3), torch.arange(3), top=top)


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (torch.zeros(3), r"shape \(3,\); expected \[S, B\] .* Write: sample_log_probs.unsqueeze"),
        (torch.zeros(0, 3), r"sample_log_probs is empty, shape \(0, 3\); expected one element"),
        (torch.full((1, 2), math.nan), r"holds 2 of 2 values that are NaN; expected numbers"),
        (torch.tensor([[0.5, -1.0]]), r"up to 0\.5; expected .* at most 0 .*log_softmax"),
    ],
)
def test_nll_of_samples_refuses(log_probs, message):
    with pytest.raises(ValueError, match=message):
        nll_of_samples(log_probs)
