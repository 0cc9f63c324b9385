"""The run's directory: whose it is, what it was started with and on what."""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.model import BayesianModel
from leanbayes.storage import parse_json
from leanbayes.version import __version__

if TYPE_CHECKING:
    from leanbayes.train.config import FitConfig

CONFIG, ENVIRONMENT = "config.json", "environment.json"
# What may differ where a run goes on: how long it lasts, and what changes no number in it.
FREE = frozenset(
    (
        *("epochs", "steps", "patience", "progress", "log_every", "folder", "keep"),
        *("save_every", "resume", "workers", "resident"),
    )
)


def open_run(
    folder: str | Path,
    config: FitConfig,
    model: BayesianModel,
    *,
    device: torch.device | None = None,
) -> Path:
    """Make a run's directory, or open it again for the same run; the first process calls it.

    Writes `config.json` (the FitConfig and the method) and `environment.json` (versions, kind of
    machine; no paths, no names of people or machines), each whole or not at all.

    Args:
        folder: The directory; made where it does not exist.
        config: Must equal that of an earlier start but for its length and how it is watched.
        model: Its method must equal that of an earlier start.
        device: Where the run computes; the model's device if None.

    Raises:
        ConfigError: The directory holds another run; the differing settings are listed.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"folder={path.name!r} is a file; expected a directory for the run")
    settings = _plain({"fit": config.to_json(), "method": model.method.to_json()})
    _refuse_strangers(path, config.resume)
    if (path / CONFIG).is_file():
        _refuse_another_run(path, settings)
    found = environment(device or next((p.device for p in model.parameters()), None))
    _warn_of_other_versions(path, found)
    _make(path)
    write_file(path / CONFIG, _text(settings))
    write_file(path / ENVIRONMENT, _text(found))
    return path


def environment(device: torch.device | None = None) -> dict[str, Any]:
    """Versions and the kind of machine; nothing that tells whose machine it is.

    Example:
        >>> sorted(environment())
        ['device', 'leanbayes', 'machine', 'numpy', 'python', 'system', 'threads', 'torch']
    """
    on_gpu = device is not None and device.type == "cuda"
    return {
        "leanbayes": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(device) if on_gpu else str(device or "cpu"),
        "threads": torch.get_num_threads(),
    }


def write_file(path: Path, data: bytes) -> None:
    """Write beside, sync, rename: the old file or the new one, never a part of one."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CheckpointError(
            f"cannot write {path.name} in {path.parent.name}: {error.strerror or error}. "
            "What was there still is"
        ) from error


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot make folder={path.name!r}: {error.strerror}") from error


def _refuse_strangers(path: Path, resume: bool) -> None:
    known = (path / CONFIG).is_file()
    checkpoints = path / "checkpoints"
    used = checkpoints.is_dir() and any(checkpoints.iterdir())
    if used and not known:
        raise ConfigError(
            f"folder={path.name!r} holds checkpoints but no {CONFIG}, so nobody knows of which "
            "run. Choose another folder"
        )
    if used and not resume:
        raise ConfigError(
            f"folder={path.name!r} holds a run already and resume=False would overwrite it. Write "
            "resume=True to go on with it, or choose another folder"
        )


def _refuse_another_run(path: Path, settings: Mapping[str, Any]) -> None:
    earlier = parse_json(path / CONFIG, _read(path / CONFIG))
    lines = []
    for part in ("fit", "method"):
        old, new = earlier.get(part), settings[part]
        if not isinstance(old, dict):
            raise CheckpointError(f"{path.name}/{CONFIG} is damaged: {part!r} is missing")
        free = FREE if part == "fit" else frozenset()
        lines += differences(old, new, "" if part == "fit" else "method.", free)
    if lines:
        raise ConfigError(
            f"folder={path.name!r} holds a run with other settings: {'; '.join(lines)}. Choose "
            f"another folder, or the old settings to go on. Only {', '.join(sorted(FREE))} may "
            "change"
        )


def _parts(value: Any) -> dict[str, Any] | None:
    """Settings within a setting, by name or by place; None where it is a value."""
    if isinstance(value, list) and all(isinstance(part, dict | list) for part in value):
        return {str(place): part for place, part in enumerate(value)}
    return value if isinstance(value, dict) else None


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str, free: frozenset[str]
) -> list[str]:
    """`key: old there, new now`, down through nested settings; one that is None may lack."""
    lines = []
    for key in sorted({*old, *new} - free):
        before, now = old.get(key), new.get(key)
        inner, other = _parts(before), _parts(now)
        if inner is not None and other is not None:
            lines += differences(inner, other, f"{prefix}{key}.", frozenset())
        elif before != now:
            lines.append(f"{prefix}{key}: {before!r} there, {now!r} now")
    return lines


def _warn_of_other_versions(path: Path, found: Mapping[str, Any]) -> None:
    if not (path / ENVIRONMENT).is_file():
        return
    try:
        earlier = parse_json(path / ENVIRONMENT, _read(path / ENVIRONMENT))
    except CheckpointError:  # says nothing about the run itself, and is about to be written anew
        return
    lines = differences(earlier, found, "", frozenset())
    if lines:
        warnings.warn(
            f"the run in {path.name!r} goes on in another environment ({'; '.join(lines)}): it is "
            "right, but may not be bit for bit what it would have been",
            stacklevel=3,
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path.name}: {error.strerror}") from error


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read back: lists for tuples, and the name of what has no plain form."""
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=_named))
    return plain


def _named(value: Any) -> str:
    # Not repr: an address in it would make every start another run.
    return getattr(value, "__qualname__", type(value).__qualname__)


def _text(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
