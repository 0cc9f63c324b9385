import dataclasses
import math

import pytest
import torch

from leanbayes.metrics import ece, mce, reliability


def bins_from_the_definition(probs, target, bins):
    """(count, mean confidence, accuracy) of each bin, one example and one bin at a time."""
    table = []
    for m in range(bins):
        confidences, hits = [], []
        for row, label in zip(probs.tolist(), target.tolist(), strict=True):
            confidence = max(row)
            above_low = confidence > m / bins or (m == 0 and confidence == 0.0)
            if above_low and confidence <= (m + 1) / bins:
                confidences.append(confidence)
                hits.append(row.index(confidence) == label)
        n = len(hits)
        table.append((n, math.fsum(confidences) / n, sum(hits) / n) if n else (0, None, None))
    return table


def errors_from_the_definition(probs, target, bins, min_count):
    table = bins_from_the_definition(probs, target, bins)
    kept = [(n, abs(right - sure)) for n, sure, right in table if n and n > min_count]
    if not kept:
        return None
    return sum(n * gap for n, gap in kept) / len(target), max(gap for _, gap in kept)


@pytest.mark.parametrize("bins", [1, 5, 15, 20])
def test_table_equals_the_definition(bins, random_cases):
    for probs, target in random_cases:
        table = reliability(probs, target, bins=bins)
        expected = bins_from_the_definition(probs, target, bins)
        assert table.count.tolist() == [n for n, _, _ in expected]
        for m, (n, sure, right) in enumerate(expected):
            if n:
                assert table.confidence[m].item() == pytest.approx(sure, rel=1e-13)
                assert table.accuracy[m].item() == right
            else:
                assert math.isnan(table.confidence[m].item())
                assert math.isnan(table.accuracy[m].item())


@pytest.mark.parametrize(("bins", "min_count"), [(15, 0), (20, 5), (10, 2)])
def test_errors_equal_the_definition(bins, min_count, random_cases):
    compared = 0
    for probs, target in random_cases:
        expected = errors_from_the_definition(probs, target, bins, min_count)
        if expected is None:
            with pytest.raises(ValueError, match=f"more than min_count={min_count}"):
                ece(probs, target, bins, min_count)
            continue
        compared += 1
        assert ece(probs, target, bins, min_count).item() == pytest.approx(expected[0], abs=1e-14)
        assert mce(probs, target, bins, min_count).item() == pytest.approx(expected[1], abs=1e-14)
    assert compared > 100


def test_defaults_are_15_bins_and_no_bin_dropped(random_cases):
    probs, target = random_cases[59]
    assert len(reliability(probs, target).count) == 15
    assert ece(probs, target).item() == ece(probs, target, bins=15, min_count=0).item()
    assert mce(probs, target).item() == mce(probs, target, bins=15, min_count=0).item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bins", [5, 10, 15, 20])
