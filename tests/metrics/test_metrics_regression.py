import math

import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error

from leanbayes.metrics import interval_coverage, log_predictive_density, rmse


@pytest.fixture(scope="module")
def mixtures():
    """200 triples: means [S, B, T], target [B, T], variance as a number or a tensor."""
    generator = torch.Generator().manual_seed(22)
    cases = []
    for number in range(200):
        S, B, T = 1 + number % 7, 1 + number % 11, 1 + number % 3
        means = 3 * torch.randn(S, B, T, generator=generator, dtype=torch.float64)
        target = 3 * torch.randn(B, T, generator=generator, dtype=torch.float64)
        shape = [(), (T,), (B, 1), (B, T), (S, 1, 1), (S, B, T)][number % 6]
        variance = 0.05 + 2 * torch.rand(shape, generator=generator, dtype=torch.float64)
        cases.append((means, target, variance.item() if shape == () else variance))
    return cases


def test_density_equals_scipy(mixtures):
    for means, target, variance in mixtures:
        std = torch.as_tensor(variance, dtype=torch.float64).sqrt().numpy()
        log_pdf = norm.logpdf(target.numpy(), loc=means.numpy(), scale=std)
        expected = (logsumexp(log_pdf, axis=0) - math.log(len(means))).mean()
        value = log_predictive_density(means, target, variance).item()
        assert value == pytest.approx(expected, rel=1e-12)


def test_rmse_equals_scikit_learn(mixtures):
    for means, target, _ in mixtures:
        expected = root_mean_squared_error(target.reshape(-1), means[0].reshape(-1))
        assert rmse(means[0], target).item() == pytest.approx(expected, rel=1e-12)


def test_coverage_equals_a_loop(mixtures):
    for means, target, _ in mixtures:
        lower, upper = means.amin(dim=0), means.amax(dim=0)
        flat = [values.reshape(-1).tolist() for values in (lower, target, upper)]
        inside = [low <= y <= high for low, y, high in zip(*flat, strict=True)]
        assert interval_coverage(lower, upper, target).item() == sum(inside) / len(inside)


def test_equal_samples_are_one_gaussian():
    means, target = torch.full((8, 2, 1), 1.0), torch.tensor([[0.0], [3.0]])
    # Squared errors 1 and 4, mean 2.5, over twice the variance.
    expected = -0.5 * math.log(2 * math.pi * 0.1) - 2.5 / (2 * 0.1)
    value = log_predictive_density(means, target, noise_variance=0.1).item()
    assert value == pytest.approx(expected, rel=1e-14)


def test_two_symmetric_samples_in_closed_form():
    means, target = torch.tensor([[[-2.0]], [[2.0]]]), torch.zeros(1, 1)
    expected = -0.5 * math.log(2 * math.pi * 4.0) - 0.5
    value = log_predictive_density(means, target, noise_variance=4.0).item()
    assert value == pytest.approx(expected, rel=1e-15)


def test_density_does_not_underflow():
    means, target = torch.tensor([[0.0], [0.0]]), torch.tensor([1000.0])
    expected = -0.5 * math.log(2 * math.pi) - 500_000
    assert log_predictive_density(means, target, 1.0).item() == pytest.approx(expected, rel=1e-15)


def test_one_element_and_perfect_predictions():
    assert rmse(torch.tensor([2.0]), torch.tensor([-1.0])).item() == 3.0
    assert rmse(torch.ones(3, 2), torch.ones(3, 2)).item() == 0.0
    peak = log_predictive_density(torch.ones(4, 3, 2), torch.ones(3, 2), 0.25).item()
    assert peak == pytest.approx(-0.5 * math.log(2 * math.pi * 0.25), rel=1e-14)


def test_interval_ends_belong_to_it_and_may_be_infinite():
    target = torch.tensor([0.0, 1.0, -0.1, 1.1])
    lower, upper = torch.zeros(4), torch.ones(4)
    assert interval_coverage(lower, upper, target).item() == 0.5
    assert interval_coverage(lower - math.inf, upper, target).item() == 0.75
    assert interval_coverage(lower - math.inf, upper + math.inf, target).item() == 1.0
    assert interval_coverage(target, target, target).item() == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_is_computed_in_float64(dtype, mixtures):
    for means, target, variance in mixtures[::5]:
        low, aim = means.to(dtype), target.to(dtype)
        expected = rmse(low[0].double(), aim.double())
        assert rmse(low[0], aim).item() == expected.item()
        value = log_predictive_density(low, aim, variance)
        expected = log_predictive_density(low.double(), aim.double(), variance)
        assert value.dtype == torch.float64
        assert value.item() == expected.item()


