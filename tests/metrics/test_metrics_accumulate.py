"""Accumulators give the numbers of the functions: in one go, in batches, merged."""

import copy
import pickle

import pytest
import torch
from accumulator_cases import CLASSIFIERS, DETECTORS, ROWS, added, examples, scores

from leanbayes import metrics
from leanbayes.errors import DataError

BATCHES = [(ROWS,), (1, 40, 49), (30, 30, 30)]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_batches_add_up_to_all_examples_at_once(name):
    make, function = CLASSIFIERS[name]
    for seed in range(5):
        tensors = examples(seed)
        expected = function(*tensors).item()
        for sizes in BATCHES:
            found = added(make, tensors, sizes).value()
            assert found.dtype == torch.float64
            assert found.item() == pytest.approx(expected, rel=1e-13, abs=1e-15), sizes


@pytest.mark.parametrize("name", DETECTORS)
def test_scores_in_any_order_and_batches_give_the_same(name):
    for seed in range(5):
        values, out = scores(seed)
        expected = DETECTORS[name](values[~out], values[out]).item()
        for sizes in BATCHES:
            found = added(lambda: metrics.Detection(DETECTORS[name]), (values, out), sizes)
            assert found.value().item() == pytest.approx(expected, abs=1e-14)
        apart = metrics.Detection(DETECTORS[name])
        apart.update(values[out].reshape(1, -1), out=True)
        apart.update(values[~out], out=False)
        assert apart.value().item() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_merging_adds_and_leaves_the_other_as_it_was(name):
    make, function = CLASSIFIERS[name]
    probs, target = examples(7)
    one, other = make(), make()
    one.update(probs[:50], target[:50])
    other.update(probs[50:], target[50:])
    before = other.value().item() if "20" not in name else None  # too few examples in its bins
    one.merge(other)
    one.merge(make())  # that has seen nothing
    assert one.value().item() == pytest.approx(function(probs, target).item(), rel=1e-13)
    if before is not None:
        assert other.value().item() == before
    empty = make()
    empty.merge(one)
    assert empty.value().item() == one.value().item()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_without_a_group_reduce_is_a_copy(name):
    make, function = CLASSIFIERS[name]
    tensors = examples(8)
    found = added(make, tensors, (ROWS,))
    total = found.reduce()
    assert total.value().item() == found.value().item()
    total.update(*examples(9))
    assert found.value().item() == pytest.approx(function(*tensors).item(), rel=1e-13)


def test_reduce_takes_anything_that_gathers():
    """Three processes, the second of which has seen nothing."""

    class Runtime:
        def gather(self, thing):
            return [thing, metrics.ECE(), added(metrics.ECE, examples(3), (ROWS,))]

    found = added(metrics.ECE, examples(2), (ROWS,)).reduce(Runtime())
    probs, target = (torch.cat(pair) for pair in zip(examples(2), examples(3), strict=True))
    assert found.value().item() == pytest.approx(metrics.ece(probs, target).item(), abs=1e-15)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_copies_and_pickles_are_equal(name):
    found = added(CLASSIFIERS[name][0], examples(4), (ROWS,))
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert other.value().item() == found.value().item()


def test_regression_in_batches():
    generator = torch.Generator().manual_seed(70)
    means = torch.randn(6, 40, 2, dtype=torch.float64, generator=generator)
    target, width = torch.randn(2, 40, 2, dtype=torch.float64, generator=generator)
    low, high = target - 1 + width, target + 1 + width.abs()
    parts = slice(0, 7), slice(7, 40)
    cases = [
        (metrics.rmse, lambda p: (means[0, p], target[p]), {}),
        (metrics.crps_gaussian, lambda p: (means[0, p], target[p], 0.5), {}),
        (metrics.crps_mixture, lambda p: (means[:, p], target[p]), {"noise_variance": 0.5}),
        (metrics.crps_samples, lambda p: (means[:, p], target[p]), {}),
        (metrics.log_predictive_density, lambda p: (means[:, p], target[p], 0.5), {}),
        (metrics.interval_coverage, lambda p: (low[p].minimum(high[p]), high[p], target[p]), {}),
        (metrics.nll_of_samples, lambda p: (-means[:, p].abs(),), {}),
    ]
    for metric, rows, options in cases:
        found = metrics.Average(metric, **options)
        for part in parts:
            found.update(*rows(part))
        expected = metric(*rows(slice(None)), **options).item()
        assert found.value().item() == pytest.approx(expected, rel=1e-13), metric.__name__


def test_the_state_of_binned_metrics_does_not_grow():
    found, sizes = metrics.ECE(20), set()
    for seed in range(4):
        found.update(*examples(seed))
        sizes.add(found.sums.numel())
    assert sizes == {60}
    assert found.table().count.sum().item() == 4 * ROWS


def test_what_else_the_states_tell():
    tensors = examples(6)
    overlap = added(metrics.MeanIoU, tensors, (40, 50))
    torch.testing.assert_close(overlap.each(), metrics.class_iou(*tensors), rtol=0, atol=0)
    assert overlap.pairs().sum().item() == ROWS
    area = added(metrics.AURC, tensors, (40, 50))
    torch.testing.assert_close(area.curve(), metrics.rejection_curve(*tensors))
    torch.testing.assert_close(area.buckets(9), metrics.bucket_accuracy(*tensors, buckets=9))
    expected = metrics.accuracy_at_coverage(*tensors, coverage=0.8)
    torch.testing.assert_close(area.accuracy_at(0.8), expected)
    with_score = metrics.AURC()
    with_score.update(*tensors, uncertainty=tensors[1])
    torch.testing.assert_close(with_score.value(), metrics.aurc(*tensors, tensors[1]))


@pytest.mark.parametrize("make", [make for make, _ in CLASSIFIERS.values()])
def test_nothing_seen_and_nan_are_refused(make):
    found = make()
    with pytest.raises(DataError, match="has seen no example"):
        found.value()
    with pytest.raises(DataError, match="NaN or infinite"):
        found.update(torch.full((1, 4), torch.nan), torch.tensor([0]))
    with pytest.raises(DataError, match="has seen no example"):  # a refused batch leaves no trace
        found.value()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.Average(metrics.ece), "ece is no mean over examples known here"),
        (lambda: metrics.Detection(metrics.ece), "metric = ece; expected one of auroc, average_"),
        (lambda: metrics.ECE().merge(metrics.ECE(20)), r"merge of ECE\(20, 0\); expected another"),
        (lambda: metrics.ECE().merge(metrics.MCE()), "merge of MCE"),
        (lambda: metrics.ECE(0), "bins = 0"),
        (lambda: metrics.Detection().update(torch.ones(2), out=torch.ones(2)), "expected bool"),
        (lambda: metrics.Detection().update(torch.ones(2), out=torch.ones(3) > 0), "out has shape"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_another_number_of_classes_is_refused():
    for found in (metrics.MeanIoU(), metrics.ClasswiseECE()):
        found.update(torch.eye(3), torch.arange(3))
        with pytest.raises(DataError, match="as before"):
            found.update(torch.eye(4), torch.arange(4))
