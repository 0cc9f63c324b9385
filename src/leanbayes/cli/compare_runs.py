"""The runs of a comparison: every method on the same data, network, budget and seeds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import leanbayes as lb
from leanbayes.cli.card import PLACES, first_inputs
from leanbayes.cli.figures import Judge
from leanbayes.cli.prepare import Prepared, prepare
from leanbayes.cli.readers import DATA, part_of, read_data
from leanbayes.cli.settings_file import Named, RunSettings, merged, settings_of
from leanbayes.cli.smoke import short
from leanbayes.data.dataset import Data
from leanbayes.errors import ConfigError, LeanBayesError
from leanbayes.prediction import BinaryClassification, Classification, Prediction
from leanbayes.train.fields import listed, nearest

OWN = "methods."  # settings of one method: methods.NAME.fields.KEY, methods.NAME.fit.KEY


@dataclass(frozen=True, kw_only=True)
class Ask:
    """How methods are compared.

    Attributes:
        seeds: Of weights, order and draws; a run each.
        part: Of the data that is scored.
        samples: Draws a prediction; the method's own number if None.
        splits: Seed s reads split s of the data.
        smoke: A few rows and steps only.
    """

    seeds: Sequence[int]
    part: str = "test"
    samples: int | None = None
    splits: bool = False
    smoke: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one run gave."""

    seed: int
    device: torch.device
    figures: Mapping[str, float]
    seconds: float
    training_seconds: float
    parameters: int
    parameters_added: int
    config: Mapping[str, Any]


def settings_by_method(
    tables: Mapping[str, Any], names: Mapping[str, str], changes: Sequence[str]
) -> dict[str, RunSettings]:
    """Settings of every label with its method, all of them checked before anything runs."""
    _check_names(names, changes)
    tables = dict(tables)
    own = tables.pop("methods", {})
    _check_entries(own)
    if "name" not in tables.get("model", {}) and not _speaks_of_model(changes):
        tables = {**tables, "model": {**tables.get("model", {}), **_usual(tables, changes)}}
    found = {}
    for label, name in names.items():
        entry = own.get(label, {})
        fit = {**tables.get("fit", {}), **entry.get("fit", {})}
        method = {"name": name, "fields": entry.get("fields", {})}
        every = merged({**tables, "method": method, "fit": fit}, _own(changes, label))
        found[label] = settings_of(every, data_names=DATA)
    return found


def labelled(words: str, tables: Mapping[str, Any]) -> dict[str, str]:
    """Methods by label, from "map,wide=mean_field" or the table [methods.LABEL] of the file.

    Example:
        >>> labelled("map, wide = mean_field", {"methods": {"wide": {"fields": {}}}})
        {'map': 'map', 'wide': 'mean_field'}
        >>> labelled("wide", {"methods": {"wide": {"name": "mean_field"}}})
        {'wide': 'mean_field'}
    """
    found = {}
    for word in filter(None, (word.strip() for word in words.split(","))):
        label, _, name = (part.strip() for part in word.partition("="))
        entry = tables.get("methods", {}).get(label, {})
        found[label] = name or (entry.get("name") if isinstance(entry, Mapping) else None) or label
    return found


def _check_entries(own: Any) -> None:
    for label, entry in own.items() if isinstance(own, Mapping) else [("", own)]:
        unknown = set(entry) - {"name", "fields", "fit"} if isinstance(entry, Mapping) else {"it"}
        if unknown:
            raise ConfigError(f"methods.{label}: expected name, fields and fit; found {unknown}")


def outcomes(settings: RunSettings, ask: Ask) -> Iterator[Outcome]:
    """A run a seed."""
    for seed in ask.seeds:
        yield _outcome(_seeded(settings, seed, ask), ask)


def _outcome(settings: RunSettings, ask: Ask) -> Outcome:
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.fit.seed)
        ready = prepare(settings)
        part = part_of(ready.data, ask.part)
        parameters = sum(p.numel() for p in ready.net.parameters())
        done = lb.adapt(
            *(ready.net, settings.method), likelihood=ready.likelihood, **_arguments(ready)
        )
    trained = time.perf_counter() - start
    figures = _figures(done.model, part, ready, ask)
    return Outcome(
        settings.fit.seed,
        next(done.model.parameters()).device,
        figures,
        time.perf_counter() - start,
        trained,
        parameters,
        done.report.added,
        _config(ready, done.model, ask),
    )


