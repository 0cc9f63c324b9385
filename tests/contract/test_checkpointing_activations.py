"""Activation checkpointing: recomputed blocks see the plan and the noise of their forward pass."""

from functools import partial

import pytest
import torch
from nets import CLASSES, ROWS, converted, gradients, labels, predicted
from torch import nn
from torch.utils.checkpoint import checkpoint

import leanbayes as lb

SAVING = partial(checkpoint, use_reentrant=False)


class Block(nn.Module):
    """A converted layer, the network's own dropout, a converted norm."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.4)
        self.norm = nn.LayerNorm(width)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return x + self.norm(self.dropout(torch.tanh(self.linear(x))))


class Stack(nn.Module):
    """Blocks that checkpoint themselves if so told, on [B, I] and on [B, T, I]."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(5), Block(5), Block(5)])
        self.head = nn.Linear(5, CLASSES)
        self.saving = False

    def forward(self, x):
        for block in self.blocks:
            x = SAVING(block, x) if self.saving else block(x)
        return self.head(x.flatten(1, -2).mean(1) if x.dim() > 2 else x)


def seeded_gradients(model, inputs, include_kl=True, samples=1):
    model.zero_grad()
    torch.manual_seed(5)
    result = lb.objective(
        model.train(),
        (inputs, labels()),
        lb.Categorical(),
        num_data=ROWS,
        samples=samples,
        include_kl=include_kl,
    )
    result.loss.backward()
    return {name: grad.clone() for name, grad in gradients(model).items()}


def checkpoint_blocks(net):
    """Checkpoint every child; returns the list in which each run is noted."""
    runs = []
    for block in [m for name, m in net.named_children() if name != "slots"] or [net]:

        def noted(*args, forward=block.forward, **kwargs):
            runs.append(forward)
            return forward(*args, **kwargs)

        block.forward = partial(SAVING, noted)
    return runs


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("samples", [1, 2])
def test_gradients_are_those_without_checkpointing(method, net_name, samples):
    model, inputs = converted(method, net_name, torch.float64)
    expected = seeded_gradients(model, inputs, samples=samples)
    runs = checkpoint_blocks(model.net)
    found = seeded_gradients(model, inputs, samples=samples)
    assert_equal(found, expected)
    assert len(runs) > len(set(runs))  # something was computed again


@pytest.mark.parametrize("shape", [(ROWS, 5), (ROWS, 4, 5)], ids=["rows", "tokens"])
def test_a_block_with_dropout_of_its_own_repeats_both_noises(method, shape):
    net, inputs = Stack().double(), torch.randn(shape, dtype=torch.float64)
    model = lb.bayesianize(net, method, example=inputs)
    expected = seeded_gradients(model, inputs, include_kl=False)
    net.saving, net.blocks[0].runs = True, 0
    found = seeded_gradients(model, inputs, include_kl=False)
    assert net.blocks[0].runs == 2
    assert_equal(found, expected)


def two_losses(model, inputs):
    return model(inputs).square().mean() + model(inputs.flip(0)).logsumexp(1).mean()


def loss_beside_a_prediction(model, inputs):
    loss = model(inputs).square().mean()
    predicted(model, inputs, samples=2)
    return loss


@pytest.mark.parametrize("loss_of", [two_losses, loss_beside_a_prediction])
def test_another_pass_before_backward_does_not_change_what_is_recomputed(noisy, net_name, loss_of):
    model, inputs = converted(noisy, net_name, torch.float64)
    found = []
    for recompute in (False, True):
        if recompute:
            checkpoint_blocks(model.net)
        model.train().zero_grad()
        torch.manual_seed(6)
        loss_of(model, inputs).backward()
        found.append({name: grad.clone() for name, grad in gradients(model).items()})
    assert_equal(*found)


def test_a_network_that_checkpoints_already_is_proved_as_one_that_does_not():
    """Recomputation in the backward pass of the proof is no second use: it would share a draw."""
    x = torch.randn(ROWS, 5)
    models = []
    for saving in (False, True):
        net = Stack()
        net.saving = saving
        models.append(lb.bayesianize(net, lb.MeanField(init_std=0.3), example=x))
    assert models[0].shared == models[1].shared == []


class Reentrant(Stack):
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x.requires_grad_(), use_reentrant=True)
        return self.head(x)


def test_reentrant_checkpoints_before_the_conversion_are_told_what_to_write():
    net = Reentrant()
    with pytest.raises(lb.ConversionError, match="convert first and turn checkpointing on after"):
        lb.bayesianize(net, lb.MeanField(), example=torch.randn(ROWS, 5))
    assert type(net.head) is nn.Linear
