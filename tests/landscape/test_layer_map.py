"""Rows by layer against closed forms, and every law's spread against its own draws."""

import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.noise import KeyedNoise
from leanbayes.posteriors import Posterior


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3))


def rms(*tensors):
    return torch.cat([t.detach().flatten() for t in tensors]).square().mean().sqrt().item()


def by_name(model):
    return {row["name"]: row for row in lb.layer_map(model)}


def test_a_gaussian_layer_has_all_of_its_parameters_random_and_the_quantiles_of_its_scales():
    model = lb.bayesianize(net(), lb.MeanField(select=lb.select.linears))
    layer = model.net[0]
    with torch.no_grad():
        scales = torch.linspace(0.1, 0.3, 30)
        layer.slots["weight"].log_std.copy_(scales[:24].log().reshape(6, 4))
        layer.slots["bias"].log_std.copy_(scales[24:].log())
    rows = lb.layer_map(model)
    assert [(r["name"], r["kind"]) for r in rows] == [
        ("0", "Linear"),
        ("2", "LayerNorm"),
        ("3", "Linear"),
    ]
    assert [(r["parameters"], r["random"], r["share"]) for r in rows] == [
        (30, 30, 1.0),
        (12, 0, 0.0),
        (21, 21, 1.0),
    ]
    assert rows[0]["std"] == {
        "low": pytest.approx(0.11, rel=1e-5),
        "median": pytest.approx(0.2, rel=1e-5),
        "high": pytest.approx(0.29, rel=1e-5),
    }
    assert rows[0]["relative"] == pytest.approx(0.2 / rms(layer.weight, layer.bias), rel=1e-5)
    assert (rows[1]["std"], rows[1]["relative"]) == (None, None)


def test_of_a_partial_layer_the_selected_entries_count():
    scores = {
        "0.weight": torch.arange(24.0).reshape(6, 4) + 100,
        "0.bias": torch.zeros(6),
        "2.weight": torch.zeros(6),
        "2.bias": torch.zeros(6),
        "3.weight": torch.arange(18.0).reshape(3, 6) - 100,
        "3.bias": torch.full((3,), 500.0),
    }
    method = lb.Partial(rate=9 / 63, init_std=0.2)
    model = lb.bayesianize(net(), method, scores=scores)
    rows = by_name(model)
    assert {name: row["random"] for name, row in rows.items()} == {"0": 6, "2": 0, "3": 3}
    assert rows["0"]["share"] == pytest.approx(6 / 30)
    for name, posterior in (("0", model.net[0].slots["weight"]), ("3", model.net[3].slots["bias"])):
        std = nn.functional.softplus(posterior.rho.detach()).median().item()
        assert rows[name]["std"]["low"] <= std <= rows[name]["std"]["high"]


def test_of_factors_the_spread_within_and_between_members_counts():
    model = lb.bayesianize(net(), lb.Implicit(members=2, init_std=0.4, init_scale=0.3))
    factors = model.net[0].slots["in_scale"]
    with torch.no_grad():
        factors.location.copy_(torch.tensor([[1.0] * 4, [1.8] * 4]))
    row = by_name(model)["0"]
    spread = math.sqrt(0.3**2 + 0.4**2)  # two means 0.8 apart have a deviation of 0.4
    assert (row["parameters"], row["random"]) == (30, 4)
    assert row["share"] == pytest.approx(4 / 30)
    assert row["std"]["median"] == pytest.approx(spread, rel=1e-5)
    assert row["relative"] == pytest.approx(spread / 1.4, rel=1e-5)


def test_a_rank_one_layer_counts_its_factors_not_its_biases():
    model = lb.bayesianize(net(), lb.RankOne(members=2, init_std=0.4))
    assert by_name(model)["0"]["random"] == 4 + 6
    assert by_name(model)["2"]["random"] == 0


