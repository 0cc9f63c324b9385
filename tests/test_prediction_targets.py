"""Predictions of several targets, of maps, and of targets that do not fit."""

import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.prediction import Classification, Regression

D = torch.distributions
F64 = torch.float64


def sampled(net, x, likelihood, **options):
    model = lb.bayesianize(net.to(F64), lb.MeanField(init_std=0.6))
    return lb.predict(model, x, likelihood=likelihood, seed=0, keep_samples=True, **options)


def numbers(samples=7, targets=3):
    x = torch.randn(5, 4, dtype=F64)
    return sampled(nn.Linear(4, targets), x, lb.Gaussian(precision=2.0), samples=samples)


def test_the_joint_density_of_several_targets_is_one_mixture_a_row():
    p, y = numbers(), torch.randn(5, 3, dtype=F64)
    rows = D.Independent(D.Normal(p.samples[..., 0].transpose(0, 1), 0.5**0.5), 1)
    weights = D.Categorical(torch.ones(5, 7, dtype=F64))
    joint = D.MixtureSameFamily(weights, rows).log_prob(y)
    torch.testing.assert_close(p.log_density(y), joint)
    assert not torch.allclose(p.log_prob(y).sum(1), joint)


def test_each_target_has_a_density_and_an_interval_of_its_own():
    p, y = numbers(), torch.randn(5, 3, dtype=F64)
    lower, upper = p.interval(0.5)
    for t in range(3):
        part = Regression(
            p.samples[:, :, t : t + 1],
            p.weights,
            *(v[:, t : t + 1] for v in (p.mean, p.aleatoric, p.epistemic)),
        )
        torch.testing.assert_close(p.log_prob(y)[:, t], part.log_density(y[:, t]))
        torch.testing.assert_close(lower[:, t], part.interval(0.5)[0][:, 0])
        torch.testing.assert_close(upper[:, t], part.interval(0.5)[1][:, 0])


def test_one_sample_makes_joint_and_single_densities_agree():
    p, y = numbers(samples=1), torch.randn(5, 3, dtype=F64)
    torch.testing.assert_close(p.log_prob(y).sum(1), p.log_density(y))
    expected = lb.Gaussian(precision=2.0).log_prob(p.mean, y)
    torch.testing.assert_close(p.log_density(y), expected)


def test_the_log_predictive_density_is_the_metric_of_that_name():
    p, y = numbers(), torch.randn(5, 3, dtype=F64)
    expected = lb.metrics.log_predictive_density(p.samples[..., 0], y, noise_variance=0.5)
    torch.testing.assert_close(p.log_prob(y).mean(), expected)


def test_maps_of_numbers_have_a_joint_density_a_pixel():
    x, y = torch.randn(3, 2, 4, 5, dtype=F64), torch.randn(3, 2, 4, 5, dtype=F64)
    p = sampled(nn.Conv2d(2, 2, 1), x, lb.Gaussian(), samples=4)
    logs = D.Normal(p.samples[..., 0], 1.0).log_prob(y).sum(2)
    torch.testing.assert_close(p.log_density(y), logs.logsumexp(0) - math.log(4))


def test_several_binary_targets_are_told_apart():
    x, y = torch.randn(6, 4, dtype=F64), torch.randint(0, 2, (6, 3))
    p = sampled(nn.Linear(4, 3), x, lb.Bernoulli(), samples=9)
    assert p.probs.shape == p.total.shape == p.epistemic.shape == (6, 3)
    for t in range(3):
        both = torch.stack([1 - p.samples[..., t], p.samples[..., t]], 2)
        weights = p.weights
        two = Classification(both, weights, both.mean(0), D.Categorical(both).entropy().mean(0))
        torch.testing.assert_close(p.total[:, t], two.total)
        torch.testing.assert_close(p.epistemic[:, t], two.epistemic)
        torch.testing.assert_close(p.log_prob(y)[:, t], two.log_prob(y[:, t]))
        assert torch.equal(p.label[:, t], two.label)


@pytest.mark.parametrize("wrong", [-1.0, 255.0, math.nan])
def test_labels_that_are_no_yes_and_no_no_are_refused(wrong):
    """Labels -1 have a loss without a lower end, and a missing one is no 'no'."""
    y = torch.tensor([[1.0], [wrong]])
    p = lb.predict(
        lb.bayesianize(nn.Linear(2, 1), lb.MAP()), torch.zeros(2, 2), likelihood=lb.Bernoulli()
    )
    with pytest.raises(lb.ConfigError, match=f"label {wrong:g}: expected 0 or 1"):
        p.log_prob(y)
    if not math.isnan(wrong):
        with pytest.raises(lb.ConfigError, match=f"label {wrong:g} of a Bernoulli"):
            lb.Bernoulli().log_prob(torch.zeros(2, 1), y)
    assert lb.Bernoulli().log_prob(torch.zeros(2, 1), y.clamp(0.1, 0.9).nan_to_num(0)).shape == (
        2,
        1,
    )


