"""One family: settings under which two methods are one, and the mixture's KL between its bounds.

Equal parameters are copied between the slots and equal noise comes by key, so most identities are
equalities of outputs and gradients; where the mechanisms of drawing differ, moments are compared
with the closed form.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import leanbayes as lb
from leanbayes.noise import FixedNoise, FreshNoise, KeyedNoise

F64 = torch.float64


class Small(nn.Module):
    """A convolution, a norm and two Linears; gives class logits."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        x = torch.tanh(self.norm(self.conv(x))).mean((2, 3))
        return self.head(torch.tanh(self.fc(x)))


def small():
    torch.manual_seed(0)
    return Small().to(F64).eval()  # fixed statistics: rows do not meet


def pair(one, other, net=None):
    """Two models of equal weights."""
    net = net or small()
    return [lb.bayesianize(copy.deepcopy(net), method) for method in (one, other)]


def images(rows=6):
    torch.manual_seed(1)
    return torch.randn(rows, 2, 5, 5, dtype=F64)


def keyed_rows(method, rows, step=0):
    """The method's training plan with one keyed draw a row."""
    plan = method.training_plan(rows, 1, step)
    return lb.Plan(
        groups=rows, component=plan.component, noise=KeyedNoise(3, range(rows), memory=None)
    )


WEIGHTS = ("conv.weight", "fc.weight", "head.weight")


def same_network(one, other, shared=WEIGHTS, has_kl=True):
    """Equal outputs and gradients of the shared weights by row, equal predictions, equal KL."""
    x, plan = images(), keyed_rows(one.method, 6)
    outputs = [model(x, plan=plan) for model in (one, other)]
    assert torch.allclose(*outputs, rtol=1e-12, atol=1e-12)
    assert len(outputs[0].detach().round(decimals=9).unique(dim=0)) == 6
    for model, output in zip((one, other), outputs, strict=True):
        output.square().sum().backward()
        assert model.net.get_parameter(shared[0]).grad.abs().max() > 0
    for name in shared:
        grads = [model.net.get_parameter(name).grad for model in (one, other)]
        assert torch.allclose(*grads, rtol=1e-10, atol=1e-12)
    settings = {"likelihood": lb.Categorical(), "samples": 8, "seed": 5}
    probs = [lb.predict(model, x, **settings).probs for model in (one, other)]
    assert torch.allclose(*probs, rtol=1e-12)
    if has_kl:
        assert one.kl() != 0
        assert torch.allclose(one.kl(), other.kl(), rtol=1e-12)


def layers(model):
    return [model.net.conv, model.net.fc, model.net.head]


@torch.no_grad()
def test_ibnn_is_rank_one_without_output_factors():
    for rule in ("mean", "sum", "pairwise"):
        one, other = pair(
            lb.Implicit(members=4, kl=rule, init_std=0.3),
            lb.RankOne(members=4, kl=rule, stochastic="in", clip=None),
        )
        for here, there in zip(layers(one), layers(other), strict=True):
            there.slots["in_scale"].load_state_dict(here.slots["in_scale"].state_dict())
            there.slots["out_scale"].location.fill_(1.0)
        with torch.enable_grad():
            same_network(one, other)
        assert one.report.random_dimensions == other.report.random_dimensions == 2 + 4 + 5


@torch.no_grad()
def test_batch_ensemble_is_rank_one_without_noise():
    one, other = pair(lb.BatchEnsemble(members=4, init_std=0.3), lb.RankOne(members=4))
    for here, there in zip(layers(one), layers(other), strict=True):
        for slot in ("in_scale", "out_scale"):
            there.slots[slot].location.copy_(here.slots[slot].location)
            there.slots[slot].rho.fill_(-1e3)  # softplus of it is 0 to the last bit
        for layer in (here, there):  # biases by member
            layer.slots["bias"].further.copy_(torch.arange(1.0, 4, dtype=F64)[:, None])
    with torch.enable_grad():
        same_network(one, other, has_kl=False)  # a vanishing scale has an infinite one
    for k in range(4):
        members = [lb.collapse(model, member=k).state_dict() for model in (one, other)]
        assert all(torch.equal(members[0][name], members[1][name]) for name in members[0])