def _figures(model: lb.BayesianModel, part: Any, ready: Prepared, ask: Ask) -> dict[str, float]:
    """Those of `leanbayes evaluate`, and the area under precision and recall of two classes."""
    options = {"samples": ask.samples, "seed": ready.settings.fit.seed}
    judge = Judge(ready.card, model, ready.settings.fit.batch_size, options)
    found, target = judge.predicted(part, ready.data.normalize)
    figures = judge.figures(found, target, ready.data.ignore_index)
    return figures | _auc_pr(found, target.flatten())


def _auc_pr(found: Prediction, target: Tensor) -> dict[str, float]:
    match found:
        case BinaryClassification():
            scores = found.probs.flatten()
        case Classification() if found.probs.shape[1:] == (2,):
            scores = found.probs[:, 1]
        case _:
            return {}
    no, yes = scores[target == 0], scores[target == 1]
    return {"auc_pr": lb.metrics.average_precision(no, yes).item()} if len(no) and len(yes) else {}


def _arguments(ready: Prepared) -> dict[str, Any]:
    """Of `lb.adapt`; a validation part costs time, so it is used only where it can end a run."""
    found = ready.arguments()
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


def _config(ready: Prepared, model: lb.BayesianModel, ask: Ask) -> dict[str, Any]:
    """All that the figures depend on but the seed, as plain data; places of files are left out."""
    settings, likelihood = ready.settings, ready.likelihood
    options = {k: v for k, v in settings.data.options.items() if k not in (*PLACES, "split")}
    fit = {k: v for k, v in settings.fit.to_json().items() if k not in ("seed", "folder")}
    return {
        "model": {**ready.card.model, "weights": settings.weights is not None},
        "data": {"name": settings.data.name, "options": listed(options), "part": ask.part},
        "method": settings.method.to_json(),
        "fit": fit,
        "likelihood": {"name": type(likelihood).__name__, "settings": likelihood.settings()},
        "augment": settings.augment,
        "samples": model.method.default_samples if ask.samples is None else ask.samples,
    }


def _check_names(names: Mapping[str, str], changes: Sequence[str]) -> None:
    known = sorted(lb.methods())
    for name in names.values():
        if name not in known:
            raise ConfigError(f"--methods: no method is called {name!r}; {nearest(name, known)}")
    for change in changes:
        words = change.partition("=")[0].split(".")
        if words[0] != OWN[:-1]:
            continue
        if len(words) < 4 or words[2] not in ("fields", "fit"):
            form = f"{OWN}NAME.fields.KEY=VALUE or {OWN}NAME.fit.KEY=VALUE"
            raise ConfigError(f"--set {change}: expected {form}")
        if words[1] not in names:
            raise ConfigError(
                f"--set {change}: {words[1]!r} is not compared; {', '.join(names)} are"
            )


def _own(changes: Sequence[str], name: str) -> list[str]:
    """The changes of all methods, then those of this one in the words of a settings file."""
    shared = [change for change in changes if not change.startswith(OWN)]
    begin = f"{OWN}{name}."
    own = [change.removeprefix(begin) for change in changes if change.startswith(begin)]
    return shared + [f"method.{c}" if c.startswith("fields.") else c for c in own]


def _speaks_of_model(changes: Sequence[str]) -> bool:
    return any(change.partition("=")[0].strip() == "model.name" for change in changes)


def _usual(tables: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """A network for data that come without one: by the shape of an example."""
    table = merged(tables, [c for c in changes if c.startswith("data.")])["data"]
    data = read_data(table["name"], table.get("options", {}))
    inputs = first_inputs(data.train, 1)
    shape = tuple(inputs.shape[1:])
    if data.task != "segmentation" and inputs.is_floating_point():
        if shape == (1, 28, 28):
            return {"name": "lenet"}
        if shape == (3, 32, 32):
            return {"name": "resnet20"}
        if len(shape) == 1:
            sizes = {"inputs": shape[0], "hidden": [50], "outputs": _outputs(data)}
            return {"name": "mlp", "options": sizes}
    raise ConfigError(
        f"no network is usual for {data.task} on inputs of {'x'.join(map(str, shape))}: write "
        "--model NAME (leanbayes models)"
    )


def _outputs(data: Data) -> int:
    if data.task == "regression":
        return 1 if data.target_scale is None else len(data.target_scale.mean)
    return 1 if data.task == "binary" else len(data.classes)


def failure(error: LeanBayesError) -> str:
    """The words of an error in one line."""
    return " ".join(str(error).split())
