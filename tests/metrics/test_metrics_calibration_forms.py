"""Adaptive and class-wise calibration errors against loops written from their definitions."""

import math

import pytest
import torch

from leanbayes.errors import DataError
from leanbayes.metrics import adaptive_ece, classwise_ece, ece

FORMS = [adaptive_ece, classwise_ece]


def adaptive_from_the_definition(probs, target, bins):
    """Examples one by one: the bin is by the number of confidences that are not higher."""
    sure = [max(row) for row in probs.tolist()]
    hits = [row.index(max(row)) == label for row, label in zip(probs.tolist(), target, strict=True)]
    table = [[] for _ in range(bins)]
    for own, hit in zip(sure, hits, strict=True):
        up_to = sum(other <= own for other in sure)
        table[math.ceil(bins * up_to / len(sure) - 1e-12) - 1].append((own, hit))
    gaps = [abs(math.fsum(own - hit for own, hit in held)) for held in table]
    return math.fsum(gaps) / len(sure)


def classwise_from_the_definition(probs, target, bins):
    """Every class, bin and example in turn."""
    rows, errors = probs.tolist(), []
    for c in range(len(rows[0])):
        gaps = []
        for m in range(bins):
            held = [
                (row[c], label == c)
                for row, label in zip(rows, target, strict=True)
                if (row[c] > m / bins or m == 0) and row[c] <= (m + 1) / bins
            ]
            if held:
                n = len(held)
                mean, share = sum(p for p, _ in held) / n, sum(hit for _, hit in held) / n
                gaps.append(n / len(rows) * abs(share - mean))
        errors.append(sum(gaps))
    return sum(errors) / len(errors)


@pytest.mark.parametrize("bins", [1, 7, 15, 20])
def test_adaptive_error_equals_the_definition(bins, random_cases):
    for probs, target in random_cases:
        expected = adaptive_from_the_definition(probs, target.tolist(), bins)
        assert adaptive_ece(probs, target, bins).item() == pytest.approx(expected, abs=1e-13)


def test_adaptive_error_with_ties_equals_the_definition(random_cases):
    for probs, target in random_cases:
        rounded = (10 * probs[:, :1]).round() / 10  # few values, and 0 and 1 among them
        tied = torch.cat([rounded, 1 - rounded], dim=1)
        expected = adaptive_from_the_definition(tied, (target % 2).tolist(), 5)
        assert adaptive_ece(tied, target % 2, 5).item() == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("bins", [5, 15])
def test_classwise_error_equals_the_definition(bins, random_cases):
    for probs, target in random_cases:
        expected = classwise_from_the_definition(probs, target.tolist(), bins)
        assert classwise_ece(probs, target, bins).item() == pytest.approx(expected, abs=1e-13)


def test_adaptive_bins_hold_equally_many_examples():
    """60 different confidences in 15 bins of 4: the blocks of the sorted confidences."""
    sure = 0.5 + 0.499 * torch.rand(60, dtype=torch.float64, generator=torch.manual_seed(0))
    probs = torch.stack([sure, 1 - sure], dim=1)
    target = torch.arange(60) % 3 // 2
    order = sure.argsort()
    blocks = (sure[order] - (target[order] == 0).double()).reshape(15, 4)
    assert adaptive_ece(probs, target).item() == pytest.approx(
        blocks.mean(1).abs().mean().item(), abs=1e-15
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_examples_does_not_count(form, random_cases):
    probs, target = random_cases[59]
    probs = probs.repeat(3, 1)  # ties
    target = torch.cat([target, target, target.flip(0)])
    order = torch.randperm(len(target), generator=torch.manual_seed(3))
    expected = form(probs, target).item()
    assert form(probs[order], target[order]).item() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_perfect_predictions_and_a_single_class_have_no_error(form):
    target = torch.tensor([0, 2, 1, 2])
    assert form(torch.eye(3)[target], target).item() == 0.0
    assert form(torch.ones(4, 1), torch.zeros(4).long()).item() == 0.0


@pytest.mark.parametrize("form", FORMS)
def test_one_wrong_example_has_the_error_of_its_probabilities(form):
    found = form(torch.tensor([[0.25, 0.75]], dtype=torch.float64), torch.tensor([0]))
    assert found.item() == 0.75


def test_equal_confidences_are_one_bin():
    probs = torch.tensor([[0.75, 0.25]]).expand(8, 2)
    target = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    assert adaptive_ece(probs, target, bins=4).item() == 0.0
    assert ece(probs, target, bins=4).item() == 0.0


def test_two_classes_have_equal_classwise_errors():
    """With an even number of bins and no value on an edge, p and 1 - p mirror each other."""
    generator = torch.manual_seed(1)
    p = torch.rand(500, dtype=torch.float64, generator=generator)
    target = (torch.rand(500, generator=generator) < 0.5).long()
    probs = torch.stack([p, 1 - p], dim=1)
    both = classwise_ece(probs, target, 10).item()
    swapped = classwise_ece(probs.flip(1), 1 - target, 10).item()
    assert both == pytest.approx(swapped, abs=1e-14)


def test_dense_predictions_count_each_position():
    probs = torch.randn(3, 4, 5, 2, generator=torch.manual_seed(2)).double().softmax(1)
    target = torch.randint(4, (3, 5, 2), generator=torch.manual_seed(3))
    rows, labels = probs.movedim(1, -1).reshape(-1, 4), target.flatten()
    for form in FORMS:
        assert form(probs, target).item() == form(rows, labels).item()


@pytest.mark.parametrize("form", FORMS)
def test_nan_and_a_count_of_no_bins_are_refused(form):
    with pytest.raises(DataError, match="probs holds 1 of 2 values that are NaN"):
        form(torch.tensor([[math.nan, 1.0]]), torch.tensor([0]))
    with pytest.raises(DataError, match="bins = 0; expected at least 1"):
        form(torch.eye(2), torch.tensor([0, 1]), bins=0)
