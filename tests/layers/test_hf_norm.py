"""The RMSNorms of transformers, by look-alikes: their own forward on drawn weights."""

import copy

import look_alikes as alike
import pytest
import torch
from layer_cases import assert_equal
from torch import nn

import leanbayes as lb
from leanbayes.layers.hf_norm import NOT_BY_ROW, BayesianHFNorm
from leanbayes.noise import KeyedNoise

F64 = torch.float64
KNOWN = [
    cls
    for cls in alike.LOOK_ALIKES
    if cls.__module__.startswith("transformers.") and "FalconH1" not in cls.__name__
]


@alike.named("transformers.models.mixed.modeling_mixed")
class MixedRMSNorm(alike._HFNorm):
    """A weight that enters through its mean: no product by element."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.mean()


@alike.named("transformers.models.container.modeling_container")
class ContainerRMSNorm(alike._HFNorm):
    def forward(self, x):
        return x, self.weight * x


@alike.named("transformers.models.parted.modeling_parted")
class PartedRMSNorm(alike._HFNorm):
    """Its weight is read in another method."""

    def forward(self, x):
        return self.scaled(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))

    def scaled(self, x):
        return x * self.weight


def test_methods_of_the_layer_see_the_drawn_weight_too():
    norm, x = PartedRMSNorm(6).to(F64), torch.randn(3, 6, dtype=F64)
    model = lb.bayesianize(norm, lb.MeanField(init_std=0.5)).eval()
    plan = model.method.prediction_plan(range(2), KeyedNoise(0, range(2)))
    a, b = model(x.repeat(2, 1), plan=plan).chunk(2)
    ratio = a / b  # of the drawn weights, the same in every row
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
    assert (ratio - 1).abs().min() > 1e-3


class Gated(nn.Module):
    def __init__(self, norm, by_name):
        super().__init__()
        self.norm, self.gate, self.by_name = norm, nn.Linear(6, 6), by_name

    def forward(self, x):
        gate = self.gate(x)
        return self.norm(x, gate=gate) if self.by_name else self.norm(x, gate)


def test_a_forward_that_is_no_product_with_the_weight_by_element_is_left_and_listed():
    for cls in (alike.FalconH1RMSNormGated, MixedRMSNorm, ContainerRMSNorm):
        net = nn.Sequential(cls(6), nn.Linear(6, 2))
        report = lb.bayesianize(net, lb.MeanField()).report
        assert [(s.type, s.reason) for s in report.skipped] == [(cls.__name__, NOT_BY_ROW)]
        assert type(net[0]) is cls


def test_the_trial_draws_no_random_numbers_and_changes_nothing():
    for cls in KNOWN:
        norm = cls(6)
        state = copy.deepcopy(norm.state_dict())
        torch.manual_seed(0)
        expected = torch.rand(2)
        torch.manual_seed(0)
        assert BayesianHFNorm.refusal(norm) is None
        assert torch.equal(torch.rand(2), expected)
        assert all(torch.equal(norm.state_dict()[name], value) for name, value in state.items())


@pytest.mark.parametrize("by_name", [True, False])
def test_a_gate_reaches_the_forward_of_the_layer(by_name):
    torch.manual_seed(0)
    net = Gated(alike.Zamba2RMSNormGated(6), by_name).double()
    stock = copy.deepcopy(net)
    method = lb.MeanField(select=lb.select.norms, init_std=0.4)
    x = torch.randn(6, 3, 6, dtype=F64)
    model = lb.bayesianize(net, method, example=x).eval()
    assert_equal(model(x), stock(x))
    noise = KeyedNoise(0, range(3))
    y = model(x, plan=lb.Plan(groups=3, noise=noise)).chunk(3)
    posterior, base = net.norm.posterior("weight"), net.norm.weight
    normal = noise.normal(posterior.key, 3, base.shape, base)
    for k in range(3):
        weight = base + posterior.log_std.exp() * normal[k]
        part = x.chunk(3)[k]
        expected = torch.func.functional_call(stock, {"norm.weight": weight}, part)
        assert_equal(y[k], expected)


@pytest.mark.parametrize("cls", [alike.LlamaRMSNorm, alike.GemmaRMSNorm, alike.T5LayerNorm])
@pytest.mark.parametrize("types", [(torch.float32, torch.bfloat16), (torch.bfloat16,) * 2])
def test_draws_keep_the_type_that_the_layer_gives(cls, types):
    """A scale in float32 makes the rows of some norms wider, and those of others not."""
    norm = cls(8).to(types[0])
    x = torch.randn(6, 3, 8).to(types[1])
    expected = norm(x).dtype
    model = lb.bayesianize(norm, lb.MeanField(init_std=0.1)).eval()
    for plan in (None, lb.Plan(), lb.Plan(groups=3), lb.Plan(groups=6, per_row=True)):
        assert model(x, plan=plan).dtype == expected


@pytest.mark.parametrize("cls", KNOWN)
def test_fresh_members_begin_with_the_normalised_rows(cls):
    """A weight of 1; of 0 where the layer adds 1."""
    norm = cls(6).double()
    x = torch.randn(6, 3, 6, dtype=F64)
    for p in norm.parameters():
        nn.init.constant_(p, float(cls is not alike.GemmaRMSNorm and p is norm.weight))
    expected = norm(x)
    for p in norm.parameters():
        nn.init.normal_(p)
    given = norm(x)
    model = lb.bayesianize(norm, lb.DeepEnsemble(members=2)).eval()
    members = [lb.collapse(model, member=k)(x) for k in range(2)]
    assert_equal(members[0], given)
    assert_equal(members[1], expected)


def test_a_norm_without_weight_stays_as_it_is():
    norm = alike.LlamaRMSNorm(4)
    norm.weight = None
    net = nn.Sequential(norm, nn.Linear(4, 2))
    report = lb.bayesianize(net, lb.MeanField()).report
    assert [c.name for c in report.converted] == ["1"]
    assert type(norm) is alike.LlamaRMSNorm
