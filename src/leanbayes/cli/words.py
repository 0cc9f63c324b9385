"""Help on what a class or function takes, from its signature and docstring: one source of words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import Parameter
from typing import Any, get_type_hints

from leanbayes.cli.table import filled

HEADS = ("Args:", "Attributes:")


def first_line(make: Any) -> str:
    """What it is, in a line.

    Example:
        >>> def square(x: float) -> float:
        ...     '''The square of x.'''
        >>> first_line(square)
        'The square of x.'
    """
    return (inspect.getdoc(make) or "").partition("\n\n")[0].replace("\n", " ")


def explained(make: Any) -> dict[str, str]:
    """What a docstring says of every argument or attribute, in one line each."""
    lines = (inspect.getdoc(make) or "").splitlines()
    found: dict[str, str] = {}
    inside, name = False, ""
    for line in lines:
        if line in HEADS or (line and not line.startswith(" ")):
            inside, name = line in HEADS, ""
        elif inside and (start := re.match(r"    \**(\w+)(?: \([^)]*\))?: (.*)", line)):
            name = start[1]
            found[name] = start[2]
        elif inside and name and line.strip():
            found[name] += f" {line.strip()}"
    return found


def options(make: Callable[..., Any]) -> list[dict[str, Any]]:
    """Name, type, default (where there is one) and words of everything that it takes."""
    words, hints = explained(make), _hints(make)
    if isinstance(make, type):
        for base in reversed(make.__mro__):
            words = explained(base) | words
    return [
        {
            "name": name,
            "type": _type(hints.get(name, taken.annotation)),
            "default": _default(taken),
            "words": words.get(name, ""),
        }
        for name, taken in inspect.signature(make).parameters.items()
        if taken.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]


def page(name: str, make: Callable[..., Any], width: int) -> str:
    """The first line, and a paragraph an option."""
    lines = [filled(f"{name}: {first_line(make)}", width)]
    for option in options(make):
        given = "" if option["default"] is None else f" = {option['default']}"
        lines.append(filled(f"{option['name']}: {option['type']}{given}", width, indent=2, hang=4))
        if option["words"]:
            lines.append(filled(option["words"], width, indent=6, hang=0))
    return "\n".join(lines)


def _hints(make: Any) -> dict[str, Any]:
    """Types with their aliases resolved, so that choices can be read."""
    plain = isinstance(make, type) and not is_dataclass(make)
    try:
        return get_type_hints(make.__init__ if plain else make)
    except (NameError, TypeError):  # a foreign function with types for the checker alone
        return {}


def _type(kind: Any) -> str:
    if kind is Parameter.empty:
        return "any"
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def _default(taken: Parameter) -> str | None:
    """As it is written in a file; None where there is none."""
    if taken.default is Parameter.empty:
        return None
    value = taken.default
    made = type(value).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"
    if made or (is_dataclass(value) and not isinstance(value, type)):
        return "..."
    return "none" if value is None else repr(value).replace("'", '"')
