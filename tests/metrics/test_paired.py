"""The paired t-test against scipy and against printed tables."""

import math

import pytest
import torch
from scipy import special, stats

from leanbayes.errors import DataError
from leanbayes.metrics.paired import incomplete_beta, paired_test, student_p


@pytest.mark.parametrize("seed", range(20))
def test_it_is_scipys_test_of_pairs(seed):
    g = torch.Generator().manual_seed(seed)
    count = int(torch.randint(2, 40, (), generator=g))
    own, other = torch.randn(2, count, generator=g, dtype=torch.float64)
    own = own + 0.5
    found, expected = paired_test(own, other), stats.ttest_rel(own.numpy(), other.numpy())
    assert found.p == pytest.approx(expected.pvalue, rel=1e-10)
    assert found.difference == pytest.approx((own - other).mean().item())
    assert found.difference / found.standard_error == pytest.approx(expected.statistic, rel=1e-12)
    assert found.count == count


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [(12.706, 1, 0.05), (4.303, 2, 0.05), (2.776, 4, 0.05), (4.604, 4, 0.01), (2.086, 20, 0.05)],
)
def test_quantiles_of_the_printed_table(t, freedom, p):
    assert student_p(t, freedom) == pytest.approx(p, rel=2e-3)
    assert student_p(-t, freedom) == student_p(t, freedom)


def test_one_degree_of_freedom_is_cauchys_law():
    for t in (0.0, 0.3, 1.0, 50.0):
        assert student_p(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-12)


def test_the_incomplete_beta_function_is_scipys():
    for a in (0.5, 1.0, 3.5, 40.0, 5000.0):
        for b in (0.5, 2.0, 30.0):
            for x in (0.0, 1e-6, 0.1, 0.5, 0.9, 0.999999, 1.0):
                expected = special.betainc(a, b, x)
                assert incomplete_beta(x, a, b) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_differences_without_spread_are_as_likely_as_their_signs():
    same = torch.ones(3)
    assert paired_test(same, same).p == 1.0
    found = paired_test(same, 0 * same)
    assert (found.difference, found.standard_error, found.p) == (1.0, 0.0, 0.25)
    assert paired_test(same[:2], 0 * same[:2]).p == 0.5


def test_hits_are_compared_as_numbers():
    """`probs.argmax(1) == target` of two methods: booleans."""
    own, other = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0]]).bool()
    expected = paired_test(own.double(), other.double())
    assert paired_test(own, other) == expected
    assert expected.difference == pytest.approx(0.4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_no_spread(dtype):
    """Differences of 0.05 and of 0.01 that floating numbers do not hold exactly."""
    pairs = {torch.float32: [[0.91, 0.23], [0.90, 0.22]], torch.float64: [[0.55, 0.95], [0.5, 0.9]]}
    own, other = torch.tensor(pairs[dtype], dtype=dtype)
    assert (own - other).std() > 0
    assert paired_test(own, other).p == 0.5


def test_accuracies_of_two_seeds_differ_by_chance_as_often_as_the_level_says():
    """With 200 examples a tenth of all pairs of differences are equal, and that is no proof."""
    g = torch.Generator().manual_seed(0)
    gains = torch.binomial(torch.full((2000, 2), 4.0), torch.tensor(0.5), generator=g) - 2
    base = torch.full((2,), 0.9, dtype=torch.float64)
    found = [paired_test(base + gain / 200, base).p for gain in gains.double()]
    assert sum(p < 0.05 for p in found) / 2000 <= 0.05


@pytest.mark.parametrize(
    ("own", "other"),
    [(torch.ones(1), torch.ones(1)), (torch.ones(3), torch.ones(2)), (torch.ones(2, 2),) * 2],
)
def test_pairs_are_needed_at_least_two(own, other):
    with pytest.raises(DataError, match="expected two of"):
        paired_test(own, other)
