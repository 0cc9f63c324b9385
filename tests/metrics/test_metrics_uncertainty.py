"""Entropy, mutual information and disagreement against scipy and loops over pairs."""

import itertools
import math

import pytest
import torch
from scipy import stats

import leanbayes as lb
from leanbayes.errors import DataError
from leanbayes.metrics import (
    disagreement,
    entropy,
    label_disagreement,
    mutual_information,
    normalised_disagreement,
)

SAMPLED = [mutual_information, disagreement]


@pytest.fixture(scope="module")
def sampled():
    """200 pairs of float64 probabilities [S, B, C] and labels [B]."""
    generator = torch.Generator().manual_seed(30)
    cases = []
    for number in range(200):
        shape = 2 + number % 5, 1 + number % 7, 2 + number % 4
        logits = torch.randn(shape, dtype=torch.float64, generator=generator)
        target = torch.randint(shape[2], shape[1:2], generator=generator)
        cases.append((((0.2 + number % 9) * logits).softmax(2), target))
    return cases


def test_entropy_equals_scipy(random_cases):
    for probs, _ in random_cases:
        expected = torch.from_numpy(stats.entropy(probs.numpy(), axis=1))
        torch.testing.assert_close(entropy(probs), expected, rtol=1e-12, atol=1e-13)


def test_mutual_information_is_the_mean_divergence_from_the_mean(sampled):
    for probs, _ in sampled:
        mean = probs.mean(0, keepdim=True).expand_as(probs)
        expected = torch.from_numpy(stats.entropy(probs.numpy(), mean.numpy(), axis=2)).mean(0)
        torch.testing.assert_close(mutual_information(probs), expected, rtol=1e-9, atol=1e-13)


def test_mutual_information_is_that_of_predict_and_of_the_regularizer(sampled):
    from leanbayes.prediction import Classification
    from leanbayes.regularizer import mutual_information as of_logits

    for probs, _ in sampled[::20]:
        within = entropy(probs.flatten(0, 1)).reshape(probs.shape[:2]).mean(0)
        p = Classification(None, torch.ones(1), probs.mean(0), within)
        torch.testing.assert_close(mutual_information(probs), p.epistemic, rtol=0, atol=1e-14)
        torch.testing.assert_close(
            mutual_information(probs), of_logits(probs.log()), rtol=0, atol=1e-12
        )


def test_certain_equal_and_single_samples():
    certain = torch.eye(3)[[0, 1, 2]].unsqueeze(1)  # three samples, three labels
    assert mutual_information(certain).item() == pytest.approx(math.log(3), rel=1e-15)
    one = torch.tensor([[[0.3, 0.7]]], dtype=torch.float64)
    assert mutual_information(one).item() == 0.0
    assert mutual_information(one.expand(5, 1, 2)).item() == pytest.approx(0.0, abs=1e-15)
    assert entropy(torch.ones(2, 1)).tolist() == [0.0, 0.0]
    assert entropy(torch.eye(2)).tolist() == [0.0, 0.0]


def test_dense_predictions_keep_their_shape():
    probs = torch.randn(3, 2, 4, 5, 6, generator=torch.manual_seed(0)).double().softmax(2)
    found = mutual_information(probs)
    assert found.shape == (2, 5, 6)
    assert found[1, 2, 3] == mutual_information(probs[:, 1, :, 2, 3].unsqueeze(1))[0]
    assert entropy(probs[0])[1, 2, 3] == entropy(probs[0, 1, :, 2, 3].unsqueeze(0))[0]


def pairs_from_the_definition(probs):
    labels = [[row.index(max(row)) for row in sample] for sample in probs.tolist()]
    shares = [
        sum(a != b for a, b in zip(one, other, strict=True)) / len(one)
        for one, other in itertools.combinations(labels, 2)
    ]
    return labels, sum(shares) / len(shares)


def test_disagreement_equals_a_loop_over_pairs(sampled):
    for probs, target in sampled:
        labels, expected = pairs_from_the_definition(probs)
        assert disagreement(probs).item() == pytest.approx(expected, abs=1e-15)
        hits = [a == b for sample in labels for a, b in zip(sample, target.tolist(), strict=True)]
        wrong = 1 - sum(hits) / len(hits)
        normalised = expected / wrong if expected else 0.0
        found = normalised_disagreement(probs, target).item()
        assert found == pytest.approx(normalised, rel=1e-12)


def test_the_figures_of_a_model_are_these():
    torch.manual_seed(0)
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField(init_std=0.5))
    x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
    found = lb.diversity(model, x, y, likelihood=lb.Categorical(), samples=5, seed=0)
    kept = lb.predict(
        model, x, likelihood=lb.Categorical(), samples=5, seed=0, keep_samples=True
    ).samples
    assert found.disagreement == pytest.approx(disagreement(kept).item(), abs=1e-12)
    assert found.normalised == pytest.approx(normalised_disagreement(kept, y).item(), abs=1e-12)
    assert found.disagreement > 0


def test_perfect_members_and_members_that_are_all_wrong_alike_do_not_disagree():
    probs = torch.eye(2).expand(3, 2, 2)
    assert normalised_disagreement(probs, torch.tensor([0, 1])).item() == 0.0
    assert normalised_disagreement(probs, torch.tensor([1, 0])).item() == 0.0


def test_ties_are_the_lower_label():
    assert disagreement(torch.tensor([[[0.5, 0.5]], [[0.9, 0.1]]])).item() == 0.0


def test_two_members_at_least():
    with pytest.raises(DataError, match="samples = 1; expected at least 2"):
        disagreement(torch.eye(2)[None])
    with pytest.raises(DataError, match="samples = 1; expected at least 2"):
        label_disagreement(torch.ones(1, 3))


@pytest.mark.parametrize("metric", SAMPLED)
@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (torch.full((2, 1, 2), math.nan), "probs holds 4 of 4 values that are NaN"),
        (torch.eye(2), r"sample_probs has shape \(2, 2\); expected \[S, B, C\]"),
        (torch.zeros(2, 0, 3), "sample_probs is empty"),
        (torch.full((2, 1, 2), 2.0), "probs reaches from 2 to 2"),
        (torch.full((2, 1, 2), 0.25), r"a row of probs sums to 0\.5"),
    ],
)
def test_bad_samples_are_refused(metric, probs, message):
    with pytest.raises(DataError, match=message):
        metric(probs)


def test_probabilities_without_classes_have_no_entropy():
    with pytest.raises(DataError, match=r"probs has shape \(3,\); expected \[B, C\]"):
        entropy(torch.rand(3))
