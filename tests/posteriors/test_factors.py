"""Channel factors: their laws, their KL, and that scaled rows are scaled weights."""

import math

import pytest
import torch
from mixture_cases import F64, by_row_or_group, check_loop, each_layer
from torch import nn
from torch.distributions import Cauchy, Normal, kl_divergence

import leanbayes as lb
from leanbayes.noise import FreshNoise, KeyedNoise
from leanbayes.posteriors.factors import FactorBank
from leanbayes.posteriors.kl import pairwise_terms, reduce_pairwise
from leanbayes.posteriors.points import PointFactors
from leanbayes.posteriors.scale import inverse_softplus

LIKE = torch.zeros(1, dtype=F64)
METHODS = {
    "in": lb.Implicit(members=3, init_std=0.3),
    "out": lb.Implicit(members=3, side="out", init_std=0.3),
    "both": lb.RankOne(members=3, init_std=0.3),
    "cauchy": lb.RankOne(members=2, law="cauchy", init_std=0.3),
    "in-points": lb.RankOne(members=3, stochastic="out", init_std=0.3),
    "points": lb.BatchEnsemble(members=3, init_std=0.3),
}


def factors(size=5, members=3, **options):
    options = {"init_spread": 0.4, "init_std": 0.2, **options}
    q = FactorBank(LIKE, size, members=members, **options)
    with torch.no_grad():
        q.rho.add_(0.3 * torch.randn_like(q.rho))
    q.key = "layer.in_scale"
    return q, nn.functional.softplus(q.rho)


@each_layer
@by_row_or_group
@pytest.mark.parametrize("name", METHODS)
def test_scaled_rows_equal_a_loop_over_scaled_weights(layer_name, name, per_row):
    check_loop(layer_name, METHODS[name], per_row)


@pytest.mark.parametrize(("law", "of_torch"), [("normal", Normal), ("cauchy", Cauchy)])
def test_kl_by_member_is_that_of_torch_distributions(law, of_torch):
    q, scale = factors(law=law, prior_std=0.15)
    ones = torch.ones_like(scale)
    expected = kl_divergence(of_torch(q.location, scale), of_torch(ones, 0.15)).sum(1)
    assert expected.shape == (3,)
    torch.testing.assert_close(q.kl(LIKE), expected, rtol=1e-12, atol=1e-12)


def test_normal_draws_have_the_stated_moments_member_by_member():
    q, scale = factors()
    component = torch.arange(3).repeat_interleave(100_000)
    draws = q.draw(LIKE, q.noise(LIKE, 300_000, FreshNoise()), component).reshape(3, 100_000, -1)
    assert ((draws.mean(1) - q.location).abs() < 4.5 * scale / math.sqrt(100_000)).all()
    assert ((draws.std(1) / scale - 1).abs() < 4.5 / math.sqrt(200_000)).all()


def test_cauchy_draws_have_the_stated_quartiles():
    q, scale = factors(members=1, law="cauchy")
    draws = q.draw(LIKE, q.noise(LIKE, 200_000, FreshNoise()))
    levels = torch.tensor([0.25, 0.5, 0.75], dtype=F64)
    found = torch.quantile(draws.detach(), levels, dim=0)
    expected = q.location + scale * torch.tan(math.pi * (levels[:, None] - 0.5))
    # sd of a sample quantile: sqrt(p (1 - p) / n) / density
    assert ((found - expected) / scale).abs().max() < 4.5 * math.pi * 2 * 0.5 / math.sqrt(200_000)
    assert draws.isfinite().all()


