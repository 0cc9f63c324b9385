"""The KL edit of optimisers around optimisers, and its count of steps across a restart."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.edit import KLEdit

BATCH = torch.randn(8, 4, dtype=torch.float64), torch.arange(8) % 3


def model_of():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        return lb.bayesianize(net, lb.MeanField(init_std=0.1)).train()


def sgd(model):
    return torch.optim.SGD(lb.param_groups(model, lr=0.1))


def backward(model):
    lb.objective(model, BATCH, lb.Categorical(), include_kl=False).loss.backward()


class Around(torch.optim.Optimizer):
    """As timm's Lookahead: it has hooks, and never calls them."""

    def __init__(self, inner):
        self._optimizer_step_pre_hooks = OrderedDict()
        self.param_groups, self.defaults, self.base_optimizer = inner.param_groups, {}, inner

    def step(self, closure=None):
        return self.base_optimizer.step(closure)


class Wrapper:
    """As that of schedule-free: no optimiser by its class."""

    def __init__(self, inner):
        self.base, self.param_groups = inner, inner.param_groups

    def step(self):
        self.base.step()


class TwoSteps(torch.optim.Optimizer):
    """As SAM, whose own `step` is not called where its two halves are."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.base_optimizer, self.param_groups = inner, inner.param_groups

    def second_step(self):
        self.base_optimizer.step()


@pytest.mark.parametrize("kind", [Around, Wrapper, TwoSteps, lambda inner: Around(Around(inner))])
def test_the_edit_comes_where_the_inner_optimiser_steps(kind):
    """The hook of the outer one was never called, or was not there: the KL was left out."""
    states = []
    for outer in (lambda inner: inner, kind):
        model = model_of()
        optimizer = outer(sgd(model))
        handle = lb.attach_kl(optimizer, model, num_data=20)
        torch.manual_seed(1)
        for _ in range(2):
            model.zero_grad()
            backward(model)
            getattr(optimizer, "second_step", optimizer.step)()
        assert handle.steps == 2
        states.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*states, rtol=0.0, atol=0.0)


def test_an_outer_optimiser_and_its_inner_one_are_one():
    model = model_of()
    inner = sgd(model)
    lb.attach_kl(Around(inner), model, num_data=20)
    with pytest.raises(lb.ConfigError, match="attached already"):
        lb.attach_kl(inner, model, num_data=20)


def test_an_inner_optimiser_of_some_of_the_parameters_is_not_the_one():
    """As ZeroRedundancyOptimizer, whose inner one has those of its process alone."""
    model = model_of()
    outer = sgd(model)
    outer.optim = torch.optim.SGD(model.net[0].parameters(), lr=0.1)
    handle = lb.attach_kl(outer, model, num_data=20)
    outer.step()
    assert handle.steps == 1
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_what_has_no_hook_before_its_step_is_refused():
    model = model_of()
    engine, optimizer = Wrapper(sgd(model)), sgd(model)
    engine.second = optimizer
    with pytest.raises(lb.ConfigError, match="found Wrapper, which has no hook"):
        lb.attach_kl(engine, model, num_data=20)
    with pytest.raises(lb.ConfigError, match="found StepLR, which has no hook"):
        lb.attach_kl(torch.optim.lr_scheduler.StepLR(optimizer, 1), model, num_data=20)


def test_an_optimiser_that_climbs_is_refused():
    """The KL was added to the gradient of the log-likelihood, and grew."""
    model = model_of()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1), maximize=True)
    with pytest.raises(lb.ConfigError, match="maximize=True would make the KL grow"):
        lb.attach_kl(optimizer, model, num_data=20)


@pytest.mark.parametrize("attached_first", [True, False])
def test_the_steps_of_a_schedule_are_kept_with_the_optimiser(attached_first):
    """A run that went on from a checkpoint began its KL warm-up again."""
    model, schedule = model_of(), lb.schedule.linear_warmup(steps=10)
    optimizer = sgd(model)
    handle = lb.attach_kl(optimizer, model, num_data=20, kl_weight=schedule)
    for _ in range(3):
        optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.step()

    fresh = sgd(model)
    handle.remove()
    if attached_first:
        again = lb.attach_kl(fresh, model, num_data=20, kl_weight=schedule)
        fresh.load_state_dict(saved)
    else:
        fresh.load_state_dict(saved)
        again = lb.attach_kl(fresh, model, num_data=20, kl_weight=schedule)
    assert (again.steps, again.weight()) == (3, schedule(3))


def test_two_models_in_one_optimiser_are_counted_apart():
    models = [model_of(), model_of()]
    optimizer = torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1)
    first, second = (lb.attach_kl(optimizer, m, num_data=20) for m in models)
    optimizer.step()
    second.steps = 7
    optimizer.step()
    assert (first.steps, second.steps) == (2, 8)
    first.remove()
    optimizer.zero_grad()
    first = lb.attach_kl(optimizer, models[0], num_data=20)
    optimizer.step()
    assert (first.steps, second.steps) == (1, 9)


def test_an_edit_after_another_counts_from_0():
    model = model_of()
    optimizer = sgd(model)
    for _ in range(2):
        handle: KLEdit = lb.attach_kl(optimizer, model, num_data=20)
        optimizer.step()
        assert handle.steps == 1
        handle.remove()
        optimizer.zero_grad()
    assert all(key != "kl_steps" for group in optimizer.param_groups for key in group)