def test_an_edge_belongs_to_the_bin_below_it(bins, dtype):
    for m in range(bins // 2, bins):
        edge = (m + 1) / bins
        probs = torch.tensor([[edge, 1 - edge]], dtype=dtype)
        expected = [0] * bins
        expected[m] = 1
        count = reliability(probs, torch.tensor([0]), bins=bins).count.tolist()
        assert count == expected, f"{edge} of {bins} bins in {dtype}"


@pytest.mark.parametrize("bins", [5, 10, 15, 20])
def test_just_above_an_edge_is_the_next_bin(bins):
    for m in range(bins // 2, bins - 1):
        above = math.nextafter((m + 1) / bins, 1.0)
        probs = torch.tensor([[above, 1 - above]], dtype=torch.float64)
        count = reliability(probs, torch.tensor([0]), bins=bins).count
        assert count.nonzero().tolist() == [[m + 1]], above


def test_first_bin_is_reached_when_classes_are_many():
    probs = torch.full((2, 20), 0.05, dtype=torch.float64)
    table = reliability(probs, torch.tensor([0, 1]), bins=20)
    assert table.count.tolist() == [2] + [0] * 19
    assert table.accuracy[0].item() == 0.5
    assert ece(probs, torch.tensor([0, 1]), bins=20).item() == pytest.approx(0.45, rel=1e-15)


def test_perfect_confident_predictions_have_no_error():
    probs, target = torch.eye(4), torch.arange(4)
    assert ece(probs, target).item() == 0.0
    assert mce(probs, target).item() == 0.0
    assert reliability(probs, target).count.tolist() == [0] * 14 + [4]


def test_wrong_and_sure_is_the_largest_error():
    probs, target = torch.eye(2), torch.tensor([1, 0])
    assert (ece(probs, target).item(), mce(probs, target).item()) == (1.0, 1.0)


def test_one_class_and_one_sample():
    assert ece(torch.ones(3, 1), torch.zeros(3, dtype=torch.int64)).item() == 0.0
    probs = torch.tensor([[0.75, 0.25]])
    assert ece(probs, torch.tensor([0])).item() == 0.25
    assert mce(probs, torch.tensor([1])).item() == 0.75


def test_tied_classes_predict_the_lower_index():
    probs = torch.full((2, 2), 0.5)
    assert reliability(probs, torch.tensor([0, 1]), bins=2).accuracy[0].item() == 0.5
    assert ece(probs, torch.tensor([0, 0])).item() == 0.5


def test_min_count_drops_bins_with_exactly_so_many_and_divides_by_all():
    sure, unsure = [0.75, 0.25], [0.5, 0.5]
    probs = torch.tensor([sure] * 6 + [unsure] * 5)
    target = torch.tensor([1] * 6 + [1] * 5)
    both = (6 * 0.75 + 5 * 0.5) / 11
    assert ece(probs, target, bins=20, min_count=4).item() == pytest.approx(both, rel=1e-15)
    assert ece(probs, target, bins=20, min_count=5).item() == pytest.approx(4.5 / 11, rel=1e-15)
    right = torch.tensor([0] * 6 + [1] * 5)
    assert mce(probs, right, bins=20, min_count=4).item() == 0.5
    assert mce(probs, right, bins=20, min_count=5).item() == 0.25


def test_an_average_rounded_above_one_stays_in_the_last_bin():
    probs = torch.tensor([[1.0000001, 0.0]])
    assert probs[0, 0].item() > 1.0
    table = reliability(probs, torch.tensor([0]))
    assert (table.count[-1].item(), table.confidence[-1].item()) == (1, 1.0)


def test_dense_equals_rows(random_cases):
    probs, target = random_cases[59]
    dense, positions = probs.reshape(3, 4, 5, -1).movedim(-1, 1), target.reshape(3, 4, 5)
    assert ece(dense, positions).item() == pytest.approx(ece(probs, target).item(), abs=1e-15)
    assert mce(dense, positions).item() == pytest.approx(mce(probs, target).item(), abs=1e-15)


def test_deterministic_mode_and_gradients_do_not_matter(random_cases):
    probs, target = random_cases[59]
    expected = ece(probs, target).item()
    torch.use_deterministic_algorithms(True)
    try:
        value = ece(probs.clone().requires_grad_(), target)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not value.requires_grad
    assert float(value) == expected


def test_the_table_is_frozen():
    table = reliability(torch.eye(2), torch.arange(2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.count = torch.zeros(15)


@pytest.mark.parametrize("metric", [reliability, ece, mce])
def test_bins_must_be_positive(metric):
    with pytest.raises(ValueError, match=r"^bins = 0; expected at least 1\. Write: bins=1$"):
        metric(torch.eye(2), torch.arange(2), bins=0)


@pytest.mark.parametrize("metric", [ece, mce])
def test_min_count_is_refused_below_zero_and_when_nothing_is_left(metric):
    with pytest.raises(ValueError, match=r"^min_count = -1; expected at least 0\."):
        metric(torch.eye(2), torch.arange(2), min_count=-1)
    message = r"^the fullest bin holds 2 examples; expected a bin with more than min_count=2\."
    with pytest.raises(ValueError, match=message):
        metric(torch.eye(2), torch.arange(2), min_count=2)
