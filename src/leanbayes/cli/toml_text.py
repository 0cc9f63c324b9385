"""Settings as TOML, which the standard library reads but does not write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def toml_text(tables: Mapping[str, Any]) -> str:
    """Tables, one level of them as sections and what is inside as inline tables.

    Example:
        >>> print(toml_text({"recipe": "x", "fit": {"lr": 1e-4, "span": [0, 1.0], "a": {"b": 1}}}))
        recipe = "x"
        <BLANKLINE>
        [fit]
        lr = 0.0001
        span = [0, 1.0]
        a = { b = 1 }
    """
    lines = [_line(k, v) for k, v in tables.items() if not isinstance(v, Mapping)]
    blocks = ["\n".join(lines)] if lines else []
    for name, table in tables.items():
        if isinstance(table, Mapping):
            rows = [_line(key, value) for key, value in table.items() if value is not None]
            blocks.append("\n".join([f"[{_key(name)}]", *rows]))
    return "\n\n".join(blocks)


def _line(key: str, value: Any) -> str:
    return f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(_line(k, v) for k, v in value.items() if v is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    # JSON's words for texts are TOML's too; a float needs its point or exponent, which repr has.
    return json.dumps(value).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
