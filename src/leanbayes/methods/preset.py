"""Settings that differ between what we recommend and what a paper says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from leanbayes.errors import ConfigError

Preset = Literal["recommended", "paper"]


def settled(value: Any, name: str, preset: str, table: Mapping[str, tuple[Any, Any]]) -> Any:
    """The value given, or the preset's; `table` holds (recommended, paper) by field."""
    check_preset(preset)
    if value is not None:
        return value
    return table[name][0 if preset == "recommended" else 1]


def check_preset(preset: str) -> None:
    """Raise on an unknown preset."""
    if preset not in ("recommended", "paper"):
        raise ConfigError(f"preset is 'recommended' or 'paper', found {preset!r}")
