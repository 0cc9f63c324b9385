"""Adversarial images for the verification experiment: PGD against the averaged prediction.

The loss is that of the paper's evaluation (Deng et al. 2022), `-log mean_s p_s(y | x)`: its
gradient weighs the draws by the probability they give the true class. A random start within the
budget, then steps of `STEP` along the sign of the gradient, cut to the budget and to pixels of
[0, 1]. Every step has new draws; members are enumerated. Cost: a pass and its gradient a draw and
step.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from leanbayes.experiments.open_set_data import Budget, OpenSetData, Part, seeded
from leanbayes.likelihood import tensor_of
from leanbayes.model import BayesianModel
from leanbayes.noise import KeyedNoise

STEP: Final = 0.003  # of the paper, for CIFAR-10
ROWS: Final = 4096  # images times draws at once: all draws of an image are in one graph


def pgd(model: BayesianModel, data: OpenSetData, budget: Budget) -> Tensor:
    """Test images, changed within the budget so that their true class becomes unlikely."""
    x, y = (part[: budget.most] for part in data.test)
    draws = budget.samples if model.method.is_random else 1
    size = max(1, ROWS // draws)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with seeded(budget.seed, x.device):
        parts = [
            _attacked(model, (x[start : start + size], y[start : start + size]), data, budget)
            for start in range(0, len(y), size)
        ]
    for module, training in modes:
        module.training = training
    return torch.cat(parts)


def _attacked(model: BayesianModel, part: Part, data: OpenSetData, budget: Budget) -> Tensor:
    (x, y), scale = part, data.normalize
    clean = x if scale is None else scale.undo(x)
    low, high = (clean - budget.eps).clamp(min=0), (clean + budget.eps).clamp(max=1)
    pixels = low + (high - low) * torch.rand_like(clean)
    for step in range(budget.steps):
        pixels.requires_grad_(True)
        inputs = pixels if scale is None else scale(pixels)
        loss = -log_mean(model, inputs, y, budget.samples, key=budget.seed + step).sum()
        (slope,) = torch.autograd.grad(loss, pixels)
        moved = pixels.detach() + STEP * slope.sign()
        pixels = torch.minimum(torch.maximum(moved, low), high)
    return pixels if scale is None else scale(pixels)


def log_mean(model: BayesianModel, x: Tensor, y: Tensor, draws: int, *, key: int) -> Tensor:
    """`log mean_s p_s(y | x)` of the draws that a key names, with gradients, [B]."""
    found = []
    for number in range(draws if model.method.is_random else 1):
        noise = KeyedNoise(key, range(number, number + 1))
        plan = model.method.prediction_plan(range(number, number + 1), noise)
        logits = log_softmax(tensor_of(model(x, plan=plan)), 1)
        found.append(logits.gather(1, y.unsqueeze(1)).squeeze(1))
    return torch.logsumexp(torch.stack(found), 0) - math.log(len(found))
