"""The sparse Gaussian: law, gradients and KL of a dense masked one, at the price of k numbers."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from leanbayes.noise import FreshNoise, KeyedNoise
from leanbayes.posteriors.sparse_gaussian import SparseGaussian

F64 = torch.float64
ENTRIES = torch.tensor([0, 3, 7, 8, 19])


def sparse(entries=ENTRIES, shape=(4, 5), prior_std=0.7, **options):
    base = nn.Parameter(torch.randn(*shape, dtype=F64))
    posterior = SparseGaussian(base, entries, prior_std=prior_std, init_rho=(-1, 1), **options)
    posterior.key = "w"
    return base, posterior


def dense_draw(base, posterior, noise):
    """`mu + m * softplus(rho) * eps` with everything in the shape of the tensor."""
    mask, rho, eps = (torch.zeros(len(noise), base.numel(), dtype=F64) for _ in range(3))
    mask[:, posterior.entries] = 1
    rho = rho.index_put((torch.arange(len(noise))[:, None], posterior.entries), posterior.rho)
    eps[:, posterior.entries] = noise
    return base + (mask * softplus(rho) * eps).reshape(-1, *base.shape)


@pytest.mark.parametrize("draws", [1, 3])
def test_draws_and_gradients_are_those_of_a_dense_masked_gaussian(draws):
    base, posterior = sparse()
    noise = torch.randn(draws, 5, dtype=F64)
    weight = torch.randn(draws, 4, 5, dtype=F64)
    own, dense = posterior.draw(base, noise), dense_draw(base, posterior, noise)
    torch.testing.assert_close(own, dense, rtol=1e-14, atol=1e-14)
    targets = [base, posterior.rho]
    for a, b in zip(
        torch.autograd.grad((own.square() * weight).sum(), targets),
        torch.autograd.grad((dense.square() * weight).sum(), targets),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_off_the_mask_every_draw_is_the_mean_bit_for_bit():
    base, posterior = sparse()
    draws = posterior.draw(base, posterior.noise(base, 6, FreshNoise())).flatten(1)
    off = [i for i in range(20) if i not in ENTRIES]
    assert torch.equal(draws[:, off], base.flatten()[off].expand(6, -1))
    assert (draws[:, ENTRIES] != base.flatten()[ENTRIES]).all()


def test_points_have_a_scale_of_zero_and_not_of_softplus_zero():
    """T3.2: 'rho near zero' for deterministic weights would be a scale of 0.693."""
    base, posterior = sparse()
    std = posterior.std(base).flatten()
    assert (std == 0).sum() == 15
    assert torch.equal(std[ENTRIES], softplus(posterior.rho))
    assert abs(softplus(torch.zeros(())).item() - 0.693) < 1e-3


def test_draws_have_the_stated_mean_and_standard_deviation():
    base, posterior = sparse()
    draws = posterior.draw(base, posterior.noise(base, 100_000, FreshNoise()))
    std = posterior.std(base)
    random = std > 0
    error = (draws.mean(0) - base)[random] / std[random]
    assert (error.abs() < 4 / math.sqrt(100_000)).all()
    assert ((draws.std(0)[random] / std[random] - 1).abs() < 4 / math.sqrt(200_000)).all()


def test_initial_rho_is_normal_around_minus_five():
    base = torch.zeros(40_000)
    rho = SparseGaussian(base, torch.arange(40_000)).rho
    assert abs(rho.mean() + 5) < 4 * 0.1 / 200
    assert abs(rho.std() - 0.1) < 4 * 0.1 / math.sqrt(80_000)


def test_kl_is_the_closed_form_over_the_random_entries_alone():
    base, posterior = sparse()
    q = torch.distributions.Normal(base.flatten()[ENTRIES], softplus(posterior.rho))
    p = torch.distributions.Normal(torch.zeros(5, dtype=F64), 0.7)
    expected = torch.distributions.kl_divergence(q, p).sum()
    torch.testing.assert_close(posterior.kl(base), expected, rtol=1e-12, atol=0)
    posterior.reduction = "tensor_mean"
    torch.testing.assert_close(posterior.kl(base), expected / 5, rtol=1e-12, atol=0)


@pytest.mark.parametrize("reduction", ["sum", "tensor_mean"])
def test_gradient_edit_is_the_gradient_of_the_kl(reduction):
    sites = []
    for prior_std, entries in ((0.7, ENTRIES), (0.7, ENTRIES[:2]), (1.3, ENTRIES[1:4])):
        base, posterior = sparse(entries, prior_std=prior_std, reduction=reduction)
        sites.append((posterior, base))
    targets = [p for posterior, base in sites for p in (base, posterior.rho)]
    total = sum(posterior.kl(base) for posterior, base in sites)
    expected = torch.autograd.grad(0.37 * total, targets)
    for base in targets[::2]:
        base.grad = torch.ones_like(base)
    SparseGaussian.add_kl_grads(sites, 0.37, lambda p: p.requires_grad)
    for i, (target, grad) in enumerate(zip(targets, expected, strict=True)):
        found = target.grad - 1 if i % 2 == 0 else target.grad
        torch.testing.assert_close(found, grad, rtol=1e-9, atol=1e-14)


def test_the_edit_leaves_points_and_frozen_parameters_alone():
    base, posterior = sparse()
    SparseGaussian.add_kl_grads([(posterior, base)], 1.0, lambda p: p.requires_grad)
    off = [i for i in range(20) if i not in ENTRIES]
    assert (base.grad.flatten()[off] == 0).all()
    assert (base.grad.flatten()[ENTRIES] != 0).all()
    base, posterior = sparse()
    base.requires_grad_(False)
    SparseGaussian.add_kl_grads([(posterior, base)], 1.0, lambda p: p.requires_grad)
    assert base.grad is None
    assert posterior.rho.grad is not None


def test_a_flipped_perturbation_is_the_noise_at_its_entries():
    base, posterior = sparse()
    noise = torch.randn(5, dtype=F64)
    delta = posterior.perturbation(base, noise)
    torch.testing.assert_close(
        delta, dense_draw(base, posterior, noise[None])[0] - base, rtol=1e-10, atol=1e-12
    )


def test_channels_last_keeps_its_layout_and_its_entries():
    shape, entries = (4, 3, 3, 3), torch.tensor([1, 26, 27, 107])
    base, posterior = sparse(entries, shape)
    noise = torch.randn(1, 4, dtype=F64)
    plain = posterior.draw(base, noise)
    turned = posterior.draw(base.detach().to(memory_format=torch.channels_last), noise)
    assert torch.equal(plain, turned)
    assert turned[0].is_contiguous(memory_format=torch.channels_last)


def test_zero_std_is_the_mean_and_keeps_kl_and_edit_finite():
    base = nn.Parameter(torch.randn(4, 5))
    posterior = SparseGaussian(base, ENTRIES)
    posterior.set_std(0.0)
    assert torch.equal(posterior.draw(base, torch.randn(2, 5))[1], base)
    assert posterior.kl(base).isfinite()
    SparseGaussian.add_kl_grads([(posterior, base)], 1.0, lambda p: p.requires_grad)
    torch.testing.assert_close(posterior.rho.grad, -torch.ones(5))


def test_half_precision_kl_is_summed_in_float32():
    base = torch.randn(300, 300)
    posterior = SparseGaussian(base, torch.arange(0, 90_000, 9))
    exact = posterior.kl(base)
    half = posterior.bfloat16().kl(base.bfloat16())
    assert half.dtype == torch.float32
    assert abs(half / exact - 1) < 1e-2


def test_keyed_noise_is_one_number_an_entry_and_does_not_depend_on_the_other_samples():
    base, posterior = sparse()
    whole = posterior.noise(base, 4, KeyedNoise(5, range(4)))
    assert whole.shape == (4, 5)
    for sample in (3, 0):
        assert torch.equal(posterior.noise(base, 1, KeyedNoise(5, [sample]))[0], whole[sample])


def test_a_square_has_the_corrected_second_order_variance():
    """T3.4: f = theta^2 at 1 with scale 0.5. Eq. (4) prints 0.9375; f'^2 s^2 + f''^2 s^4 / 2."""
    base = torch.ones(1, dtype=F64)
    posterior = SparseGaussian(base, torch.tensor([0]))
    posterior.set_std(0.5)
    draws = posterior.draw(base, posterior.noise(base, 400_000, FreshNoise())).square()
    slope, curve, s = 2.0, 2.0, 0.5
    printed = slope**2 * s**2 - curve**2 * s**4 / 4
    corrected = slope**2 * s**2 + curve**2 * s**4 / 2
    assert (printed, corrected) == (0.9375, 1.125)
    assert abs(draws.var() - corrected) < 0.02