def test_results_are_detached():
    ones = torch.ones(2, 1, requires_grad=True)
    values = [
        rmse(ones, torch.zeros(2, 1)),
        log_predictive_density(ones[None], torch.ones(2, 1), ones),
        interval_coverage(ones - 1, ones + 1, torch.zeros(2, 1)),
    ]
    assert not any(value.requires_grad for value in values)
    gaussian = -0.5 * math.log(2 * math.pi)
    assert [float(value) for value in values] == pytest.approx([1.0, gaussian, 1.0], rel=1e-14)


@pytest.mark.parametrize(
    ("mean", "target", "message"),
    [
        (torch.zeros(3, 1), torch.zeros(3), r"mean has shape \(3, 1\); .* target, \(3,\)\. Write"),
        (torch.zeros(0), torch.zeros(0), r"target is empty, shape \(0,\); expected one element"),
        (torch.tensor([math.inf]), torch.zeros(1), r"mean holds 1 of 1 values that are NaN or inf"),
        (torch.zeros(1), torch.tensor([math.nan]), r"target holds 1 of 1 .* expected finite"),
    ],
)
def test_rmse_refuses(mean, target, message):
    with pytest.raises(ValueError, match=message):
        rmse(mean, target)


@pytest.mark.parametrize(
    ("shape", "target", "variance", "message"),
    [
        ((3, 1), torch.zeros(3, 1), 1.0, r"means has shape \(3, 1\) and target \(3, 1\); expected"),
        ((), torch.zeros(()), 1.0, r"means has shape \(\) .* expected means \[S, \*target.shape\]"),
        ((0, 3, 1), torch.zeros(3, 1), 1.0, r"means is empty, shape \(0, 3, 1\)"),
        ((2, 3, 1), torch.full((3, 1), math.nan), 1.0, r"target holds 3 of 3 values"),
        ((2, 3, 1), torch.zeros(3, 1), 0.0, r"down to 0; expected a variance above 0\. Write"),
        ((2, 3, 1), torch.zeros(3, 1), -1.0, r"noise_variance reaches down to -1; expected"),
        ((2, 3, 1), torch.zeros(3, 1), math.nan, r"noise_variance holds 1 of 1 values"),
        ((2, 3, 1), torch.zeros(3, 1), torch.ones(3), r"shape \(3,\); expected one that broadcast"),
        ((2, 3, 1), torch.zeros(3, 1), torch.ones(1, 1, 1, 1), r"shape \(1, 1, 1, 1\); expected"),
    ],
)
def test_density_refuses(shape, target, variance, message):
    with pytest.raises(ValueError, match=message):
        log_predictive_density(torch.zeros(shape), target, variance)


@pytest.mark.parametrize(
    ("lower", "upper", "target", "message"),
    [
        ([1.0, 1.0], [0.0, 2.0], [1.0, 1.0], r"lower is above upper in 1 of 2 intervals; expected"),
        ([0.0], [1.0, 1.0], [1.0, 1.0], r"lower has shape \(1,\); expected the shape of target"),
        ([0.0, 0.0], [1.0], [1.0, 1.0], r"upper has shape \(1,\); expected the shape of target"),
        ([math.nan], [1.0], [1.0], r"lower holds 1 of 1 values that are NaN; expected numbers"),
        ([0.0], [math.nan], [1.0], r"upper holds 1 of 1 values that are NaN; expected numbers"),
        ([0.0], [1.0], [math.inf], r"target holds 1 of 1 values that are NaN or infinite"),
        ([], [], [], r"target is empty"),
    ],
)
def test_coverage_refuses(lower, upper, target, message):
    with pytest.raises(ValueError, match=message):
        interval_coverage(torch.tensor(lower), torch.tensor(upper), torch.tensor(target))
