"""Checks of single settings by their type: what was found, what was expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from leanbayes.errors import ConfigError


def nearest(word: Any, known: Collection[str]) -> str:
    """The known word that is most like this one, as a question; all of them where none is.

    Example:
        >>> nearest("cosin", ["constant", "cosine"])
        "did you mean 'cosine'?"
        >>> nearest(3, ["constant", "cosine"])
        "expected one of 'constant', 'cosine'"
    """
    lowered = {each.lower(): each for each in known}  # 'sgd' is SGD and nothing else
    found = get_close_matches(str(word).lower(), lowered, n=1, cutoff=0.6)
    if found:
        return f"did you mean {lowered[found[0]]!r}?"
    return f"expected one of {', '.join(map(repr, known))}"


def check_fields(settings: Any, least: Mapping[str, float]) -> None:
    """Raise on the first field whose value does not fit its type, or is below its least value."""
    cls: Any = type(settings)
    for name, hint in _hints(cls).items():
        _check(name, getattr(settings, name), hint, least.get(name, 0))


def check_keys(given: Collection[Any], known: Collection[str], what: str) -> None:
    """Raise on the first key that is not known, with the nearest one."""
    for key in given:
        if key not in known:
            raise ConfigError(f"{what} has no setting {key!r}; {nearest(key, known)}")


def plain(name: str, value: Any) -> Any:
    """Numbers, words, and lists and tables of them; lists become tuples, so that they compare."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return tuple(plain(name, item) for item in value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(f"{name}.{key}", item) for key, item in value.items()}
    raise ConfigError(f"{name} holds numbers, words, lists and tables of them; found {value!r}")


def listed(value: Any) -> Any:
    """Plain data as JSON has it: tuples as lists."""
    if isinstance(value, Mapping):
        return {key: listed(item) for key, item in value.items()}
    return [listed(item) for item in value] if isinstance(value, tuple | list) else value


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _check(name: str, value: Any, hint: Any, least: float) -> None:
    if get_origin(hint) in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not NoneType]
        if value is None and len(options) < len(get_args(hint)):
            return
        hint = options[0]
    if get_origin(hint) is Literal:
        _check_choice(name, value, get_args(hint))
    elif get_origin(hint) is tuple:
        _check_numbers(name, value)
    elif hint in _RULES:
        _RULES[hint](name, value, least)
    elif not isinstance(value, get_origin(hint) or hint):
        kind = getattr(hint, "__name__", hint)
        raise ConfigError(f"{name} must be a {kind}, found {value!r}")


def _check_choice(name: str, value: Any, options: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in options:
        words = ", ".join(map(repr, options))
        raise ConfigError(f"{name} is one of {words}; found {value!r}, {nearest(value, options)}")


def _check_numbers(name: str, value: Any) -> None:
    if not isinstance(value, tuple) or not all(map(_is_number, value)):
        raise ConfigError(f"{name} must be a list of numbers, found {value!r}")


def _check_flag(name: str, value: Any, _least: float) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false, found {value!r}")


def check_whole(name: str, value: Any, least: float) -> None:
    """Raise unless a setting is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, found {value!r}")


def _check_number(name: str, value: Any, least: float) -> None:
    if not _is_number(value) or value < least:
        raise ConfigError(f"{name} must be a finite number of at least {least}, found {value!r}")


def _check_word(name: str, value: Any, _least: float) -> None:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ConfigError(f"{name} must be a word that is not empty, found {value!r}")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -1e308 < value < 1e308  # whole numbers that no float holds are left out too


_RULES: Mapping[Any, Callable[[str, Any, float], None]] = {
    bool: _check_flag,
    int: check_whole,
    float: _check_number,
    str: _check_word,
}
