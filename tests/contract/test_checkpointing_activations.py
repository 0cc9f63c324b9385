"""Activation checkpointing: recomputed blocks see the plan and the noise of their forward pass."""

from functools import partial

import pytest
import torch
from nets import CLASSES, ROWS, converted, gradients, labels
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


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("samples", [1, 2])
def test_gradients_are_those_without_checkpointing(method, net_name, samples):
    model, inputs = converted(method, net_name, torch.float64)
    expected = seeded_gradients(model, inputs, samples=samples)
    runs = []
    for block in list(model.net.children()) or [model.net]:

        def counted(*args, forward=block.forward, **kwargs):
            runs.append(forward)
            return forward(*args, **kwargs)

        block.forward = partial(SAVING, counted)
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


def test_prediction_between_forward_and_backward_is_told_apart_or_harmless(noisy):
    """A plan is set on entry and kept: one forward pass a backward pass is the documented rule."""
    net, inputs = Stack().double(), torch.randn(ROWS, 5, dtype=torch.float64)
    model = lb.bayesianize(net, noisy, example=inputs).train()
    expected = seeded_gradients(model, inputs, include_kl=False)
    model.zero_grad()
    torch.manual_seed(5)
    batch = (inputs, labels())
    loss = lb.objective(model, batch, lb.Categorical(), include_kl=False).loss
    lb.predict(model, inputs, likelihood=lb.Categorical(), samples=2, seed=0)
    loss.backward()  # without checkpointing nothing is recomputed
    assert_equal(gradients(model), expected)
