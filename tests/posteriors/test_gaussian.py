"""The Gaussian posterior: its law, its KL, its gradient edit."""

import math

import pytest
import torch
from torch import nn

from leanbayes.forms import Ask
from leanbayes.noise import FreshNoise, KeyedNoise
from leanbayes.plan import Plan, Scope
from leanbayes.posteriors import Gaussian

F64 = torch.float64


def gaussian(*shape, prior_std=0.7, **options):
    base = nn.Parameter(torch.randn(*shape, dtype=F64))
    posterior = Gaussian(base, prior_std=prior_std, init_log_std=(-2.0, 0.5), **options)
    posterior.key = "w"
    return base, posterior


def test_initial_scales_are_uniform_in_the_given_bounds():
    posterior = Gaussian(torch.zeros(100_000))
    psi = posterior.log_std
    assert -6 <= psi.min() < -5.999
    assert -5.001 < psi.max() <= -5
    assert abs(psi.mean() + 5.5) < 0.005
    assert abs(psi.var() - 1 / 12) < 0.002


def test_kl_is_the_closed_form_of_torch_distributions():
    base, posterior = gaussian(7, 5)
    q = torch.distributions.Normal(base, posterior.log_std.exp())
    p = torch.distributions.Normal(torch.zeros_like(base), 0.7)
    expected = torch.distributions.kl_divergence(q, p).sum()
    torch.testing.assert_close(posterior.kl(base), expected, rtol=1e-12, atol=0)


def test_a_prior_around_the_weights_is_that_of_the_weights_it_was_made_with():
    base, posterior = gaussian(7, 5)
    around = Gaussian(base, prior_std=0.7, prior_mean=base)
    around.log_std = posterior.log_std
    first = base.detach().clone()
    with torch.no_grad():
        base.add_(torch.randn(7, 5, dtype=F64))
    q = torch.distributions.Normal(base, posterior.log_std.exp())
    p = torch.distributions.Normal(first, 0.7)
    expected = torch.distributions.kl_divergence(q, p).sum()
    torch.testing.assert_close(around.kl(base), expected, rtol=1e-12, atol=0)
    around.requires_grad_(True)  # of everything, as users do: the prior does not learn all the same
    around.kl(base).backward()
    assert around.prior_mean.grad is None
    assert torch.equal(around.prior_mean, first)


def test_kl_equals_a_monte_carlo_estimate():
    base, posterior = gaussian(4, 3)
    draws = posterior.draw(base, posterior.noise(base, 200_000, FreshNoise()))
    q = torch.distributions.Normal(base, posterior.log_std.exp())
    p = torch.distributions.Normal(torch.zeros_like(base), 0.7)
    terms = (q.log_prob(draws) - p.log_prob(draws)).sum((1, 2))
    error = terms.std() / math.sqrt(len(terms))
    assert abs(terms.mean() - posterior.kl(base)) < 4 * error


def test_draws_have_the_stated_mean_and_standard_deviation():
    base, posterior = gaussian(3, 2)
    draws = posterior.draw(base, posterior.noise(base, 200_000, FreshNoise()))
    std = posterior.log_std.exp()
    assert ((draws.mean(0) - base).abs() < 4 * std / math.sqrt(200_000)).all()
    assert ((draws.std(0) / std - 1).abs() < 4 / math.sqrt(2 * 200_000)).all()


