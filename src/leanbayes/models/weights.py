"""Weights of a file into a network: whole, or with a word on every key that does not fit."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from leanbayes.errors import CheckpointError

ENTRIES: Final = ("state_dict", "model_state_dict", "model")  # where training scripts keep them
WRAPPERS: Final = ("module.", "_orig_mod.", "model.", "net.")  # DDP, compile, trainers
LISTED: Final = 5

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class LoadedWeights:
    """What `load_weights` found.

    Attributes:
        loaded: Keys that were copied.
        missing: Keys of the network that the file lacks.
        left_over: Keys of the file that the network lacks.
        unfit: Keys of both whose shapes differ.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    left_over: tuple[str, ...]
    unfit: tuple[str, ...]


def load_weights(net: nn.Module, path: str | Path, *, strict: bool = True) -> LoadedWeights:
    """Copy the weights of a file into a network, in place, before it is converted.

    Reads what `torch.save` wrote (.pt, .pth, .th), tensors only, so that no code of the file runs,
    and .safetensors. A state_dict under "state_dict", "model_state_dict" or "model" is taken out,
    and a prefix that DDP or `torch.compile` put before every key is removed. Numbers take the
    network's type and device. After an error the network is as it was.

    Args:
        net: The network.
        path: The file.
        strict: Every key of either side must have its like on the other. False copies the keys that
            fit, such as all but a last layer for other classes.

    Raises:
        CheckpointError: The file is missing, damaged or no state_dict; or keys do not fit, which
            are listed with the nearest of the other side; or not one of them does.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     wrapped = {"module.weight": torch.ones(2, 3), "module.bias": torch.zeros(2)}
        ...     torch.save({"epoch": 9, "state_dict": wrapped}, f"{folder}/linear.th")
        ...     load_weights(nn.Linear(3, 2), f"{folder}/linear.th").loaded
        ('weight', 'bias')
    """
    file = Path(path)
    state = net.state_dict(keep_vars=True)  # the tensors themselves; extra state has none
    own = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    tensors = _unwrapped(_state(file, _read(file)), own)
    found = _compared(own, tensors)
    if not found.loaded or (strict and (found.missing or found.left_over or found.unfit)):
        raise CheckpointError(_misfit(file, found, own, tensors, strict))
    with torch.no_grad():
        for key in found.loaded:
            own[key].copy_(tensors[key])
    return found


def _read(file: Path) -> Any:
    if not file.is_file():
        raise CheckpointError(
            f"no file of weights at {file}; expected .pt, .pth, .th, .safetensors"
        )
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{file} is damaged, or holds more than tensors, which is not read because it could "
            "run code; write torch.save(net.state_dict(), path)"
        ) from error
    except (SafetensorError, OSError, EOFError, RuntimeError, ValueError, LookupError) as error:
        words = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{file} is damaged or no file of weights: {words}") from error


def _state(file: Path, read: Any) -> Tensors:
    """The table of tensors in what a file holds."""
    for _ in ENTRIES:
        inner = [read[e] for e in ENTRIES if isinstance(read, Mapping) and e in read]
        read = next((entry for entry in inner if isinstance(entry, Mapping)), read)
    if not isinstance(read, Mapping):
        raise CheckpointError(f"{file} holds a {type(read).__name__}; expected a state_dict")
    tensors = {key: value for key, value in read.items() if isinstance(value, Tensor)}
    others = [str(key) for key in read if key not in tensors]
    if not tensors or not all(isinstance(key, str) for key in tensors):
        raise CheckpointError(
            f"{file} holds no state_dict: found {_listed(others) or 'nothing'}; expected tensors "
            f"by name, at the top or under {', '.join(map(repr, ENTRIES))}"
        )
    return tensors


def _unwrapped(tensors: Tensors, own: Tensors) -> Tensors:
    """Without prefixes that all keys have, unless the network has them too."""
    while not tensors.keys() & own.keys():
        prefix = next((w for w in WRAPPERS if all(key.startswith(w) for key in tensors)), None)
        if prefix is None:
            break
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items()}
    return tensors


def _compared(own: Tensors, tensors: Tensors) -> LoadedWeights:
    both = [key for key in own if key in tensors]
    fit = tuple(key for key in both if own[key].shape == tensors[key].shape)
    covered = {id(own[key]) for key in both}
    missing = (key for key in own if key not in tensors and id(own[key]) not in covered)
    return LoadedWeights(
        loaded=fit,
        # Files of old versions of torch have no such counter; it does not change an output.
        missing=tuple(key for key in missing if not key.endswith("num_batches_tracked")),
        left_over=tuple(key for key in tensors if key not in own),
        unfit=tuple(key for key in both if key not in fit),
    )


def _misfit(file: Path, found: LoadedWeights, own: Tensors, tensors: Tensors, strict: bool) -> str:
    """What does not fit, a kind a line."""
    free = {key: tensors[key] for key in found.left_over}
    missing = [f"{key} {_shape(own[key])}{_nearest(key, own[key], free)}" for key in found.missing]
    left = [f"{key} {_shape(tensors[key])}" for key in found.left_over]
    unfit = [
        f"{key} {_shape(tensors[key])} in the file, {_shape(own[key])} in the network"
        for key in found.unfit
    ]
    lines = [f"{file} does not fit the network: {len(found.loaded)} of {len(own)} keys fit"]
    named = (("missing in the file", missing), ("left over", left), ("of other shapes", unfit))
    lines += [f"{len(keys)} {what}: {_listed(keys)}" for what, keys in named if keys]
    if strict and found.loaded:
        lines.append("strict=False copies what fits and leaves the rest as it is")
    return "\n".join(lines)


def _nearest(key: str, tensor: Tensor, free: Tensors) -> str:
    """The key of the file that was perhaps meant: of the same shape if there is one."""
    alike = [other for other, value in free.items() if value.shape == tensor.shape]
    near = get_close_matches(key, alike or free, n=1, cutoff=0.0 if alike else 0.6)
    return f" (nearest: {near[0]} {_shape(free[near[0]])})" if near else ""


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
    return ", ".join(keys[:LISTED]) + more


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))
