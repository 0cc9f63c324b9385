"""Verification against scikit-learn's ROC and a search over thresholds by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.verification import best_threshold


def pairs(count=200, noise=1.2, decimals=None):
    first = torch.randn(count, 8)
    same = torch.arange(count) % 2 == 0
    second = torch.where(same[:, None], first, 0.0) + noise * torch.randn(count, 8)
    if decimals is not None:  # features on a lattice: many scores are equal
        first, second = first.round(decimals=decimals), second.round(decimals=decimals)
    return first, second, same


def scores_of(first, second):
    first, second = first.double().numpy(), second.double().numpy()
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(1) / norms


@pytest.mark.parametrize("decimals", [None, 0])
def test_the_curve_is_that_of_scikit_learn(decimals):
    torch.manual_seed(1)
    first, second, same = pairs(decimals=decimals)
    keep = (first.norm(dim=1) > 0) & (second.norm(dim=1) > 0)
    first, second, same = first[keep], second[keep], same[keep]
    found = lb.verify(first, second, same)
    scores = F.cosine_similarity(first.double(), second.double()).numpy()
    np.testing.assert_allclose(scores, scores_of(first, second), atol=1e-12)
    fpr, tpr, thresholds = roc_curve(same.numpy(), scores, drop_intermediate=False)
    np.testing.assert_array_equal(found.fpr.numpy(), fpr)
    np.testing.assert_array_equal(found.tpr.numpy(), tpr)
    np.testing.assert_array_equal(found.thresholds.numpy(), thresholds)
    assert found.auroc == pytest.approx(roc_auc_score(same.numpy(), scores), abs=1e-12)


def test_a_fold_is_judged_by_the_best_threshold_of_the_others():
    first, second, same = pairs(97)
    found = lb.verify(first, second, same, folds=10, seed=4)
    scores, truth = scores_of(first, second), same.numpy()
    order = torch.randperm(97, generator=torch.Generator().manual_seed(4)).numpy()
    accuracies = []
    for held_out, threshold in zip(
        np.array_split(order, 10), found.fold_thresholds.numpy(), strict=True
    ):
        others = np.setdiff1d(order, held_out)
        # Every threshold that could make a difference, tried out one by one.
        tried = [*(scores[others] - 1e-9), 2.0]
        best = max(((scores[others] >= t) == truth[others]).sum() for t in tried)
        assert ((scores[others] >= threshold) == truth[others]).sum() == best
        accuracies.append(((scores[held_out] >= threshold) == truth[held_out]).mean())
    assert found.accuracy == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert found.accuracy_std == pytest.approx(np.std(accuracies), abs=1e-12)


def test_scores_without_information_are_right_by_chance_and_clear_ones_always():
    torch.manual_seed(0)
    same = torch.arange(2000) % 2 == 0
    chance = lb.verify(torch.randn(2000, 8), torch.randn(2000, 8), same)
    assert abs(chance.accuracy - 0.5) < 0.04
    assert abs(chance.auroc - 0.5) < 0.04
    clear = lb.verify(*pairs(100, noise=0.01))
    assert (clear.accuracy, clear.accuracy_std, clear.auroc) == (1.0, 0.0, 1.0)


def test_length_does_not_matter_nor_does_the_form_of_the_labels():
    first, second, same = pairs()
    a = lb.verify(first, second, same)
    b = lb.verify(5 * first, 0.1 * second, same.long())
    assert a.accuracy == b.accuracy
    assert a.auroc == pytest.approx(b.auroc)
    maps = lb.verify(first.reshape(-1, 2, 2, 2), second.reshape(-1, 2, 2, 2), same.double())
    assert maps.accuracy == a.accuracy


def test_the_same_seed_gives_the_same_folds_and_another_one_others():
    first, second, same = pairs(60, noise=3.0)
    a, b, c = (lb.verify(first, second, same, seed=s) for s in (0, 0, 1))
    assert a.accuracy_std == b.accuracy_std
    assert torch.equal(a.fold_thresholds, b.fold_thresholds)
    assert not torch.equal(a.fold_thresholds, c.fold_thresholds)


@pytest.mark.parametrize(
    ("scores", "same", "expected"),
    [
        ([0.9, 0.5, 0.1], [1, 1, 0], 0.3),
        ([0.9, 0.5, 0.1], [1, 1, 1], 0.1),  # all accepted
        ([0.5, 0.5, 0.1], [1, 0, 0], 0.5 + 1e-16),  # equal scores cannot be told apart
        ([0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0], 0.75),  # as good as 0.25: the highest counts
    ],
)
def test_the_best_threshold_lies_between_scores(scores, same, expected):
    scores = torch.tensor(scores, dtype=torch.float64)
    found = best_threshold(scores, torch.tensor(same).bool())
    assert found.item() == pytest.approx(expected, abs=1e-12)
    if scores[0] == scores[1]:
        assert (scores >= found).sum() == 0


def test_neighbouring_floats_are_told_apart():
    low = torch.tensor(0.5, dtype=torch.float64)
    high = torch.nextafter(low, torch.tensor(1.0, dtype=torch.float64))
    scores = torch.stack([high, low])
    found = best_threshold(scores, torch.tensor([True, False]))
    assert (scores >= found).tolist() == [True, False]


def bad(**changes):
    first, second, same = pairs(20)
    given = {"first": first, "second": second, "same": same, **changes}
    return given.pop("first"), given.pop("second"), given.pop("same"), given


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"second": torch.zeros(20, 7)}, lb.DataError, "expected the same shape"),
        ({"first": torch.zeros(20), "second": torch.zeros(20)}, lb.DataError, "same shape"),
        ({"first": torch.full((20, 8), torch.nan)}, lb.DataError, "first holds 20 of 20 rows"),
        ({"same": torch.ones(19)}, lb.DataError, "expected 20 values of 0"),
        ({"same": torch.full((20,), 2)}, lb.DataError, "expected 20 values of 0"),
        ({"same": torch.ones(20)}, lb.DataError, "20 of 20 pairs are of the same"),
        ({"folds": 1}, lb.ConfigError, "folds must be at least 2"),
        ({"folds": 21}, lb.ConfigError, "at most the 20 pairs"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(changes, error, words):
    first, second, same, options = bad(**changes)
    with pytest.raises(error, match=words):
        lb.verify(first, second, same, **options)


def test_features_of_a_model_verify_classes_it_has_not_seen():
    data = lb.data.fashion_mini()
    x, y = data.x_train[:2000].flatten(1), data.y_train[:2000]
    known = y < 7
    net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    net = nn.Sequential(net, nn.Linear(32, 7))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(net(x[known]), y[known]).backward()
        optimizer.step()
    model = lb.bayesianize(net, lb.MeanField(init_std=0.01), example=x[:2])
    new, labels = x[~known][:300], y[~known][:300]
    features = lb.predict_features(model, new, samples=4, seed=0)
    i, j = torch.randint(300, (2, 600))
    found = lb.verify(features[i], features[j], labels[i] == labels[j])
    assert found.auroc > 0.75
    assert found.accuracy > max((labels[i] == labels[j]).double().mean(), 0.7)
