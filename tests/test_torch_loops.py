"""What torch itself has for loops: schedules of rates, averages of weights, export."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as rates
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import leanbayes as lb

X = torch.arange(96.0, dtype=torch.float64).reshape(24, 4).sin()
Y = torch.arange(24) % 3
BATCHES = list(zip(X.split(4), Y.split(4), strict=True))
METHODS = [lb.MeanField(init_std=0.1), lb.RankOne(members=2), lb.Patching(members=2)]
METHOD = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def make_net():
    torch.manual_seed(0)
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)
    return nn.Sequential(*layers).double()


def model_of(method):
    return lb.bayesianize(make_net(), method, example=X, likelihood=lb.Categorical()).train()


def adamw(model):
    return torch.optim.AdamW(lb.param_groups(model, lr=1e-2, posterior_lr=3e-2))


def backward(model, step, **options):
    torch.manual_seed(step)
    cost = lb.objective(model, BATCHES[step], lb.Categorical(), **options)
    cost.loss.backward()
    return cost.nll.item()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@METHOD
@pytest.mark.parametrize(
    "schedule",
    [
        lambda opt: rates.OneCycleLR(opt, [0.1] * len(opt.param_groups), 6, cycle_momentum=False),
        lambda opt: rates.ReduceLROnPlateau(opt, patience=0),
        lambda opt: rates.CosineAnnealingLR(opt, 6),
    ],
    ids=["one_cycle", "plateau", "cosine"],
)
def test_a_schedule_of_rates_changes_rates_alone(method, schedule):
    """As with the KL in the graph."""
    model = model_of(method)
    states = []
    for twin, attached in ((copy.deepcopy(model), False), (model, True)):
        optimizer = adamw(twin)
        if attached:
            lb.attach_kl(optimizer, twin, num_data=24)
        rate = schedule(optimizer)
        options = {"include_kl": False} if attached else {"num_data": 24}
        for step in range(6):
            nll = backward(twin, step, **options)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            rate.step(*[nll] * isinstance(rate, rates.ReduceLROnPlateau))
        states.append(flat(twin))
    torch.testing.assert_close(*states, rtol=0.0, atol=1e-12)


@METHOD
@pytest.mark.parametrize("decay", [None, 0.5])
def test_an_averaged_model_predicts_is_saved_and_collapsed(method, decay, tmp_path):
    model = model_of(method)
    optimizer = adamw(model)
    lb.attach_kl(optimizer, model, num_data=24)
    rule = {} if decay is None else {"multi_avg_fn": get_ema_multi_avg_fn(decay)}
    averaged = AveragedModel(model, **rule)
    expected = 0.0
    for step in range(4):
        backward(model, step, include_kl=False)
        optimizer.step()
        optimizer.zero_grad()
        averaged.update_parameters(model)
        share = 1 / (step + 1) if decay is None else (0.5 if step else 1.0)
        expected = expected + share * (flat(model) - expected)
    torch.testing.assert_close(flat(averaged.module), expected, rtol=1e-12, atol=1e-14)
    assert not averaged.module.kl_attached
    update_bn(BATCHES, averaged)
    lb.save(averaged, tmp_path / "averaged")
    again = lb.load(make_net(), tmp_path / "averaged")
    ours, theirs = (lb.predict(m, X, samples=4, seed=0).probs for m in (averaged, again))
    assert torch.equal(ours, theirs)
    means = averaged.eval()(X), lb.collapse(averaged).eval()(X)
    torch.testing.assert_close(*means, rtol=1e-12, atol=1e-12)


@METHOD
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_collapsed_network_is_exported_and_traced(method):
    plain = lb.collapse(model_of(method)).eval()
    with torch.no_grad():
        wanted = plain(X)
        for other in (torch.export.export(plain, (X,)).module(), torch.jit.trace(plain, X)):
            torch.testing.assert_close(other(X), wanted, rtol=1e-12, atol=1e-12)
