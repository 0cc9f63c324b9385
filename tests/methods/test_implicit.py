"""Implicit (iBNN): one index for the whole network, fresh factors a row, every form of the KL."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import leanbayes as lb
from leanbayes.noise import KeyedNoise
from leanbayes.posteriors.scale import inverse_softplus

F64 = torch.float64


def network():
    torch.manual_seed(1)
    layers = (
        nn.Conv1d(2, 3, 2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(9, 4),
        nn.Tanh(),
        nn.Linear(4, 3),
    )
    return nn.Sequential(*layers).to(F64)


def converted(net=None, **options):
    options = {"members": 4, "init_std": 0.5, **options}
    torch.manual_seed(2)
    return lb.bayesianize(net or network(), lb.Implicit(**options)).train()


def inputs(rows=6):
    return torch.randn(rows, 2, 4, dtype=F64)


def banks(model):
    return [q for _, _, q, _ in model.posteriors()]


def joint(model):
    """Means and scales of the whole network, [K, all factors]."""
    mean = torch.cat([q.location for q in banks(model)], 1)
    return mean, torch.cat([nn.functional.softplus(q.rho) for q in banks(model)], 1)


def set_scale(model, scale):
    with torch.no_grad():
        for q in banks(model):
            q.rho.fill_(inverse_softplus(scale))


@pytest.mark.parametrize("side", ["in", "out"])
def test_every_product_has_one_bank_on_its_side_and_nothing_else_is_random(side):
    model = converted(side=side)
    sizes = {"in": (2, 9, 4), "out": (3, 4, 3)}[side]
    assert [q.location.shape for q in banks(model)] == [(4, size) for size in sizes]
    assert {slot for layer in model.report.converted for slot in layer.slots} == {f"{side}_scale"}


@pytest.mark.parametrize("side", ["in", "out"])
def test_the_output_is_that_of_scaled_activations(side):
    """f = W (z * x) + b, or (W x) * z + b."""
    model, x = converted(side=side), inputs()
    component, noise = torch.arange(6) % 4, KeyedNoise(3, range(6))
    found = model(x, plan=lb.Plan(per_row=True, component=component, noise=noise))
    y = x
    for layer in model.net:
        if not isinstance(layer, (nn.Linear, nn.Conv1d)):
            y = layer(y)
            continue
        q = layer.slots[f"{side}_scale"]
        eps = KeyedNoise(3, range(6)).normal(q.key, 6, q.location.shape[1:], y)
        z = q.location[component] + nn.functional.softplus(q.rho)[component] * eps
        z = z[..., None] if isinstance(layer, nn.Conv1d) else z
        plain = nn.functional.conv1d if isinstance(layer, nn.Conv1d) else nn.functional.linear
        bias = layer.bias[:, None] if isinstance(layer, nn.Conv1d) else layer.bias
        y = plain(y * z, layer.weight) + bias if side == "in" else plain(y, layer.weight) * z + bias
    torch.testing.assert_close(found, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("assign", ["split", "interleave", "random"])
def test_one_index_runs_through_all_layers(assign):
    """T2.2: eq. (18) would mix members over layers; every row is one member's network."""
    model, x = converted(assign=assign, init_scale=0.0), inputs(12)
    outputs = [lb.collapse(copy.deepcopy(model), k)(x) for k in range(4)]
    gap = (torch.stack(outputs) - model(x)).abs().amax(2)
    assert gap.min(0).values.max() < 1e-12
    if assign != "random":
        assert torch.bincount(gap.argmin(0)).tolist() == [3, 3, 3, 3]


