"""RankOne and BatchEnsemble: the product, its sides, biases by member, and the traps of T5."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.noise import KeyedNoise
from leanbayes.posteriors.factors import FactorBank
from leanbayes.posteriors.points import PointFactors

F64 = torch.float64


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.depthwise = nn.Conv2d(4, 8, 3, groups=4)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc(torch.relu(self.depthwise(x)).mean((2, 3)))


def mlp():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def converted(net, method=None, **options):
    torch.manual_seed(1)
    method = method or lb.RankOne(**{"members": 3, "init_std": 0.4, "init_scale": 0.2, **options})
    model = lb.bayesianize(net.to(F64), method).train()
    with torch.no_grad():  # biases of the members start equal
        for _, slot, q, _ in model.posteriors():
            if "bias" in slot:
                q.further.add_(0.5 * torch.randn_like(q.further))
    return model


def batch(rows=6):
    return torch.randn(rows, 4, dtype=F64), torch.arange(rows) % 3


def member_nets(model):
    return [lb.collapse(copy.deepcopy(model), k) for k in range(model.method.members)]


def drawn(q, rows, component):
    noise = q.noise(torch.zeros(1, dtype=F64), rows, KeyedNoise(3, range(rows)))
    return q.draw(torch.zeros(1, dtype=F64), noise, component)


@pytest.mark.parametrize("law", ["normal", "cauchy"])
@pytest.mark.parametrize("conv", [True, False])
def test_the_output_is_the_papers_formula(law, conv):
    """y = (W (x * s_k)) * r_k + b_k with a draw a row."""
    layer = nn.Conv2d(4, 5, 3, padding=1) if conv else nn.Linear(4, 5)
    model = converted(layer, law=law)
    x = torch.randn(6, 4, *((3, 3) if conv else ()), dtype=F64)
    component = torch.tensor([2, 0, 1, 1, 2, 0])
    plan = lb.Plan(per_row=True, component=component, noise=KeyedNoise(3, range(6)))
    s, r = (drawn(layer.slots[slot], 6, component) for slot in ("in_scale", "out_scale"))
    bias = torch.cat([layer.bias[None], layer.slots["bias"].further])[component]
    if conv:
        s, r, bias = (t[..., None, None] for t in (s, r, bias))
        expected = F.conv2d(x * s, layer.weight, padding=1) * r + bias
    else:
        expected = ((x * s) @ layer.weight.T) * r + bias
    torch.testing.assert_close(model(x, plan=plan), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("side", ["in", "out"])
def test_the_other_side_keeps_its_factors_as_points(side):
    model = converted(nn.Linear(4, 5), stochastic=side)
    other = "out" if side == "in" else "in"
    random, points = (model.net.slots[f"{s}_scale"] for s in (side, other))
    assert isinstance(random, FactorBank)
    assert isinstance(points, PointFactors)
    torch.testing.assert_close(model.kl(), random.kl(model.net.weight).mean(), rtol=1e-12, atol=0)
    # Noise spreads columns (in) or rows (out) of the weight: ratios of the others stay fixed.
    x = torch.eye(4, dtype=F64)
    plan = lb.Plan(groups=50, component=torch.ones(50, dtype=torch.long))
    bias = model.net.slots["bias"].further[0]
    w = (model(x.repeat(50, 1), plan=plan) - bias).reshape(50, 4, 5).transpose(1, 2)
    ratio = (w[:, 1:] / w[:, :1]) if side == "in" else (w[:, :, 1:] / w[:, :, :1])
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-9, atol=1e-9)
    assert (w.std(0) / w.mean(0).abs()).min() > 0.01
    model(batch()[0]).square().sum().backward()
    assert points.location.grad.abs().min() > 0


def test_biases_are_points_by_member():
    for method in (None, lb.BatchEnsemble(members=3)):
        fresh = lb.bayesianize(mlp().to(F64), method or lb.RankOne(members=3))
        for layer in (fresh.net[0], fresh.net[2]):
            assert torch.equal(layer.slots["bias"].further, layer.bias.expand(2, -1))
        model = converted(nn.Linear(4, 5), method)
        y = model(torch.zeros(3, 4, dtype=F64), plan=lb.Plan(groups=3, component=torch.arange(3)))
        assert torch.equal(y[0], model.net.bias)
        assert torch.equal(y[1:], model.net.slots["bias"].further)
        assert "bias" not in converted(nn.Linear(4, 5, bias=False), method).net.slots


@pytest.mark.parametrize("kind", [lb.RankOne, lb.BatchEnsemble])
def test_a_depthwise_convolution_has_one_factor(kind):
    """T5.8: input and output factors of a depthwise convolution are one product."""
    model = converted(Convolutional(), kind(members=3))
    assert set(model.net.depthwise.slots) == {"out_scale", "bias"}
    assert set(model.net.conv.slots) == {"in_scale", "out_scale", "bias"}
    assert model.net.depthwise.slots["out_scale"].location.shape == (3, 8)


@pytest.mark.parametrize("side", ["in", "out"])
def test_the_one_factor_of_a_depthwise_convolution_is_random(side):
    """Whichever side has the law: the factors of both sides are one product there."""
    model = converted(Convolutional(), stochastic=side)
    laws = [q for q in model.net.depthwise.slots.values() if isinstance(q, FactorBank)]
    assert len(laws) == 1


def log_probs(model, x, y):
    """log p_k(y | x) of the plain networks of all members, with gradients to the factors."""
    rows = len(x)
    outputs = [
        model(x, plan=lb.Plan(groups=1, component=torch.tensor([k])))
        for k in range(model.method.members)
    ]
    return torch.stack([o.log_softmax(1)[torch.arange(rows), y] for o in outputs])


@pytest.mark.parametrize("likelihood_of", ["average", "mixture"])
def test_gradients_of_the_average_and_of_the_log_mixture(likelihood_of):
    """T5.1: d log(1/K sum p) = dp_k' / sum_k p_k, d 1/K sum log p = dp_k' / (K p_k')."""
    model = converted(mlp(), lb.BatchEnsemble(members=3, init_std=0.4, assign="tile"))
    x, y = batch()
    factor = model.net[0].slots["in_scale"].location
    p = log_probs(model, x, y).exp()
    by_hand = torch.zeros_like(factor)
    for k, b in ((k, b) for k in range(3) for b in range(6)):
        slope = torch.autograd.grad(p[k, b], factor, retain_graph=True)[0]
        assert (slope.abs().sum(1) > 0).tolist() == [i == k for i in range(3)]
        weight = p[:, b].sum() if likelihood_of == "mixture" else 3 * p[k, b]
        by_hand -= slope / weight.detach() / 6
    result = lb.objective(
        model, (x, y), lb.Categorical(), include_kl=False, likelihood_of=likelihood_of
    )
    found = torch.autograd.grad(result.nll, factor)[0]
    torch.testing.assert_close(found, by_hand, rtol=1e-9, atol=1e-12)
    mixture = -p.mean(0).log().mean()
    expected = mixture if likelihood_of == "mixture" else -p.log().mean()
    torch.testing.assert_close(result.nll, expected, rtol=1e-12, atol=0)


def test_members_are_their_plain_networks_and_predict_with_equal_weight():
    x = batch()[0]
    for method in (lb.BatchEnsemble(members=3, init_std=0.4), None):
        model = converted(mlp(), method, init_scale=0.0)
        nets = torch.stack([net.eval()(x).softmax(1) for net in member_nets(model)]).detach()
        assert (nets[0] - nets[1]).abs().max() > 0.01
        found = lb.predict(
            model, x, likelihood=lb.Categorical(), samples=len(nets), keep_samples=True, seed=0
        )
        torch.testing.assert_close(found.samples, nets, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.probs, nets.mean(0), rtol=1e-10, atol=1e-12)


def test_sum_mean_and_pairwise_reduce_the_same_terms():
    """T5.5: the authors' code sums over the members, K times the convexity bound."""
    mean, summed, pairwise = (converted(mlp(), kl=kl) for kl in ("mean", "sum", "pairwise"))
    torch.testing.assert_close(summed.kl(), 3 * mean.kl(), rtol=1e-12, atol=0)
    assert mean.kl() - math.log(3) - 1e-9 <= pairwise.kl() <= mean.kl() + 1e-9
    assert [m.kl_kind for m in (mean, summed)] == ["bound", "bound"]


def test_point_members_have_no_kl():
    model = converted(mlp(), lb.BatchEnsemble(members=3))
    assert model.kl() == 0
    assert model.kl_kind == "none"


def test_a_tied_prior_makes_random_signs_free():
    """T5.6: signs of -1 against a prior at 1 cost 200 nats each, at their own sign nothing."""
    options = {"prior_std": 0.1, "init_scale": 0.1, "init_std": 0.01}
    plain, tied = converted(mlp(), **options), converted(mlp(), tied_sign=True, **options)
    for model in (plain, tied):
        signs = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for _, _, q, _ in model.posteriors():
                if isinstance(q, FactorBank):
                    q.location.copy_(torch.randint(0, 2, q.location.shape, generator=signs) * 2 - 1)
    factors = [q.location for _, _, q, _ in plain.posteriors() if isinstance(q, FactorBank)]
    negative = sum(int((location < 0).sum()) for location in factors)
    assert negative > 10
    assert plain.kl().item() == pytest.approx(200 * negative / 3, rel=1e-9)
    assert tied.kl().item() == pytest.approx(0.0, abs=1e-9)


def test_a_norm_of_one_members_rows_erases_its_scale_and_a_pooled_one_does_not():
    """T5.7: positive output scales act only through statistics that members share."""
    net = nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5, eps=1e-16))
    model = converted(net, lb.BatchEnsemble(members=4, init_std=0.0))
    scales = torch.tensor([1.0, 0.2, 3.0, 1.0], dtype=F64)
    alone = [lb.Plan(groups=1, component=torch.tensor([k])) for k in range(4)]
    x = torch.randn(50, 4, dtype=F64)
    before = [model(x, plan=plan) for plan in alone]
    with torch.no_grad():
        model.net[0].slots["out_scale"].location.mul_(scales[:, None])
    for plan, y in zip(alone, before, strict=True):
        torch.testing.assert_close(model(x, plan=plan), y, rtol=1e-9, atol=1e-9)
    pooled = model(x.repeat(4, 1), plan=lb.Plan(groups=4, component=torch.arange(4)))
    spread = pooled.reshape(4, 50, 5).std(1, correction=0)
    size = (scales.square().mean()).sqrt()
    assert ((spread.mean(1) / spread.mean(1)[0] - scales).abs() < 0.05).all()
    assert spread.mean().item() == pytest.approx((scales / size).mean().item(), rel=0.05)
    with torch.no_grad():  # a sign is not erased
        model.net[0].slots["out_scale"].location[0].neg_()
    torch.testing.assert_close(model(x, plan=alone[0]), -before[0], rtol=1e-9, atol=1e-9)


