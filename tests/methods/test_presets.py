"""Presets hold what we recommend and what the papers say; every method goes through JSON."""

import json
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

import leanbayes as lb
from leanbayes.methods.base import method_named

F64 = torch.float64

# Field by field (recommended, paper).
PRESETS = {
    lb.SharedEnsemble: {"init_std": (0.1, 0.2)},
    lb.Implicit: {
        "init_std": (0.05, 0.5),
        "kl": ("mean", "averaged_draw"),
        "assign": ("split", "interleave"),
    },
    lb.RankOne: {"init_std": (0.05, 0.5), "kl": ("mean", "sum"), "assign": ("split", "tile")},
    lb.Partial: {
        "criterion": ("output_jacobian", "loss_grad"),
        "estimator": ("auto", "shared"),
        "kl_reduction": ("sum", "tensor_mean"),
    },
}


def factors(method, size=4_000):
    """The factors of a wide Linear, fresh."""
    model = lb.bayesianize(nn.Linear(size, 1, dtype=F64), method)
    return model.net.slots


@pytest.mark.parametrize("cls", PRESETS, ids=lambda cls: cls.name)
@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_presets_settle_what_is_left_open_and_nothing_else(cls, preset):
    column = int(preset == "paper")
    method = cls(preset=preset)
    given = {name: pair[1 - column] for name, pair in PRESETS[cls].items()}
    for name, pair in PRESETS[cls].items():
        if cls is not lb.SharedEnsemble:  # settles when it meets a layer
            assert getattr(method, name) == pair[column]
        assert getattr(cls(preset=preset, **given), name) == pair[1 - column]  # what is said wins


@pytest.mark.parametrize(("preset", "spread"), [("recommended", 0.1), ("paper", 0.2)])
@pytest.mark.parametrize("rank", [1, 8, 16])
def test_shared_ensembles_start_at_one_with_the_spread_of_the_preset(preset, spread, rank):
    method = lb.SharedEnsemble(members=20, rank=rank, preset=preset)
    q = lb.bayesianize(nn.Linear(60, 80, dtype=F64), method).net.slots["weight"]
    product = (q.left @ q.right).detach()
    assert product.mean().item() == pytest.approx(1.0, abs=0.01)
    assert product.std().item() == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize(("preset", "spread"), [("recommended", 0.05), ("paper", 0.5)])
def test_factors_start_around_one_with_the_spread_of_the_preset(preset, spread):
    for method, scale in (
        (lb.Implicit(preset=preset), 0.05),
        (lb.RankOne(preset=preset), math.sqrt(1e-3 / (1 - 1e-3))),  # a dropout rate of 1e-3
    ):
        q = factors(method)["in_scale"]
        means, stds = q.location.detach(), softplus(q.rho.detach())
        if method.name == "rank_one" and preset == "paper":  # the code of the paper: fair signs
            assert set(means.unique().tolist()) == {-1.0, 1.0}
            assert means.mean().item() == pytest.approx(0.0, abs=0.04)
        else:
            assert means.mean().item() == pytest.approx(1.0, abs=5 * spread / 126)
            assert means.std().item() == pytest.approx(spread, rel=0.03)
        assert stds.mean().item() == pytest.approx(scale, rel=0.06)
        assert q.prior_std == 0.1


@pytest.mark.parametrize("preset", ["recommended", "paper"])
@pytest.mark.parametrize("law", ["normal", "cauchy"])
@pytest.mark.parametrize("scale", [None, 0.2])
def test_scales_of_rank_one_are_spread_in_the_paper_alone(preset, law, scale):
    """rho = -3.44 + N(0, 0.1^2), truncated at two deviations, whose own is 0.088; Cauchy: one."""
    rho = factors(lb.RankOne(preset=preset, law=law, init_scale=scale))["in_scale"].rho.detach()
    heavy = preset == "recommended" and law == "cauchy"
    start = math.log(math.expm1(scale or (0.001 if heavy else 0.0316)))
    if scale is None and not heavy:
        assert start == pytest.approx(-3.44, abs=0.01)
    if preset == "paper" and law == "normal":
        gap = rho - start
        assert gap.abs().max() <= 0.2
        assert gap.mean().item() == pytest.approx(0.0, abs=4 * 0.088 / gap.numel() ** 0.5)
        assert gap.std().item() == pytest.approx(0.1 * 0.8796, rel=0.05)
    else:
        torch.testing.assert_close(rho, torch.full_like(rho, start))


