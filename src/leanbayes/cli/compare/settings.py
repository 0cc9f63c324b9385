"""What a comparison is asked for: settings of every method, all checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import leanbayes as lb
from leanbayes.cli.card import first_inputs
from leanbayes.cli.compare.data import Sets
from leanbayes.cli.readers import DATA
from leanbayes.cli.settings_file import Named, RunSettings, merged, settings_of
from leanbayes.data.dataset import Data
from leanbayes.errors import ConfigError
from leanbayes.train.fields import nearest

# Keys of a table [methods.LABEL], and those of them that are tables.
ENTRY = (
    *("name", "fields", "fit", "fitting", "model", "ood", "weights", "from", "splits", "seeds"),
    "samples",
)
TABLES = ("fields", "fit", "fitting", "model", "ood")
OWN_WORDS = ("seeds", "splits")
COUNTS = ("seeds", "samples")
OWN = "methods."  # settings of one method: methods.NAME.fields.KEY, methods.NAME.fit.KEY, ...
START = "start."  # those of the shared start: start.fit.KEY


@dataclass(frozen=True, kw_only=True)
class Lineup:
    """What is compared.

    Attributes:
        settings: By label.
        point: The point estimate on the common network: the start, where there is one, and what
            prices are set against.
        starts: Labels that start from it, trained.
        assembled: Labels of ensembles whose members are the starts of this seed and the next ones.
        seeds: The most seeds of a label, where it is to have fewer than the others.
        splits: Splits of a suite that a label is evaluated on, where they are its own.
    """

    settings: Mapping[str, RunSettings]
    point: RunSettings
    starts: frozenset[str] = frozenset()
    assembled: frozenset[str] = frozenset()
    seeds: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_starts(self) -> bool:
        """True where a label needs a shared start."""
        return bool(self.starts or self.assembled)

    @property
    def baseline(self) -> str | None:
        """The first label of a point estimate, of one on the common network where there is one."""
        points = [k for k, found in self.settings.items() if found.method.name == "map"]
        common = (k for k in points if self.settings[k].model == self.point.model)
        return next(common, next(iter(points), None))


def lineup_of(
    tables: Mapping[str, Any],
    names: Mapping[str, str],
    changes: Sequence[str],
    sets: Sets,
    *,
    start: bool = False,
) -> Lineup:
    """Settings of every label with its method.

    Args:
        tables: Of the file.
        names: Methods by label.
        changes: What stands after `--set`.
        sets: Reads the data where they are needed.
        start: Train the point estimate first, also where no table [start] says so.
    """
    _check_names(names, changes)
    tables = _with_entries(tables, changes)
    own, first = tables.pop("methods", {}), tables.pop("start", {} if start else None)
    _check_entries(own)
    _check_start(first)
    changes = [change for change in changes if not change.startswith(START)]
    if "name" not in tables.get("model", {}) and not _speaks_of_model(changes):
        tables["model"] = {**tables.get("model", {}), **_usual(tables, changes, sets)}
    shared = [change for change in changes if not change.startswith(OWN)]
    tables, whole = merged(tables, shared), {} if first is None else first.get("fit", {})
    found: dict[str, RunSettings] = {}
    origins = {k: _origin(k, v, own.get(k, {}), first is not None) for k, v in names.items()}
    starts = {label for label, origin in origins.items() if origin == "start"}
    for label, name in names.items():
        entry = own.get(label, {})
        training = {} if label in starts else whole
        every = _tables_of(tables, name, entry, training)
        # What --set says of all goes before a table of one, but not before the start's training.
        late = [*([] if training else shared), *_own(changes, label)]
        settings = settings_of(merged(every, late), data_names=DATA, scratch=label not in starts)
        found[label] = replace(settings, samples=entry.get("samples"))
    point = settings_of(_tables_of(tables, "map", {}, whole), data_names=DATA)
    most, splits = ({k: own[k][key] for k in names if key in own.get(k, {})} for key in OWN_WORDS)
    assembled = frozenset(label for label, origin in origins.items() if origin == "starts")
    many = {"starts": frozenset(starts), "assembled": assembled}
    return Lineup(settings=found, point=point, seeds=most, splits=splits, **many)


def _tables_of(
    tables: Mapping[str, Any], name: str, entry: Mapping[str, Any], whole: Mapping[str, Any]
) -> dict[str, Any]:
    """The tables of one run; `whole` is the training of the start, for those that have none."""
    model, own = tables.get("model", {}), entry.get("model", {})
    if own:
        kept = {} if own.get("name", model.get("name")) != model.get("name") else model
        options = {**kept.get("options", {}), **own.get("options", {})}
        model = {"name": model.get("name"), **own, "options": options}
    if "weights" in entry:
        model = {**model, "weights": entry["weights"]}
    data = tables.get("data", {}) | ({"ood": entry["ood"]} if "ood" in entry else {})
    method = {"name": name, **{k: entry[k] for k in ("fields", "fitting") if k in entry}}
    fit = _longer(_longer(tables.get("fit", {}), whole), entry.get("fit", {}))
    return {**tables, "model": model, "data": data, "method": method, "fit": fit}


def _longer(fit: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A training with other values; epochs and steps take each other's place."""
    rest = {"epochs", "steps"} if {"epochs", "steps"} & own.keys() else set()
    return {k: v for k, v in fit.items() if k not in rest} | dict(own)


