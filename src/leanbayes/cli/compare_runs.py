"""The runs of a comparison: every method on the same data, network, budget and seeds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import leanbayes as lb
from leanbayes.cli.card import PLACES
from leanbayes.cli.compare_data import Sets
from leanbayes.cli.figures import Judge
from leanbayes.cli.prepare import Prepared, prepare
from leanbayes.cli.readers import part_of
from leanbayes.cli.settings_file import Named, RunSettings
from leanbayes.cli.smoke import short
from leanbayes.records import commit, provenance
from leanbayes.train.fields import listed

Run = tuple[str, int]  # label and seed


@dataclass(frozen=True, kw_only=True)
class Ask:
    """How methods are compared.

    Attributes:
        parts: Of the data that are scored.
        samples: Draws a prediction; the method's own number if None.
        splits: Seed s reads split s of the data.
        smoke: A few rows and steps only.
    """

    parts: tuple[str, ...] = ("test",)
    samples: int | None = None
    splits: bool = False
    smoke: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one run gave.

    Attributes:
        seed: Of the run.
        figures: By part, then by name.
        seconds: Of all of it.
        training_seconds: Until the first prediction.
        parameters: Before.
        parameters_added: By the method.
        config: All that the figures depend on but the seed.
        origin: Commit and environment.
    """

    seed: int
    figures: Mapping[str, Mapping[str, float]]
    seconds: float
    training_seconds: float
    parameters: int
    parameters_added: int
    config: Mapping[str, Any]
    origin: Mapping[str, Any]


@dataclass(frozen=True)
class Bench:
    """Runs a label under a seed.

    Attributes:
        settings: By label.
        ask: The same for all.
        sets: The data; read once in every process.
    """

    settings: Mapping[str, RunSettings]
    ask: Ask
    sets: Sets = field(default_factory=Sets)

    def __call__(self, run: Run) -> Outcome:
        """What the run gives."""
        label, seed = run
        start, made_at = time.perf_counter(), commit()  # before the work: of the code that runs
        with torch.random.fork_rng(devices=[]):
            ready = self._ready(label, seed)
            parts = {name: part_of(ready.data, name) for name in self.ask.parts}
            parameters = sum(p.numel() for p in ready.net.parameters())
            config, arguments = _config(ready, self.ask), _arguments(ready)
            method, likelihood = ready.settings.method, ready.likelihood
            done = lb.adapt(ready.net, method, likelihood=likelihood, **arguments)
        trained = time.perf_counter() - start
        return Outcome(
            seed=seed,
            figures={n: _figures(done.model, p, ready, self.ask) for n, p in parts.items()},
            seconds=time.perf_counter() - start,
            training_seconds=trained,
            parameters=parameters,
            parameters_added=done.report.added,
            config=config,
            origin=_origin(done.model, made_at),
        )

    def config(self, label: str, seed: int) -> dict[str, Any]:
        """What a run would say of itself."""
        with torch.random.fork_rng(devices=[]):
            return _config(self._ready(label, seed), self.ask)

    def _ready(self, label: str, seed: int) -> Prepared:
        settings = _seeded(self.settings[label], seed, self.ask)
        data = self.sets.read(settings.data)
        torch.manual_seed(seed)
        return prepare(settings, data)


def _origin(model: lb.BayesianModel, made_at: str | None) -> dict[str, Any]:
    found = provenance("", next(model.parameters()).device)
    return {"commit": made_at, "environment": found["environment"]}


def _figures(model: lb.BayesianModel, part: Any, ready: Prepared, ask: Ask) -> dict[str, float]:
    """Those of `leanbayes evaluate`."""
    options = {"samples": ask.samples, "seed": ready.settings.fit.seed}
    judge = Judge(ready.card, model, ready.settings.fit.batch_size, options)
    return judge.scored(part, ready.data.normalize, ready.data.ignore_index)


def _arguments(ready: Prepared) -> dict[str, Any]:
    """Of `lb.adapt`; a validation part costs time, so it is used only where it can end a run.

    The members of a deep ensemble have the whole training each: that is what others are up against.
    """
    found = ready.arguments()
    if isinstance(ready.settings.method, lb.DeepEnsemble):
        found["members"] = "in_turn"
    if ready.settings.fit.patience is None:
        found.pop("validation", None)
    return {**found, "config": ready.settings.fit}


def _seeded(settings: RunSettings, seed: int, ask: Ask) -> RunSettings:
    fit = replace(settings.fit, seed=seed, folder=None)
    if "progress" not in settings.tables.get("fit", {}):
        fit = replace(fit, progress=False)
    fit = short(fit, settings.method) if ask.smoke else fit
    data = settings.data
    if ask.splits:
        data = Named(data.name, {**data.options, "split": seed})
    return replace(settings, fit=fit, data=data, few=ask.smoke)


def _config(ready: Prepared, ask: Ask) -> dict[str, Any]:
    """All that the figures depend on but the seed, as plain data; places of files are left out."""
    settings, likelihood = ready.settings, ready.likelihood
    options = {k: v for k, v in settings.data.options.items() if k not in (*PLACES, "split")}
    fit = {k: v for k, v in settings.fit.to_json().items() if k not in ("seed", "folder")}
    part = ",".join(ask.parts)
    return {
        "model": {**ready.card.model, "weights": settings.weights is not None},
        "data": {"name": settings.data.name, "options": listed(options), "part": part},
        "method": settings.method.to_json(),
        "fit": fit,
        "likelihood": {"name": type(likelihood).__name__, "settings": likelihood.settings()},
        "augment": settings.augment,
        "samples": settings.method.default_samples if ask.samples is None else ask.samples,
        "splits": ask.splits,
        "smoke": ask.smoke,
    }
