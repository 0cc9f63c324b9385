"""Targets in raw units, outputs in standard ones; noise that the network predicts."""

import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.train.data import num_elements

D = torch.distributions
F64 = torch.float64
MEAN, STD = (10.0, -3.0), (2.0, 0.5)


def pairs(targets=2):
    return torch.randn(6, targets, dtype=F64), 5 * torch.randn(6, targets, dtype=F64)


def test_scaled_outputs_have_the_density_of_torch_distributions_in_raw_units():
    output, y = pairs()
    likelihood = lb.Gaussian(precision=4.0, target_mean=MEAN, target_std=STD)
    raw = torch.tensor(MEAN, dtype=F64) + torch.tensor(STD, dtype=F64) * output
    torch.testing.assert_close(
        likelihood.log_prob(output, y), D.Normal(raw, 0.5).log_prob(y).sum(1)
    )


def test_a_precision_a_target_is_that_of_its_column():
    output, y = pairs()
    likelihood = lb.Gaussian(precision=[4.0, 0.25], target_mean=1.0)
    noise = torch.tensor([0.5, 2.0], dtype=F64)
    expected = D.Normal(1.0 + output, noise).log_prob(y).sum(1)
    torch.testing.assert_close(likelihood.log_prob(output, y), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_network_that_is_cast_keeps_the_digits_of_its_targets(dtype):
    """In bfloat16 a mean of 300.7 would be 300, and a variance of 1e4 one of 9,800."""
    net = nn.Linear(4, 2)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    own = lb.Gaussian(precision=[1e-4, 4.0], target_mean=[300.7, -1.3], target_std=[1.9, 0.3])
    model = lb.bayesianize(net, lb.MAP(), likelihood=own)
    model.to(dtype)
    p = lb.predict(model, torch.zeros(1, 4, dtype=dtype))
    torch.testing.assert_close(p.mean, torch.tensor([[300.7, -1.3]], dtype=F64))
    torch.testing.assert_close(p.aleatoric, torch.tensor([[1e4, 0.25]], dtype=F64))
    model.to("meta")
    assert {b.device.type for b in own.buffers()} == {"meta"}


def test_targets_far_from_0_are_centred_in_their_own_type():
    """Seconds since 1970: float32 holds every 128th of them."""
    mean = 1.7e9 + 37
    own = lb.Gaussian(precision=1e-6, target_mean=mean, target_std=1000.0)
    y = torch.tensor([[mean + 500.0]], dtype=F64)
    expected = D.Normal(torch.tensor(mean, dtype=F64), 1000.0).log_prob(y).flatten()
    torch.testing.assert_close(own.log_prob(torch.zeros(1, 1), y), expected)


def test_the_objective_differs_from_that_of_standardised_targets_by_ln_std():
    model = lb.bayesianize(nn.Linear(4, 1).to(F64), lb.MeanField())
    x, y = torch.randn(8, 4, dtype=F64), 7 + 3 * torch.randn(8, 1, dtype=F64)
    raw = lb.Gaussian(precision=0.5, target_mean=7.0, target_std=3.0)
    standard = lb.Gaussian(precision=0.5 * 9)
    losses, grads = [], []
    for batch, likelihood in [((x, y), raw), ((x, (y - 7) / 3), standard)]:
        torch.manual_seed(1)
        model.zero_grad()
        found = lb.objective(model, batch, likelihood, num_data=100)
        found.loss.backward()
        losses.append(found.loss)
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(losses[0] - losses[1], torch.tensor(math.log(3), dtype=F64))
    torch.testing.assert_close(grads[0], grads[1])


def test_maps_of_targets_take_the_scale_of_their_channel():
    output, y = torch.randn(3, 2, 4, 5, dtype=F64), torch.randn(3, 2, 4, 5, dtype=F64)
    likelihood = lb.Gaussian(target_mean=MEAN, target_std=STD)
    shift, scale = (torch.tensor(v, dtype=F64).reshape(2, 1, 1) for v in (MEAN, STD))
    expected = D.Normal(shift + scale * output, 1.0).log_prob(y).sum(1)  # of every pixel
    torch.testing.assert_close(likelihood.log_prob(output, y), expected)


def test_a_learnt_precision_in_raw_units_ends_at_the_reciprocal_variance():
    likelihood = lb.Gaussian(learn=True, target_mean=5.0, target_std=(4.0, 0.1))
    y = 5 + torch.tensor([2.0, 0.3], dtype=F64) * torch.randn(3000, 2, dtype=F64)
    optimizer = torch.optim.LBFGS(likelihood.parameters(), max_iter=60)

    def closure():
        optimizer.zero_grad()
        loss = -likelihood.log_prob(torch.zeros_like(y), y).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    raw = likelihood.log_precision.exp() / likelihood.target_std.square()
    assert ((raw * (y - 5).square().mean(0) - 1).abs() < 1e-3).all()


def test_predictions_are_in_raw_units_and_do_not_cancel_far_from_zero():
    net = nn.Linear(4, 2).to(F64)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.1))
    x, options = torch.randn(5, 4, dtype=F64), {"samples": 8, "seed": 0, "keep_samples": True}
    plain = lb.predict(model, x, likelihood=lb.Gaussian(), **options)
    far, scale = torch.tensor([1e9, -2.0], dtype=F64), torch.tensor([1e-3, 4.0], dtype=F64)
    likelihood = lb.Gaussian(precision=0.25, target_mean=far.tolist(), target_std=scale.tolist())
    p = lb.predict(model, x, likelihood=likelihood, **options)
    torch.testing.assert_close(p.mean, far + scale * plain.mean)
    torch.testing.assert_close(p.epistemic, scale.square() * plain.epistemic, rtol=1e-9, atol=0)
    torch.testing.assert_close(p.aleatoric, torch.full((5, 2), 4.0, dtype=F64))
    torch.testing.assert_close(p.samples[..., 0], far + scale * plain.samples[..., 0])
    torch.testing.assert_close(p.samples[..., 1], torch.full((8, 5, 2), 4.0, dtype=F64))


