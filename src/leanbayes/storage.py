"""A directory of files that is there as a whole or not at all, with the sha256 of each.

Own code because no library at hand writes atomically, syncs to disk and checks what it reads; plain
safetensors loads a file with flipped bytes without a word. Reading costs the bytes of the files
once, parsing the tensors once more, and texts that would unfold to much more are refused unparsed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from leanbayes.errors import CheckpointError

MANIFEST = "MANIFEST.json"
ROOM = 40_000_000  # bytes that parsed JSON may take besides its text

# What a mark of a JSON text can turn into at most, in bytes of Python objects.
JSON_PRICES = {b",": 64, b":": 130, b"[": 90, b"{": 240}
TENSOR_PRICES = {b"{": 1800}  # a tensor of a safetensors header, its values apart


def write_directory(path: Path, files: Mapping[str, bytes], *, replace: bool = False) -> None:
    """Write files and manifest beside `path`, sync them, then rename; replaces an older one.

    Args:
        path: The directory.
        files: Contents by plain file name.
        replace: Also replace what is no checkpoint, where all that has this name is ours.

    Raises:
        CheckpointError: Nothing was written, and what was there still is.
    """
    staged, previous = _beside(path, "new"), _beside(path, "old")
    try:
        if not replace and os.path.lexists(path) and not (path / MANIFEST).is_file():
            raise CheckpointError(
                f"{path} exists and is no leanbayes checkpoint; it is not overwritten. "
                "Remove it or choose another path"
            )
        _make_directory(path.parent)
        _write_staged(staged, files)
        _swap(path, staged, previous)
    except (OSError, ValueError) as error:
        remove(staged)
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot write {path}: {error}. What was there still is") from error


def read_directory(path: Path) -> dict[str, bytes]:
    """Every file of the manifest, its bytes checked before anyone parses them."""
    if not os.path.lexists(path) and _beside(path, "old").is_dir():  # a crash between two renames
        path = _beside(path, "old")
    if not path.is_dir():
        raise CheckpointError(f"no checkpoint at {path}; expected a directory made by lb.save")
    return {name: _checked(path / name, sha) for name, sha in listed_files(path).items()}


def listed_files(path: Path) -> dict[str, str]:
    """The manifest of a directory: sha256 by file name. Only what this module wrote will do."""
    data = _read(path / MANIFEST)
    files = parse_json(path / MANIFEST, data).get("files")
    known = isinstance(files, dict) and all(
        _plain_name(name) and isinstance(sha, str) for name, sha in files.items()
    )
    if not known or not isinstance(files, dict) or _manifest(files) != data:
        raise CheckpointError(f"{path / MANIFEST} is no manifest of a leanbayes checkpoint")
    return files


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    _check_price(path, data)
    try:
        parsed = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path} is damaged: expected a JSON object")
    return parsed


def render_json(path: Path, data: Mapping[str, Any]) -> bytes:
    """A JSON text that `parse_json` reads."""
    text = json.dumps(data, indent=1).encode("ascii")
    _check_price(path, text)
    return text


def parse_tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or an error that names it."""
    _check_header(path, data)
    try:
        return dict(parse_safetensors(data))
    except Exception as error:  # a foreign parser: whatever it finds, the file is what is wrong
        raise CheckpointError(f"{path} is damaged: {_words(error)}") from error


def render_tensors(path: Path, tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file that `parse_tensors` reads."""
    data: bytes = to_safetensors(dict(tensors))
    _check_header(path, data)
    return data


def remove(path: Path) -> None:
    """Remove a file, link or directory, if it is there and can be removed."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Bring the names in a directory to the disk."""
    if os.name == "nt":  # directories cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_price(path: Path, data: bytes) -> None:
    """Refuse a text whose objects would take far more memory than it does itself."""
    wide = 4 * len(data) if b"\\u" in data else 0  # one such letter widens all of a string
    price = sum(data.count(mark) * price for mark, price in JSON_PRICES.items()) + wide
    if price > ROOM:
        raise CheckpointError(
            f"{path} would take up to {price / 1e6:.0f} MB when parsed; a checkpoint has room for "
            f"{ROOM / 1e6:.0f} MB of plain values. Keep long series as tensors"
        )


def _check_header(path: Path, data: bytes) -> None:
    header = memoryview(data)[8 : 8 + int.from_bytes(data[:8], "little")]
    price = sum(bytes(header).count(mark) * price for mark, price in TENSOR_PRICES.items())
    if price > ROOM + len(data) // 10:
        raise CheckpointError(f"{path} holds too many small tensors; stack them into larger ones")


def _manifest(files: Mapping[str, str]) -> bytes:
    return json.dumps({"format": 1, "files": files}, indent=1).encode("ascii")


def _checked(path: Path, sha: str) -> bytes:
    data = _read(path)
    found = hashlib.sha256(data).hexdigest()
    if found != sha:
        raise CheckpointError(
            f"{path} is damaged or was edited: sha256 {found[:12]}, expected {sha[:12]!r}"
        )
    return data


def _read(path: Path) -> bytes:
    try:
        # Not blocking, for a pipe in the place of a file would be waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise CheckpointError(f"cannot read {path}: it is no plain file")
            with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
                return file.readall()
        finally:
            os.close(descriptor)
    except CheckpointError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        raise CheckpointError(f"cannot read {path}: {_words(error)}") from error


def _words(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return re.sub(r"\s+", " ", str(text))[:200]


def _plain_name(name: str) -> bool:
    foreign = any(mark in name for mark in "/\\\0:") or not name.isascii()
    return not foreign and name not in (".", "..", "", MANIFEST)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{suffix}")


def _make_directory(path: Path) -> None:
    """Make a directory and those above it so that a power cut does not lose them."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def _write_staged(staged: Path, files: Mapping[str, bytes]) -> None:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    wrong = [name for name in files if not _plain_name(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no plain file name")
    remove(staged)
    staged.mkdir()
    for name, data in {**files, MANIFEST: _manifest(hashes)}.items():
        _write_synced(staged / name, data)
    sync_directory(staged)


def _swap(path: Path, staged: Path, previous: Path) -> None:
    """Put the new directory in its place; what was there comes back if that fails."""
    replaced = os.path.lexists(path)
    if replaced:
        remove(previous)
        path.rename(previous)
    try:
        staged.rename(path)
        sync_directory(path.parent)
    except OSError:
        with suppress(OSError):
            path.rename(staged)
        if replaced:
            with suppress(OSError):
                previous.rename(path)
        raise
    remove(previous)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