def test_draws_are_clipped_and_the_kl_is_that_of_the_unclipped_law():
    """T5.10: +-10, needed for Cauchy; outside it no gradient passes."""
    q, _ = factors(law="cauchy", clip=10.0)
    free, _ = factors(law="cauchy")
    free.load_state_dict(q.state_dict())
    noise = torch.tensor([[0.0, 1.0, -2.0, 1e4, -1e4]], dtype=F64)
    clipped, whole = q.draw(LIKE, noise), free.draw(LIKE, noise)
    assert torch.equal(clipped, whole.clamp(-10, 10))
    assert clipped[0, 3:].tolist() == [10.0, -10.0]
    grad = torch.autograd.grad(clipped.sum(), q.location)[0]
    assert grad[0].tolist() == [1, 1, 1, 0, 0]
    assert torch.equal(q.kl(LIKE), free.kl(LIKE))
    with torch.no_grad():
        q.location.fill_(30.0)
    expected = kl_divergence(
        Cauchy(q.location, nn.functional.softplus(q.rho)), Cauchy(torch.ones_like(q.location), 0.1)
    ).sum(1)
    torch.testing.assert_close(q.kl(LIKE), expected, rtol=1e-12, atol=0)
    assert torch.autograd.grad(q.kl(LIKE).sum(), q.location)[0].abs().min() > 0


def test_a_negative_mean_costs_200_nats_unless_the_prior_is_tied_to_its_sign():
    """T5.6: N(-1, s^2) against N(1, s^2) at s = 0.1, and 800 at 0.05."""
    for prior_std, quadratic in ((0.1, 200.0), (0.05, 800.0)):
        options = {"init_spread": 0.0, "init_std": prior_std, "prior_std": prior_std}
        plain = FactorBank(LIKE, 1, members=1, **options)
        tied = FactorBank(LIKE, 1, members=1, tied_sign=True, **options)
        with torch.no_grad():
            plain.location.fill_(-1.0)
            tied.location.fill_(-1.0)
        assert plain.kl(LIKE).item() == pytest.approx(quadratic, rel=1e-9)
        assert tied.kl(LIKE).item() == pytest.approx(0.0, abs=1e-9)
    paper = FactorBank(LIKE, 1, members=1, init_spread=0.0, init_std=math.sqrt(1e-3 / 0.999))
    with torch.no_grad():
        paper.location.fill_(-1.0)
    assert paper.kl(LIKE).item() == pytest.approx(200.7, abs=0.05)


def test_the_tied_prior_pulls_towards_the_nearer_of_both_signs():
    q = FactorBank(LIKE, 2, members=1, tied_sign=True, prior_std=0.1)
    with torch.no_grad():
        q.location.copy_(torch.tensor([[-0.7, 1.2]], dtype=F64))
    grad = torch.autograd.grad(q.kl(LIKE).sum(), q.location)[0]
    expected = torch.tensor([[(-0.7 + 1) / 0.01, (1.2 - 1) / 0.01]], dtype=F64)
    torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("law", ["normal", "cauchy"])
