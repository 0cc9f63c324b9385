"""Predictions of the three likelihoods against their definitions."""

import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.prediction import Regression, entropy

F64 = torch.float64


def linear_model(outputs, std=0.3):
    net = nn.Linear(4, outputs).to(F64)
    return lb.bayesianize(net, lb.MeanField(init_std=std)), torch.randn(6, 4, dtype=F64)


def test_classification_decomposes_entropy():
    model, x = linear_model(5, std=1.0)
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=9, seed=0, keep_samples=True)
    mean = p.samples.mean(0)
    total = -(mean * mean.log()).sum(1)
    aleatoric = -(p.samples * p.samples.log()).sum(2).mean(0)
    torch.testing.assert_close(p.total, total, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(p.aleatoric, aleatoric, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(p.epistemic, total - aleatoric, rtol=1e-8, atol=1e-12)
    assert torch.equal(p.label, mean.argmax(1))
    torch.testing.assert_close(p.confidence, mean.max(1).values)
    y = torch.tensor([0, 1, 2, 3, 4, 0])
    torch.testing.assert_close(p.log_prob(y), mean[torch.arange(6), y].log())


def test_nll_of_the_mean_is_the_log_sum_exp_of_the_samples():
    model, x = linear_model(3, std=1.0)
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=7, seed=0, keep_samples=True)
    y = torch.arange(6) % 3
    logs = p.samples.log()[:, torch.arange(6), y]
    torch.testing.assert_close(p.log_prob(y), logs.logsumexp(0) - math.log(7))


def test_certain_and_impossible_classes_give_finite_entropies():
    probs = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=F64)
    torch.testing.assert_close(entropy(probs, 1), torch.tensor([0.0, math.log(2)], dtype=F64))
    net = nn.Linear(4, 3).to(F64)
    with torch.no_grad():
        net.weight.mul_(1e4)
    model = lb.bayesianize(net, lb.MeanField(init_std=100.0))
    p = lb.predict(model, torch.randn(5, 4, dtype=F64), likelihood=lb.Categorical(), samples=4)
    assert p.total.isfinite().all()
    assert p.epistemic.isfinite().all()


def test_one_output_keeps_small_probabilities_of_no_as_of_yes():
    """1 - P(y = 1) is exactly 0 from a logit of 37 on; two outputs of the same logits know more."""
    logits = torch.tensor([[60.0], [38.0], [2.0], [-38.0], [-60.0]])
    one, two = nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        one.weight.fill_(1.0)
        two.weight.copy_(torch.tensor([[0.0], [1.0]]))
    models = [
        lb.bayesianize(one, lb.MAP(), likelihood=lb.Bernoulli()),
        lb.bayesianize(two, lb.MAP(), likelihood=lb.Categorical()),
    ]
    found, wanted = (lb.predict(model, logits) for model in models)
    for y in (torch.zeros(5).long(), torch.ones(5).long()):
        torch.testing.assert_close(found.log_prob(y).flatten(), wanted.log_prob(y))
    for name in ("total", "aleatoric"):
        torch.testing.assert_close(getattr(found, name).flatten(), getattr(wanted, name))
    suite = lb.Suite.of((logits, torch.zeros(5).long()), "test", sweep=True)
    nll = [lb.evaluate(model, suite, progress=False)["summary"]["nll"] for model in models]
    assert nll == pytest.approx([100.1269 / 5] * 2, rel=1e-4)


def test_dense_classification_is_by_pixel():
    net = nn.Conv2d(2, 4, 3, padding=1).to(F64)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3))
    x = torch.randn(3, 2, 5, 6, dtype=F64)
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=5, seed=1, keep_samples=True)
    assert p.probs.shape == (3, 4, 5, 6)
    assert p.epistemic.shape == (3, 5, 6)
    mean = p.samples.mean(0)
    torch.testing.assert_close(p.total, -(mean * mean.log()).sum(1), rtol=1e-10, atol=1e-12)
    assert (p.epistemic > 0).all()
    assert torch.equal(p.label, mean.argmax(1))


