"""Class weights steer training as those of torch's cross_entropy, and nothing else."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.train.data import num_elements

F64 = torch.float64
WEIGHTS = (0.5, 2.0, 7.0)


def rows():
    return torch.randn(9, 3, dtype=F64), torch.randint(0, 3, (9,))


def maps():
    y = torch.randint(0, 3, (2, 4, 5))
    y[0, :2] = 255
    return torch.randn(2, 3, 4, 5, dtype=F64), y


@pytest.mark.parametrize("data", [rows, maps])
def test_the_weighted_mean_is_that_of_cross_entropy(data):
    logits, y = data()
    likelihood = lb.Categorical(255, class_weights=WEIGHTS)
    log_prob = likelihood.log_prob(logits, y)
    weights = torch.tensor(WEIGHTS, dtype=F64)
    expected = F.cross_entropy(logits, y, weights, ignore_index=255)
    torch.testing.assert_close(-log_prob.sum() / likelihood.count(log_prob, y), expected)


@pytest.mark.parametrize("samples", [1, 3])
def test_the_objective_divides_by_the_weights_of_the_labels(samples):
    model = lb.bayesianize(nn.Linear(4, 3).to(F64), lb.MeanField(init_std=0.0))
    x, y = torch.randn(9, 4, dtype=F64), torch.randint(0, 3, (9,))
    likelihood = lb.Categorical(class_weights=WEIGHTS)
    found = lb.objective(model, (x, y), likelihood, num_data=9, samples=samples)
    logits = F.linear(x, model.net.weight, model.net.bias)
    expected = F.cross_entropy(logits, y, torch.tensor(WEIGHTS, dtype=F64))
    torch.testing.assert_close(found.nll, expected, rtol=1e-6, atol=1e-6)


def test_equal_weights_are_no_weights():
    logits, y = maps()
    plain, weighted = lb.Categorical(255), lb.Categorical(255, class_weights=[3.0] * 3)
    means = [
        -k.log_prob(logits, y).sum() / k.count(k.log_prob(logits, y), y) for k in (plain, weighted)
    ]
    torch.testing.assert_close(means[0], means[1])


def test_predictions_and_the_number_of_data_know_no_weights():
    likelihood = lb.Categorical(255, class_weights=WEIGHTS)
    _, y = maps()
    x = torch.randn(2, 2, 4, 5, dtype=F64)
    assert num_elements((x, y), likelihood) == 30
    assert num_elements((torch.randn(9, 4), rows()[1]), likelihood) == 9
    model = lb.bayesianize(nn.Conv2d(2, 3, 1).to(F64), lb.MeanField())
    options = {"samples": 3, "seed": 0}
    weighted = lb.predict(model, x, likelihood=likelihood, **options)
    assert torch.equal(
        weighted.probs, lb.predict(model, x, likelihood=lb.Categorical(), **options).probs
    )


def test_a_rare_class_is_as_probable_as_its_weight_says():
    x = torch.cat([torch.randn(380, 2), torch.randn(20, 2) + 1.0])
    y = torch.cat([torch.zeros(380), torch.ones(20)]).long()
    found = []
    for weights in (None, (1.0, 19.0)):
        net = nn.Linear(2, 2)
        likelihood = lb.Categorical(class_weights=weights)
        config = lb.FitConfig(epochs=20, lr=0.1, batch_size=100, seed=0, batchnorm="train")
        model = lb.adapt(net, lb.MAP(), (x, y), likelihood=likelihood, config=config).model
        found.append(lb.predict(model, x, likelihood=likelihood).probs[:, 1])
    # A fitted intercept makes the (weighted) mean probability that of the labels.
    assert found[0].mean().item() == pytest.approx(20 / 400, abs=0.03)
    balanced = (found[1][y == 0].mean() + found[1][y == 1].mean()) / 2
    assert balanced.item() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "weights", [[], [1.0, 0.0], [1.0, -2.0], [1.0, float("nan")], [[1.0, 2.0]], "heavy", [None]]
)
def test_weights_must_be_positive_numbers(weights):
    with pytest.raises(lb.ConfigError, match="class_weights must be a positive number a class"):
        lb.Categorical(class_weights=weights)


def test_weights_for_other_classes_are_refused():
    with pytest.raises(lb.ConfigError, match="class_weights has 3 numbers for outputs of 4"):
        lb.Categorical(class_weights=WEIGHTS).log_prob(torch.zeros(2, 4), torch.tensor([0, 1]))


def test_mixtures_and_laplace_refuse_class_weights():
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    weighted = lb.Categorical(class_weights=[1.0, 2.0, 3.0])
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
    options = {"num_data": 6, "samples": 2, "likelihood_of": "mixture"}
    with pytest.raises(lb.ConfigError, match="likelihood_of='average'"):
        lb.objective(model, (x, y), weighted, **options)
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.Laplace())
    with pytest.raises(lb.ConfigError, match="class_weights"):
        lb.fit_posterior(model, [(x, y)], weighted)
