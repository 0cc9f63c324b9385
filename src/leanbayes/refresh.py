"""BatchNorm statistics for weights that no training pass has seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from leanbayes.model import BayesianModel, unwrap
from leanbayes.moments import Run, write_statistics
from leanbayes.plan import call, count_rows, fold


def refresh_batchnorm(model: nn.Module, loader: Iterable[Any], *, draws: bool = False) -> int:
    """Recompute the running statistics of every BatchNorm over a loader, under the mean network.

    Averaged weights (SWAG, an average of checkpoints) have other activations than the iterates
    whose statistics were kept (Izmailov et al. 2018). A layer gets the mean and the unbiased
    variance of all of its inputs, batches merged exactly (Chan's formula in float64) whatever their
    sizes; as in training, the layers before it normalise by the batch. Momentum, modes and
    gradients stay as they are; dropout is off.

    Activations of draws that lie far apart (members of an ensemble) vary by more than those of
    their mean: predictions by draws want the statistics over data and draws, as training tracks
    them, `draws=True`. Members with statistics of their own (`DeepEnsemble`) keep theirs, but for
    the first, which is the mean network.

    Cost: one pass over the loader, without gradients.

    Args:
        model: A BayesianModel, its wrapper, or any module.
        loader: Batches; of a tuple or list the first entry is the input.
        draws: Under draws of the method's training plan, from torch's global generator.

    Returns:
        Number of layers that were refreshed.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
        >>> lb.refresh_batchnorm(net, [(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), None)])
        1
        >>> net[0].running_mean.tolist(), net[0].running_var.tolist()
        ([2.0, 0.0], [2.0, 0.0])
    """
    drawn = draws and not _by_member(unwrap(model))
    run = _drawn_run(model) if drawn else lambda inputs: call(model, inputs)
    return write_statistics(model, loader, run)


def _by_member(model: BayesianModel) -> bool:
    """True where layers have statistics of every member."""
    hosts = (m for m in model.modules() if isinstance(m, _BatchNorm))
    return any("statistics" in getattr(host, "slots", ()) for host in hosts)


def _drawn_run(model: nn.Module) -> Run:
    """A pass as in training: as many draws, and as many copies of a batch as the method wants."""
    inner = unwrap(model)
    copies = inner.method.repeats

    def run(inputs: Any) -> Any:
        plan = inner.training_plan(copies * count_rows((inputs,), {}), copies)
        return call(model, fold(inputs, copies), plan=plan)

    return run
