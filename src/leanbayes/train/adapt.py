"""`lb.adapt`: from a pre-trained network to a Bayesian one in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from leanbayes.convert import bayesianize
from leanbayes.errors import ConfigError
from leanbayes.fitting import fit_posterior
from leanbayes.likelihood import Categorical, Likelihood
from leanbayes.methods.base import Method
from leanbayes.methods.deep_ensemble import DeepEnsemble
from leanbayes.model import BayesianModel
from leanbayes.report import ConversionReport
from leanbayes.train.callbacks import Callback
from leanbayes.train.config import FitConfig
from leanbayes.train.data import Batches
from leanbayes.train.evaluation import on_device
from leanbayes.train.loop import FitResult, fit
from leanbayes.train.members import Trained, trained_members
from leanbayes.train.step import Augment


@dataclass(frozen=True)
class Adapted:
    """What `lb.adapt` gives.

    Attributes:
        model: The trained model.
        result: Of the training; None where nothing was trained (`epochs=0`).
        measured: What `lb.fit_posterior` found (SWAG, Laplace), else empty.
        report: What was converted.
    """

    model: BayesianModel
    result: FitResult | None
    measured: Mapping[str, float]

    @property
    def report(self) -> ConversionReport:
        """What was converted, what was not and why."""
        return self.model.report


def adapt(  # noqa: PLR0913
    net: nn.Module,
    method: Method,
    data: Any,
    *,
    likelihood: Likelihood | None = None,
    validation: Any = None,
    ood: Any = None,
    config: FitConfig | None = None,
    members: Trained = "together",
    fitting: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    augment: Augment | None = None,
) -> Adapted:
    """Convert, train, fit what is fitted after training, refresh BatchNorm, report.

    `Partial` measures its sensitivities on the data first. `SWAG` and `Laplace` train as the point
    estimate and are fitted on the data then. `DeepEnsemble` trains its members together, one
    after another, or one a process (`members`).

    Args:
        net: A (pre-trained) network; converted in place.
        method: Any method.
        data: Training data, as for `lb.fit`.
        likelihood: Class probabilities by default.
        validation: As for `lb.fit`.
        ood: As for `lb.fit`.
        config: As for `lb.fit`.
        members: Of a DeepEnsemble: `together`, `in_turn` or `by_process`.
        fitting: Options of `lb.fit_posterior` for SWAG and Laplace.
        callbacks: As for `lb.fit`.
        augment: As for `lb.fit`.

    Example:
        >>> import leanbayes as lb, torch
        >>> x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
        >>> config = lb.FitConfig(epochs=1, batch_size=16, progress=False)
        >>> done = lb.adapt(torch.nn.Linear(4, 3), lb.Partial(rate=0.2), (x, y), config=config)
        >>> done.report.added
        3
    """
    likelihood = likelihood or Categorical()
    config = config or FitConfig()
    options: dict[str, Any] = {
        "validation": validation,
        "ood": ood,
        "config": config,
        "callbacks": callbacks,
        "augment": augment,
    }
    if members != "together":
        if not isinstance(method, DeepEnsemble):
            raise ConfigError(f"members={members!r} is for lb.DeepEnsemble, found {method.name}")
        model, result = trained_members(net, method, data, likelihood, members, **options)
        return Adapted(model, result, {})
    model = converted(net, method, data, likelihood, config)
    result = fit(model, data, likelihood, **options)
    return Adapted(model, result, _measured(model, data, likelihood, config, fitting or {}))


def converted(
    net: nn.Module, method: Method, data: Any, likelihood: Likelihood, config: FitConfig
) -> BayesianModel:
    """The network as a BayesianModel, with a batch of the data as example and as evidence."""
    batches = _batches(data, config)
    device = next((p.device for p in net.parameters()), None)
    first = next(iter(batches.epoch(0)))
    example = first[0] if device is None else on_device(first[0], device)
    if not method.looks_at_data:
        return bayesianize(net, method, example=example)
    loader = [b if device is None else on_device(b, device) for b in batches.epoch(0)]
    return bayesianize(net, method, example=example, data=loader, likelihood=likelihood)


def _measured(
    model: BayesianModel,
    data: Any,
    likelihood: Likelihood,
    config: FitConfig,
    options: Mapping[str, Any],
) -> Mapping[str, float]:
    if type(model.method).fit is Method.fit:
        if options:
            raise ConfigError(f"fitting= is for SWAG and Laplace, found {model.method.name}")
        return {}
    device = next((p.device for p in model.parameters()), None)
    return fit_posterior(model, Loader(_batches(data, config), device), likelihood, **options)


@dataclass(frozen=True)
class Loader:
    """Batches as an iterable: every iteration is the next epoch's order."""

    batches: Batches
    device: Any

    def __len__(self) -> int:
        return self.batches.steps_per_epoch

    def __iter__(self) -> Any:
        for batch in self.batches.epoch(0):
            yield on_device(batch, self.device)


def _batches(data: Any, config: FitConfig) -> Batches:
    return Batches(data, batch_size=config.batch_size, seed=config.seed, workers=config.workers)
