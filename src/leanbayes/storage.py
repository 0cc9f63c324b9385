"""A directory of files that is there as a whole or not at all, with the sha256 of each.

Own code because no library at hand writes atomically, syncs to disk and checks what it reads; plain
safetensors loads a file with flipped bytes without a word.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leanbayes.errors import CheckpointError

MANIFEST = "MANIFEST.json"


def write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Write files and manifest beside `path`, sync them, then rename; replaces an older one."""
    if path.exists() and not (path / MANIFEST).is_file():
        raise CheckpointError(
            f"{path} exists and is no leanbayes checkpoint; it is not overwritten. "
            "Remove it or choose another path"
        )
    staged, previous = _beside(path, "new"), _beside(path, "old")
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(staged, ignore_errors=True)
    try:
        staged.mkdir()
        for name, data in {**files, MANIFEST: _manifest(files)}.items():
            _write_synced(staged / name, data)
        _sync_directory(staged)
        _swap(path, staged, previous)
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        raise CheckpointError(f"cannot write {path}: {error}. What was there still is") from error


def read_directory(path: Path) -> dict[str, bytes]:
    """Every file of the manifest, its bytes checked before anyone parses them."""
    if not path.exists() and _beside(path, "old").exists():  # a crash between two renames
        path = _beside(path, "old")
    if not path.is_dir():
        raise CheckpointError(f"no checkpoint at {path}; expected a directory made by lb.save")
    manifest = parse_json(path / MANIFEST, _read(path / MANIFEST))
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_plain_name(name) for name in files):
        raise CheckpointError(f"{path / MANIFEST} is no manifest of a leanbayes checkpoint")
    return {name: _checked(path / name, sha) for name, sha in files.items()}


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path} is damaged: expected a JSON object")
    return parsed


def _manifest(files: Mapping[str, bytes]) -> bytes:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return json.dumps({"format": 1, "files": hashes}, indent=1).encode()


def _checked(path: Path, sha: Any) -> bytes:
    data = _read(path)
    found = hashlib.sha256(data).hexdigest()
    if found != sha:
        raise CheckpointError(
            f"{path} is damaged or was edited: sha256 {found[:12]}, expected {str(sha)[:12]}"
        )
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def _plain_name(name: str) -> bool:
    return name not in (".", "..", "") and Path(name).name == name


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{suffix}")


def _swap(path: Path, staged: Path, previous: Path) -> None:
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)
        path.rename(previous)
    staged.rename(path)
    _sync_directory(path.parent)
    shutil.rmtree(previous, ignore_errors=True)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
