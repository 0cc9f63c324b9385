import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from leanbayes.metrics import auroc, average_precision, fpr95

METRICS = [auroc, average_precision, fpr95]


def joined(inside, outside):
    is_out = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    return is_out, np.r_[inside.numpy(), outside.numpy()]


def test_auroc_equals_scikit_learn(random_scores):
    for inside, outside in random_scores:
        expected = roc_auc_score(*joined(inside, outside))
        assert auroc(inside, outside).item() == pytest.approx(expected, rel=1e-12)


def test_average_precision_equals_scikit_learn(random_scores):
    for inside, outside in random_scores:
        expected = average_precision_score(*joined(inside, outside))
        assert average_precision(inside, outside).item() == pytest.approx(expected, rel=1e-12)


def test_fpr95_equals_the_roc_curve_of_scikit_learn(random_scores):
    for inside, outside in random_scores:
        fpr, tpr, _ = roc_curve(*joined(inside, outside), drop_intermediate=False)
        expected = fpr[np.argmax(tpr >= 0.95)]
        assert fpr95(inside, outside).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [1, 19, 20, 21, 40, 60, 100, 180, 1000])
def test_fpr95_needs_the_exact_number_of_ood_examples(count):
    outside = torch.arange(count, dtype=torch.float64)
    needed = next(k for k in range(count + 1) if 100 * k >= 95 * count)
    threshold = count - needed
    inside = torch.tensor([threshold - 0.5, threshold, threshold + 0.5], dtype=torch.float64)
    assert fpr95(inside, outside).item() == 2 / 3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize("shift", [0.0, -5e3])
def test_only_the_order_of_scores_counts(scale, shift, random_scores):
    inside, outside = random_scores[101]
    for metric in METRICS:
        moved = metric(scale * inside + shift, scale * outside + shift).item()
        assert moved == metric(inside, outside).item()


def test_separated_scores():
    low, high = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5])
    assert [metric(low, high).item() for metric in METRICS] == [1.0, 1.0, 0.0]
    assert [auroc(high, low).item(), fpr95(high, low).item()] == [0.0, 1.0]
    # Ranks 3, 4, 5 of five are OOD: precision 1/3, 2/4 and 3/5.
    expected = (1 / 3 + 2 / 4 + 3 / 5) / 3
    assert average_precision(high, low).item() == pytest.approx(expected, rel=1e-15)


def test_equal_scores_are_chance():
    inside, outside = torch.zeros(6), torch.zeros(2)
    assert auroc(inside, outside).item() == 0.5
    assert average_precision(inside, outside).item() == 0.25
    assert fpr95(inside, outside).item() == 1.0


def test_one_score_each():
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert [metric(one, two).item() for metric in METRICS] == [1.0, 1.0, 0.0]
    assert [metric(two, one).item() for metric in METRICS] == [0.0, 0.5, 1.0]
    assert [metric(one, one).item() for metric in METRICS] == [0.5, 0.5, 1.0]


def test_infinite_scores_tie_with_each_other():
    inside, outside = torch.tensor([0.0, math.inf]), torch.tensor([math.inf, math.inf])
    assert auroc(inside, outside).item() == 0.75
    assert average_precision(inside, outside).item() == pytest.approx(2 / 3, rel=1e-15)
    assert fpr95(inside, outside).item() == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float64(dtype, random_scores):
    for inside, outside in random_scores[::5]:
        inside, outside = inside.to(dtype), outside.to(dtype)
        is_out, scores = joined(inside.double(), outside.double())
        value = auroc(inside, outside)
        assert value.dtype == torch.float64
        assert value.item() == pytest.approx(roc_auc_score(is_out, scores), rel=1e-12)
        expected = average_precision_score(is_out, scores)
        assert average_precision(inside, outside).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_score_maps_strides_and_gradients(metric, random_scores):
    inside, outside = random_scores[36][0], random_scores[40][1]
    expected = metric(inside[:36], outside[:40]).item()
    maps = inside[:36].reshape(1, 6, 6), outside[:40].reshape(2, 4, 5)
    assert metric(*maps).item() == expected
    strided = torch.stack([outside, outside], dim=1)[:40, 0].requires_grad_()
    value = metric(inside[:36], strided)
    assert not value.requires_grad
    assert float(value) == expected


@pytest.mark.parametrize("metric", METRICS)
def test_refused_scores(metric):
    fine, nothing, nan = torch.zeros(2), torch.zeros(0), torch.tensor([0.0, math.nan])
    message = r"^scores_in is empty, shape \(0,\); expected one element or more\. Write: "
    with pytest.raises(ValueError, match=message):
        metric(nothing, fine)
    with pytest.raises(ValueError, match=r"^scores_out is empty"):
        metric(fine, nothing)
    message = r"^scores_in holds 1 of 2 values that are NaN; expected numbers\. Write: "
    with pytest.raises(ValueError, match=message):
        metric(nan, fine)
    with pytest.raises(ValueError, match=r"^scores_out holds 1 of 2"):
        metric(fine, nan)