def test_the_edit_of_a_tied_prior_is_the_gradient_of_its_kl_at_either_sign(law):
    q, _ = factors(law=law, prior_std=0.15, tied_sign=True, kl_rule="sum")
    with torch.no_grad():
        q.location[:, ::2].neg_()
    expected = torch.autograd.grad(q.kl(LIKE).sum(), (q.location, q.rho))
    FactorBank.add_kl_grads([(q, LIKE)], 1.0, lambda _: True)
    for parameter, gradient in zip((q.location, q.rho), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("members", [1, 4, 9])
def test_the_averaged_draw_is_free_at_mean_one_and_sqrt_k_times_the_prior(members):
    """T2.3: the paper's surrogate is least at sigma_k = sqrt(K) s, whatever the means' spread."""
    q = FactorBank(LIKE, 3, members=members, prior_std=0.1, kl_rule="averaged_draw")
    with torch.no_grad():
        q.location.sub_(q.location.mean(0) - 1)
        q.rho.fill_(inverse_softplus(math.sqrt(members) * 0.1))
    assert q.kl(LIKE).shape == ()
    assert q.kl(LIKE).item() == pytest.approx(0.0, abs=1e-12)
    grads = torch.autograd.grad(q.kl(LIKE), [q.location, q.rho])
    assert all(grad.abs().max() < 1e-9 for grad in grads)
    with torch.no_grad():
        q.rho.fill_(inverse_softplus(0.1))
    assert (q.kl(LIKE).item() > 0.1) == (members > 1)


def test_the_averaged_draw_is_the_kl_of_the_average_of_one_draw_a_member():
    q, scale = factors(members=4, prior_std=0.3, kl_rule="averaged_draw")
    average = Normal(q.location.mean(0), (scale.square().sum(0) / 16).sqrt())
    expected = kl_divergence(average, Normal(torch.ones(5, dtype=F64), 0.3)).sum()
    torch.testing.assert_close(q.kl(LIKE), expected, rtol=1e-12, atol=1e-12)
    draws = q.draw(LIKE, q.noise(LIKE, 400_000, FreshNoise())).reshape(-1, 4, 5).mean(1)
    assert ((draws.std(0) / average.scale - 1).abs() < 4.5 / math.sqrt(200_000)).all()


def test_coinciding_members_have_the_papers_surrogate_twice_too_big():
    """First row of the table of T2.3: 7.83 where the KL is 3.93."""
    q = FactorBank(
        LIKE, 6, members=4, prior_std=0.3, init_spread=0, init_std=0.1, kl_rule="averaged_draw"
    )
    assert q.kl(LIKE).item() == pytest.approx(7.834, abs=1e-3)


def test_pairwise_gives_a_matrix_whose_bound_is_below_the_mean():
    q, scale = factors(members=4, kl_rule="pairwise")
    plain, _ = factors(members=4)
    plain.load_state_dict(q.state_dict())
    terms = q.kl(LIKE)
    torch.testing.assert_close(terms, pairwise_terms(plain.kl(LIKE), q.location, scale))
    torch.testing.assert_close(terms.diagonal(), plain.kl(LIKE), rtol=1e-12, atol=1e-12)
    mean = plain.kl(LIKE).mean()
    assert mean - math.log(4) <= reduce_pairwise(terms) <= mean


def test_means_start_around_one_with_the_stated_spread():
    q = FactorBank(torch.zeros(1), 20_000, members=2, init_spread=0.5, init_std=0.05)
    assert abs(q.location.mean() - 1) < 4 * 0.5 / 200
    assert q.location.std().item() == pytest.approx(0.5, rel=0.02)
    torch.testing.assert_close(nn.functional.softplus(q.rho), torch.full_like(q.rho, 0.05))
    points = PointFactors(torch.zeros(1), 20_000, members=2, init_std=0.5)
    assert points.location.std().item() == pytest.approx(0.5, rel=0.02)


def test_point_factors_are_their_members_and_cost_nothing():
    q = PointFactors(LIKE, 5, members=3)
    component = torch.tensor([2, 0, 2, 1])
    draws = q.draw(LIKE, q.noise(LIKE, 4, FreshNoise()), component)
    assert torch.equal(draws, q.location[component])
    assert torch.equal(q.mean(LIKE, 1), q.location[1])
    torch.testing.assert_close(q.mean(LIKE), q.location.mean(0))
    assert q.kl(LIKE) == 0


def test_prior_and_law_are_no_parameters():
    """T2.9: only means and scales are trained."""
    q, _ = factors()
    assert [name for name, _ in q.named_parameters()] == ["location", "rho"]
    assert not list(q.buffers())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_kl_is_summed_in_float32(dtype):
    q = FactorBank(torch.zeros(1), 300, members=4)
    exact = q.kl(torch.zeros(1))
    half = q.to(dtype).kl(torch.zeros(1, dtype=dtype))
    assert half.dtype == torch.float32
    assert ((half / exact - 1).abs() < 0.05).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("keyed", [False, True])
def test_cauchy_tails_are_those_of_the_law_in_any_type(dtype, keyed):
    """Drawn in bfloat16, numbers above 200 were all above 1000."""
    torch.manual_seed(0)
    model = lb.bayesianize(torch.nn.Linear(4096, 8), lb.RankOne(law="cauchy")).to(dtype)
    q, base = model.net.slots["in_scale"], model.net.weight
    source = KeyedNoise(0, range(200)) if keyed else FreshNoise()
    size = q.noise(base, 200, source).float().abs()
    for limit in (30, 200, 1000):
        expected = 1 - 2 / math.pi * math.atan(limit)
        error = math.sqrt(expected / size.numel())
        assert (size > limit).double().mean().item() == pytest.approx(expected, abs=5 * error)