def test_probabilities_as_binary_labels_have_the_loss_of_training():
    """Training takes them; a figure of the labels that they are nearest to would be another one."""
    x, y = torch.randn(6, 4, dtype=F64), torch.rand(6, 3, dtype=F64)
    model = lb.bayesianize(nn.Linear(4, 3).to(F64), lb.MAP(), likelihood=lb.Bernoulli())
    p = lb.predict(model, x)
    expected = lb.Bernoulli().log_prob(model.eval()(x), y)
    torch.testing.assert_close(p.log_prob(y), expected, rtol=1e-12, atol=1e-12)
    config = lb.FitConfig(steps=1, batch_size=6, lr=0.1, progress=False)
    figures = lb.fit(model, (x, y), lb.Bernoulli(), validation=(x, y), config=config).history[-1]
    p = lb.predict(model, x)
    assert figures["nll"] == pytest.approx(-p.log_prob(y).mean().item())
    assert figures["accuracy"] == pytest.approx((p.label == y.round()).double().mean().item())
    assert figures["accuracy"] > 0


def test_a_vector_of_binary_labels_fits_a_column_of_probabilities():
    x, y = torch.randn(6, 4, dtype=F64), torch.randint(0, 2, (6,))
    p = sampled(nn.Linear(4, 1), x, lb.Bernoulli(), samples=3)
    assert torch.equal(p.log_prob(y), p.log_prob(y[:, None]))


def test_entropy_maps_are_those_of_each_pixel():
    x = torch.randn(2, 3, 4, 5, dtype=F64)
    p = sampled(nn.Conv2d(3, 6, 1), x, lb.Categorical(ignore_index=255), samples=8)
    by_pixel = p.samples.movedim(2, -1)
    total = D.Categorical(by_pixel.mean(0)).entropy()
    aleatoric = D.Categorical(by_pixel).entropy().mean(0)
    torch.testing.assert_close(p.total, total)
    torch.testing.assert_close(p.epistemic, total - aleatoric)
    y = torch.randint(0, 6, (2, 4, 5))
    torch.testing.assert_close(p.log_prob(y), D.Categorical(by_pixel.mean(0)).log_prob(y))


@pytest.mark.parametrize(
    ("net", "likelihood"),
    [
        (nn.Linear(4, 3), lb.Gaussian(target_mean=(1.0, 2.0, 3.0), target_std=2.0)),
        (nn.Linear(4, 6), lb.HeteroscedasticGaussian(target_std=(1.0, 2.0, 3.0))),
        (nn.Linear(4, 3), lb.Bernoulli()),
        (nn.Linear(4, 3), lb.Categorical(class_weights=(1.0, 2.0, 3.0))),
    ],
    ids=lambda v: type(v).__name__,
)
def test_predictions_of_batches_are_those_of_the_whole(net, likelihood):
    model = lb.bayesianize(net.to(F64), lb.MeanField(init_std=0.6))
    x = torch.randn(6, 4, dtype=F64)
    options = {"likelihood": likelihood, "samples": 4, "seed": 0, "keep_samples": True}
    whole = lb.predict(model, x, **options)
    joined = lb.predict(model, iter([(x[:4], None), (x[4:], None)]), **options).to("cpu")
    assert len(joined) == 6
    for name in ("samples", "total", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(joined, name), getattr(whole, name))
    chunked = lb.predict(model, x, chunk=3, **options)
    torch.testing.assert_close(chunked.total, whole.total)


@pytest.mark.parametrize(
    ("outputs", "likelihood", "target", "words"),
    [
        (3, lb.Categorical(), torch.tensor([0, 1, 2, 255, 0, 0]), "label 255 is none of the 3"),
        (3, lb.Categorical(), torch.tensor([0, 1, 2, -100, 0, 0]), "label -100 is none"),
        (3, lb.Categorical(), torch.zeros(6), "whole-number labels"),
        (3, lb.Categorical(), torch.zeros(5).long(), "whole-number labels"),
        (2, lb.Bernoulli(), torch.zeros(6), "do not fit predictions"),
        (2, lb.Gaussian(), torch.zeros(2, 6), "do not fit predictions"),
    ],
)
def test_targets_that_do_not_fit_are_refused(outputs, likelihood, target, words):
    p = sampled(nn.Linear(4, outputs), torch.randn(6, 4, dtype=F64), likelihood, samples=2)
    with pytest.raises(lb.ConfigError, match=words):
        p.log_prob(target)


def test_targets_of_another_order_are_refused():
    """As many numbers, of a map on its side: they were read as they lay."""
    p = sampled(nn.Conv2d(1, 1, 1), torch.randn(3, 1, 4, 5, dtype=F64), lb.Bernoulli(), samples=2)
    assert p.log_prob(torch.zeros(3, 4, 5)).shape == (3, 1, 4, 5)
    with pytest.raises(lb.ConfigError, match="do not fit predictions"):
        p.log_prob(torch.zeros(3, 5, 4))
