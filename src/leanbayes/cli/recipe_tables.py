"""What a recipe adds to a settings file: network, data and likelihood, where the file has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leanbayes.recipes import Recipe


def filled(tables: Mapping[str, Any], found: Recipe, *, small: bool = False) -> Mapping[str, Any]:
    """Tables with a recipe's network and data where they name none.

    Augmentation and likelihood come along with the data alone.
    """
    own = found.tables(small=small)
    if "name" in _table(tables, "data"):
        own.pop("likelihood", None)
    kept = {key: tables[key] for key in tables if key not in own or not _lacks(tables, key)}
    added = {key: {**own[key], **_table(tables, key)} for key in own if _lacks(tables, key)}
    return {**kept, **{key: _with_options(own[key], added[key]) for key in added}}


def _lacks(tables: Mapping[str, Any], key: str) -> bool:
    """True where a section is missing, or a table without a name."""
    section = tables.get(key, {})
    return isinstance(section, Mapping) and "name" not in section


def _table(tables: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = tables.get(key, {})
    return section if isinstance(section, Mapping) else {}


def _with_options(own: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The options of both; those that were written go first."""
    given = table.get("options", {})
    options = {**own["options"], **given} if isinstance(given, Mapping) else given
    return {**table, "options": options}
