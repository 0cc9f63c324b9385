"""Parameter groups: every method's parameters by name, learning rate and decay."""

import fnmatch

import pytest
import torch
from torch import nn

import leanbayes as lb

LR, FAST, DECAY = 1e-4, 1e-3, 6e-4
BASE, MEAN, POSTERIOR = ("base", LR, DECAY), ("mean", LR, 0.0), ("posterior", FAST, 0.0)


def bank(copies):
    return ("bank", FAST, pytest.approx(DECAY / copies, rel=1e-12))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def sorted_in(method, **options):
    """(group, learning rate, decay) of every parameter by name."""
    model = lb.bayesianize(network(), method)
    names = {id(p): name for name, p in model.net.named_parameters()}
    options = {"lr": LR, "posterior_lr": FAST, "weight_decay": DECAY, **options}
    return {
        names[id(p)]: (g["name"], g["lr"], g["weight_decay"])
        for g in lb.param_groups(model, **options)
        for p in g["params"]
    }


RANK_ONE = {"*_scale.*": POSTERIOR, "[35].bias": bank(4), "*.bias.further": bank(4), "*": BASE}
PATCHED = {"[15].weight": bank(5), "[15].bias": bank(5), "*.further": bank(5), "*": BASE}
# What a parameter's name stands for, the first pattern that fits; api.md, `param_groups`.
EXPECTED = {
    "map": (lb.MAP(), {"*": BASE}),
    "mean_field": (lb.MeanField(), {"*.slots.*": POSTERIOR, "*": MEAN}),
    "shared_ensemble": (
        lb.SharedEnsemble(members=3),
        {"*.slots.*": POSTERIOR, "[035].weight": MEAN, "*": BASE},
    ),
    "implicit": (lb.Implicit(members=3), {"*.slots.*": POSTERIOR, "*": BASE}),
    "rank_one": (lb.RankOne(members=4), RANK_ONE),
    "rank_one-in": (lb.RankOne(members=4, stochastic="in"), RANK_ONE),
    "rank_one-cauchy": (lb.RankOne(members=4, law="cauchy", kl="sum"), RANK_ONE),
    "batch_ensemble": (lb.BatchEnsemble(members=4), RANK_ONE),
    "patching": (lb.Patching(members=5), PATCHED),
    "patching-cross": (lb.Patching(members=5, cross=True), PATCHED),
    "patching-network": (lb.Patching(members=5, scope="network"), PATCHED),
    "patching-zero": (lb.Patching(members=5, zero_copy=True), PATCHED),
    "patching-dropout": (
        lb.Patching(members=2, zero_copy=True, scope="element"),
        {"[15].weight": bank(2), "[15].bias": bank(2), "*": BASE},
    ),
    "mc_dropout": (lb.MCDropout(), {"*": BASE}),
    "drop_connect": (lb.DropConnect(), {"*": BASE}),
    "swag": (lb.SWAG(), {"*": BASE}),
    "laplace": (lb.Laplace(), {"*": BASE}),
    "compose": (
        lb.Compose(
            [
                (lb.select.norms, lb.Patching(members=5)),
                (lb.select.convs, lb.RankOne(members=3)),
                (lb.select.linears, lb.MeanField()),
            ]
        ),
        {
            "*_scale.*": POSTERIOR,
            "*.log_std": POSTERIOR,
            "1.*": bank(5),
            "3.*bias*": bank(3),
            "5.*": MEAN,
            "*": BASE,
        },
    ),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_every_parameter_has_the_group_rate_and_decay_of_its_kind(case):
    method, patterns = EXPECTED[case]
    found = sorted_in(method)
    used = set()
    for name, group in found.items():
        pattern = next(p for p in patterns if fnmatch.fnmatchcase(name, p))
        used.add(pattern)
        assert group == patterns[pattern], name
    assert used == set(patterns)


def test_no_method_is_left_out():
    apart = {"partial", "deep_ensemble"}  # below
    assert {case.partition("-")[0] for case in EXPECTED} | apart >= set(lb.methods())


def test_partial_decays_only_tensors_without_a_random_entry():
    """The mean of a tensor with random entries is regularised by its KL."""
    method = lb.Partial(rate=0.02, criterion="magnitude")
    found = sorted_in(method)
    random = {name.partition(".slots.")[0] + "." + name.split(".")[2]
              for name in found if ".slots." in name}  # fmt: skip
    assert random
    assert random != {name for name in found if ".slots." not in name}
    for name, group in found.items():
        if ".slots." in name:
            assert group == POSTERIOR, name
        else:
            assert group == (MEAN if name in random else BASE), name


def test_members_of_a_deep_ensemble_have_one_rate_and_one_decay():
    found = sorted_in(lb.DeepEnsemble(members=3))
    assert len(set(found.values())) == 1


def test_a_dropped_tensor_decays_by_the_probability_that_it_is_kept():
    """sum_k p_k |theta_k|^2 with p_0 = keep, as in the cross-entropy."""
    found = sorted_in(lb.Patching(members=2, zero_copy=True, cross=True, keep=0.9))
    assert found["5.weight"] == ("bank", FAST, pytest.approx(0.9 * DECAY, rel=1e-12))
    assert found["0.weight"] == BASE


def test_without_a_rate_of_its_own_the_posterior_learns_as_the_network_does():
    for method in (lb.MeanField(), lb.RankOne(), lb.Patching(), lb.SharedEnsemble(members=2)):
        found = sorted_in(method, posterior_lr=None)
        assert {lr for _, lr, _ in found.values()} == {LR}


def test_without_decay_nothing_decays():
    for method in (lb.MAP(), lb.RankOne(), lb.Patching(), lb.SharedEnsemble(members=2)):
        found = sorted_in(method, weight_decay=0.0)
        assert {decay for _, _, decay in found.values()} == {0.0}


def test_scales_and_factors_do_not_move_under_decay_alone():
    """T6: a decay would drag rho to a scale of 0.69, and factors from 1 to 0."""
    for method in (lb.MeanField(), lb.RankOne(), lb.Implicit(), lb.SharedEnsemble(members=2)):
        model = lb.bayesianize(network(), method)
        optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1, weight_decay=0.5))
        before = {n: p.detach().clone() for n, p in model.net.named_parameters()}
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        for name, p in model.net.named_parameters():
            if ".slots." in name and ".bias." not in name:
                assert torch.equal(p, before[name]), name
    weight = dict(model.net.named_parameters())["1.weight"]  # of the last one: a plain norm
    torch.testing.assert_close(weight, before["1.weight"] * (1 - 0.1 * 0.5))