def test_factors_are_fresh_by_row_and_independent_by_layer():
    """y = x z1 z2 has variance ((s1^2 + m1^2)(s2^2 + m2^2) - m1^2 m2^2) x^2."""
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).to(F64)
    for p in net.parameters():
        nn.init.ones_(p)
    model = converted(net, members=1, init_std=0.3, init_scale=0.4)
    y = model(torch.ones(200_000, 1, dtype=F64)).detach()[:, 0]
    (m1, m2), (s1, s2) = (t.flatten().detach() for t in joint(model))
    variance = (s1**2 + m1**2) * (s2**2 + m2**2) - (m1 * m2) ** 2
    assert abs(y.mean() - m1 * m2) < 5 * math.sqrt(variance / 200_000)
    assert y.var().item() == pytest.approx(variance.item(), rel=0.03)
    assert abs(torch.corrcoef(torch.stack([y[:-1], y[1:]]))[0, 1]) < 5 / math.sqrt(200_000)


def monte_carlo(model, draws=30_000):
    """KL of the mixture over whole networks, by sampling, and its standard error."""
    mean, std = (t.detach() for t in joint(model))
    x = mean[:, None] + std[:, None] * torch.randn(len(mean), draws, mean.shape[1], dtype=F64)
    parts = [Normal(m, s).log_prob(x).sum(-1) for m, s in zip(mean, std, strict=True)]
    log_q = torch.stack(parts).logsumexp(0) - math.log(len(mean))
    terms = (log_q - Normal(1.0, model.method.prior_std).log_prob(x).sum(-1)).flatten()
    return terms.mean(), terms.std() / math.sqrt(terms.numel())


@pytest.mark.parametrize("spread", [0.01, 0.04, 0.3])
def test_the_kl_of_the_model_is_within_ln_k_of_the_mixtures(spread):
    """T2.3b, acceptance test 9: MC <= mean <= MC + ln K, with the pairwise bound between."""
    model = converted(init_std=spread, init_scale=0.05)
    tight = converted(init_std=spread, init_scale=0.05, kl="pairwise")
    tight.load_state_dict(model.state_dict())
    exact, error = monte_carlo(model)
    slack = 4 * error + 1e-9
    assert exact - slack <= model.kl() <= exact + math.log(4) + slack
    assert exact - slack <= tight.kl() <= model.kl() + 1e-9
    assert model.kl_kind == "bound"


def test_pairwise_terms_are_summed_over_layers_before_they_are_bounded():
    """T2.4: far-apart members gain ln K once for the network, not once a layer."""
    mean, pairwise = converted(init_scale=0.01), converted(init_scale=0.01, kl="pairwise")
    torch.testing.assert_close(pairwise.kl(), mean.kl() - math.log(4), rtol=1e-10, atol=0)


def test_the_sum_is_k_times_the_mean():
    """T5.5."""
    torch.testing.assert_close(converted(kl="sum").kl(), 4 * converted().kl(), rtol=1e-12, atol=0)


def test_the_papers_surrogate_is_zero_at_sqrt_k_times_the_prior():
    """T2.3, acceptance test 9: mean of the means at 1 and sigma_k = sqrt(K) s, not s."""
    model = converted(kl="averaged_draw", prior_std=0.1)
    with torch.no_grad():
        for q in banks(model):
            q.location.sub_(q.location.mean(0) - 1)
    set_scale(model, 0.2)
    assert model.kl().item() == pytest.approx(0.0, abs=1e-9)
    set_scale(model, 0.1)
    each = math.log(2) + 1 / 8 - 0.5  # of N(1, (s / 2)^2) against N(1, s^2)
    assert model.kl().item() == pytest.approx(each * 15, rel=1e-9)
    fair = converted(prior_std=0.1)
    fair.load_state_dict(model.state_dict())
    assert fair.kl() > 100  # members are spread by 0.5 around a prior of 0.1: no cost above


