"""Closed forms of the KL against torch.distributions, Monte Carlo and integrals."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Cauchy, Normal, kl_divergence

import leanbayes as lb
from leanbayes.posteriors.kl import cauchy_kl, normal_kl, pairwise_terms, reduce_pairwise
from leanbayes.posteriors.scale import inverse_softplus, softplus

F64 = torch.float64


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(*shape, generator=generator, dtype=F64)
    return mean, 0.05 + torch.rand(*shape, generator=generator, dtype=F64)


def test_normal_kl_is_that_of_torch_distributions():
    mean, std = numbers(50)
    prior_mean, _ = numbers(50, seed=1)
    expected = kl_divergence(Normal(mean, std), Normal(prior_mean, 0.3))
    torch.testing.assert_close(
        normal_kl(mean, std, prior_mean, 0.3), expected, rtol=1e-12, atol=1e-12
    )
    assert normal_kl(torch.ones(1), torch.tensor([0.1]), torch.ones(1), 0.1).abs() < 1e-7


def test_cauchy_kl_is_that_of_torch_distributions():
    mean, scale = numbers(50)
    prior_mean, _ = numbers(50, seed=1)
    expected = kl_divergence(Cauchy(mean, scale), Cauchy(prior_mean, 0.3))
    torch.testing.assert_close(
        cauchy_kl(mean, scale, prior_mean, 0.3), expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    ("mean", "scale", "prior"), [(1.0, 0.03, 0.1), (0.2, 0.5, 0.1), (-1.0, 0.1, 0.1), (1.3, 2, 1)]
)
def test_cauchy_kl_equals_a_million_samples(mean, scale, prior):
    q, p = Cauchy(torch.tensor(mean, dtype=F64), scale), Cauchy(torch.tensor(1.0, dtype=F64), prior)
    draws = q.sample((1_000_000,))
    terms = q.log_prob(draws) - p.log_prob(draws)
    error = terms.std() / 1000
    exact = cauchy_kl(
        torch.tensor(mean, dtype=F64), torch.tensor(float(scale)), torch.tensor(1.0), prior
    )
    assert abs(terms.mean() - exact) < 4 * error
    # What one sample a step, as in the authors' code, would be worth (methods.md 1.5).
    assert terms.std() > 0.3


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 0.03, 0.6931, 1.0, 20.0, 200.0])
def test_inverse_softplus_is_the_inverse(scale):
    rho = torch.tensor(inverse_softplus(scale), dtype=F64)
    assert softplus(rho).item() == pytest.approx(scale, rel=1e-7)
    if scale < 20:  # s + log(-expm1(-s)), T6
        assert rho.item() == pytest.approx(math.log(math.expm1(scale)), rel=1e-9, abs=1e-9)


def test_a_scale_of_zero_vanishes_and_stays_finite():
    rho = torch.tensor(inverse_softplus(0.0))
    assert 0 < softplus(rho) < 1e-25
    assert softplus(rho).log().isfinite()


def bhattacharyya(mean_a, std_a, mean_b, std_b):
    """`-ln integral sqrt(a b)` by the trapezium rule."""
    x = torch.linspace(-30, 30, 600_001, dtype=F64)
    a, b = Normal(mean_a, std_a).log_prob(x), Normal(mean_b, std_b).log_prob(x)
    return -torch.trapezoid(((a + b) / 2).exp(), x).log()


def test_pairwise_distances_are_bhattacharyyas_with_four_not_sixteen():
    """T2.4: one public code divides the squared gap by 16 (v_i + v_j)."""
    mean, std = numbers(3, 1)
    terms = torch.zeros(3, dtype=F64)
    distance = -pairwise_terms(terms, mean, std)
    for i in range(3):
        for j in range(3):
            exact = bhattacharyya(mean[i, 0], std[i, 0], mean[j, 0], std[j, 0])
            torch.testing.assert_close(distance[i, j], exact, rtol=1e-8, atol=1e-8)
    both = std[0] ** 2 + std[1] ** 2
    gap = (mean[0] - mean[1]) ** 2
    logs = 0.5 * (both / (2 * std[0] * std[1])).log()
    assert distance[0, 1].item() == pytest.approx((gap / (4 * both) + logs).item(), rel=1e-12)
    assert distance[0, 1] > gap / (16 * both) + logs


def mixture(spread, members=4, size=6, std=0.1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = 1 + spread * torch.randn(members, size, generator=generator, dtype=F64)
    return mean, torch.full_like(mean, std)


def member_terms(mean, std, prior_std=0.3):
    return normal_kl(mean, std, torch.ones_like(mean), prior_std).sum(1)


def monte_carlo(mean, std, prior_std=0.3, draws=40_000):
    """KL of the uniform mixture of whole vectors against the prior, and its standard error."""
    members = len(mean)
    x = mean[:, None] + std[:, None] * torch.randn(members, draws, mean.shape[1], dtype=F64)
    parts = [Normal(m, s).log_prob(x).sum(-1) for m, s in zip(mean, std, strict=True)]
    log_q = torch.stack(parts).logsumexp(0) - math.log(members)
    terms = (log_q - Normal(1.0, prior_std).log_prob(x).sum(-1)).flatten()
    return terms.mean(), terms.std() / math.sqrt(terms.numel())


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.3, 0.75])
def test_mean_and_pairwise_bound_the_kl_of_the_mixture(spread):
    """T2.3b: mean_k KL_k - ln K <= KL <= pairwise bound <= mean_k KL_k."""
    mean, std = mixture(spread)
    terms = member_terms(mean, std)
    pairwise = reduce_pairwise(pairwise_terms(terms, mean, std))
    exact, error = monte_carlo(mean, std)
    slack = 4 * error + 1e-9
    assert terms.mean() - math.log(4) - slack <= exact <= pairwise + slack
    assert pairwise <= terms.mean() + 1e-9


def test_values_of_coinciding_members_are_those_of_the_table():
    """First row of the table of T2.3: d = 6, K = 4, prior 0.3, sigma 0.1."""
    mean, std = mixture(0.0)
    terms = member_terms(mean, std)
    assert terms.mean().item() == pytest.approx(3.925, abs=5e-4)
    assert terms.sum().item() == pytest.approx(15.70, abs=2e-3)
    assert reduce_pairwise(pairwise_terms(terms, mean, std)).item() == pytest.approx(
        terms.mean().item(), rel=1e-12
    )


def test_members_far_apart_gain_ln_k_once():
    mean, std = mixture(5.0)
    terms = member_terms(mean, std)
    bound = reduce_pairwise(pairwise_terms(terms, mean, std))
    torch.testing.assert_close(bound, terms.mean() - math.log(4), rtol=1e-12, atol=0)


def test_entropy_of_a_mixture_lies_between_the_mean_and_the_mean_plus_ln_k():
    """T4.1: eq. (7) of EMP turns it round. 2.838 <= H <= 3.936 for three unit Gaussians in 2-D."""
    lower = 1 + math.log(2 * math.pi)
    assert lower == pytest.approx(2.838, abs=5e-4)
    assert lower + math.log(3) == pytest.approx(3.936, abs=1e-3)
    for gap, entropy in ((0.0, lower), (1.0, None), (40.0, lower + math.log(3))):
        mean = gap * torch.tensor([[0, 0], [1, 0], [0, 1]], dtype=F64)
        std = torch.ones_like(mean)
        terms = normal_kl(mean, std, torch.zeros_like(mean), 1.0).sum(1)
        cross = (math.log(2 * math.pi) + 1) + 0.5 * mean.square().sum(1).mean()
        found = cross - reduce_pairwise(pairwise_terms(terms, mean, std))
        assert lower - 1e-9 <= found <= lower + math.log(3) + 1e-9
        if entropy is not None:
            assert found.item() == pytest.approx(entropy, abs=1e-9)


def test_sums_over_layers_come_before_the_log_sum_exp():
    """T2.4: bounding every layer by itself counts ln K once a layer, below the KL of the joint."""
    layers = [mixture(0.75, seed=seed) for seed in range(3)]
    terms = [member_terms(mean, std) for mean, std in layers]
    pairs = [pairwise_terms(t, mean, std) for t, (mean, std) in zip(terms, layers, strict=True)]
    joint = reduce_pairwise(torch.stack(pairs).sum(0))
    apart = sum(reduce_pairwise(pair) for pair in pairs)
    exact, error = monte_carlo(*(torch.cat(parts, 1) for parts in zip(*layers, strict=True)))
    assert joint >= exact - 4 * error
    assert apart < exact - 10 * error
    together = reduce_pairwise(
        pairwise_terms(sum(terms), *(torch.cat(parts, 1) for parts in zip(*layers, strict=True)))
    )
    torch.testing.assert_close(joint, together, rtol=1e-12, atol=0)


SETTINGS = [
    *(lb.SharedEnsemble(members=3, rank=r, kl=kl) for r in (1, 2) for kl in ("mean", "sum")),
    *(lb.Implicit(members=3, kl=kl) for kl in ("mean", "sum", "averaged_draw", "pairwise")),
    *(lb.RankOne(members=3, kl=kl, tied_sign=True) for kl in ("mean", "sum")),
    lb.RankOne(members=3, kl="pairwise"),
    *(lb.RankOne(members=3, kl=kl, law="cauchy") for kl in ("mean", "sum")),
    lb.RankOne(members=3, law="cauchy", tied_sign=True, stochastic="in"),
    *(lb.Patching(members=3, scope=scope) for scope in ("layer", "element", "input", "network")),
    lb.Patching(members=3, zero_copy=True, scope="network"),
    lb.Patching(members=2, zero_copy=True, keep=0.8, cross=True),
    lb.Compose(
        [
            (lb.select.norms, lb.Patching(members=4)),
            (lb.select.stem, lb.SharedEnsemble(members=3, kl="sum", assign="split")),
            (lb.select.output, lb.Implicit(members=3)),
        ]
    ),
]


@pytest.mark.filterwarnings("ignore:the loss of this step is that of the mean")  # there is none
@pytest.mark.parametrize("method", SETTINGS, ids=[f"{i}-{m.name}" for i, m in enumerate(SETTINGS)])
def test_the_edit_is_the_gradient_of_the_models_kl_under_every_rule(method):
    """Closed forms must reduce over the members as the method says."""
    layers = nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)
    model = lb.bayesianize(nn.Sequential(*layers).to(F64), method)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(model.kl() / 7, parameters, materialize_grads=True)
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.0), lr=0.0)
    lb.attach_kl(optimizer, model, num_data=7)
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer.step()
    for p, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(p.grad - 1, gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", [lb.RankOne, lb.Implicit])
def test_the_pairwise_bound_of_a_start_without_noise_is_the_mean(method):
    """Members that are one have distance 0; squares of scales of 1e-26 are 0 in float32."""
    found = {}
    for kl in ("mean", "pairwise"):
        torch.manual_seed(0)
        model = lb.bayesianize(torch.nn.Linear(4, 3), method(kl=kl, init_std=0.0)).train()
        batch = torch.randn(8, 4), torch.arange(8) % 3
        lb.objective(model, batch, lb.Categorical(), num_data=8).loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        found[kl] = model.kl()
    torch.testing.assert_close(found["pairwise"], found["mean"], rtol=1e-6, atol=0)
