"""`fit_posterior`: measure on data what a trained network's posterior is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from leanbayes.errors import ConfigError
from leanbayes.likelihood import Likelihood
from leanbayes.model import BayesianModel, is_sharded, unwrap
from leanbayes.untouched import kept_modes


def fit_posterior(
    model: nn.Module, loader: Iterable[Any], likelihood: Likelihood, **options: Any
) -> dict[str, float]:
    """Fit the posterior of a converted, trained network to data, for `lb.SWAG` and `lb.Laplace`.

    The modes of all modules come back, gradients are cleared, and the likelihood is kept with the
    model, so that `lb.predict` needs none.

    Args:
        model: A BayesianModel or its compiled wrapper, in one process.
        loader: Training batches (inputs, targets), read once (Laplace) or once an epoch (SWAG).
        likelihood: How outputs give a probability to targets.
        options: Of the method: see `lb.SWAG` and `lb.Laplace`.

    Returns:
        What was found, by name: figures for a log.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.Laplace())
        >>> batch = torch.randn(8, 4), torch.randint(0, 3, (8,))
        >>> lb.fit_posterior(model, [batch], lb.Categorical())["num_data"]
        8.0
    """
    inner = unwrap(model)
    _refuse_processes(model, inner)
    with kept_modes(inner):
        found = inner.method.fit(inner, loader, likelihood, **options)
    inner.likelihood, inner.calibration = likelihood, None  # it was that of another posterior
    return found


def _refuse_processes(model: nn.Module, inner: BayesianModel) -> None:
    if is_sharded(inner) or isinstance(model, nn.parallel.DistributedDataParallel):
        raise ConfigError(
            "fit_posterior works in one process, on the whole model: found one that is spread over "
            "several (DDP, FSDP2). Fit before wrapping, or fit lb.load(net, path) of a saved model"
        )
