"""What a comparison is asked for: settings of every method, all checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import leanbayes as lb
from leanbayes.cli.card import first_inputs
from leanbayes.cli.compare_data import Sets
from leanbayes.cli.readers import DATA
from leanbayes.cli.settings_file import Named, RunSettings, merged, settings_of
from leanbayes.data.dataset import Data
from leanbayes.errors import ConfigError
from leanbayes.train.fields import nearest

ENTRY = {"name", "fields", "fit", "weights"}  # of a table [methods.LABEL]
OWN = "methods."  # settings of one method: methods.NAME.fields.KEY, methods.NAME.fit.KEY


def settings_by_method(
    tables: Mapping[str, Any], names: Mapping[str, str], changes: Sequence[str], sets: Sets
) -> dict[str, RunSettings]:
    """Settings of every label with its method; `sets` reads the data where they are needed."""
    _check_names(names, changes)
    tables = dict(tables)
    own = tables.pop("methods", {})
    _check_entries(own)
    if "name" not in tables.get("model", {}) and not _speaks_of_model(changes):
        tables = {**tables, "model": {**tables.get("model", {}), **_usual(tables, changes, sets)}}
    found = {}
    for label, name in names.items():
        entry = own.get(label, {})
        fit = {**tables.get("fit", {}), **entry.get("fit", {})}
        method = {"name": name, "fields": entry.get("fields", {})}
        model = {**tables.get("model", {}), **{k: entry[k] for k in ("weights",) if k in entry}}
        every = {**tables, "model": model, "method": method, "fit": fit}
        every = merged(every, _own(changes, label))
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
        unknown = set(entry) - ENTRY if isinstance(entry, Mapping) else {"it"}
        if unknown:
            words = "expected name, fields, fit and weights"
            raise ConfigError(f"methods.{label}: {words}; found {unknown}")


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


def _usual(tables: Mapping[str, Any], changes: Sequence[str], sets: Sets) -> dict[str, Any]:
    """A network for data that come without one: by the shape of an example."""
    table = merged(tables, [c for c in changes if c.startswith("data.")])["data"]
    data = sets.read(Named(table["name"], table.get("options", {})))
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


def parts_of(words: str) -> tuple[str, ...]:
    """The parts that `--part` names.

    Example:
        >>> parts_of("validation, test")
        ('validation', 'test')
    """
    found = tuple(dict.fromkeys(filter(None, (word.strip() for word in words.split(",")))))
    if not found:
        raise ConfigError(
            f"--part names parts of the data, test or validation,test; found {words!r}"
        )
    return found