@pytest.mark.parametrize("linear", [True, False])
@torch.no_grad()
def test_shared_ensemble_of_rank_one_is_batch_ensemble_with_a_member_a_row(linear):
    # On a convolution that holds for factors by channel.
    net = small().fc if linear else small().conv
    one, other = pair(
        lb.SharedEnsemble(members=4, rank=1, per_channel=not linear, init_std=0.4),
        lb.BatchEnsemble(members=4),
        net,
    )
    candidates, points = one.net.slots["weight"], other.net.slots
    points["out_scale"].location.copy_(candidates.left[:, :, 0])
    points["in_scale"].location.copy_(candidates.right[:, 0])
    x = torch.randn(9, 4, dtype=F64) if linear else images(9)
    for _ in range(3):
        plan = one.method.training_plan(9)  # a uniform member a row
        outputs = [model(x, plan=plan) for model in (one, other)]
        assert torch.allclose(*outputs, rtol=1e-12, atol=1e-12)
    for k in range(4):
        plain = [lb.collapse(model, member=k) for model in (one, other)]
        assert torch.allclose(plain[0].weight, plain[1].weight, rtol=1e-12)


def test_partial_at_rate_one_is_mean_field_and_at_rate_zero_the_network():
    one, other = pair(
        lb.Partial(rate=1.0, criterion="magnitude", init_std=0.2, estimator="exemplar"),
        lb.MeanField(init_std=0.2, estimator="exemplar"),
    )
    same_network(one, other, shared=("conv.weight", "norm.bias", "fc.weight", "head.bias"))
    nothing = lb.bayesianize(small(), lb.Partial(rate=0.0)).train()
    nothing.net.eval()
    assert torch.equal(nothing(images()), small()(images()))
    assert nothing.kl() == 0
    assert nothing.report.added == 0


def test_patching_of_all_layers_under_one_index_is_a_deep_ensemble():
    method = lb.Patching(members=3, scope="network", where="all", init_std=0.4)
    one, other = pair(method, lb.DeepEnsemble(members=3, init_std=0.0))
    with torch.no_grad():
        for name, layer in other.net.named_children():
            for slot in ("weight", "bias"):
                bank = one.net.get_submodule(name).slots[slot].further
                for k, further in enumerate(layer.slots[slot].further):
                    further.copy_(bank[k])
    x = images()
    found = [lb.predict(m, x, likelihood=lb.Categorical(), samples=3).probs for m in (one, other)]
    alone = [lb.collapse(one, member=k)(x).softmax(1) for k in range(3)]
    assert (alone[0] - alone[1]).abs().max() > 0.01
    assert torch.allclose(alone[0], small()(x).softmax(1), rtol=1e-12)
    for probs in found:
        assert torch.allclose(probs, sum(alone) / 3, rtol=1e-12)


def test_one_copy_is_the_network_and_so_is_a_mean_field_of_norms_without_noise():
    # Mean field of the norm layers is patching of them with a law instead of copies.
    x = images()
    for method in (
        lb.Patching(members=1, where="norm"),
        lb.MeanField(select=lb.select.norms, init_std=0.0),
    ):
        model = lb.bayesianize(small(), method).train()
        model.net.eval()
        assert torch.allclose(model(x), small()(x), rtol=1e-12)


def test_mean_field_of_norms_draws_norms_alone():
    method = lb.MeanField(select=lb.select.norms, init_std=0.5)
    model = lb.bayesianize(small(), method)
    assert [q.key for _, _, q, _ in model.posteriors()] == ["norm.weight", "norm.bias"]
    noise = {f"norm.{name}": torch.randn(1, 4, dtype=F64) for name in ("weight", "bias")}
    found = model(images(), plan=lb.Plan(noise=FixedNoise(noise)))
    plain = small()
    with torch.no_grad():
        for name, values in noise.items():
            plain.get_parameter(name).add_(0.5 * values[0])
    assert torch.allclose(found, plain(images()), rtol=1e-12)


def test_crossed_patching_with_a_zero_copy_is_drop_connect():
    keep, draws = 0.7, 5
    net = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.Flatten(), nn.Linear(27, 4, bias=False))
    net = net.to(F64)
    patched = lb.Patching(members=2, zero_copy=True, cross=True, keep=keep, where="all")
    one, other = pair(patched, lb.DropConnect(rate=1 - keep), net)
    with torch.no_grad():  # DropConnect divides by `keep`, which keeps the expected value
        for p in other.net.parameters():
            p.mul_(keep)
    shapes = {"0.weight": (3, 2, 3, 3), "2.weight": (4, 27)}
    noise = FixedNoise({key: torch.rand(draws, *shape) for key, shape in shapes.items()})
    x = images(2).repeat(draws, 1, 1, 1)
    outputs = [model(x, plan=lb.Plan(groups=draws, noise=noise)) for model in (one, other)]
    assert torch.allclose(*outputs, rtol=1e-12)
    for model in (one, other):  # Bernoulli moments of the drawn weights themselves
        host, _, q, base = next(iter(model.posteriors()))
        drawn = q.draw(base, q.noise(base, 20_000, FreshNoise())).detach()
        weight = net[0].weight.detach()
        error = weight.abs() * math.sqrt(keep * (1 - keep) / 20_000)
        assert ((drawn.mean(0) - keep * weight).abs() < 5 * error).all()
        assert torch.allclose(drawn.var(0), keep * (1 - keep) * weight.square(), rtol=0.05)
        assert host.kind == "conv"
        pairs = torch.corrcoef(drawn.flatten(1).T) - torch.eye(54, dtype=F64)
        assert pairs.abs().max() < 5 / math.sqrt(20_000)  # elements are dropped independently


