"""Counts that users give: integers of any library, or an error that says what was found."""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import Any

from leanbayes.errors import ConfigError


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """The count as an int; a float is refused even where it is whole, since its source may not be.

    Example:
        >>> checked_count("samples", 3)
        3
    """
    if not isinstance(value, bool):
        with suppress(TypeError):
            count = operator.index(value)
            if count >= least:
                return count
    what = " (a float)" if isinstance(value, float) else ""
    raise ConfigError(f"{name} must be a whole number of at least {least}, found {value!r}{what}")
