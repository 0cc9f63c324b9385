"""The state of a run as bytes and back, bit for bit and without pickle.

A tree of dicts, lists, tuples, numbers, texts, tensors and numpy values becomes two files: the tree
as JSON (`state.json`) and its tensors as safetensors (`state.safetensors`). The JSON names type and
shape of every tensor again, so that neither file can say something else about them than the other.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leanbayes.errors import CheckpointError
from leanbayes.posteriors.shards import whole
from leanbayes.storage import parse_json, parse_tensors, render_json, render_tensors

TREE, TENSORS = "state.json", "state.safetensors"
FORMAT = 1
MARK = "~"  # an object with one key that starts so is no dict: {"~tuple": [1, 2]}
NUMPY_KINDS = "?bhilqBHILQefdFD"


def pack(tree: Any) -> dict[str, bytes]:
    """The two files of a tree.

    Args:
        tree: dict, list, tuple, str, int, float, bool, None, Tensor (any device, DTensors whole),
            numpy arrays and scalars. A tensor that appears twice is stored once.

    Raises:
        CheckpointError: Something else is in the tree; its path is named.

    Example:
        >>> files = pack({"step": 3, "rates": (0.1, float("inf")), "weight": torch.ones(2)})
        >>> sorted(files)
        ['state.json', 'state.safetensors']
        >>> unpack(files)
        {'step': 3, 'rates': (0.1, inf), 'weight': tensor([1., 1.])}
    """
    writer = _Writer()
    try:
        text = render_json(Path(TREE), {"format": FORMAT, "tree": writer.encode(tree, "")})
    except RecursionError as error:
        raise CheckpointError("the state is nested too deeply, or contains itself") from error
    except ValueError as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"the state cannot be written as JSON: {error}") from error
    return {TREE: text, TENSORS: render_tensors(Path(TENSORS), writer.tensors)}


def unpack(files: Mapping[str, bytes], path: str | Path = "") -> Any:
    """The tree that `pack` was given; tensors on the CPU.

    Args:
        files: The two files, as from `pack` or `Store.newest`; others are not looked at.
        path: Their directory, for the words of an error.

    Raises:
        CheckpointError: A file is missing or is not what `pack` writes; it is named.
    """
    where = Path(path)
    for name in (TREE, TENSORS):
        if name not in files:
            raise CheckpointError(f"{where / name} is missing: this is no checkpoint of a run")
    content = parse_json(where / TREE, files[TREE])
    if content.keys() != {"format", "tree"} or content["format"] != FORMAT:
        raise CheckpointError(
            f"{where / TREE} is no state of a run in format {FORMAT}: found format "
            f"{str(content.get('format'))[:20]!r}"
        )
    reader = _Reader(where, parse_tensors(where / TENSORS, files[TENSORS]))
    try:
        tree = reader.decode(content["tree"])
    except RecursionError as error:
        raise CheckpointError(f"{where / TREE} is damaged: nested too deeply") from error
    reader.check_all_used()
    return tree


def generators() -> dict[str, Any]:
    """States of the generators of this process: torch on the CPU and every GPU, Python, numpy."""
    version, words, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": (version, torch.tensor(words), gauss),
        "numpy": np.random.get_state(),  # noqa: NPY002 - data code draws from the global one
    }


def set_generators(states: Mapping[str, Any]) -> None:
    """Set the generators to what `generators` gave; more GPUs than then keep their state.

    Raises:
        CheckpointError: These are no states of generators.
    """
    try:
        torch.set_rng_state(states["torch"])
        available = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for device, state in enumerate(states["cuda"][:available]):
            torch.cuda.set_rng_state(state, device)
        version, words, gauss = states["python"]
        random.setstate((version, tuple(words.tolist()), gauss))
        np.random.set_state(states["numpy"])  # noqa: NPY002
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{TREE} holds no states of generators: {error}") from error


class _Writer:
    """Turns a tree into JSON values and collects its tensors by their path."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.seen: dict[int, str] = {}
        self.storages: set[int] = set()

    def encode(self, value: Any, path: str) -> Any:
        """A JSON value for a node; `path` is where it stands."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"~float": struct.pack(">d", value).hex()}
        if isinstance(value, Tensor):
            return {"~tensor": self._tensor(value, path)}
        if isinstance(value, np.ndarray | np.generic):
            return self._numpy(value, path)
        return self._container(value, path)

    def _container(self, value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if type(value) not in (list, tuple, torch.Size):
            raise CheckpointError(
                f"the state has a {type(value).__name__} at {path or '/'}; expected dict, list, "
                "tuple, text, numbers, tensors or numpy values"
            )
        items = [self.encode(item, f"{path}/{i}") for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"~tuple": items}

    def _mapping(self, value: Mapping[Any, Any], path: str) -> dict[str, Any]:
        if all(type(key) is str and not key.startswith(MARK) for key in value):
            return {key: self.encode(item, f"{path}/{key}") for key, item in value.items()}
        pairs = [
            [self.encode(key, f"{path}/{key}"), self.encode(item, f"{path}/{key}")]
            for key, item in value.items()
        ]
        return {"~dict": pairs}

    def _numpy(self, value: Any, path: str) -> dict[str, Any]:
        if value.dtype.char not in NUMPY_KINDS:
            raise CheckpointError(f"the state has numpy values of type {value.dtype} at {path}")
        if isinstance(value, np.generic):
            return {"~number": f"{value.dtype.name} {value.tobytes().hex()}"}
        native = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
        raw = torch.from_numpy(native.reshape(-1).view(np.uint8).copy())
        return {
            "~array": f"{value.dtype.name} {_shape_text(value.shape)} {self._stored(raw, path)}"
        }

    def _tensor(self, value: Tensor, path: str) -> str:
        full = whole(value).detach()
        if full.layout != torch.strided or full.is_quantized or full.is_meta:
            raise CheckpointError(f"the tensor at {path} is {full.layout} on {full.device}")
        if id(value) not in self.seen:
            plain = full.cpu().resolve_conj().resolve_neg().contiguous()
            real = torch.view_as_real(plain) if plain.is_complex() else plain
            self.seen[id(value)] = self._stored(real, path)
        return f"{_name_of(full.dtype)} {_shape_text(full.shape)} {self.seen[id(value)]}"

    def _stored(self, tensor: Tensor, path: str) -> str:
        name = path or "/"
        while name in self.tensors:  # keys may contain slashes
            name += "'"
        storage = tensor.untyped_storage().data_ptr()
        # The format has no views: two parts of one storage are two tensors.
        self.tensors[name] = tensor.clone() if storage in self.storages else tensor
        self.storages.add(storage)
        return name


class _Reader:
    """Turns JSON values back into a tree; every tensor must be as the text says."""

    def __init__(self, where: Path, tensors: Mapping[str, Tensor]) -> None:
        self.where, self.tensors = where, tensors
        self.used: set[str] = set()
        self.shown: dict[str, Tensor] = {}
        self.special: dict[str, Callable[[Any], Any]] = {
            "~float": self._float,
            "~tuple": lambda items: tuple(self._list(items)),
            "~dict": self._dict,
            "~tensor": self._tensor,
            "~number": self._number,
            "~array": self._array,
        }

    def decode(self, value: Any) -> Any:
        """The node that a JSON value stands for."""
        if isinstance(value, list):
            return self._list(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._damaged(f"{value} is written out")
        if not isinstance(value, dict):
            return value
        if not any(key.startswith(MARK) for key in value):
            return {key: self.decode(item) for key, item in value.items()}
        [(mark, content), *more] = value.items()
        if more or mark not in self.special:
            raise self._damaged(f"unknown mark {mark[:20]!r}")
        try:
            return self.special[mark](content)
        except (TypeError, ValueError, AttributeError, struct.error, RuntimeError) as error:
            if isinstance(error, CheckpointError | RecursionError):
                raise
            raise self._damaged(f"{mark}: {str(error)[:100]}") from error

    def check_all_used(self) -> None:
        """Tensors that the text does not name are no part of a state."""
        extra = sorted(set(self.tensors) - self.used)
        if extra:
            raise CheckpointError(
                f"{self.where / TENSORS} holds '{extra[0][:80]}', which {TREE} does not name"
            )

    def _damaged(self, words: str) -> CheckpointError:
        return CheckpointError(f"{self.where / TREE} is damaged: {words}")

    def _list(self, items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise TypeError("expected a list")
        return [self.decode(item) for item in items]

    def _float(self, text: str) -> float:
        (value,) = struct.unpack(">d", bytes.fromhex(text))
        if math.isfinite(value):
            raise ValueError(f"{value} needs no mark")
        return float(value)

    def _dict(self, pairs: Any) -> dict[Any, Any]:
        if not isinstance(pairs, list):
            raise TypeError("expected a list of pairs")
        tree = {self.decode(key): self.decode(value) for key, value in pairs}
        if len(tree) != len(pairs):
            raise ValueError("a key appears twice")
        return tree

    def _tensor(self, text: str) -> Tensor:
        kind, shape, name = text.split(" ", 2)
        dtype = _dtype_of(kind)
        stored = self._found(name)
        if name not in self.shown:
            self.shown[name] = torch.view_as_complex(stored) if dtype.is_complex else stored
        tensor = self.shown[name]
        if tensor.dtype != dtype or _shape_text(tensor.shape) != shape:
            raise CheckpointError(
                f"{self.where / TENSORS} has '{name[:80]}' as {tensor.dtype} of shape "
                f"{tuple(tensor.shape)}; {TREE} says {kind} {shape}"
            )
        return tensor

    def _number(self, text: str) -> Any:
        kind, raw = text.split(" ")
        data = np.frombuffer(bytes.fromhex(raw), dtype=_numpy_type(kind))
        if data.shape != (1,):
            raise ValueError("expected one number")
        return data[0]

    def _array(self, text: str) -> Any:
        kind, shape, name = text.split(" ", 2)
        raw = self._found(name)
        if raw.dtype != torch.uint8 or raw.dim() != 1:
            raise CheckpointError(f"{self.where / TENSORS} has '{name[:80]}' as {raw.dtype}")
        return raw.numpy().view(_numpy_type(kind)).reshape(_shape_of(shape))

    def _found(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise CheckpointError(f"{self.where / TENSORS} lacks '{name[:80]}'")
        self.used.add(name)
        return self.tensors[name]


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "-"


def _shape_of(text: str) -> tuple[int, ...]:
    sizes = () if text == "-" else tuple(int(size) for size in text.split("x"))
    if _shape_text(sizes) != text or any(size < 0 for size in sizes):
        raise ValueError(f"{text[:40]!r} is no shape")
    return sizes


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or _name_of(dtype) != name:
        raise ValueError(f"no type {name[:20]!r} of tensors")
    return dtype


def _numpy_type(name: str) -> np.dtype[Any]:
    if not name.isidentifier():
        raise ValueError(f"no type {name[:20]!r} of numpy values")
    dtype = np.dtype(name)
    if dtype.char not in NUMPY_KINDS:
        raise ValueError(f"no type {name[:20]!r} of numpy values")
    return dtype
