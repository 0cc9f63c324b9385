"""Whole comparisons by name: settings of `leanbayes compare` as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from leanbayes.errors import ConfigError
from leanbayes.recipes import cifar10_wrn
from leanbayes.train.fields import nearest

Changes = dict[str, Any]

# By name: the table, what `--smoke` changes in it, what else on embedded images, and a line on what
# it is.
_TABLES: Final[Mapping[str, tuple[dict[str, Any], Changes, Changes, str]]] = {
    "cifar10-wrn": (
        cifar10_wrn.TABLE,
        cifar10_wrn.SMALL,
        cifar10_wrn.EMBEDDED,
        "all methods side by side: WRN-28-10 on CIFAR-10, one start, quality and price",
    ),
}


def table(name: str, *, small: bool = False, embedded: bool = True) -> dict[str, Any]:
    """The tables of a settings file; or a small form of them that runs in minutes on a CPU.

    The small one is for the embedded images, unless they are not to be `embedded`: then for images
    such as those of the whole table.

    Example:
        >>> list(table("cifar10-wrn")["methods"])[:3]
        ['map', 'mean_field', 'shared_ensemble']
    """
    if name not in _TABLES:
        raise ConfigError(f"no table is called {name!r}; {nearest(name, sorted(_TABLES))}")
    whole, fewer, grey, _ = _TABLES[name]
    found = _changed(whole, fewer) if small else deepcopy(whole)
    return _changed(found, grey) if small and embedded else found


def point_of(name: str) -> str | None:
    """The row of the point estimate that the others of a table are tested against: its first one.

    Example:
        >>> point_of("cifar10-wrn")
        'map'
    """
    rows = table(name)["methods"].items()
    return next((label for label, row in rows if row.get("name", label) == "map"), None)


def tables() -> dict[str, str]:
    """Every table by name, with one line on what it is."""
    return {name: line for name, (*_, line) in _TABLES.items()}


def _changed(whole: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values in the place of others; tables are changed inside, but for options and a model."""
    found = deepcopy(dict(whole))
    for key, value in changes.items():
        inner = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        deep = inner and key not in ("options", "model", "ood", "attack")
        found[key] = _changed(found[key], value) if deep else deepcopy(value)
    return found