def test_gradients_of_a_draw_are_those_of_plain_autograd():
    base, posterior = gaussian(5, 4)
    noise = torch.randn(3, 5, 4, dtype=F64)
    weight = torch.randn(3, 5, 4, dtype=F64)
    targets = [base, posterior.log_std]
    own = torch.autograd.grad((posterior.draw(base, noise) * weight).sum(), targets)
    plain = torch.autograd.grad(((base + posterior.log_std.exp() * noise) * weight).sum(), targets)
    for a, b in zip(own, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("rows", [6, 80])  # below and above the size from which noise is not kept
def test_gradients_of_a_draw_are_those_of_mean_plus_scaled_noise(rows, draws):
    base, posterior = gaussian(rows, 60)
    noise, weights = torch.randn(2, draws, rows, 60, dtype=F64)
    if draws == 1:  # noise of one draw may lack the leading dimension
        noise, weights = noise[0], weights[0]
    parameters = [base, posterior.log_std]
    drawn = posterior.draw(base, noise)
    written = base + posterior.log_std.exp() * noise
    torch.testing.assert_close(drawn, written, rtol=1e-12, atol=1e-12)
    found, expected = (
        torch.autograd.grad((value * weights).sum(), parameters) for value in (drawn, written)
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prior_mean", [None, torch.randn(6, 3, dtype=F64)])
@pytest.mark.parametrize("fixed_row", [None, 1])
def test_gradient_edit_is_the_gradient_of_the_kl(fixed_row, prior_mean):
    base, posterior = gaussian(6, 3, fixed_row=fixed_row, prior_mean=prior_mean)
    expected = torch.autograd.grad(0.37 * posterior.kl(base), [base, posterior.log_std])
    base.grad = torch.ones_like(base)
    Gaussian.add_kl_grads([(posterior, base)], 0.37, lambda p: p.requires_grad)
    torch.testing.assert_close(base.grad - 1, expected[0], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(posterior.log_std.grad, expected[1], rtol=1e-12, atol=1e-14)


def test_flipout_gives_every_draw_fair_signs_of_its_own_on_both_sides():
    base, posterior = gaussian(400, 500)
    scope = Scope(plan=Plan(per_row=True), rows=32)
    drawn = posterior.drawn(base, scope, Ask(signs=(400, 500)))
    assert drawn.values.shape == (400, 500)  # one noise tensor for all draws
    for sign in (drawn.sign0, drawn.sign1):
        size = sign.shape[1]
        assert torch.equal(sign.abs(), torch.ones(32, size, dtype=F64))
        correlation = sign @ sign.T / size - torch.eye(32, dtype=F64)
        assert correlation.abs().max() < 5.5 / math.sqrt(size)
        assert abs(float(sign.mean())) < 5 / math.sqrt(sign.numel())


def test_the_edit_has_the_sign_of_a_minimiser():
    """Trap T1.1: eq. (5) of the paper prints the gradients of -KL / n."""
    decay, num_data = 2e-4, 50_000
    prior_std = 1 / math.sqrt(decay * num_data)
    base, posterior = gaussian(4, 2, prior_std=prior_std)
    Gaussian.add_kl_grads([(posterior, base)], 1 / num_data, lambda p: p.requires_grad)
    torch.testing.assert_close(base.grad, decay * base.detach(), rtol=1e-12, atol=0)
    expected = decay * (2 * posterior.log_std.detach()).exp() - 1 / num_data
    torch.testing.assert_close(posterior.log_std.grad, expected, rtol=1e-12, atol=1e-16)


def test_frozen_parameters_are_not_edited():
    base, posterior = gaussian(4, 2)
    base.requires_grad_(False)
    Gaussian.add_kl_grads([(posterior, base)], 1.0, lambda p: p.requires_grad)
    assert base.grad is None
    assert posterior.log_std.grad is not None


def test_the_fixed_row_has_no_noise_and_no_kl():
    base, posterior = gaussian(4, 3, fixed_row=2)
    draws = posterior.draw(base, torch.randn(5, 4, 3, dtype=F64))
    assert torch.equal(draws[:, 2], base[2].expand(5, 3))
    assert (draws[:, [0, 1, 3]] != base[[0, 1, 3]]).all()
    grads = torch.autograd.grad(posterior.kl(base), [base, posterior.log_std])
    assert (grads[0][2] == 0).all()
    assert (grads[1][2] == 0).all()
    rest, alone = gaussian(1, 1)[1], base.detach()[[0, 1, 3]]
    rest.log_std = nn.Parameter(posterior.log_std.detach()[[0, 1, 3]])
    torch.testing.assert_close(posterior.kl(base), rest.kl(alone), rtol=1e-12, atol=0)


def test_zero_std_is_the_mean_and_keeps_the_kl_finite():
    base, posterior = gaussian(4, 3)
    posterior.set_std(0.0)
    assert torch.equal(posterior.draw(base, torch.randn(2, 4, 3, dtype=F64))[0], base)
    assert posterior.kl(base).isfinite()


def test_half_precision_kl_is_summed_in_float32():
    base = torch.randn(300, 300)
    posterior = Gaussian(base)
    exact = posterior.kl(base)
    half = posterior.bfloat16().kl(base.bfloat16())
    assert half.dtype == torch.float32
    assert abs(half / exact - 1) < 1e-2


def test_keyed_draws_depend_on_seed_key_and_sample_alone():
    base, posterior = gaussian(3, 2)
    whole = posterior.noise(base, 4, KeyedNoise(5, range(4)))
    for sample in (3, 0, 2):
        alone = posterior.noise(base, 1, KeyedNoise(5, [sample]))
        assert torch.equal(alone[0], whole[sample])
    posterior.key = "other"
    assert not torch.equal(posterior.noise(base, 4, KeyedNoise(5, range(4))), whole)
