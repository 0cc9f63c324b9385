"""Confusion matrix and IoU against scikit-learn, and edge cases by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, jaccard_score

from leanbayes.errors import DataError
from leanbayes.metrics import class_iou, confusion, iou_of_pairs, mean_iou


def test_overlaps_equal_scikit_learn(random_cases):
    for probs, target in random_cases:
        classes = probs.shape[1]
        predicted, labels = probs.argmax(1).numpy(), target.numpy()
        occurring = np.union1d(predicted, labels)
        expected = np.full(classes, np.nan)
        expected[occurring] = jaccard_score(labels, predicted, labels=occurring, average=None)
        found = class_iou(probs, target).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-14)
        mean = mean_iou(probs, target).item()
        assert mean == pytest.approx(np.nanmean(expected), rel=1e-14)


def test_the_confusion_matrix_equals_scikit_learn(random_cases):
    for probs, target in random_cases:
        classes, predicted = probs.shape[1], probs.argmax(1)
        expected = confusion_matrix(target, predicted, labels=range(classes))
        assert confusion(predicted, target, classes).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_any_whole_type_are_counted_as_they_are(dtype):
    """Label times classes has no room in bytes."""
    predicted, target = torch.randint(0, 30, (2, 500))
    found = confusion(predicted.to(dtype), target.to(dtype), 30)
    assert torch.equal(found, confusion(predicted, target, 30))


def test_perfect_labels_overlap_and_a_class_nobody_names_has_no_value():
    target = torch.tensor([0, 2, 2])
    found = class_iou(torch.eye(3)[target], target).tolist()
    assert (found[0], found[2]) == (1.0, 1.0)
    assert math.isnan(found[1])
    assert mean_iou(torch.eye(3)[target], target).item() == 1.0


def test_one_wrong_element_and_one_class():
    assert mean_iou(torch.tensor([[1.0, 0.0]]), torch.tensor([1])).item() == 0.0
    assert mean_iou(torch.ones(5, 1), torch.zeros(5).long()).item() == 1.0


def test_ties_go_to_the_lower_index():
    assert class_iou(torch.full((2, 2), 0.5), torch.tensor([0, 1])).tolist() == [0.5, 0.0]


def test_a_data_set_is_one_ratio_of_sums_not_a_mean_over_images():
    """The first image has 1 of 4 elements right, the second 4 of 4; both are of class 0 alone."""
    labels = torch.zeros(2, 4).long()
    predicted = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 0]])
    probs = torch.nn.functional.one_hot(predicted, 2).movedim(-1, 1).double()
    assert class_iou(probs, labels).tolist() == [5 / 8, 0.0]


def test_sums_of_matrices_are_matrices_of_sums(random_cases):
    probs, target = random_cases[59]
    predicted, classes = probs.argmax(1), probs.shape[1]
    halves = [
        confusion(predicted[part], target[part], classes) for part in (slice(9), slice(9, 99))
    ]
    found = iou_of_pairs(halves[0] + halves[1])
    torch.testing.assert_close(found, class_iou(probs, target), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("metric", [class_iou, mean_iou])
def test_nan_and_labels_outside_the_classes_are_refused(metric):
    with pytest.raises(DataError, match="NaN or infinite"):
        metric(torch.full((1, 2), math.nan), torch.tensor([0]))
    with pytest.raises(DataError, match="keep = target >= 0"):
        metric(torch.eye(2), torch.tensor([0, 255]))