@pytest.mark.parametrize("linear", [True, False])
def test_patching_by_input_with_a_zero_copy_is_dropout(linear):
    # Of a convolution's channels, as a whole.
    keep, draws = 0.6, 7
    net = small().fc if linear else small().conv
    patched = lb.Patching(members=2, zero_copy=True, scope="input", keep=keep, where="all")
    dropped = lb.MCDropout(rate=1 - keep, where=lb.select.everything, channelwise=not linear)
    one, other = pair(patched, dropped, net)
    with torch.no_grad():
        other.net.weight.mul_(keep)
    uniform = torch.rand(draws, 4 if linear else 2)
    x = torch.randn(3, 4, dtype=F64) if linear else images(3)
    rows = x.repeat(draws, *(1,) * (x.dim() - 1))
    noise = FixedNoise({"weight": uniform, "in_scale": uniform})
    outputs = [model(rows, plan=lb.Plan(groups=draws, noise=noise)) for model in (one, other)]
    assert torch.allclose(*outputs, rtol=1e-12, atol=1e-12)
    assert torch.allclose(lb.collapse(one)(x), lb.collapse(other)(x), rtol=1e-12)


def factors_and_weights(side, draws=40_000):
    """A square Linear under a mixture of two members, and its drawn weights [draws, O, I]."""
    method = lb.RankOne(members=2, stochastic=side, clip=None, init_std=0.2, init_scale=0.3)
    model = lb.bayesianize(nn.Linear(3, 3, bias=False).to(F64), method)
    q = model.net.slots[f"{side}_scale"]
    with torch.no_grad():
        model.net.slots["out_scale" if side == "in" else "in_scale"].location.fill_(1.0)
        q.rho.add_(torch.randn_like(q.rho))
        # The rows of the unit matrix read the columns of the weight, one draw for all of them.
        rows = torch.eye(3, dtype=F64).repeat(draws, 1)
        plan = lb.Plan(groups=draws, component=torch.arange(draws) % 2)
        weights = model(rows, plan=plan).reshape(draws, 3, 3).transpose(1, 2)
    return q, model.net.weight.detach(), weights


@pytest.mark.parametrize(("side", "indices"), [("in", "ij,kl,jl->ijkl"), ("out", "ij,kl,ik->ijkl")])
def test_theorem_one_of_rank_one_with_the_index_corrected(side, indices):
    """Cov(dW_ij, dW_kl) = W_ij W_kl Sigma_jl for input factors; the paper prints Sigma_jk (T5.2).

    Sigma is that of the mixture: a common index correlates the factors.
    """
    q, weight, drawn = factors_and_weights(side)
    with torch.no_grad():
        variances = torch.diag(nn.functional.softplus(q.rho).square().mean(0))
        sigma = variances + torch.cov(q.location.T, correction=0)
    expected = torch.einsum(indices, weight, weight, sigma)
    centred = drawn - weight * (q.location.mean(0) if side == "in" else q.location.mean(0)[:, None])
    centred = centred.detach()
    products = torch.einsum("dij,dkl->dijkl", centred, centred)
    error = products.std(0) / math.sqrt(len(drawn))
    assert ((products.mean(0) - expected).abs() < 5 * error).all()
    printed = torch.einsum("ij,kl,jk->ijkl", weight, weight, sigma)
    assert ((products.mean(0) - printed).abs() > 20 * error).any()


# --------------------------------------------------------------------------- the KL of a mixture


def mixture(spread, kl, std=0.1, prior_std=0.3, split=(2, 4)):
    """Means 1 + spread * z of K = 4 members over d = 6 factors, in the layers of one network."""
    net = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(split, (*split[1:], 1), strict=True)))
    model = lb.bayesianize(net.to(F64), lb.Implicit(members=4, kl=kl, prior_std=prior_std))
    torch.manual_seed(1)
    means = 1 + spread * torch.randn(4, 6, dtype=F64)
    with torch.no_grad():
        for layer, part in zip(net, means.split(split, 1), strict=True):
            layer.slots["in_scale"].location.copy_(part)
            layer.slots["in_scale"].rho.fill_(math.log(math.expm1(std)))
    return model, means


