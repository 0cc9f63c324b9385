"""Broken numbers stop a run by name, and before they do harm."""

import math
import warnings

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.errors import NonFinite
from leanbayes.train import guards
from leanbayes.train.guards import FiniteGuard
from leanbayes.train.late_flag import LateFlag


class Alone:
    """A stand-in for the runtime of one process."""

    rank, world, device = 0, 1, torch.device("cpu")

    def any(self, flags):
        return flags.cpu()


class Beside(Alone):
    """Another process whose flags are given."""

    def __init__(self, *wrong):
        self.wrong = wrong

    def any(self, flags):
        flags = flags.clone()
        flags[list(self.wrong)] = 1
        return flags


def trained(dtype=torch.float32):
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    model = lb.bayesianize(net, lb.MeanField()).train()
    batch = torch.randn(6, 4, dtype=dtype), torch.arange(6) % 3
    loss = lb.objective(model, batch, lb.Categorical(), include_kl=False).loss
    loss.backward()
    return model, loss, batch


def names(model):
    return [name for name, _ in model.named_parameters()]


def test_a_healthy_step_passes_and_leaves_the_norms_of_its_gradients():
    model, loss, batch = trained()
    guard = FiniteGuard()
    guard.check(0, loss, model, Alone(), batch)
    expected = torch.stack([p.grad.norm() for p in model.parameters()])
    torch.testing.assert_close(guard.norms, expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_loss_is_named_with_its_step(bad):
    model, loss, _ = trained()
    with pytest.raises(NonFinite, match=r"^step 17: the loss infinite or not a number"):
        FiniteGuard().check(17, loss * bad, model, Alone())


@pytest.mark.parametrize("place", range(8))
def test_a_broken_gradient_is_named_by_its_parameter(place):
    model, loss, batch = trained()
    name, parameter = list(model.named_parameters())[place]
    parameter.grad.view(-1)[-1] = math.nan
    with pytest.raises(NonFinite) as caught:
        FiniteGuard().check(3, loss, model, Alone(), batch)
    assert f"step 3: the gradient of {name} infinite" in str(caught.value)
    assert "the loss" not in str(caught.value)


def test_of_many_broken_gradients_three_are_named_and_the_rest_counted():
    model, loss, _ = trained()
    for parameter in model.parameters():
        parameter.grad.fill_(math.inf)
    first = ", ".join(names(model)[:3])
    with pytest.raises(NonFinite, match=f"gradient of {first} and 5 more"):
        FiniteGuard().check(0, loss, model, Alone())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_broken_data_are_found_where_the_loss_hides_them(dtype):
    model, loss, _ = trained()
    inputs = torch.zeros(6, 4, dtype=dtype)
    FiniteGuard().check(0, loss, model, Alone(), ({"x": inputs, "mask": inputs > 0}, None))
    inputs[2, 1] = -math.inf
    inputs[3, 1] = math.inf
    with pytest.raises(NonFinite, match=r"step 0: the data .* standard deviation of 0"):
        FiniteGuard().check(0, loss, model, Alone(), ({"x": inputs}, None))


def test_large_half_precision_data_are_not_taken_for_infinite():
    model, loss, _ = trained()
    FiniteGuard().check(0, loss, model, Alone(), torch.full((100,), 6e4, dtype=torch.float16))


def test_large_half_precision_gradients_have_a_norm_of_their_own_size():
    model, loss, _ = trained()
    model.half()
    for p in model.parameters():
        p.grad = torch.full_like(p, 3e4)
    guard = FiniteGuard()
    guard.check(0, loss, model, Alone())
    numbers = sum(p.numel() for p in model.parameters())
    torch.testing.assert_close(float(guard.norm()), 3e4 * numbers**0.5, rtol=1e-3, atol=0.0)


def test_a_fault_of_another_process_stops_this_one_with_the_same_words():
    model, loss, _ = trained()
    with pytest.raises(NonFinite, match=f"the loss, the gradient of {names(model)[1]} infinite"):
        FiniteGuard().check(5, loss, model, Beside(0, 3))


def test_parameters_without_gradients_keep_their_place():
    model, loss, _ = trained()
    resting = next(iter(model.parameters()))
    resting.grad = None
    guard = FiniteGuard()
    guard.check(0, loss, model, Alone())
    assert guard.norms[0] == 0
    list(model.parameters())[2].grad.fill_(math.nan)
    with pytest.raises(NonFinite, match=f"gradient of {names(model)[2]} infinite"):
        guard.check(1, loss, model, Alone())


def test_frozen_parameters_are_not_looked_at():
    model, loss, _ = trained()
    first = next(iter(model.parameters()))
    first.requires_grad_(False)
    first.grad.fill_(math.nan)
    FiniteGuard().check(0, loss, model, Alone())


@pytest.mark.parametrize("max_norm", [1e-3, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipping_equals_that_of_torch(max_norm, dtype):
    model, loss, _ = trained(dtype)
    start = [p.grad.clone() for p in model.parameters()]
    expected_norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    expected = [p.grad.clone() for p in model.parameters()]
    for parameter, grad in zip(model.parameters(), start, strict=True):
        parameter.grad = grad
    guard = FiniteGuard()
    guard.check(0, loss, model, Alone())
    torch.testing.assert_close(guard.clip(max_norm), expected_norm)
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


def test_parameters_of_the_likelihood_are_checked_and_clipped_too():
    model, loss, _ = trained()
    likelihood = lb.Gaussian(learn=True)
    likelihood.log_precision.grad = torch.tensor(1e3, dtype=torch.float64)
    guard = FiniteGuard(likelihood)
    guard.check(0, loss, model, Alone())
    total = guard.clip(1.0)
    assert total > 1e3
    assert likelihood.log_precision.grad == pytest.approx(1.0, rel=1e-3)
    likelihood.log_precision.grad.fill_(math.nan)
    with pytest.raises(NonFinite, match=r"gradient of likelihood\.log_precision"):
        guard.check(1, loss, model, Alone())


def test_sparse_gradients_are_measured_and_clipped():
    model = lb.bayesianize(nn.Sequential(nn.Embedding(9, 3, sparse=True)), lb.MAP()).train()
    loss = (model(torch.tensor([4, 7])) * 2).sum()
    loss.backward()
    guard = FiniteGuard()
    guard.check(0, loss, model, Alone())
    assert guard.clip(1.0) == pytest.approx(math.sqrt(6 * 4))
    assert next(model.parameters()).grad.to_dense().norm() == pytest.approx(1.0)


def test_overflows_under_fp16_are_the_scalers_affair_until_they_do_not_end():
    model, loss, _ = trained()
    weight = next(iter(model.parameters()))
    guard = FiniteGuard(fp16=True)
    for step in range(guards.OVERFLOWS - 1):
        weight.grad.fill_(math.inf)
        guard.check(step, loss, model, Alone())
    weight.grad.fill_(1.0)
    guard.check(19, loss, model, Alone())  # the count starts again
    weight.grad.fill_(math.inf)
    for step in range(20, 20 + guards.OVERFLOWS - 1):
        guard.check(step, loss, model, Alone())
    with pytest.raises(NonFinite, match="step 39"):
        guard.check(39, loss, model, Alone())
    with pytest.raises(NonFinite, match="the loss"):
        FiniteGuard(fp16=True).check(0, loss * math.nan, model, Alone())


def test_the_parameters_are_listed_once_a_module(monkeypatch):
    model, loss, _ = trained()
    guard = FiniteGuard()
    guard.check(0, loss, model, Alone())
    monkeypatch.setattr(model, "named_parameters", lambda: pytest.fail("walked again"))
    guard.check(1, loss, model, Alone())


def test_wrappers_do_not_change_names():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    model, loss, _ = trained()
    next(iter(model.parameters())).grad.fill_(math.nan)
    with pytest.raises(NonFinite, match=r"gradient of net\.0\.weight"):
        FiniteGuard().check(0, loss, Wrapper(model), Alone())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_verdict_comes_a_step_late_and_nobody_waits():
    model, loss, batch = trained()
    model = model.cuda()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    loss, batch = loss.detach().cuda(), (batch[0].cuda(), batch[1].cuda())
    guard = FiniteGuard()
    guard.check(0, loss, model, Alone(), batch)  # the pinned buffer is made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        guard.check(1, loss * math.nan, model, Alone(), batch)
        guard.clip(1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with pytest.raises(NonFinite, match="step 1: the loss"):
        guard.check(2, loss, model, Alone(), batch)
    guard.settle()  # told once
    guard.check(3, loss * math.inf, model, Alone(), batch)
    with pytest.raises(NonFinite, match="step 3: the loss"):
        guard.settle()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_broken_gradient_is_named_by_the_parameter_that_it_spoilt():
    model, loss, batch = trained()
    model = model.cuda()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    loss, batch = loss.detach().cuda(), (batch[0].cuda(), batch[1].cuda())
    name, parameter = list(model.named_parameters())[2]
    parameter.grad.view(-1)[-1] = math.nan
    guard = FiniteGuard()
    guard.check(5, loss, model, Alone(), batch)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    with pytest.raises(NonFinite, match=f"step 5: the gradient of {name} infinite"):
        guard.settle()


class Late(FiniteGuard):
    """As on a GPU: the flag is read a step later."""

    def _learn(self, module):
        super()._learn(module)
        self._late = LateFlag(torch.device("cpu"))


def test_a_late_flag_finds_any_broken_gradient_and_changes_none():
    model, loss, batch = trained()
    guard = Late()
    before = [p.grad.clone() for p in model.parameters()]
    guard.check(0, loss, model, Alone(), batch)
    guard.settle()
    assert all(torch.equal(p.grad, b) for p, b in zip(model.parameters(), before, strict=True))
    assert guard.norms is None
    norm = guard.norm()  # computed when it is asked for
    torch.testing.assert_close(norm, torch.stack([b.norm() for b in before]).norm())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for name, parameter in model.named_parameters():
        for bad in (math.nan, math.inf, -math.inf):
            kept, value = parameter.grad.clone(), parameter.detach().clone()
            parameter.grad.view(-1)[0] = bad
            guard.check(7, loss, model, Alone(), batch)
            optimizer.step()
            with pytest.raises(NonFinite, match=rf"^step 7: the gradient of {name} infinite"):
                guard.settle()
            guard.settle()  # told once
            parameter.grad = kept
            parameter.data.copy_(value)


def test_a_late_flag_tells_the_loss_from_the_data():
    model, loss, batch = trained()
    guard = Late()
    guard.check(1, loss.detach() * math.nan, model, Alone(), batch)
    with pytest.raises(NonFinite, match=r"^step 1: the loss infinite"):
        guard.check(2, loss, model, Alone(), batch)
    guard.check(3, loss, model, Alone(), (batch[0] * math.inf, batch[1]))
    with pytest.raises(NonFinite, match=r"^step 3: the data .* infinite"):
        guard.settle()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("expanded", [False, True])
def test_a_late_flag_looks_at_data_of_any_kind_and_changes_none(dtype, expanded):
    model, loss, _ = trained()
    row = (torch.arange(12.0).reshape(1, 12) / 7).to(dtype)
    x = row.expand(4, 12) if expanded else row.repeat(4, 1)
    batch = ({"x": x, "ids": torch.arange(4)}, torch.arange(4))
    before, guard = x.clone(), Late()
    guard.check(0, loss, model, Alone(), batch)
    guard.settle()
    assert torch.equal(x, before)
    (row if expanded else x)[0, 3] = math.inf
    guard.check(1, loss, model, Alone(), batch)
    with pytest.raises(NonFinite, match=r"^step 1: the data .* infinite"):
        guard.settle()


def test_a_late_flag_takes_missing_and_sparse_gradients():
    net = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 2), nn.Linear(2, 2))
    model = lb.bayesianize(net, lb.MAP())
    table, weight, *_ = model.parameters()
    model.net[0](torch.tensor([1, 5, 5])).sum().backward()
    weight.grad = torch.ones_like(weight)
    guard, loss = Late(), torch.zeros(())
    guard.check(0, loss, model, Alone())
    guard.settle()
    values = table.grad.coalesce().values()
    torch.testing.assert_close(guard.norm(), torch.cat([values.view(-1), torch.ones(8)]).norm())
    table.grad._values()[0, 0] = math.nan
    guard.check(1, loss, model, Alone())
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    with pytest.raises(NonFinite, match=r"step 1: the gradient of net\.0\.weight"):
        guard.settle()
