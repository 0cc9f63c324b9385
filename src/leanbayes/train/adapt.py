"""`lb.adapt`: from a pre-trained network to a Bayesian one in one call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from torch import nn

from leanbayes.budget import rows_between
from leanbayes.convert import bayesianize
from leanbayes.devices import device_of
from leanbayes.errors import ConfigError
from leanbayes.fitting import fit_posterior
from leanbayes.likelihood import Categorical, Likelihood, needed
from leanbayes.methods.base import Method, checked_method
from leanbayes.methods.deep_ensemble import DeepEnsemble
from leanbayes.model import BayesianModel
from leanbayes.plan import count_rows
from leanbayes.report import ConversionReport
from leanbayes.train.callbacks import Callback
from leanbayes.train.config import FitConfig, checked_config
from leanbayes.train.evaluation import evaluate_in_training
from leanbayes.train.feed import Augment, Loader, every_batch
from leanbayes.train.folder import write_file
from leanbayes.train.keyed import seeded
from leanbayes.train.loop import FitResult, fit
from leanbayes.train.members import Trained, trained_members
from leanbayes.train.processes import Processes
from leanbayes.train.resident import resident
from leanbayes.train.runtime import Runtime
from leanbayes.train.sizes import fewest_rows

REPORT = "report.json"
EXAMPLES = 8  # rows on which a conversion is proved


@dataclass(frozen=True)
class Adapted:
    """What `lb.adapt` gives.

    Attributes:
        model: The trained model.
        result: Of the training; of member 0 where members were trained one by one.
        measured: What `lb.fit_posterior` found (SWAG, Laplace), else empty.
        figures: Validation figures of the model as it is now; empty without validation data.
        report: What was converted.
    """

    model: BayesianModel
    result: FitResult
    measured: Mapping[str, float]
    figures: Mapping[str, float]

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
    """From a (trained) network to a trained Bayesian one: convert, train, fit, report.

    `Partial` measures its sensitivities on the data first. `SWAG` and `Laplace` train as a point
    estimate and are then fitted on the data. `DeepEnsemble` trains its members together, one
    after another, or one a process (`members`). With `config.folder` the same call, from the same
    network, goes on where it was cut off, and the folder holds a `report.json` in the end.

    Args:
        net: A (pre-trained) network; moved to the device and converted in place.
        method: Any method.
        data: Training data, as for `lb.fit`.
        likelihood: `lb.Categorical()` by default.
        validation: As for `lb.fit`.
        ood: As for `lb.fit`.
        config: As for `lb.fit`; without one BatchNorm is refreshed at the end.
        members: Of a DeepEnsemble: `together`, `in_turn` or `by_process`.
        fitting: Options of `lb.fit_posterior` for SWAG and Laplace.
        callbacks: As for `lb.fit`.
        augment: As for `lb.fit`; SWAG's iterates are made with it too.

    Example:
        >>> import leanbayes as lb, torch
        >>> x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
        >>> config = lb.FitConfig(epochs=1, batch_size=16, progress=False)
        >>> done = lb.adapt(torch.nn.Linear(4, 3), lb.Partial(rate=0.2), (x, y), config=config)
        >>> done.report.added
        3
    """
    likelihood = Categorical() if likelihood is None else needed(likelihood, "adapt")
    config = FitConfig(batchnorm="refresh") if config is None else checked_config(config)
    fitting = dict(fitting or {})
    _check(method, members, fitting)
    with Runtime.of(config) as runtime:
        if config.resident:
            every = (resident(part, runtime.device) for part in (data, validation, ood))
            data, validation, ood = every
        options: dict[str, Any] = {
            "validation": validation,
            "ood": ood,
            "config": config,
            "callbacks": callbacks,
            "augment": augment,
        }
        _start_equal(net.to(runtime.device), likelihood.to(runtime.device), runtime)
        if members == "together":
            model = converted(net, method, data, likelihood, config)
            result = fit(model, data, likelihood, **options)
        else:
            assert isinstance(method, DeepEnsemble)
            options |= {"example": _example(net, data, config), "runtime": runtime}
            model, result = trained_members(net, method, data, likelihood, members, **options)
        fits = model.method.trains_as_point
        # What is fitted by training sees the images of the training, in its precision.
        loader = _loader(model, data, config, augment) if fits else None
        half = config.precision == "bf16" and model.method.collects
        with runtime.autocast() if half else nullcontext():
            measured = _measured(model, loader, likelihood, config, fitting)
        _start_equal(model, likelihood, runtime)  # buffers too, which training leaves apart
        figures = _figures(model, validation, likelihood, config, runtime)
        done = Adapted(model, result, runtime.broadcast(measured), figures)
        if config.folder is not None and runtime.is_first:
            write_file(Path(config.folder) / REPORT, _report(done))
    return done


def _check(method: Method, members: str, fitting: dict[str, Any]) -> None:
    """Everything that would be wrong after the training as well is said before it."""
    checked_method(method)
    if members not in get_args(Trained):
        raise ConfigError(f"members is one of {', '.join(get_args(Trained))}; found {members!r}")
    if members != "together" and not isinstance(method, DeepEnsemble):
        raise ConfigError(f"members={members!r} is for lb.DeepEnsemble, found {method.name}")
    if fitting:
        method.check_fit(**fitting)


def _start_equal(model: nn.Module, likelihood: nn.Module, runtime: Runtime) -> None:
    """All tensors as the first process has them."""
    tensors = [t for m in (model, likelihood) for t in (*m.parameters(), *m.buffers())]
    Processes(runtime.rank, runtime.world).copy_first(tensors)


def converted(
    net: nn.Module, method: Method, data: Any, likelihood: Likelihood, config: FitConfig
) -> BayesianModel:
    """The network as a BayesianModel, with a batch of the data as example and as evidence."""
    example = _example(net, data, config)
    if not method.looks_at_data:
        return bayesianize(net, method, example=example)
    loader = Loader(every_batch(data, config), device_of(net))
    return bayesianize(net, method, example=example, data=loader, likelihood=likelihood)


def _example(net: nn.Module, data: Any, config: FitConfig) -> Any:
    """The first rows of a batch: a proof of the layers runs the network several times."""
    inputs = next(iter(Loader(every_batch(data, config), device_of(net))))[0]
    return rows_between(inputs, count_rows((inputs,), {}), 0, EXAMPLES)


def _loader(model: BayesianModel, data: Any, config: FitConfig, augment: Augment | None) -> Loader:
    if not model.method.collects:
        return Loader(every_batch(data, config), device_of(model))
    # Iterates are made in training mode, where BatchNorm1d takes no single row.
    batches = every_batch(data, config, smallest=fewest_rows(model, "train"))
    return Loader(batches, device_of(model), augment)


def _measured(
    model: BayesianModel,
    loader: Loader | None,
    likelihood: Likelihood,
    config: FitConfig,
    options: dict[str, Any],
) -> Mapping[str, float]:
    """What is fitted after training, under the run's seed: the same in all processes."""
    if loader is None:
        return {}
    with seeded(config.seed, device_of(model)):
        return fit_posterior(model, loader, likelihood, **options)


def _figures(
    model: BayesianModel,
    validation: Any,
    likelihood: Likelihood,
    config: FitConfig,
    runtime: Runtime,
) -> Mapping[str, float]:
    if validation is None:
        return {}
    batches = every_batch(validation, config, shuffle=False)
    samples, seed = config.evaluate_samples, config.seed
    options: dict[str, Any] = {"samples": samples, "seed": seed}
    return evaluate_in_training(model, batches, likelihood, runtime, **options) or {}


def _report(done: Adapted) -> bytes:
    """Everything but timings, so that the same run writes the same bytes."""
    result = {name: value for name, value in asdict(done.result).items() if name != "seconds"}
    figures = {"figures": dict(done.figures), "measured": dict(done.measured)}
    found = {"conversion": asdict(done.report), "result": result, **figures}
    return (json.dumps(found, indent=1) + "\n").encode()