def _origin(label: str, name: str, entry: Mapping[str, Any], start: bool) -> str:
    """Where a method begins: at the shared start, with weights of its own, or from scratch.

    An ensemble may also be put together from the starts of several seeds.
    """
    said = entry.get("from")
    if said is not None and said not in ("start", "starts", "scratch"):
        words = f'expected "start", "starts" or "scratch", found {said!r}'
        raise ConfigError(f"methods.{label}.from: {words}")
    if said == "starts" and name != lb.DeepEnsemble.name:
        words = f"starts of several seeds make a {lb.DeepEnsemble.name}, found {name}"
        raise ConfigError(f"methods.{label}.from: {words}")
    if said in ("start", "starts"):
        if not start:
            words = "there is none: write a table [start], or --start"
            raise ConfigError(f"methods.{label}.from: it is to begin at the start, but {words}")
        other = [key for key in ("weights", "model") if key in entry]
        if other:
            words = f"it has {other[0]} of its own: leave one of the two out"
            raise ConfigError(f"methods.{label}.from: it is to begin at the start, but {words}")
    own = "weights" in entry or "model" in entry or name == lb.DeepEnsemble.name
    return said or ("start" if start and not own else "scratch")


def _with_entries(tables: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The tables with what `--set` says of [start] and of keys of [methods.LABEL] themselves."""
    whole = [c for c in changes if c.startswith(START)]
    single = [c for c in changes if c.startswith(OWN) and _key(c) not in ("fields", "fit")]
    return merged(tables, [*whole, *single])


def _key(change: str) -> str:
    """`fit` of methods.NAME.fit.lr=0.1."""
    words = change.partition("=")[0].split(".")
    return words[2].strip() if len(words) > 2 else ""


def labelled(words: str, tables: Mapping[str, Any]) -> dict[str, str]:
    """Methods by label, from "map,wide=mean_field" or the table [methods.LABEL] of the file.

    Example:
        >>> labelled("map, wide = mean_field", {"methods": {"wide": {"fields": {}}}})
        {'map': 'map', 'wide': 'mean_field'}
        >>> labelled("wide", {"methods": {"wide": {"name": "mean_field"}}})
        {'wide': 'mean_field'}
    """
    found: dict[str, str] = {}
    for word in filter(None, (word.strip() for word in words.split(","))):
        label, _, name = (part.strip() for part in word.partition("="))
        entry = tables.get("methods", {}).get(label, {})
        name = name or (entry.get("name") if isinstance(entry, Mapping) else None) or label
        if found.setdefault(label, name) != name:
            raise ConfigError(
                f"--methods: {label!r} is {found[label]!r} and {name!r}: write a label of its own "
                "for each"
            )
    return found


def _check_entries(own: Any) -> None:
    for label, entry in own.items() if isinstance(own, Mapping) else [("", own)]:
        unknown = set(entry) - set(ENTRY) if isinstance(entry, Mapping) else {"it"}
        if unknown:
            words = f"expected {', '.join(ENTRY[:-1])} and {ENTRY[-1]}"
            raise ConfigError(f"methods.{label}: {words}; found {unknown}")
        for key in TABLES:
            if not isinstance(entry.get(key, {}), Mapping):
                raise ConfigError(f"methods.{label}.{key}: expected a table, found {entry[key]!r}")
        _check_counts(label, entry)
        if not isinstance(entry.get("splits", ""), str):
            words = f'expected names of splits, "test,ood:NAME", found {entry["splits"]!r}'
            raise ConfigError(f"methods.{label}.splits: {words}")


def _check_counts(label: str, entry: Mapping[str, Any]) -> None:
    for key in COUNTS:
        count = entry.get(key, 1)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            words = f"expected a whole number of at least 1, found {count!r}"
            raise ConfigError(f"methods.{label}.{key}: {words}")


def _check_start(first: Any) -> None:
    if first is None:
        return
    unknown = set(first) - {"fit"} if isinstance(first, Mapping) else {"it"}
    if unknown or not isinstance(first.get("fit", {}), Mapping):
        words = "expected fit, the training of the point estimate, a table"
        raise ConfigError(f"start: {words}; found {unknown or first['fit']}")


def _check_names(names: Mapping[str, str], changes: Sequence[str]) -> None:
    known = sorted(lb.methods())
    for name in names.values():
        if name not in known:
            raise ConfigError(f"--methods: no method is called {name!r}; {nearest(name, known)}")
    for change in changes:
        words = change.partition("=")[0].split(".")
        if words[0] != OWN[:-1]:
            continue
        if _key(change) not in ENTRY[1:] or len(words) < (4 if _key(change) in TABLES else 3):
            form = f"{OWN}NAME.fields.KEY=VALUE or {OWN}NAME.fit.KEY=VALUE"
            raise ConfigError(f"--set {change}: expected {form}")
        if words[1] not in names:
            raise ConfigError(
                f"--set {change}: {words[1]!r} is not compared; {', '.join(names)} are"
            )


def _own(changes: Sequence[str], name: str) -> list[str]:
    """The changes of this method in the words of a settings file."""
    begin = f"{OWN}{name}."
    own = [change.removeprefix(begin) for change in changes if change.startswith(begin)]
    named = [f"method.{c}" if c.startswith("fields.") else c for c in own]
    return [change for change in named if change.startswith(("method.", "fit."))]


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
