"""The average of weights: its closed form, what is never averaged, and values that come back."""

import copy

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.train.ema import Average

F64 = torch.float64


class Net(nn.Module):
    """Every kind of tensor: floating, whole-number, tied, frozen, half, and three buffers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2, dtype=F64))
        self.tied = self.weight
        self.frozen = nn.Parameter(torch.randn(5), requires_grad=False)
        self.short = nn.Parameter(torch.randn(4).to(torch.bfloat16))
        self.index = nn.Parameter(torch.arange(3), requires_grad=False)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0]))
        self.register_buffer("picked", torch.tensor([True, False]))
        self.register_buffer("count", torch.tensor(0))


def move(net, step):
    with torch.no_grad():
        net.weight.add_(torch.randn(3, 2, dtype=F64))
        net.short.add_(2.0**-6)
        net.index.add_(1)
        net.mask.copy_(torch.tensor([0.0, 1.0, float(step)]))
        net.picked.logical_not_()
        net.count.add_(1)


def bits(net):
    return {k: (v.dtype, v.view(torch.uint8).tolist()) for k, v in flat(net).items()}


def flat(net):
    return {k: v.detach().clone().reshape(-1) for k, v in net.state_dict().items()}


def taken(average, net):
    with average.applied(net):
        return copy.deepcopy(net.state_dict())


def fail_inside(average, net):
    with average.applied(net):
        move(net, 3)
        raise RuntimeError("inside")


def test_the_average_is_the_weighted_sum_of_the_closed_form():
    net, decay, steps = Net(), 0.9, 7
    average, seen = Average(net, decay), [net.weight.detach().clone()]
    for step in range(steps):
        move(net, step)
        average.update(net)
        seen.append(net.weight.detach().clone())
    expected = decay**steps * seen[0]
    for k, weight in enumerate(seen[1:], 1):
        expected = expected + (1 - decay) * decay ** (steps - k) * weight
    found = taken(average, net)
    torch.testing.assert_close(found["weight"], expected, rtol=1e-13, atol=1e-13)
    assert torch.equal(found["tied"], found["weight"])


def test_whole_numbers_masks_and_buffers_are_the_latest_and_constants_stay_bitwise():
    net = Net()
    average, frozen = Average(net, 0.3), net.frozen.clone()
    for step in range(3):
        move(net, step)
        average.update(net)
    found = taken(average, net)
    for name in ("index", "mask", "picked", "count"):
        assert torch.equal(found[name], net.state_dict()[name]), name
    assert torch.equal(found["frozen"], frozen)


def test_half_precision_is_averaged_in_float32():
    net = Net()
    nn.init.ones_(net.short)
    average = Average(net, 0.999)  # a bfloat16 near 1 is 2^-7 coarse: steps of 1e-5 would be lost
    nn.init.constant_(net.short, 2.0)
    for _ in range(200):
        average.update(net)
    held = average.state()["averaged"]["short"]
    torch.testing.assert_close(held, torch.full((4,), 2 - 0.999**200), rtol=1e-5, atol=0)
    assert taken(average, net)["short"].dtype == torch.bfloat16


def test_values_come_back_bitwise_also_after_an_error_and_after_changes_inside():
    net = Net()
    average = Average(net, 0.5)
    move(net, 1)
    average.update(net)
    move(net, 2)
    nn.init.constant_(net.short, float("nan"))  # not equal to itself: bits are compared
    before, where = bits(net), net.weight.data_ptr()
    with pytest.raises(RuntimeError, match="inside"):
        fail_inside(average, net)
    assert bits(net) == before
    assert net.weight.data_ptr() == where


def test_no_gradient_and_no_flag_is_touched():
    net = Net()
    net.weight.grad = torch.ones_like(net.weight)
    average = Average(net, 0.5)
    average.update(net)
    with average.applied(net):
        assert net.weight.requires_grad
        assert not net.frozen.requires_grad
    assert torch.equal(net.weight.grad, torch.ones(3, 2, dtype=F64))
    assert net.weight.grad_fn is None


def test_settle_leaves_the_averages_in_the_model():
    net = Net()
    average = Average(net, 0.5)
    move(net, 1)
    average.update(net)
    expected = taken(average, net)
    average.settle(net)
    assert all(torch.equal(v, expected[k]) for k, v in net.state_dict().items())


def test_a_saved_average_goes_on_bitwise():
    net = Net()
    one = Average(net, 0.8)
    move(net, 1)
    one.update(net)
    state = one.state()
    kept = {name: tensor.clone() for name, tensor in state["averaged"].items()}
    other = Average(Net(), 0.8)
    other.load(state)
    for average in (one, other):
        average.update(net)
    left, right = one.state(), other.state()
    assert left["updates"] == right["updates"] == 2
    for part in ("averaged", "latest"):
        assert left[part].keys() == right[part].keys()
        assert all(torch.equal(left[part][k], right[part][k]) for k in left[part])
    assert all(torch.equal(state["averaged"][k], v) for k, v in kept.items())  # a copy, not a view


def test_a_state_of_another_model_is_refused_and_changes_nothing():
    net = Net()
    average = Average(net, 0.8)
    before = average.state()
    foreign = Average(nn.Linear(2, 2), 0.8).state()
    with pytest.raises(CheckpointError, match="another model: 'bias'"):
        average.load(foreign)
    wrong = average.state()
    wrong["averaged"]["weight"] = torch.zeros(2, 2, dtype=F64)
    with pytest.raises(CheckpointError, match=r"'weight' is torch.float64 \(2, 2\)"):
        average.load(wrong)
    with pytest.raises(CheckpointError, match="lacks"):
        average.load({"averaged": {}})
    after = average.state()["averaged"]
    assert all(torch.equal(before["averaged"][k], after[k]) for k in after)


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan"), True])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(ConfigError, match=r"in \[0, 1\)"):
        Average(nn.Linear(1, 1), decay)


def test_another_model_is_refused():
    with pytest.raises(ConfigError, match="other tensors"):
        Average(nn.Linear(1, 1), 0.5).update(nn.Conv1d(1, 1, 1, bias=False))


def test_posterior_scales_are_averaged_and_masks_of_a_partial_posterior_are_not():
    x = torch.randn(8, 4)
    data = [(x, torch.randint(0, 3, (8,)))]
    method = lb.Partial(rate=0.3)
    model = lb.bayesianize(
        nn.Linear(4, 3), method, example=x, data=data, likelihood=lb.Categorical()
    )
    average = Average(model, 0.5)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    average.update(model)
    slots = [name for name in start if ".slots." in name]
    assert slots
    with average.applied(model):
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach(), start[name] + 0.5)
    assert {k: v.dtype for k, v in average.state()["latest"].items()} == {
        k: v.dtype for k, v in model.named_buffers()
    }
