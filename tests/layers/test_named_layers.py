"""Layers of other libraries, by look-alikes of their names; more runs over `layer_cases.NAMED`."""

import copy
import pickle
from collections import OrderedDict

import look_alikes as alike
import pytest
import torch
from layer_cases import NAMED, assert_equal, each
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.layers import host_of
from leanbayes.noise import KeyedNoise

F64 = torch.float64
KINDS = {"Linear": "linear", "Conv2dSame": "conv", "StdConv2d": "conv", "StdConv2dSame": "conv"}
NORMS = [case for case in NAMED if "Linear" not in case.name and "Conv" not in case.name]
ENSEMBLES = {
    "deep_ensemble": lb.DeepEnsemble(members=3, init_std=0.4),
    "patching": lb.Patching(members=3, scope="network", where="all", init_std=0.4),
}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Pickles name the module of a class."""
    alike.make_importable(monkeypatch)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def drawn(model, x, method, samples=3, seed=2):
    """Outputs and gradients of the input, a block of rows a sample."""
    plan = method.prediction_plan(range(samples), KeyedNoise(seed, range(samples)))
    x = x.repeat(samples, *(1,) * (x.dim() - 1)).requires_grad_()
    y = model(x, plan=plan)
    return y, *torch.autograd.grad(y.sin().sum(), x)


@pytest.mark.parametrize("cls", alike.LOOK_ALIKES, ids=lambda c: f"{c.__module__}.{c.__name__}")
def test_types_are_known_by_their_names_and_subclasses_with_them(cls):
    host = host_of(cls)
    assert host.kind == KINDS.get(cls.__name__, "norm")
    assert host_of(type("Sub", (cls,), {})) is host
    stranger = type(cls.__name__, cls.__bases__, {"__module__": "elsewhere"})
    assert host_of(stranger) is host_of(cls.__bases__[0])


class Loud(alike.LayerNorm2d):
    def forward(self, x):
        return 2 * super().forward(x)


class LoudRMSNorm(alike.LlamaRMSNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class NoBias(alike.GroupNorm1):
    def __init__(self, channels):
        super().__init__(channels)
        self.bias = None


@pytest.mark.parametrize(("cls", "parent"), [(Loud, "LayerNorm2d"), (LoudRMSNorm, "LlamaRMSNorm")])
def test_a_subclass_with_a_forward_of_its_own_is_left(cls, parent):
    net = nn.Sequential(cls(4), nn.Conv2d(4, 4, 1))
    report = lb.bayesianize(net, lb.MeanField()).report
    assert f"overrides forward of {parent}" in report.skipped[0].reason
    assert type(net[0]) is cls


def test_a_subclass_without_one_converts_with_the_tensors_that_it_has():
    net = nn.Sequential(NoBias(4), nn.Conv2d(4, 4, 1)).double()
    stock = copy.deepcopy(net)
    x = rows(2, 4, 3, 3)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.0), example=x)
    assert model.report.converted[0].slots == ("weight",)
    assert_equal(model(x), stock(x))
    assert type(lb.collapse(model)[0]) is NoBias


@each(NAMED)
def test_copies_files_and_collapse_keep_class_keys_and_bits(case, tmp_path):
    layer, x = case.layer(), case.inputs()
    stock = copy.deepcopy(layer).eval()
    model = lb.bayesianize(nn.Sequential(layer), lb.MeanField(init_std=0.3), example=x).eval()
    lb.save(model, tmp_path / "model")
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    twins.append(lb.load(nn.Sequential(case.layer(F64)), tmp_path / "model").eval())
    expected = drawn(model, x, model.method)
    for twin in twins:
        for found, value in zip(drawn(twin, x, twin.method), expected, strict=True):
            assert torch.equal(found, value)
        plain = lb.collapse(twin)[0].eval()
        assert type(plain) is type(stock)
        assert plain.state_dict().keys() == stock.state_dict().keys()
        assert torch.equal(plain(x), stock(x))


@pytest.mark.parametrize("method", ENSEMBLES.values(), ids=ENSEMBLES)
@each(NAMED)
def test_every_row_is_a_stock_pass_with_the_tensors_of_its_member(case, method):
    layer, x = case.layer().eval(), case.inputs()
    model = lb.bayesianize(nn.Sequential(layer), method).eval()
    component = torch.tensor([2, 0, 1, 1, 0, 2])
    y = model(x, plan=lb.Plan(groups=1, per_row=True, component=component))
    alone = [lb.collapse(model, member=k).eval()(x) for k in range(3)]
    assert (alone[0] - alone[1]).abs().max() > 0.05
    expected = torch.stack([alone[k][row] for row, k in enumerate(component.tolist())])
    assert_equal(y, expected)


def activated(act):
    """A BatchNormAct2d, and the same in two layers."""
    torch.manual_seed(0)
    norm = alike.BatchNormAct2d(4, act_layer=act).double()
    nn.init.uniform_(norm.weight)
    nn.init.normal_(norm.bias)
    plain = nn.BatchNorm2d(4).double()
    plain.load_state_dict(norm.state_dict())
    return nn.Sequential(norm), nn.Sequential(plain, act())


METHODS = {
    "mean_field": lb.MeanField(init_std=0.4, estimator="exemplar"),
    "dropout": lb.MCDropout(rate=0.5, where=lb.select.norms, position="after"),
    **ENSEMBLES,
}


@pytest.mark.parametrize("act", [nn.ReLU, nn.SiLU])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_norm_that_holds_an_activation_is_the_two_one_after_the_other(method, act):
    """In training too: statistics, of every member as well, and what moves them."""
    models = []
    for net in activated(act):
        torch.manual_seed(1)
        models.append(lb.bayesianize(net, method).train())
    for step in range(3):
        found = []
        for model in models:
            torch.manual_seed(step)
            y = model(rows(6, 4, 3, 3, seed=step))
            parameters = [p for p in model.parameters() if p.requires_grad]
            found.append((y, *torch.autograd.grad(y.sin().sum(), parameters, allow_unused=True)))
        for one, other in zip(*found, strict=True):
            assert_equal(one, other)
    for (name, one), other in zip(models[0].named_buffers(), models[1].buffers(), strict=True):
        assert_equal(one, other)
        assert "running" not in name or one.abs().max() > 0
    x = rows(2, 4, 3, 3)
    pairs = zip(*(drawn(model.eval(), x, method) for model in models), strict=True)
    for one, other in pairs:
        assert_equal(one, other)


def test_what_the_norm_holds_runs_once_in_the_order_drop_then_activation():
    class Shift(nn.Module):
        def forward(self, x):
            return x - 0.5

    norm = alike.BatchNormAct2d(4, drop_layer=Shift).double().eval()
    x = rows(3, 4, 2, 2)
    expected = F.relu(F.batch_norm(x, norm.running_mean, norm.running_var, eps=norm.eps) - 0.5)
    model = lb.bayesianize(nn.Sequential(norm), lb.MeanField(init_std=0.0)).eval()
    for plan in (None, lb.Plan(groups=3)):
        assert_equal(model(x, plan=plan), expected)


@each(NORMS)
def test_masks_come_before_the_activation(case):
    layer, x = case.layer().eval(), case.inputs()
    stock = copy.deepcopy(layer)
    act = getattr(stock, "act", nn.Identity())
    stock.act = nn.Identity()
    dropout = lb.MCDropout(rate=0.5, where=lb.select.norms, position="after", channelwise=True)
    model = lb.bayesianize(nn.Sequential(layer), dropout).eval()
    y, _ = drawn(model, x, dropout, samples=4)
    given = stock(x).repeat(4, *(1,) * (x.dim() - 1))
    kept = torch.isclose(y, act(2 * given), rtol=1e-12, atol=1e-12)
    lost = torch.isclose(y, act(torch.zeros_like(given)), rtol=1e-12, atol=1e-12)
    assert (kept | lost).all()
    assert kept.any()
    assert lost.any()
    assert_equal(model(x), act(stock(x)))


FACTORS = {
    "rank_one": lb.RankOne(members=2, init_std=0.4, init_scale=0.3),
    "implicit": lb.Implicit(members=2, init_std=0.4, init_scale=0.3),
    "batch_ensemble": lb.BatchEnsemble(members=2, init_std=0.4),
    "shared_ensemble": lb.SharedEnsemble(members=2, init_std=0.4),
    "mean_field": lb.MeanField(init_std=0.3),
}


@pytest.mark.parametrize("method", FACTORS.values(), ids=FACTORS)
@pytest.mark.parametrize("groups", [1, 2])
def test_factors_of_a_same_convolution_are_those_of_padded_rows(method, groups):
    options = {"kernel_size": (4, 3), "stride": 2, "groups": groups}
    same = alike.Conv2dSame(4, 4, **options).double()
    valid = nn.Conv2d(4, 4, **options).double()
    valid.load_state_dict(same.state_dict())
    nets = (
        nn.Sequential(same),
        nn.Sequential(OrderedDict({"pad": nn.ZeroPad2d((0, 1, 1, 2)), "0": valid})),
    )
    x = rows(2, 4, 7, 6)
    found = []
    for net in nets:
        torch.manual_seed(1)
        model = lb.bayesianize(net, method).train()
        torch.manual_seed(3)
        found.append((model(x), *drawn(model.eval(), x, method), lb.collapse(model)(x)))
    for one, other in zip(*found, strict=True):
        assert_equal(one, other)


def test_the_output_layer_and_the_norms_are_what_patching_converts():
    net = nn.Sequential(
        *(alike.Conv2dSame(3, 4, 3), alike.BatchNormAct2d(4), alike.LayerNorm2d(4)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4), alike.Linear(4, 2)),
    )
    report = lb.bayesianize(net, lb.Patching(), example=torch.randn(2, 3, 8, 8)).report
    assert [c.name for c in report.converted] == ["1", "2", "6"]
