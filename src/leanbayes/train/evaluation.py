"""Validation figures of a model in training: the posterior predictive, not a single draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.likelihood import Likelihood, RealTargets
from leanbayes.model import is_sharded, unwrap
from leanbayes.predict import predict
from leanbayes.prediction import (
    BinaryClassification,
    Classification,
    Prediction,
    Regression,
    is_label,
    matched,
)
from leanbayes.train.data import Batches
from leanbayes.train.runtime import Runtime


def evaluate_in_training(  # noqa: PLR0913
    module: nn.Module,
    batches: Batches,
    likelihood: Likelihood,
    runtime: Runtime,
    *,
    samples: int | None,
    seed: int,
    stop: Callable[[], bool] = bool,
) -> dict[str, float] | None:
    """`nll`, and `accuracy` or `rmse`, of the predictive of `samples` keyed draws.

    Processes share the batches out among themselves and add their sums up; under FSDP2 every
    process runs every batch, because a pass is a joint affair. All evaluate one and the same
    network, that of a checkpoint of this moment: otherwise they might disagree on what is best.

    `stop` is asked before every batch; where it says yes on any process, all get None.
    """
    runtime.share_buffers(module)
    sharded = is_sharded(unwrap(module))
    rank, world = (0, 1) if sharded else (runtime.rank, runtime.world)
    model = module if sharded else unwrap(module)
    sums = torch.zeros(4, dtype=torch.float64)  # the last one: was this process told to stop
    keep = isinstance(likelihood, RealTargets)  # a density of the mixture needs its samples
    options: dict[str, Any] = {"samples": samples, "seed": seed, "keep_samples": keep}
    for inputs, target in _share(batches, rank, world, runtime.device):
        # Passes of shards are joint, so that all have to leave at the same one.
        if runtime.any(float(stop())).item() if sharded else stop():
            sums[3] = 1
            break
        found = predict(model, inputs, likelihood=likelihood, **options).to("cpu")
        sums[:3] += _sums(found, target.cpu(), likelihood)
    if world > 1:
        sums = runtime.mean(sums.to(runtime.device)).cpu() * world
    if sums[3] > 0:
        return None
    nll, score = (sums[:2] / sums[2]).tolist()  # nan where nothing has a label, no perfect 0
    return dict(zip(figure_names(likelihood), (nll, score**0.5 if keep else score), strict=True))


def figure_names(likelihood: Likelihood) -> tuple[str, str]:
    """What an evaluation under this likelihood gives."""
    return "nll", "rmse" if isinstance(likelihood, RealTargets) else "accuracy"


def _share(
    batches: Batches, rank: int, world: int, device: torch.device
) -> Iterator[tuple[Any, Tensor]]:
    for number, (inputs, target) in enumerate(batches.epoch(0)):
        if number % world == rank:
            yield on_device(inputs, device), target


def _sums(found: Prediction, target: Tensor, likelihood: Likelihood) -> Tensor:
    """Sums of -log p, of hits (or squared errors), and their number."""
    match found:
        case Classification():
            known = is_label(target, getattr(likelihood, "ignore_index", -100))
            safe = torch.where(known, target, 0)
            log_prob = torch.where(known, found.log_prob(safe), 0.0)
            score = ((found.label == target) & known).double()
            count = known.sum()
        case BinaryClassification():
            target = matched(target, found.probs)
            log_prob, count = found.log_prob(target), torch.tensor(target.numel())
            score = (found.label == (target > 0.5)).double()  # a probability stands for its side
        case Regression():
            target = matched(target, found.mean)
            log_prob = found.log_density(target)
            count, squares = torch.tensor(log_prob.numel()), (found.mean - target).square()
            score = squares.mean(1) if squares.dim() > 1 else squares
        case _:
            raise TypeError(f"no validation figures for {type(found).__name__}")
    return torch.stack([-log_prob.double().sum(), score.double().sum(), count.double()])


def on_device(tree: Any, device: torch.device) -> Any:
    """Every tensor of a batch on the device, without waiting where memory is pinned."""
    if isinstance(tree, tuple) and all(isinstance(t, Tensor) for t in tree):  # the usual pair
        return tuple(t if t.device == device else t.to(device, non_blocking=True) for t in tree)
    return pytree.tree_map_only(Tensor, lambda t: t.to(device, non_blocking=True), tree)
