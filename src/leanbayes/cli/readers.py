"""Data by name: the readers of `leanbayes.data`.

A reader is a function with typed keyword arguments that gives a `leanbayes.data.dataset.Data`; its
docstring is the help text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leanbayes.data.dataset import Data


class Readers(Mapping[str, Callable[..., "Data"]]):
    """Readers by name; they import torch, so they are looked up when one is asked for."""

    def _found(self) -> Mapping[str, Callable[..., Data]]:
        from leanbayes.data import READERS

        return READERS

    def __getitem__(self, name: str) -> Callable[..., Data]:
        return self._found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._found()))

    def __len__(self) -> int:
        return len(self._found())


DATA = Readers()


def read_data(
    name: str,
    options: Mapping[str, Any],
    path: str = "data.options",
    make: Callable[..., Data] | None = None,
) -> Data:
    """Read data, the options checked by the types of the reader's arguments first.

    Args:
        name: Of the reader.
        options: Of the reader.
        path: Named in errors.
        make: Called in the reader's place, with the same options.
    """
    from leanbayes.cli.file_values import Reader
    from leanbayes.errors import ConfigError
    from leanbayes.train.fields import nearest

    if name not in DATA:
        raise ConfigError(f"no data are called {name!r}; {nearest(name, list(DATA))}")
    if "root" not in options and _needs_root(DATA[name]):
        raise ConfigError(f"{name} reads files: write --root DIR (root = DIR in the settings)")
    reader = Reader()
    given = reader.arguments(DATA[name], options, path)
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    try:
        return (make or DATA[name])(**given)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _needs_root(reader: Callable[..., Any]) -> bool:
    parameter = signature(reader).parameters.get("root")
    return parameter is not None and parameter.default is Parameter.empty


def part_of(data: Data, name: str) -> Any:
    """A part by name: train, validation, test, or one of the further ones."""
    from leanbayes.errors import ConfigError
    from leanbayes.train.fields import nearest

    parts = {"train": data.train, "validation": data.validation, "test": data.test, **data.extra}
    known = [key for key, part in parts.items() if part is not None]
    if name not in known:
        raise ConfigError(f"{data.name} has no part {name!r}; {nearest(name, known)}")
    return parts[name]
