"""Optimiser, rates by step, weights of the KL, and groups that rest."""

import copy
import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.train.config import FitConfig
from leanbayes.train.optim import Rates, build_optimizer, kl_weight_at, rest, trainable

EVERY = {"base", "mean", "posterior", "bank", "likelihood"}


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def built(method=None, likelihood=None, **settings):
    model = lb.bayesianize(network(), method or lb.MeanField(select=lb.select.linears)).train()
    config = FitConfig(**settings)
    return model, config, build_optimizer(model, likelihood, config)


def rates(config, steps, name="base"):
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [parameter], "name": name}], lr=1.0)
    found = Rates(optimizer, config, steps)
    return [found.set(step)[name] for step in range(steps)]


def test_groups_have_their_own_rates_and_decay():
    likelihood = lb.Gaussian(learn=True)
    _, _, optimizer = built(likelihood=likelihood, lr=0.1, posterior_lr=0.5, weight_decay=0.01)
    found = {g["name"]: (g["lr"], g["weight_decay"]) for g in optimizer.param_groups}
    assert found == {
        "base": (0.1, 0.01),
        "mean": (0.1, 0.0),
        "posterior": (0.5, 0.0),
        "likelihood": (0.1, 0.0),
    }
    assert optimizer.param_groups[0]["nesterov"]
    assert optimizer.param_groups[0]["momentum"] == 0.9


def test_sgd_without_momentum_has_no_nesterov():
    _, _, optimizer = built(momentum=0.0)
    assert not any(group["nesterov"] for group in optimizer.param_groups)


def test_options_reach_the_optimiser_and_its_refusals_reach_the_user():
    _, _, optimizer = built(optimizer="Adam", optimizer_options={"betas": [0.5, 0.6]})
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.6)
    with pytest.raises(lb.ConfigError, match=r"optimizer_options: torch.optim.Adam says"):
        built(optimizer="Adam", optimizer_options={"betas": [1.5, 0.6]})


@pytest.mark.parametrize("name", ["AdamW", "RMSprop", "Adagrad", "Rprop", "Adafactor", "NAdam"])
def test_any_optimiser_of_torch_takes_a_step(name):
    model, config, optimizer = built(optimizer=name, lr=0.01)
    before = copy.deepcopy(model.state_dict())
    model(torch.randn(5, 3)).square().sum().backward()
    Rates(optimizer, config, 10).set(0)
    optimizer.step()
    moved = [k for k, v in model.named_parameters() if not torch.equal(v, before[k])]
    assert len(moved) == len(list(model.parameters()))


def test_constant_cosine_linear_and_step_are_those_of_torch():
    steps = 40
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.8)
    scheduler = torch.optim.lr_scheduler
    references = {
        "constant": (scheduler.ConstantLR(optimizer, 1.0), {}),
        "cosine": (scheduler.CosineAnnealingLR(optimizer, steps, eta_min=0.08), {"floor": 0.1}),
        "linear": (scheduler.LinearLR(optimizer, 1.0, 0.1, steps), {"floor": 0.1}),
        "step": (
            scheduler.MultiStepLR(optimizer, [10, 25], 0.2),
            {"milestones": (0.25, 0.625), "decay": 0.2},
        ),
    }
    for shape, (reference, settings) in references.items():
        optimizer.param_groups[0]["lr"] = 0.8
        expected = []
        for _ in range(steps):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            reference.step()
        found = rates(FitConfig(lr=0.8, schedule=shape, **settings), steps)
        assert found == pytest.approx(expected, rel=1e-9), shape


def test_a_span_keeps_the_rate_before_and_after():
    config = FitConfig(lr=1.0, schedule="linear", span=(0.5, 0.9), floor=0.01)
    found = rates(config, 300)
    assert found[:151] == [1.0] * 151
    assert found[210] == pytest.approx(0.505)
    assert found[270:] == pytest.approx([0.01] * 30)
    cosine = rates(FitConfig(lr=1.0, schedule="cosine", span=(0.5, 1.0)), 100)
    assert cosine[75] == pytest.approx(0.5)


def test_warmup_rises_in_a_straight_line_on_top():
    found = rates(FitConfig(lr=0.4, schedule="step", milestones=(0.5,), warmup=4), 8)
    assert found == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.04, 0.04, 0.04, 0.04])


def test_the_posterior_follows_its_own_schedule():
    _, config, optimizer = built(
        lr=1e-4, posterior_lr=1e-3, schedule="constant", posterior_schedule="cosine", floor=0.1
    )
    found = Rates(optimizer, config, 10).set(5)
    assert found["mean"] == found["base"] == 1e-4
    assert found["posterior"] == pytest.approx(1e-4 + 9e-4 / 2)
    assert {g["name"]: g["lr"] for g in optimizer.param_groups} == found


@pytest.mark.parametrize("name", ["posterior", "bank"])
def test_without_settings_of_its_own_the_posterior_is_as_the_network(name):
    config = FitConfig(lr=0.5, schedule="linear")
    assert rates(config, 10, name) == rates(config, 10, "base") == rates(config, 10, "likelihood")