def test_a_likelihood_with_parameters_has_a_group_without_decay():
    model = lb.bayesianize(network(), lb.RankOne())
    likelihood = lb.Gaussian(learn=True)
    learnt = list(likelihood.parameters())
    assert learnt
    groups = lb.param_groups(
        model, lr=LR, posterior_lr=FAST, weight_decay=DECAY, likelihood=likelihood
    )
    own = groups[-1]
    assert (own["name"], own["lr"], own["weight_decay"]) == ("likelihood", LR, 0.0)
    assert [id(p) for p in own["params"]] == [id(p) for p in learnt]


def test_a_likelihood_that_is_kept_with_the_model_learns():
    kept, other = lb.Gaussian(learn=True), lb.Gaussian(learn=True)
    model = lb.bayesianize(nn.Linear(4, 1), lb.MeanField(), likelihood=kept).train()
    groups = lb.param_groups(model, lr=LR, weight_decay=DECAY)
    listed = {id(p) for group in groups for p in group["params"]}
    assert listed == {id(p) for p in model.parameters()}
    assert (groups[-1]["name"], groups[-1]["weight_decay"]) == ("likelihood", 0.0)
    given = lb.param_groups(model, lr=LR, likelihood=other)[-1]["params"]
    assert [id(p) for p in given] == [id(p) for p in other.parameters()]
    optimizer = torch.optim.SGD(groups)
    before = [p.detach().clone() for p in kept.parameters()]
    lb.objective(model, (torch.randn(8, 4), torch.randn(8, 1)), kept, num_data=8).loss.backward()
    optimizer.step()
    assert all((p != b).all() for p, b in zip(kept.parameters(), before, strict=True))


def test_frozen_parameters_are_in_no_group():
    model = lb.bayesianize(network(), lb.Patching())
    model.net[0].requires_grad_(False)
    model.net[5].slots["weight"].further.requires_grad_(False)
    listed = {id(p) for g in lb.param_groups(model, lr=LR) for p in g["params"]}
    assert id(model.net[0].weight) not in listed
    assert id(model.net[5].slots["weight"].further) not in listed
    assert listed == {id(p) for p in model.parameters() if p.requires_grad}


def test_all_copies_of_a_bank_share_rate_and_decay():
    """api.md: the base parameter is copy 0 and trains as the others do."""
    for method in (lb.Patching(members=3), lb.RankOne(members=3), lb.BatchEnsemble(members=3)):
        model = lb.bayesianize(network(), method)
        group_of = {
            id(p): (g["name"], g["lr"], g["weight_decay"])
            for g in lb.param_groups(model, lr=LR, posterior_lr=FAST, weight_decay=DECAY)
            for p in g["params"]
        }
        banks = [(q, base) for _, _, q, base in model.posteriors() if q.owns_base]
        assert banks
        for q, base in banks:
            assert group_of[id(base)] == group_of[id(q.further)] == bank(3)
