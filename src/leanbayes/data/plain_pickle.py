"""Reads pickles of arrays, text, numbers, lists and dicts without running anything they name.

A pickle may call whatever it names. Here it can name five things, and each is replaced by code of
this file: not even numpy's own unpickling runs, which trusts the sizes and flags that it is given.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any, Final

import numpy as np

from leanbayes.data.files import Array
from leanbayes.errors import DataError

_NUMERIC: Final = frozenset(f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)) - {"f1"}


def load_plain(path: Path) -> Any:
    """What a pickle holds, text of Python 2 taken as Latin-1.

    Raises:
        DataError: It is damaged, or names anything but arrays of numbers.
    """
    try:
        return _arrays(_Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load())
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(
            f"{path} is no pickle of plain arrays, lists and dicts ({error}); fetch it again"
        ) from error


class _Reader(pickle.Unpickler):
    """Knows numpy's arrays in their three pickled forms, and bytes as Python 3 gives to Python 2.

    What is called is a bound method, so that a pickle cannot set an attribute on it.
    """

    def find_class(self, module: str, name: str) -> Any:
        known = {
            "numpy.ndarray": _Array,
            "numpy.dtype": _Type,
            "numpy.core.multiarray._reconstruct": self._empty,
            "numpy.core.numeric._frombuffer": self._from_buffer,
            "_codecs.encode": self._encoded,
        }
        wanted = f"{module.replace('numpy._core', 'numpy.core')}.{name}"
        if wanted not in known:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return known[wanted]

    def _empty(self, *_: Any) -> _Array:
        return _Array()

    def _from_buffer(self, raw: bytes, kind: _Type, shape: Any, order: str) -> _Array:
        array = _Array()
        array.__setstate__((1, shape, kind, order == "F", raw))
        return array

    def _encoded(self, text: str, encoding: str = "latin1") -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"bytes are encoded by {encoding}")
        return text.encode("latin1")


class _Type:
    """Stands for numpy.dtype; only whole and floating numbers of one to eight bytes."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in _NUMERIC:
            raise pickle.UnpicklingError(f"it holds an array of {code!r}")
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def found(self) -> np.dtype[Any]:
        """The type, with its byte order."""
        return np.dtype(self.code).newbyteorder(">" if self.order == ">" else "<")


class _Array:
    """Stands for numpy.ndarray: its state is (version, shape, dtype, is Fortran, bytes)."""

    value: Array | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        if len(data) != math.prod(shape) * kind.found().itemsize:
            raise pickle.UnpicklingError(f"it holds {len(data)} bytes for an array {shape}")
        flat = np.frombuffer(data, kind.found())
        self.value = flat.reshape(shape, order="F" if fortran else "C")


def _arrays(tree: Any) -> Any:
    """Lists and dicts with the arrays in place of what stands for them."""
    if isinstance(tree, _Array):
        return tree.value
    if isinstance(tree, dict):
        return {key: _arrays(value) for key, value in tree.items()}
    if isinstance(tree, list) and any(isinstance(item, (_Array, dict, list)) for item in tree):
        return [_arrays(item) for item in tree]
    return tree