def test_rates_depend_on_the_step_alone():
    _, config, optimizer = built(lr=0.5, schedule="cosine")
    first = Rates(optimizer, config, 20)
    for step in range(13):
        first.set(step)
    again = Rates(optimizer, config, 20)  # as after a resume: the groups hold rates of step 12
    assert again.set(13) == first.set(13)
    assert again.set(0)["base"] == 0.5


def test_weights_of_the_kl():
    assert kl_weight_at(FitConfig(kl_weight=0.3), 10)(7) == 0.3
    warm = kl_weight_at(FitConfig(kl_weight=2.0, kl_warmup=0.8), 250)
    assert warm(0) == pytest.approx(2.0 / 200)
    assert warm(99) == pytest.approx(1.0)
    assert warm(199) == warm(249) == 2.0
    schedule = lb.schedule.annealed(steps=100)
    by_schedule = kl_weight_at(FitConfig(kl_weight=10.0, kl_schedule=schedule), 100)
    assert by_schedule(0) == pytest.approx(2.0)
    assert by_schedule(100) == pytest.approx(0.1)
    assert kl_weight_at(FitConfig(kl_warmup=1e-9), 10)(0) == 1.0


def test_turns_begin_with_the_posterior_and_change_by_epochs():
    everything = FitConfig(train="all")
    assert trainable(everything, 12, 5) == EVERY
    posterior = FitConfig(train="posterior")
    assert trainable(posterior, 12, 5) == {"posterior", "bank", "likelihood"}
    config = FitConfig(train="alternate", alternate_every=2)
    found = [trainable(config, step, 5) for step in range(40)]
    assert all(found[s] == trainable(posterior, 0, 5) for s in (*range(10), *range(20, 30)))
    assert all(found[s] == {"base", "mean", "likelihood"} for s in (*range(10, 20), *range(30, 40)))


def step(model, optimizer, config, number, moving=None):
    x, y = torch.randn(6, 3), torch.randint(0, 2, (6,))
    optimizer.zero_grad()
    lb.objective(model, (x, y), lb.Categorical(), include_kl=False).loss.backward()
    Rates(optimizer, config, 100).set(number)
    rest(optimizer, EVERY if moving is None else moving)
    optimizer.step()


def snapshot(optimizer, names):
    """Values and moments of the groups of these names."""
    parameters = [p for g in optimizer.param_groups if g["name"] in names for p in g["params"]]
    states = [
        {k: v.clone() if torch.is_tensor(v) else v for k, v in optimizer.state[p].items()}
        for p in parameters
    ]
    return [p.detach().clone() for p in parameters], states


def same(first, second):
    values, states = zip(first, second, strict=True)
    equal = all(torch.equal(a, b) for a, b in zip(*values, strict=True))
    return equal and all(
        torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k]))
        for a, b in zip(*states, strict=True)
        for k in a
    )


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Rprop"])
def test_resting_groups_keep_values_and_moments_in_spite_of_momentum_decay_and_kl(name):
    settings = {} if name == "Rprop" else {"weight_decay": 0.1}
    model, config, optimizer = built(optimizer=name, lr=0.1, **settings)
    lb.attach_kl(optimizer, model, num_data=10)
    for number in range(3):
        step(model, optimizer, config, number)
    network_groups, posterior = {"base", "mean"}, {"posterior"}
    for moving, resting in ((posterior, network_groups), (network_groups, posterior)):
        still = snapshot(optimizer, resting)
        moved = snapshot(optimizer, moving)
        step(model, optimizer, config, 3, moving)
        step(model, optimizer, config, 4, moving)
        assert same(still, snapshot(optimizer, resting))
        assert not same(moved, snapshot(optimizer, moving))
    assert all(p.requires_grad for p in model.parameters())


def test_after_a_rest_all_groups_move_again():
    model, config, optimizer = built(lr=0.1)
    edit = lb.attach_kl(optimizer, model, num_data=10)
    step(model, optimizer, config, 0, {"posterior"})
    edit.remove()
    lb.attach_kl(optimizer, model, num_data=10)  # its hook now comes after that of the rest
    before = snapshot(optimizer, {"mean"})
    step(model, optimizer, config, 1, {"posterior"})
    assert same(before, snapshot(optimizer, {"mean"}))
    step(model, optimizer, config, 2)
    after = snapshot(optimizer, {"mean"})
    assert all(not torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))


def test_turns_that_would_move_nothing_are_refused():
    with pytest.raises(lb.ConfigError, match="train='posterior' finds no posterior parameters"):
        built(lb.MAP(), train="posterior")
    model = lb.bayesianize(network(), lb.MeanField())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("slots" in name)
    build_optimizer(model, None, FitConfig(train="posterior"))
    with pytest.raises(lb.ConfigError, match="train='alternate' finds no network's own"):
        build_optimizer(model, None, FitConfig(train="alternate"))
    model.requires_grad_(False)
    with pytest.raises(lb.ConfigError, match="no parameter of the model asks for a gradient"):
        build_optimizer(model, None, FitConfig())


def test_cosine_ends_just_above_its_floor():
    last = rates(FitConfig(lr=1.0), 1000)[-1]
    assert last == pytest.approx((1 + math.cos(math.pi * 0.999)) / 2)
