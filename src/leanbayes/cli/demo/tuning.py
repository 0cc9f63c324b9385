"""The two ways in which the demo trains: from scratch, and a converted network further."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import leanbayes as lb
from leanbayes.cli.demo.setting import Batches, Data, Settings
from leanbayes.cli.progress import Tick


def train(settings: Settings, data: Data, tick: Tick) -> nn.Module:
    """An ordinary network, trained in the ordinary way, seeded by the settings."""
    torch.manual_seed(settings.seed)
    net = lb.models.create("lenet", width=settings.width)
    optimizer = torch.optim.Adam(
        net.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    batches = Batches(data.x, data.y, settings.epochs, settings)
    _descend(batches, optimizer, lambda x, y: cross_entropy(net(x), y), tick)
    return net


def fine_tune(
    model: lb.BayesianModel, settings: Settings, batches: Batches, posterior_lr: float, tick: Tick
) -> None:
    """Train on the negative log-likelihood; the optimiser adds the gradients of the KL."""
    groups = lb.param_groups(
        model,
        lr=settings.tuning_lr,
        posterior_lr=posterior_lr,
        weight_decay=settings.weight_decay,
    )
    optimizer = torch.optim.Adam(groups)
    handle = lb.attach_kl(optimizer, model, num_data=len(batches.x))
    likelihood = lb.Categorical()
    model.train()
    _descend(
        batches,
        optimizer,
        lambda x, y: lb.objective(model, (x, y), likelihood, include_kl=False).loss,
        tick,
    )
    handle.remove()


def _descend(
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, Tensor], Tensor],
    tick: Tick,
) -> None:
    for x, y in batches:
        optimizer.zero_grad()
        torch.autograd.backward(loss(x, y))
        optimizer.step()
        tick()