def test_of_copies_the_spread_over_the_copies_counts():
    model = lb.bayesianize(net(), lb.DeepEnsemble(members=3))
    with torch.no_grad():
        slots = model.net[0].slots
        for name, base in (("weight", model.net[0].weight), ("bias", model.net[0].bias)):
            base.zero_()
            slots[name].further[0].fill_(3.0)
            slots[name].further[1].fill_(-3.0)
    row = by_name(model)["0"]
    assert (row["random"], row["share"]) == (30, 1.0)
    assert row["std"]["low"] == row["std"]["high"] == pytest.approx(math.sqrt(6))
    assert row["relative"] is None  # their average is 0


def test_masks_have_the_spread_of_bernoulli_factors_and_no_random_parameter():
    plain = nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3))
    rows = by_name(lb.bayesianize(plain, lb.MCDropout(rate=0.5)))
    assert rows["0"]["std"]["median"] == pytest.approx(0.5, rel=1e-6)
    assert rows["1"]["std"]["median"] == pytest.approx(1.0, rel=1e-6)
    assert [(r["parameters"], r["random"]) for r in rows.values()] == [(0, 0), (15, 0)]


def test_a_network_that_is_one_layer_and_one_that_is_not_random_have_rows():
    (row,) = lb.layer_map(lb.bayesianize(nn.Linear(2, 2), lb.MAP()))
    assert (row["name"], row["random"], row["std"]) == ("(root)", 0, None)


def fitted(method, **options):
    x, y = torch.randn(40, 4), torch.arange(40) % 3
    model = lb.bayesianize(net(), method, likelihood=lb.Categorical())
    lb.fit_posterior(model, [(x, y)], lb.Categorical(), **options)
    return model


METHODS = {
    "mean_field": lambda: lb.bayesianize(net(), lb.MeanField(init_std=0.3)),
    "partial": lambda: lb.bayesianize(net(), lb.Partial(criterion="random", rate=0.3)),
    "emp": lambda: lb.bayesianize(net(), lb.Patching(where="all", init_std=0.4)),
    "dropout": lambda: lb.bayesianize(
        net(), lb.Patching(where="all", members=2, zero_copy=True, scope="element", keep=0.7)
    ),
    "drop_connect": lambda: lb.bayesianize(net(), lb.DropConnect(rate=0.3)),
    "implicit": lambda: lb.bayesianize(net(), lb.Implicit(init_std=0.4, init_scale=0.2)),
    "batch_ensemble": lambda: lb.bayesianize(net(), lb.BatchEnsemble(init_std=0.4)),
    "shared_ensemble": lambda: lb.bayesianize(net(), lb.SharedEnsemble(init_std=0.4, rank=2)),
    "deep_ensemble": lambda: lb.bayesianize(net(), lb.DeepEnsemble(members=4)),
    "laplace": lambda: fitted(lb.Laplace(structure="diagonal")),
    "kronecker": lambda: fitted(lb.Laplace(structure="kronecker")),
    "swag": lambda: fitted(lb.SWAG(rank=3), epochs=5, lr=0.5),
}


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_the_spread_of_a_law_is_that_of_its_draws(make):
    draws = 4000
    for _, slot, posterior, base in make().posteriors():
        with torch.no_grad():
            noise = posterior.noise(base, draws, KeyedNoise(0, range(draws)))
            drawn = posterior.draw(base, noise).double()
            found = posterior.spread(base).double()
        measured = drawn.std(0, correction=0)
        scale = float(measured.max())
        torch.testing.assert_close(found, measured, rtol=0.1, atol=0.02 * scale, msg=slot)


def test_a_law_without_a_closed_form_is_measured_on_its_draws():
    model = lb.bayesianize(net(), lb.MeanField(init_std=0.3))
    _, _, posterior, base = next(model.posteriors())
    measured = Posterior.spread(posterior, base)
    assert measured.mean().item() == pytest.approx(0.3, rel=0.05)
