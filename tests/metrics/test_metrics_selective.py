"""Rejection by uncertainty against loops, and against all orders of equal examples."""

import itertools
import math

import pytest
import torch

from leanbayes.errors import DataError
from leanbayes.metrics import (
    accuracy,
    accuracy_at_coverage,
    aurc,
    bucket_accuracy,
    entropy,
    rejection_curve,
)


def ranked_hits(probs, target, uncertainty):
    """Hits from the most certain to the least, in pairs with no ties."""
    hits = (probs.argmax(1) == target).tolist()
    return [hit for _, hit in sorted(zip(uncertainty.tolist(), hits, strict=True))]


def orders(probs, target, uncertainty):
    """`ranked_hits` of every order in which equal examples can be."""
    rows = list(zip(uncertainty.tolist(), (probs.argmax(1) == target).tolist(), strict=True))
    for order in itertools.permutations(rows):
        if all(a[0] <= b[0] for a, b in itertools.pairwise(order)):
            yield [hit for _, hit in order]


def curve_of(hits):
    return [sum(hits[:n]) / n for n in range(1, len(hits) + 1)]


def test_curve_and_area_equal_a_loop(random_cases):
    generator = torch.Generator().manual_seed(50)
    for probs, target in random_cases:
        score = torch.randn(len(target), dtype=torch.float64, generator=generator)
        expected = curve_of(ranked_hits(probs, target, score))
        found = rejection_curve(probs, target, score).tolist()
        assert found == pytest.approx(expected, abs=1e-14)
        area = sum(1 - kept for kept in expected) / len(expected)
        assert aurc(probs, target, score).item() == pytest.approx(area, abs=1e-14)


@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.8, 0.95, 1.0])
def test_accuracy_at_a_coverage_equals_a_loop(coverage, random_cases):
    for probs, target in random_cases:
        hits = ranked_hits(probs, target, entropy(probs))
        kept = math.ceil(round(coverage * len(hits), 6))
        expected = sum(hits[:kept]) / kept
        found = accuracy_at_coverage(probs, target, coverage).item()
        assert found == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("buckets", [1, 3, 10])
def test_buckets_equal_a_loop(buckets, random_cases):
    for probs, target in random_cases:
        hits = ranked_hits(probs, target, entropy(probs))
        if len(hits) < buckets:
            continue
        size, larger = divmod(len(hits), buckets)
        ends = [0]
        for k in range(buckets):
            ends.append(ends[-1] + size + (k < larger))
        expected = [sum(hits[a:b]) / (b - a) for a, b in itertools.pairwise(ends)]
        assert bucket_accuracy(probs, target, buckets).tolist() == pytest.approx(expected)


def test_ties_are_the_mean_over_all_orders():
    generator = torch.Generator().manual_seed(51)
    for number in range(200):
        count = 1 + number % 5
        probs = torch.randn(count, 3, dtype=torch.float64, generator=generator).softmax(1)
        target = torch.randint(3, (count,), generator=generator)
        score = torch.randint(2 + number % 2, (count,), generator=generator).double()
        every = [curve_of(hits) for hits in orders(probs, target, score)]
        expected = [sum(column) / len(every) for column in zip(*every, strict=True)]
        assert rejection_curve(probs, target, score).tolist() == pytest.approx(expected)


def test_all_equal_is_the_accuracy_at_any_coverage(random_cases):
    probs, target = random_cases[57]
    plain = accuracy(probs, target).item()
    score = torch.zeros(len(target))
    assert rejection_curve(probs, target, score).tolist() == pytest.approx([plain] * len(target))
    assert aurc(probs, target, score).item() == pytest.approx(1 - plain)
    assert bucket_accuracy(probs, target, 4, score).tolist() == pytest.approx([plain] * 4)


def test_the_ends_are_perfect_worst_and_the_accuracy(random_cases):
    probs, target = random_cases[59]
    hits = probs.argmax(1) == target
    wrong = int((~hits).sum())
    best = rejection_curve(probs, target, (~hits).double())
    assert best[: len(hits) - wrong].tolist() == [1.0] * (len(hits) - wrong)
    assert best[-1].item() == pytest.approx(accuracy(probs, target).item(), abs=1e-15)
    worst = rejection_curve(probs, target, hits.double())
    assert worst[:wrong].tolist() == [0.0] * wrong


def test_perfect_one_example_and_one_class():
    target = torch.tensor([0, 1, 2])
    assert aurc(torch.eye(3)[target], target).item() == 0.0
    assert aurc(torch.tensor([[0.25, 0.75]]), torch.tensor([0])).item() == 1.0
    assert accuracy_at_coverage(torch.ones(4, 1), torch.zeros(4).long(), 0.01).item() == 1.0


@pytest.mark.parametrize("count", [20, 100, 1000, 10000])
def test_a_share_in_floats_does_not_keep_one_more(count):
    """0.95 of a multiple of 20 is a whole number of examples."""
    kept = 19 * count // 20
    target = (torch.arange(count) >= kept).long()  # right up to there
    probs = torch.eye(2)[torch.zeros(count).long()]
    assert accuracy_at_coverage(probs, target, 0.95, torch.arange(count)).item() == 1.0
    found = accuracy_at_coverage(probs, target, 0.95 + 1e-6, torch.arange(count)).item()
    assert found == pytest.approx(kept / (kept + 1))


def test_dense_predictions_count_each_position():
    probs = torch.randn(2, 3, 4, 5, generator=torch.manual_seed(2)).double().softmax(1)
    target = torch.randint(3, (2, 4, 5), generator=torch.manual_seed(3))
    rows, labels = probs.movedim(1, -1).reshape(-1, 3), target.flatten()
    assert aurc(probs, target).item() == aurc(rows, labels).item()
    assert aurc(probs, target, -probs.amax(1)).item() == aurc(rows, labels, -rows.amax(1)).item()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, y: aurc(p * math.nan, y), "probs holds 4 of 4 values that are NaN"),
        (lambda p, y: aurc(p, y, y * math.nan), "uncertainty holds 2 of 2 values that are NaN"),
        (lambda p, y: aurc(p, y, p), r"uncertainty has shape \(2, 2\)"),
        (lambda p, y: accuracy_at_coverage(p, y, 0.0), r"coverage = 0\.0; expected above 0"),
        (lambda p, y: accuracy_at_coverage(p, y, 95), "coverage = 95"),
        (lambda p, y: bucket_accuracy(p, y, 3), "buckets = 3; expected 1 to 2"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call(torch.eye(2), torch.tensor([0, 1]))