def test_gradient_steps_find_the_papers_minimiser():
    model = converted(nn.Linear(3, 2).to(F64), kl="averaged_draw", init_std=0.1, prior_std=0.1)
    optimizer = torch.optim.Adam([q.rho for q in banks(model)], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        model.kl().backward()
        optimizer.step()
    assert nn.functional.softplus(banks(model)[0].rho).mean().item() == pytest.approx(0.2, rel=1e-3)


def test_members_have_equal_weight_in_prediction_and_five_draws_each():
    model, x = converted(init_scale=0.0), inputs()
    assert model.method.default_samples == 20
    outputs = torch.stack([lb.collapse(copy.deepcopy(model), k)(x).softmax(1) for k in range(4)])
    found = lb.predict(model, x, likelihood=lb.Categorical(), seed=0, keep_samples=True)
    assert len(found.samples) == 20
    torch.testing.assert_close(found.probs, outputs.mean(0).detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.samples[7], outputs[3].detach(), rtol=1e-10, atol=1e-12)
    uneven = lb.predict(model, x, likelihood=lb.Categorical(), seed=0, samples=6)
    torch.testing.assert_close(uneven.probs, outputs.mean(0).detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 100])
@pytest.mark.parametrize("layers", [1, 2])
def test_predictions_draw_from_the_posterior_and_not_from_the_prior(layers, chunk):
    """T2.5: eq. (25) of the paper integrates over p(Z). The network is the product of its z."""
    net = nn.Sequential(*(nn.Linear(1, 1, bias=False, dtype=F64) for _ in range(layers)))
    model = converted(net, members=2)
    mean, std = torch.tensor([2.0, -0.5], dtype=F64), torch.tensor([0.3, 0.02], dtype=F64)
    with torch.no_grad():
        for layer, q in zip(net, banks(model), strict=True):
            layer.weight.fill_(1)
            q.location.copy_(mean[:, None])
            q.rho.copy_(std.expm1().log()[:, None])
    options = {"likelihood": lb.Gaussian(), "seed": 0, "keep_samples": True, "chunk": chunk}
    found = lb.predict(model, torch.ones(1, 1, dtype=F64), samples=2000, **options).samples
    z = found[:, 0, 0, 0].reshape(1000, 2)  # sample t is of member t mod 2
    variance = (mean**2 + std**2) ** layers - mean ** (2 * layers)
    assert ((z.mean(0) - mean**layers) / (variance / 1000).sqrt()).abs().max() < 5
    torch.testing.assert_close(z.var(0), variance, rtol=0.25, atol=0)


@pytest.mark.parametrize(
    "options", [{}, {"side": "out"}, {"assign": "interleave"}, {"granularity": "batch"}]
)
def test_seeded_draws_and_rows_do_not_depend_on_chunks_or_neighbours(options):
    model, x = converted(init_scale=0.2, **options), inputs()
    wanted = {"likelihood": lb.Categorical(), "samples": 9, "seed": 3, "keep_samples": True}
    whole = lb.predict(model, x, chunk=1, **wanted).samples
    for chunk in (2, 9):
        found = lb.predict(model, x, chunk=chunk, **wanted).samples
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
    alone = lb.predict(model, x[4:5], **wanted).samples
    torch.testing.assert_close(alone, whole[:, 4:5], rtol=1e-12, atol=1e-12)


def test_rows_of_a_member_block_share_the_draw_by_batch_and_not_by_row():
    x = inputs(1).expand(8, 2, 4)
    for granularity, distinct in (("batch", 4), ("row", 8)):
        y = converted(init_scale=0.2, granularity=granularity)(x).detach()
        assert len({tuple(row) for row in y.round(decimals=9).tolist()}) == distinct


def test_only_the_members_of_the_rows_learn_and_the_weights_always_do():
    model = converted()
    model(inputs(2), plan=lb.Plan(per_row=True, component=torch.tensor([3, 1]))).sum().backward()
    for q in banks(model):
        for grad in (q.location.grad, q.rho.grad):
            assert (grad.abs().sum(1) > 0).tolist() == [False, True, False, True]
    assert all(layer.weight.grad.abs().sum() > 0 for layer in model.net if hasattr(layer, "weight"))
