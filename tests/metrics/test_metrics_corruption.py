"""mCE and rmCE against loops, and properties that follow from their definition."""

import math

import pytest
import torch

from leanbayes.errors import DataError
from leanbayes.metrics import (
    corruption_errors,
    mean_corruption_error,
    relative_corruption_errors,
    relative_mean_corruption_error,
)


def tables(cases=200):
    """Error rates [15, 5] of a model and a reference with their clean errors, below them."""
    generator = torch.Generator().manual_seed(40)
    for _ in range(cases):
        clean, reference_clean = (0.3 * torch.rand(2, generator=generator)).double()
        own, other = torch.rand(2, 15, 5, dtype=torch.float64, generator=generator)
        reference = reference_clean + 0.01 + (0.99 - reference_clean) * other
        yield clean + (1 - clean) * own, clean, reference, reference_clean


def test_both_equal_loops_over_corruptions_and_severities():
    for errors, clean, reference, reference_clean in tables():
        ratios, relative = [], []
        for own, other in zip(errors.tolist(), reference.tolist(), strict=True):
            ratios.append(math.fsum(own) / math.fsum(other))
            lost = math.fsum(e - clean.item() for e in own)
            relative.append(lost / math.fsum(e - reference_clean.item() for e in other))
        single = corruption_errors(errors, reference).tolist()
        assert single == pytest.approx(ratios, rel=1e-13)
        rest = errors, clean, reference, reference_clean
        assert relative_corruption_errors(*rest).tolist() == pytest.approx(relative, rel=1e-11)
        mean = mean_corruption_error(errors, reference).item()
        assert mean == pytest.approx(sum(ratios) / 15, rel=1e-13)
        found = relative_mean_corruption_error(*rest).item()
        assert found == pytest.approx(sum(relative) / 15, rel=1e-11)


def test_the_reference_itself_has_1():
    for errors, _, reference, reference_clean in tables(cases=3):
        assert errors.shape == (15, 5)
        assert corruption_errors(reference, reference).tolist() == [1.0] * 15
        rest = reference, reference_clean, reference, reference_clean
        assert relative_mean_corruption_error(*rest).item() == pytest.approx(1.0, abs=1e-14)


def test_a_mean_of_ratios_is_not_a_ratio_of_means():
    errors, reference = torch.tensor([[0.1], [0.4]]), torch.tensor([[0.2], [0.4]])
    assert mean_corruption_error(errors, reference).item() == pytest.approx(0.75, abs=1e-7)


def test_a_perfect_model_and_one_that_gains_by_corruption():
    reference = torch.full((2, 5), 0.5)
    assert mean_corruption_error(torch.zeros(2, 5), reference).item() == 0.0
    found = relative_mean_corruption_error(torch.zeros(2, 5), 0.25, reference, 0.25).item()
    assert found == -1.0


def test_one_corruption_of_one_severity():
    assert mean_corruption_error(torch.tensor([[0.3]]), torch.tensor([[0.6]])).item() == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: corruption_errors(x * math.nan, x), "errors holds 4 of 4 values that are NaN"),
        (lambda x: corruption_errors(x, 100 * x), "reference / 100 if in percent"),
        (lambda x: corruption_errors(x, 0 * x), "the reference makes no error on corruption 0"),
        (lambda x: corruption_errors(x[:1], x), r"errors has shape \(1, 2\)"),
        (lambda x: corruption_errors(x[0], x), r"expected \[K, L\]"),
        (lambda x: corruption_errors(x[:0], x[:0]), "errors is empty"),
        (lambda x: relative_corruption_errors(x, 0.1, x, 0.5), "the reference loses 0 by corr"),
        (lambda x: relative_corruption_errors(x, math.nan, x, 0.1), "clean holds 1 of 1 values"),
        (lambda x: relative_corruption_errors(x, x[0], x, 0.1), "expected one number"),
        (lambda x: relative_corruption_errors(x, 10.0, x, 0.1), "clean / 100 if in percent"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call(torch.full((2, 2), 0.5))