def test_values_without_a_preset_are_those_of_the_papers():
    patching = lb.Patching()
    assert (patching.members, patching.scope, patching.granularity) == (5, "layer", "batch")
    assert (patching.where, patching.init_std) == ("norm+output", 0.05)
    assert lb.Patching(cross=True).scope == "element"
    assert lb.MeanField().init_log_std == (-6.0, -5.0)
    assert lb.SharedEnsemble().members == 20
    assert lb.SharedEnsemble().assign == "random"
    assert lb.RankOne().bound is None  # five hundred standard deviations away
    assert lb.RankOne(law="cauchy").bound == lb.RankOne(preset="paper").bound == 10.0
    assert (lb.Partial().rate, lb.Partial().init_rho) == (0.01, (-5.0, 0.1))
    assert (lb.BatchEnsemble().init_std, lb.BatchEnsemble().members) == (0.05, 4)


@pytest.mark.parametrize(
    ("method", "samples"),
    [
        (lb.MeanField(), 20),
        (lb.SharedEnsemble(members=20), 20),  # every candidate once
        (lb.SharedEnsemble(members=7), 7),
        (lb.Implicit(members=16), 20),
        (lb.Implicit(members=16, preset="paper"), 80),  # five of every component
        (lb.RankOne(), 20),  # factors with a law are no points
        (lb.RankOne(law="cauchy"), 20),
        (lb.RankOne(members=24), 24),
        (lb.RankOne(preset="paper"), 4),  # one of every component, four with heavy tails
        (lb.RankOne(law="cauchy", preset="paper"), 16),
        (lb.Patching(), 20),
        (lb.Patching(members=3, scope="network", where="all"), 3),
        (lb.Partial(preset="paper"), 5),
        (lb.BatchEnsemble(members=3), 3),
        (lb.Compose([(lb.select.norms, lb.Patching()), (lb.select.convs, lb.RankOne())]), 20),
        (lb.Compose([(lb.select.convs, lb.RankOne(members=3))]), 20),
        (lb.Compose([(lb.select.convs, lb.BatchEnsemble(members=3))]), 3),
        (lb.DeepEnsemble(members=3), 3),
        (lb.MAP(), 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_default_numbers_of_samples(method, samples):
    assert method.default_samples == samples


def test_the_papers_kl_of_rank_one_is_k_times_the_bound():
    # A sum over the members where their mean is meant (T5.5).
    one = lb.bayesianize(nn.Linear(5, 3, dtype=F64), lb.RankOne(members=4))
    other = lb.bayesianize(nn.Linear(5, 3, dtype=F64), lb.RankOne(members=4, kl="sum"))
    other.load_state_dict(one.state_dict())
    assert torch.allclose(other.kl(), 4 * one.kl(), rtol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        cls(members=3, kl=rule)
        for cls in (lb.SharedEnsemble, lb.Implicit, lb.RankOne)
        for rule in cls.rules
    ],
    ids=lambda method: f"{method.name}-{method.kl}",
)
def test_every_rule_of_the_kl_is_edited_as_it_is_differentiated(method):
    net = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).to(F64)
    model = lb.bayesianize(net, method)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(model.kl() / 10, parameters, materialize_grads=True)
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.0))
    lb.attach_kl(optimizer, model, num_data=10)
    optimizer.step()
    for parameter, grad in zip(parameters, expected, strict=True):
        edit = torch.zeros_like(grad) if parameter.grad is None else parameter.grad
        assert torch.allclose(edit, grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("settings", [{"weight_decay": 2e-4, "num_data": 50_000}, {}])
def test_the_decay_of_pre_training_is_a_prior(settings):
    expected = 0.1**0.5 if settings else 1.0  # sigma_0^2 = 1 / (lambda n) = 0.1 on CIFAR-10
    for method in (
        lb.MeanField(**settings),
        lb.SharedEnsemble(**settings),
        lb.Patching(where="all", **settings),
        lb.Partial(rate=1.0, criterion="magnitude", **settings),
    ):
        model = lb.bayesianize(nn.Linear(4, 3), method)
        for _, _, q, _ in model.posteriors():
            assert q.prior_std == pytest.approx(expected)


CHOICE = lb.select.by_name("layer4.*") & ~lb.select.by_type(nn.BatchNorm2d) | lb.select.output
CONFIGURED = [
    lb.MeanField(estimator="exemplar", groups=4, weight_decay=1e-4, num_data=10, select=CHOICE),
    lb.SharedEnsemble(members=3, rank=2, per_channel=True, preset="paper", assign="interleave"),
    lb.Implicit(members=8, side="out", kl="pairwise", granularity="batch", prior_std=0.3),
    lb.Implicit(preset="paper", init_std=0.75),
    lb.Patching(members=2, zero_copy=True, keep=0.9, scope="input", where=CHOICE),
    lb.Patching(cross=True, where="norm", granularity="row", select=lb.select.norms),
    lb.Patching(where="norm", weight_decay=1e-4, num_data=10),
    lb.RankOne(law="cauchy", stochastic="out", clip=None, tied_sign=True, preset="paper"),
    lb.Partial(rate=0.2, criterion="fisher", exclude_stem=True, init_rho=(-4.0, 0.2), seed=3),
    lb.BatchEnsemble(members=8, assign="tile", select=lb.select.linears),
    lb.MCDropout(rate=0.3, where=CHOICE, position="after", channelwise=True, existing=False),
    lb.DropConnect(rate=0.2, where=CHOICE, granularity="row"),
    lb.DeepEnsemble(members=3, assign="turns", factory="package.module:make"),
    lb.Laplace(structure="kronecker", weight_decay=1e-4, num_data=100),
    lb.SWAG(rank=5, init_std=0.0),
    lb.Compose(
        [
            (lb.select.norms, lb.Patching(where="norm")),
            (lb.select.convs & ~lb.select.stem, lb.RankOne(members=3)),
            (CHOICE, lb.MeanField(init_log_std=(-4.0, -3.0))),
        ]
    ),
    lb.Compose(
        [(lb.select.convs, lb.Compose([(lb.select.stem, lb.MAP()), (CHOICE, lb.MeanField())]))],
        select=~lb.select.by_name("fc"),
    ),
]


def round_trip(method):
    data = json.loads(json.dumps(method.to_json()))
    return method_named(data["name"]).from_json(data["fields"])


@pytest.mark.parametrize("method", CONFIGURED, ids=lambda method: method.name)
def test_configured_methods_survive_json(method):
    back = round_trip(method)
    assert back == method
    assert type(back) is type(method)
    assert back.to_json() == method.to_json()


@pytest.mark.parametrize("name", sorted(set(lb.methods()) - {"compose"}))
def test_default_methods_survive_json(name):
    method = lb.methods()[name]()
    assert round_trip(method) == method
    assert all(words for words in (method.paper, method.cost, method.advice))


def test_json_with_foreign_fields_or_names_is_refused_in_words():
    with pytest.raises(lb.ConfigError, match=r"rank_one has no fields \['ranks'\]; expected"):
        lb.RankOne.from_json({"ranks": 3})
    with pytest.raises(lb.ConfigError, match="did you mean rank_one"):
        method_named("rankone")
    with pytest.raises(lb.ConfigError, match="not a selector"):
        lb.RankOne.from_json({"select": {"op": "some", "args": []}})