def test_laplace_of_scaled_targets_is_that_of_the_same_problem_in_raw_units():
    """A linear net whose weights are std times smaller, under a prior that is so too."""
    x, y = torch.randn(40, 3, dtype=F64), torch.randn(40, 1, dtype=F64)
    variances = []
    for std, likelihood in [
        (1.0, lb.Gaussian(precision=2.0)),
        (5.0, lb.Gaussian(precision=2.0, target_std=5.0)),
    ]:
        torch.manual_seed(0)
        net = nn.Linear(3, 1).to(F64)
        with torch.no_grad():
            net.weight.div_(std)
            net.bias.div_(std)
        method = lb.Laplace(structure="diagonal", prior_std=1.0 / std)
        model = lb.bayesianize(net, method, example=x)
        lb.fit_posterior(model, [(x, y)], likelihood)
        p = lb.predict(model, x, likelihood=likelihood, samples=64, seed=0)
        variances.append(p.epistemic)
    torch.testing.assert_close(variances[0], variances[1])


def test_predicted_noise_is_that_of_torch_distributions():
    output, y = torch.randn(6, 4, dtype=F64), 3 * torch.randn(6, 2, dtype=F64)
    likelihood = lb.HeteroscedasticGaussian(target_mean=MEAN, target_std=STD, bound=10.0)
    shift, scale = (torch.tensor(v, dtype=F64) for v in (MEAN, STD))
    noise = scale * (5 * torch.tanh(output[:, 2:] / 10)).exp()
    expected = D.Normal(shift + scale * output[:, :2], noise).log_prob(y).sum(1)
    torch.testing.assert_close(likelihood.log_prob(output, y), expected)


def test_the_log_variance_is_itself_near_zero_and_cannot_overflow():
    small = torch.tensor([[0.0, 0.01]], dtype=F64)
    near = lb.HeteroscedasticGaussian().log_prob(small, torch.zeros(1, 1, dtype=F64))
    assert near.item() == pytest.approx(-0.5 * (math.log(2 * math.pi) + 0.01), abs=1e-6)
    wild = torch.tensor([[1.0, 1e30], [1.0, -1e30]], requires_grad=True)
    found = lb.HeteroscedasticGaussian(bound=40.0).log_prob(wild, torch.tensor([[3.0], [3.0]]))
    found.sum().backward()
    assert found.isfinite().all()
    assert wild.grad.isfinite().all()


