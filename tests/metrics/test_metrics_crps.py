"""CRPS against its integral, closed forms written with scipy, torchmetrics and all pairs."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from leanbayes.errors import DataError
from leanbayes.metrics import crps_gaussian, crps_mixture, crps_samples, log_predictive_density


def mixtures(cases=200, samples=None):
    """Means [S, 2, 3], variances of their shape and targets [2, 3], wide and narrow."""
    generator = torch.Generator().manual_seed(5)
    for number in range(cases):
        count = samples or 1 + number % 6
        means = 3 * torch.randn(count, 2, 3, dtype=torch.float64, generator=generator)
        log_std = torch.randn(count, 2, 3, dtype=torch.float64, generator=generator)
        target = 3 * torch.randn(2, 3, dtype=torch.float64, generator=generator)
        yield means, (2 * log_std).exp(), target


def test_a_gaussian_equals_the_closed_form():
    for means, variance, target in mixtures(samples=1):
        mean, std = means[0].numpy(), variance[0].sqrt().numpy()
        z = (target.numpy() - mean) / std
        cdf, pdf = stats.norm.cdf(z), stats.norm.pdf(z)
        expected = (std * (z * (2 * cdf - 1) + 2 * pdf - 1 / math.sqrt(math.pi))).mean()
        found = crps_gaussian(means[0], target, variance[0]).item()
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-13)


def integral(distribution, target, edges):
    """int (F - 1[z >= target])^2 by quadrature, left and right of the jump."""
    options = {"limit": 400, "epsabs": 1e-10, "epsrel": 1e-10}
    low, high = edges
    left = integrate.quad(lambda z: distribution(z) ** 2, low, target, **options)[0]
    return left + integrate.quad(lambda z: (1 - distribution(z)) ** 2, target, high, **options)[0]


@pytest.mark.parametrize(
    ("mean", "std", "target"), [(0.0, 1.0, 0.3), (2.0, 0.5, -1.0), (1.0, 3.0, 1.0)]
)
def test_a_gaussian_equals_the_integral(mean, std, target):
    edges = min(mean - 12 * std, target - 1), max(mean + 12 * std, target + 1)
    expected = integral(lambda z: stats.norm.cdf(z, mean, std), target, edges)
    found = crps_gaussian(torch.tensor([mean]), torch.tensor([target]), std**2).item()
    assert found == pytest.approx(expected, abs=1e-7)


def test_a_mixture_equals_the_integral_on_a_grid():
    grid = np.linspace(-60, 60, 24001)
    for means, variance, target in mixtures(cases=200):
        means, variance, target = means[:, 0, 0], variance[:, 0, 0], target[0, 0]
        std = variance.sqrt().numpy()
        cdf = stats.norm.cdf((grid[:, None] - means.numpy()) / std).mean(1)
        lower = integrate.trapezoid(np.where(grid < target.item(), cdf, 1 - cdf) ** 2, grid)
        found = crps_mixture(means, target, variance).item()
        assert found == pytest.approx(lower, abs=5e-3)


def test_a_mixture_equals_the_closed_form_over_all_pairs():
    def size(mean, variance):
        z = mean / np.sqrt(variance)
        return mean * (2 * stats.norm.cdf(z) - 1) + 2 * np.sqrt(variance) * stats.norm.pdf(z)

    for means, variance, target in mixtures():
        m, v = means.numpy(), variance.numpy()
        near = size(target.numpy() - m, v).mean()
        apart = size(m[:, None] - m, v[:, None] + v).mean()
        found = crps_mixture(means, target, variance).item()
        assert found == pytest.approx(near - apart / 2, rel=1e-11)


def test_equal_components_are_one_gaussian():
    means, variance, target = next(mixtures(samples=1))
    expected = crps_gaussian(means[0], target, variance[0]).item()
    repeated = crps_mixture(means.expand(7, 2, 3), target, variance).item()
    assert repeated == pytest.approx(expected, rel=1e-12)


def test_samples_equal_all_pairs_and_torchmetrics():
    functional = pytest.importorskip("torchmetrics.functional.regression")
    for number, (samples, _, target) in enumerate(mixtures(samples=None)):
        if number % 3 == 0:
            samples = samples.round()  # ties
        apart = (samples[:, None] - samples).abs().mean((0, 1))
        expected = ((samples - target).abs().mean(0) - apart / 2).mean().item()
        found = crps_samples(samples, target).item()
        assert found == pytest.approx(expected, abs=1e-13)
        if len(samples) > 1:
            flat = samples.reshape(len(samples), -1).T, target.flatten()
            peer = functional.continuous_ranked_probability_score(*flat).item()
            assert found == pytest.approx(peer, abs=1e-13)


def test_narrow_components_are_samples():
    for samples, _, target in mixtures(cases=20):
        expected = crps_samples(samples, target).item()
        assert crps_mixture(samples, target, 1e-16).item() == pytest.approx(expected, abs=1e-7)


def test_many_samples_approach_the_gaussian():
    generator = torch.Generator().manual_seed(6)
    draws = 1 + 2 * torch.randn(20000, 3, dtype=torch.float64, generator=generator)
    target = torch.tensor([-2.0, 1.0, 4.0], dtype=torch.float64)
    expected = crps_gaussian(torch.ones(3), target, 4.0).item()
    assert crps_samples(draws, target).item() == pytest.approx(expected, abs=0.02)


def test_one_sample_has_the_absolute_error_and_a_perfect_one_none():
    samples, target = torch.tensor([[1.0, -2.0]]), torch.tensor([2.0, 1.0])
    assert crps_samples(samples, target).item() == 2.0
    assert crps_samples(target.expand(5, 2), target).item() == 0.0


def test_far_from_0_nothing_cancels():
    samples = torch.tensor([[1e9], [1e9 + 1]], dtype=torch.float64)
    assert crps_samples(samples, torch.tensor([1e9 + 1], dtype=torch.float64)).item() == 0.25


def test_one_variance_a_sample_broadcasts_as_in_the_density():
    means, _, target = next(mixtures(samples=4))
    variance = torch.tensor([0.1, 0.5, 1.0, 2.0]).double().reshape(4, 1, 1)
    expected = crps_mixture(means, target, variance.expand(4, 2, 3)).item()
    assert crps_mixture(means, target, variance).item() == expected
    assert log_predictive_density(means, target, variance).isfinite()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: crps_gaussian(x * math.nan, x, 1.0), "means holds 2 of 2 values that are NaN"),
        (lambda x: crps_mixture(x[None], x / 0, 1.0), "target holds 2 of 2 .* NaN or infinite"),
        (lambda x: crps_samples(x[None] / 0, x), "samples holds 2 of 2 .* NaN or infinite"),
        (lambda x: crps_gaussian(x, x, 0.0), "noise_variance reaches down to 0"),
        (lambda x: crps_gaussian(x[:, None], x, 1.0), r"mean has shape \(2, 1\)"),
        (lambda x: crps_samples(x, x), r"expected samples \[S, \*target\.shape\]"),
        (lambda x: crps_samples(x[:0, None], x[:1]), "samples is empty"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call(torch.ones(2))
