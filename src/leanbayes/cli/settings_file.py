"""A run in a file: which model, data, method, training and likelihood.

    [model]                     # lb.models.create(name, **options)
    name = "resnet18"
    options = { width = 16, num_classes = 10, stem = "cifar" }

    [data]
    name = "fashion_mini"

    [method]                    # lb.methods()[name](**fields)
    name = "mean_field"
    fields = { prior_std = 0.5 }

    [fit]                       # lb.FitConfig(**fit)
    epochs = 12
    lr = 1e-4

    [likelihood]                # categorical (the default), bernoulli or gaussian
    name = "categorical"

`--set fit.lr=0.1` on the command line changes a value. Whatever is wrong ends in a ConfigError with
one line a problem, each with the path of its key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leanbayes.cli.file_values import WRONG, Reader, joined, short
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Bernoulli, Categorical, Gaussian, Likelihood
from leanbayes.methods.base import Method
from leanbayes.models import MODELS
from leanbayes.train.config import FitConfig

SECTIONS = ("model", "data", "method", "fit", "likelihood")
LIKELIHOODS: Mapping[str, Callable[..., Likelihood]] = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
}


@dataclass(frozen=True)
class Named:
    """Something by name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a settings file says, checked; models and data are not built yet."""

    model: Named
    data: Named
    method: Method
    fit: FitConfig
    likelihood: Likelihood


def read_settings(
    path: Path | str, changes: Iterable[str] = (), *, data_names: Collection[str] = ()
) -> RunSettings:
    """Settings of a TOML file.

    Args:
        path: The file.
        changes: What stands after `--set`: "fit.lr=0.1".
        data_names: Names that [data] may have; any word if empty.
    """
    return settings_of(merged(_read(Path(path)), changes), data_names=data_names)


def settings_of(tables: Mapping[str, Any], *, data_names: Collection[str] = ()) -> RunSettings:
    """Settings of tables as TOML has them.

    Example:
        >>> tables = {"model": {"name": "lenet"}, "data": {"name": "digits"},
        ...     "method": {"name": "mean_field", "fields": {"prior_std": 0.5}}}
        >>> settings_of(tables).method.prior_std
        0.5
        >>> settings_of({**tables, "fit": {"epochz": 2}})
        Traceback (most recent call last):
        leanbayes.errors.ConfigError: fit.epochz: unknown; did you mean 'epochs'?
    """
    reader = Reader()
    try:
        found = _sections(reader, tables, data_names)
    except RecursionError:
        raise ConfigError("settings: tables and lists are nested too deep") from None
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    return RunSettings(**found)


def _sections(
    reader: Reader, tables: Mapping[str, Any], data_names: Collection[str]
) -> dict[str, Any]:
    reader.keys(tables, SECTIONS, "")
    return {
        "model": _named(reader, tables, "model", MODELS),
        "data": _named(reader, tables, "data", dict.fromkeys(sorted(data_names))),
        "method": _method(reader, tables),
        "fit": reader.build(FitConfig, tables.get("fit", {}), "fit"),
        "likelihood": _likelihood(reader, tables),
    }


def _named(
    reader: Reader, tables: Mapping[str, Any], section: str, known: Mapping[str, Any]
) -> Any:
    """A name with options, those of a known callable by its arguments."""
    table = reader.table(tables.get(section, {}), section)
    reader.keys(table, ("name", "options"), section)
    name, path = reader.named(table, known, section), joined(section, "options")
    make, options = known.get(name), table.get("options", {})
    if make is not None:
        options = reader.arguments(make, options, path)
    else:
        options = reader.plain_value(reader.table(options, path), dict[str, Any], path)
    return WRONG if WRONG in (name, options) else Named(name, options)


def _method(reader: Reader, tables: Mapping[str, Any]) -> Any:
    table = reader.table(tables.get("method", {}), "method")
    reader.keys(table, ("name", "fields"), "method")
    return reader.method(table, "method")


def _likelihood(reader: Reader, tables: Mapping[str, Any]) -> Any:
    table = reader.table(tables.get("likelihood", {"name": "categorical"}), "likelihood")
    reader.keys(table, ("name", "options"), "likelihood")
    name = reader.named(table, LIKELIHOODS, "likelihood")
    if name is WRONG:
        return WRONG
    return reader.build(LIKELIHOODS[name], table.get("options", {}), "likelihood.options")


def merged(tables: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Tables with some values changed, "a.b=c" each; c is TOML, or else a word.

    TOML has no word for nothing: `a.b=none` takes the value out, so that its default holds.

    Example:
        >>> merged({"fit": {"lr": 0.1}}, ["fit.lr=1e-3", "fit.train=posterior"])
        {'fit': {'lr': 0.001, 'train': 'posterior'}}
    """
    result = dict(tables)
    for change in changes:
        key, equals, text = change.partition("=")
        names = [name.strip() for name in key.split(".")]
        if not equals or not all(names):
            raise ConfigError(f"--set {change}: expected a path and a value, such as fit.lr=0.1")
        _put(result, names, _value(text.strip()), change)
    return result


def _put(table: dict[str, Any], names: list[str], value: Any, change: str) -> None:
    """Set a value in tables that are copied on the way, so that the caller's stay as they are."""
    for depth, name in enumerate(names[:-1], 1):
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            place = ".".join(names[:depth])
            raise ConfigError(f"{place}: --set {change} needs a table here, found {short(inner)}")
        table[name] = dict(inner)
        table = table[name]
    if value is None:
        table.pop(names[-1], None)
    else:
        table[names[-1]] = value


def _value(text: str) -> Any:
    if text == "none":
        return None
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if found.keys() == {"value"} else text


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    except RecursionError:
        raise ConfigError(f"{path}: tables and lists are nested too deep") from None
    except ValueError as error:
        words = " ".join(str(error).split())
        raise ConfigError(f"{path}: is not TOML: {words}") from None
