"""The data of a comparison, read once a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from leanbayes.cli.readers import read_data
from leanbayes.cli.settings_file import Named
from leanbayes.data.dataset import Data


class Sets:
    """Data by reader and options, kept as long as the command lasts.

    Where a run has written into the tensors (a network that works in place on its inputs) they are
    read again, so that no run sees what another has left. In another process it starts empty.

    Example:
        >>> sets, wine = Sets(), Named("sklearn_table", {"name": "wine"})
        >>> sets.read(wine) is sets.read(wine)
        True
        >>> _ = sets.read(wine).train[0].add_(1)
        >>> float(sets.read(wine).train[0].mean().abs()) < 1e-5
        True
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[Data, list[int]]] = {}

    def __reduce__(self) -> tuple[type[Sets], tuple[()]]:
        return Sets, ()

    def read(self, asked: Named) -> Data:
        """The data; as the reader gives them."""
        key = json.dumps([asked.name, dict(asked.options)], sort_keys=True, default=str)
        data, versions = self._found.get(key, (None, []))
        if data is None or versions != _versions(data):
            data = read_data(asked.name, asked.options)
            self._found[key] = data, _versions(data)
        return data


def _versions(data: Data) -> list[int]:
    """How often each tensor has been written into; views of it count."""
    parts = (data.train, data.validation, data.test, *data.extra.values())
    return [tensor._version for part in parts for tensor in _tensors(part)]


def _tensors(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    if isinstance(part, tuple | list):
        yield from (item for item in part if isinstance(item, Tensor))