def test_aleatoric_variance_is_the_mean_of_the_predicted_ones():
    model = lb.bayesianize(nn.Linear(4, 4).to(F64), lb.MeanField(init_std=0.5))
    x = torch.randn(6, 4, dtype=F64)
    likelihood = lb.HeteroscedasticGaussian(target_mean=MEAN, target_std=STD)
    p = lb.predict(model, x, likelihood=likelihood, samples=9, seed=1, keep_samples=True)
    raw = lb.predict(model, x, likelihood=lb.Gaussian(), samples=9, seed=1, keep_samples=True)
    shift, scale = (torch.tensor(v, dtype=F64) for v in (MEAN, STD))
    means = shift + scale * raw.samples[:, :, :2, 0]
    noise = scale.square() * (10 * torch.tanh(raw.samples[:, :, 2:, 0] / 10)).exp()
    assert p.mean.shape == (6, 2)
    torch.testing.assert_close(p.mean, means.mean(0))
    torch.testing.assert_close(p.aleatoric, noise.mean(0))
    torch.testing.assert_close(p.epistemic, means.var(0, correction=0), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(p.total, p.aleatoric + p.epistemic)
    y = shift + scale * torch.randn(6, 2, dtype=F64)
    expected = D.Normal(means, noise.sqrt()).log_prob(y).exp().mean(0).log()
    torch.testing.assert_close(p.log_prob(y), expected)


def test_a_head_learns_noise_that_grows_with_the_input():
    x = torch.rand(2000, 1, dtype=F64)
    y = 100 + 20 * (x + (0.05 + 0.5 * x) * torch.randn(2000, 1, dtype=F64))
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2)).to(F64)
    likelihood = lb.HeteroscedasticGaussian(target_mean=110.0, target_std=10.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        optimizer.zero_grad()
        (-likelihood.log_prob(net(x), y).mean()).backward()
        optimizer.step()
    probe = torch.tensor([[0.1], [0.9]], dtype=F64)
    model = lb.bayesianize(net, lb.MAP(), likelihood=likelihood)
    p = lb.predict(model, probe)
    assert p.aleatoric.sqrt().flatten().tolist() == pytest.approx([2.0, 10.0], rel=0.25)
    assert p.mean.flatten().tolist() == pytest.approx([102.0, 118.0], abs=1.5)


@pytest.mark.parametrize(
    "likelihood", [lb.Gaussian(target_mean=MEAN, target_std=STD), lb.HeteroscedasticGaussian()]
)
def test_a_row_of_several_targets_is_one_datum(likelihood):
    x, y = torch.randn(10, 3), torch.randn(10, 2)
    assert num_elements((x, y), likelihood) == 10
    assert num_elements(torch.utils.data.TensorDataset(x, y), likelihood) == 10
    output = torch.randn(10, 2 if isinstance(likelihood, lb.Gaussian) else 4)
    log_prob = likelihood.log_prob(output, y)
    assert likelihood.count(log_prob, y) == 10


def test_half_precision_outputs_are_judged_in_float32():
    output, y = torch.randn(5, 2), torch.randn(5, 2)
    for likelihood in (lb.Gaussian(precision=3.0, target_std=2.0), lb.Bernoulli()):
        y = (y > 0).float() if isinstance(likelihood, lb.Bernoulli) else y
        half = likelihood.log_prob(output.bfloat16(), y)
        assert half.dtype == torch.float32
        torch.testing.assert_close(half, likelihood.log_prob(output.bfloat16().float(), y))


@pytest.mark.parametrize("learn", [False, True])
def test_numbers_on_another_type_follow_the_outputs(learn):
    likelihood = lb.Gaussian(learn=learn, target_mean=MEAN, target_std=STD).float()
    output, y = torch.randn(5, 2), torch.randn(5, 2)
    assert likelihood.log_prob(output, y).dtype == torch.float32
    assert likelihood.settings()["target_std"] == list(STD)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lb.Gaussian(target_std=0.0), "target_std must be a positive number"),
        (lambda: lb.Gaussian(target_std=[1.0, -1.0]), "target_std must be a positive number"),
        (lambda: lb.Gaussian(target_mean=math.nan), "target_mean must be a finite number"),
        (lambda: lb.Gaussian(precision=[]), "precision must be a positive number"),
        (lambda: lb.Gaussian(precision="high"), "precision must be a positive number"),
        (lambda: lb.Gaussian([1.0, 2.0], target_std=[1.0] * 3), "precision has 2 numbers and"),
        (lambda: lb.HeteroscedasticGaussian(bound=0.0), "bound must lie above 0"),
        (lambda: lb.HeteroscedasticGaussian(bound=100.0), "at most 40"),
    ],
)
def test_settings_out_of_range_are_refused(make, words):
    with pytest.raises(lb.ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("likelihood", "outputs", "words"),
    [
        (lb.Gaussian(target_mean=MEAN), 3, "target_mean has 2 numbers for outputs of 3 targets"),
        (lb.Gaussian(precision=[1.0]), 3, "precision has 1 numbers for outputs of 3 targets"),
        (lb.HeteroscedasticGaussian(), 3, r"outputs \[B, 2T\].*found \(4, 3\)"),
        (lb.HeteroscedasticGaussian(), 2, "do not fit outputs"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(likelihood, outputs, words):
    with pytest.raises(lb.ConfigError, match=words):
        likelihood.log_prob(torch.zeros(4, outputs), torch.zeros(4, 3))