def monte_carlo_kl(means, std=0.1, prior_std=0.3, draws=200_000):
    """KL of the mixture with one index for all factors, and its standard error."""
    members = torch.arange(draws) % len(means)
    z = means[members] + std * torch.randn(draws, means.shape[1], dtype=F64)
    by_member = Normal(means, std).log_prob(z[:, None]).sum(-1)
    log_q = by_member.logsumexp(1) - math.log(len(means))
    terms = log_q - Normal(1.0, prior_std).log_prob(z).sum(1)
    return float(terms.mean()), float(terms.std() / math.sqrt(draws))


TABLE = [  # spread, KL(mixture), averaged_draw, mean, sum, pairwise (T2.3)
    (0.0, 3.93, 7.83, 3.93, 15.7, 3.93),
    (0.1, 3.26, 7.91, 4.25, 17.0, 3.48),
    (0.3, 5.43, 8.51, 6.81, 27.2, 5.43),
    (0.75, 20.6, 12.1, 21.9, 87.8, 20.56),
]


@pytest.mark.parametrize("split", [(2, 4), (1, 2, 3)])
@pytest.mark.parametrize(("spread", "exact", "averaged", "mean", "total", "pairwise"), TABLE)
def test_mixture_kl_lies_between_its_bounds(spread, exact, averaged, mean, total, pairwise, split):
    """However the factors are spread over layers: the index counts once for the network (T2.4)."""

    def kl(rule):
        return mixture(spread, rule, split=split)[0].kl().item()

    printed = {"averaged_draw": averaged, "mean": mean, "sum": total, "pairwise": pairwise}
    for rule, value in printed.items():
        digits = 0.05 if value in (15.7, 17.0, 27.2, 87.8, 12.1, 21.9) else 0.005
        assert kl(rule) == pytest.approx(value, abs=digits * 1.02)
    truth, error = monte_carlo_kl(mixture(spread, "mean", split=split)[1])
    assert truth == pytest.approx(exact, abs=0.05)
    assert kl("mean") - math.log(4) - 5 * error <= truth <= kl("mean") + 5 * error
    assert truth - 5 * error <= kl("pairwise") <= kl("mean") + 1e-12
    assert kl("sum") == pytest.approx(4 * kl("mean"), rel=1e-12)
    # iBNN's surrogate is far too large without spread and far too small with much of it.
    assert (kl("averaged_draw") > truth + 1) == (spread < 0.5)


def test_the_averaged_draw_kl_vanishes_at_root_k_times_the_prior_scale():
    """'Variances centre around s^2' is false: with K = 4 and s = 0.1 the optimum is 0.2 (T2.3)."""
    model, _ = mixture(0.0, "averaged_draw", std=0.2, prior_std=0.1)
    assert model.kl().item() == pytest.approx(0.0, abs=1e-12)
    model.kl().backward()
    assert all(layer.slots["in_scale"].rho.grad.abs().max() < 1e-12 for layer in model.net)
    assert mixture(0.0, "averaged_draw", std=0.1, prior_std=0.1)[0].kl() > 1
    assert mixture(0.0, "mean", std=0.1, prior_std=0.1)[0].kl().abs() < 1e-12


def test_pairwise_divides_by_four_and_sums_distances_over_layers_first():
    """A sixteenth for the quarter is looser; bounds by layer count ln K once a layer (T2.4)."""
    model, means = mixture(0.1, "pairwise")
    gaps = (means[:, None] - means[None]).square() / (2 * 0.01)  # over v_i + v_j
    mean_kl = mixture(0.1, "mean")[0].kl()

    def bound(distance):
        logs = torch.logsumexp(-distance, 1) - math.log(4)
        return mean_kl + logs.mean()

    assert torch.allclose(model.kl(), bound(gaps.sum(-1) / 4), rtol=1e-12)
    assert bound(gaps.sum(-1) / 16).item() == pytest.approx(3.99, abs=0.005)
    by_layer = mean_kl + sum(bound(part.sum(-1) / 4) - mean_kl for part in gaps.split(3, -1))
    assert by_layer < model.kl()  # would claim more entropy than the index has
    apart = mixture(3.0, "pairwise", split=(1,) * 6)[0].kl()
    assert torch.allclose(apart, mixture(3.0, "mean")[0].kl() - math.log(4), atol=1e-6)