def test_binary_classification_is_the_two_class_case():
    model, x = linear_model(1, std=1.0)
    p = lb.predict(model, x, likelihood=lb.Bernoulli(), samples=6, seed=2, keep_samples=True)
    both = torch.stack([p.samples, 1 - p.samples], -1)
    mean = both.mean(0)
    torch.testing.assert_close(p.total, -(mean * mean.log()).sum(-1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        p.aleatoric, -(both * both.log()).sum(-1).mean(0), rtol=1e-10, atol=1e-12
    )
    assert torch.equal(p.label, (p.probs > 0.5).long())
    torch.testing.assert_close(p.log_prob(torch.ones(6, 1)), p.probs.log())


def test_regression_splits_the_variance():
    model, x = linear_model(2)
    p = lb.predict(
        model, x, likelihood=lb.Gaussian(precision=4.0), samples=50, seed=3, keep_samples=True
    )
    means = p.samples[..., 0]
    torch.testing.assert_close(p.mean, means.mean(0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(p.epistemic, means.var(0, unbiased=False), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(p.aleatoric, torch.full((6, 2), 0.25, dtype=F64))
    torch.testing.assert_close(p.std, (p.aleatoric + p.epistemic).sqrt())


def test_many_samples_reach_the_exact_predictive_of_a_linear_model():
    model, x = linear_model(1)
    p = lb.predict(model, x, likelihood=lb.Gaussian(precision=1.0), samples=4000, seed=0)
    exact = 0.09 * (x.square().sum(1, keepdim=True) + 1)
    assert ((p.epistemic / exact - 1).abs() < 0.12).all()


def mixture(means, noise, weights=None):
    S = means.shape[0]
    weights = torch.full((S,), 1 / S, dtype=F64) if weights is None else weights
    mean = torch.einsum("s,s...->...", weights, means)
    spread = torch.einsum("s,s...->...", weights, means.square()) - mean.square()
    samples = torch.stack([means, noise.expand_as(means)], -1)
    return Regression(samples, weights, mean, noise.expand_as(mean), spread)


def test_interval_and_density_are_those_of_the_mixture():
    means = torch.tensor([[[-3.0]], [[3.0]]], dtype=F64)
    p = mixture(means, torch.tensor(0.04, dtype=F64))
    lower, upper = p.interval(0.9)
    # Each half of a well separated mixture: the 5 % quantile is the 10 % quantile of the left one.
    z = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(0.1))
    assert abs(lower.item() - (-3 + 0.2 * z)) < 1e-3
    assert abs(upper.item() - (3 - 0.2 * z)) < 1e-3
    y = torch.tensor([[2.9]], dtype=F64)
    reference = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.tensor([0.5, 0.5], dtype=F64)),
        torch.distributions.Normal(torch.tensor([-3.0, 3.0], dtype=F64), 0.2),
    ).log_prob(y)
    torch.testing.assert_close(p.log_prob(y), reference)


def test_interval_without_samples_is_the_gaussian_one():
    model, x = linear_model(1)
    p = lb.predict(model, x, likelihood=lb.Gaussian(), samples=5, seed=0)
    lower, upper = p.interval(0.95)
    torch.testing.assert_close(upper - p.mean, 1.959963984540054 * p.std)
    torch.testing.assert_close(p.mean - lower, 1.959963984540054 * p.std)
    with pytest.raises(lb.ConfigError, match="keep_samples=True"):
        p.log_prob(torch.zeros(6, 1, dtype=F64))
    with pytest.raises(lb.ConfigError, match="between 0 and 1"):
        p.interval(1.5)


def test_interval_covers_what_it_says():
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(40, 1, 1, dtype=F64, generator=generator)
    p = mixture(means, torch.tensor(0.25, dtype=F64))
    lower, upper = p.interval(0.8)
    pick = torch.randint(40, (20_000,), generator=generator)
    y = means[pick, 0, 0] + 0.5 * torch.randn(20_000, dtype=F64, generator=generator)
    inside = ((y > lower.item()) & (y < upper.item())).double().mean()
    assert abs(inside - 0.8) < 0.012


def test_predictions_of_batches_join_and_move():
    model, x = linear_model(3)
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 0, "keep_samples": True}
    whole = lb.predict(model, x, **options)
    parts = [lb.predict(model, x[i : i + 2], **options) for i in (0, 2, 4)]
    joined = type(whole).cat(parts)
    torch.testing.assert_close(joined.samples, whole.samples, rtol=1e-12, atol=1e-12)
    assert len(joined) == 6
    assert joined.to("cpu").probs.device.type == "cpu"


def test_a_prediction_prints_in_one_line():
    model, x = linear_model(5)
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=3, seed=0)
    means = f"total={p.total.mean():.4g}, aleatoric={p.aleatoric.mean():.4g}"
    assert repr(p).startswith(f"Classification(probs [6, 5] of 3 samples; mean {means}, epistemic=")
    y = lb.predict(model, x, likelihood=lb.Gaussian(), samples=3, seed=0, keep_samples=True)
    assert repr(y).startswith("Regression(mean [6, 5] of 3 samples; mean total=")
    b = lb.predict(model, x, likelihood=lb.Bernoulli(), samples=3, seed=0)
    assert str(b).startswith("BinaryClassification(probs [6, 5] of 3 samples; mean total=")
