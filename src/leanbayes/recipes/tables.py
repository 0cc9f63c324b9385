"""Whole comparisons by name: settings of `leanbayes compare` as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from leanbayes.errors import ConfigError
from leanbayes.recipes import cifar10_wrn
from leanbayes.train.fields import nearest

# By name: the table, what `--smoke` changes in it, and a line on what it is.
_TABLES: Final[Mapping[str, tuple[dict[str, Any], dict[str, Any], str]]] = {
    "cifar10-wrn": (
        cifar10_wrn.TABLE,
        cifar10_wrn.SMALL,
        "all methods side by side: WRN-28-10 on CIFAR-10, one start, quality and price",
    ),
}


def table(name: str, *, small: bool = False) -> dict[str, Any]:
    """The tables of a settings file; or a small form of them that runs in minutes on a CPU.

    Example:
        >>> list(table("cifar10-wrn")["methods"])[:3]
        ['map', 'mean_field', 'shared_ensemble']
    """
    if name not in _TABLES:
        raise ConfigError(f"no table is called {name!r}; {nearest(name, sorted(_TABLES))}")
    whole, changes, _ = _TABLES[name]
    return _changed(whole, changes) if small else deepcopy(whole)


def tables() -> dict[str, str]:
    """Every table by name, with one line on what it is."""
    return {name: line for name, (_, _, line) in _TABLES.items()}


def _changed(whole: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values in the place of others; tables are changed inside, but for options and a model."""
    found = deepcopy(dict(whole))
    for key, value in changes.items():
        inner = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        deep = inner and key not in ("options", "model", "ood", "attack")
        found[key] = _changed(found[key], value) if deep else deepcopy(value)
    return found