VARIANTS = [
    lb.RankOne(members=3, init_std=0.3, init_scale=0.2),
    lb.RankOne(members=3, init_std=0.3, law="cauchy"),
    lb.RankOne(members=3, init_std=0.3, stochastic="in"),
    lb.RankOne(members=3, init_std=0.3, stochastic="out", assign="tile"),
    lb.RankOne(members=3, init_std=0.3, granularity="batch"),
    lb.RankOne(members=3, init_std=0.3, kl="pairwise", assign="interleave"),
    lb.BatchEnsemble(members=3, init_std=0.3, granularity="row"),
]


@pytest.mark.parametrize("method", VARIANTS, ids=range(len(VARIANTS)))
def test_seeded_draws_and_rows_do_not_depend_on_chunks_or_neighbours(method):
    """BatchNorm included: a row in evaluation is by itself."""
    model, x = converted(Convolutional(), method), torch.randn(5, 2, 5, 5, dtype=F64)
    model(torch.randn(6, 2, 5, 5, dtype=F64))  # running statistics that are not 0 and 1
    wanted = {"likelihood": lb.Categorical(), "samples": 7, "seed": 3, "keep_samples": True}
    whole = lb.predict(model, x, chunk=1, **wanted).samples
    for chunk in (2, 7):
        found = lb.predict(model, x, chunk=chunk, **wanted).samples
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
    alone = lb.predict(model, x[3:4], **wanted).samples
    torch.testing.assert_close(alone, whole[:, 3:4], rtol=1e-12, atol=1e-12)
    moved = lb.predict(model, torch.cat([x[3:4], 9 + x[:3]]), **wanted).samples
    torch.testing.assert_close(moved[:, :1], whole[:, 3:4], rtol=1e-12, atol=1e-12)
