"""The file of an evaluation: written whole after every split, and gone on with later."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.evaluation.asked import Asked
from leanbayes.posteriors.shards import whole
from leanbayes.records import provenance
from leanbayes.storage import parse_json
from leanbayes.train.folder import differences, write_file

KIND = "evaluation"


def identity(asked: Asked) -> dict[str, Any]:
    """All that figures depend on, as plain data; weights by their hash."""
    model, likelihood = asked.inner, asked.likelihood
    kept = model.calibration
    found = {
        "method": model.method.to_json(),
        "weights": _hash(model.state_dict()),
        "likelihood": {
            "name": type(likelihood).__name__,
            "settings": likelihood.settings(),
            "state": _hash(likelihood.state_dict()),
        },
        "calibration": None if kept is None else _of_text(json.dumps(kept.to_json())),
        "suite": asked.suite.identity(),
        "samples": asked.samples,
        "seed": asked.seed,
        "batch_size": asked.batch_size,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def header(asked: Asked, more: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a file says before the evaluation: kind, method, origin, size."""
    report = asked.inner.report
    return {
        "kind": KIND,
        "method": str(asked.inner.method.to_json()["name"]),
        **provenance("lb.evaluate", asked.device),
        "parameters": report.base,
        "parameters_added": report.added,
        **(more or {}),
    }


@dataclass
class Record:
    """An evaluation under way.

    Attributes:
        splits: Those that are done, as plain data.
        clean: Uncertainty of the rows of clean splits, [N, 3], which others are told from.
        task: What the predictions are of; None before the first split.
        seconds: Of all splits that are done.
    """

    splits: dict[str, Any] = field(default_factory=dict)
    clean: dict[str, Tensor] = field(default_factory=dict)
    task: str | None = None
    seconds: float = 0.0

    def write(self, path: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Whole or not at all.

        Args:
            path: The file.
            found: Its header and the evaluation.
            asked: The `identity`.
        """
        finished = len(asked["suite"]["splits"]) == len(self.splits)
        rows = {} if finished else {name: _packed(table) for name, table in self.clean.items()}
        text = {**found, "identity": asked, "unfinished": rows}
        if finished:
            del text["unfinished"]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot make {path.parent.name}: {error.strerror}") from error
        write_file(path, json.dumps(text, allow_nan=False).encode() + b"\n")

    @staticmethod
    def read(path: Path, asked: Mapping[str, Any]) -> Record | None:
        """What was done before with the same settings; None where there is no file.

        Raises:
            CheckpointError: The file is damaged, or no evaluation.
            ConfigError: It was made with other settings, which are named.
        """
        if not path.exists():
            return None
        try:
            found = parse_json(path, path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"cannot read {path.name}: {error.strerror}") from None
        old, results = found.get("identity"), found.get(KIND)
        if not isinstance(old, dict) or not isinstance(results, dict):
            raise CheckpointError(
                f"{path.name} is no evaluation that can be gone on with; it is left as it is. "
                "Choose another file, or resume=False to write it anew"
            )
        _refuse_others(path, old, asked)
        try:
            clean = {name: _unpacked(text) for name, text in found.get("unfinished", {}).items()}
            return Record(results["splits"], clean, results["task"], float(results["seconds"]))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path.name} is damaged: {error!r}") from None


def _refuse_others(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    lines = differences(old, new, "", frozenset())
    if lines:
        shown = [*lines[:4], *([f"and {len(lines) - 4} more"] if len(lines) > 4 else [])]
        raise ConfigError(
            f"{path.name} holds an evaluation with other settings: {'; '.join(shown)}. Choose "
            "another file, the old settings to go on, or resume=False to write it anew"
        )


def _packed(table: Tensor) -> str:
    return b64encode(table.numpy().tobytes()).decode("ascii")


def _unpacked(text: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(b64decode(text), np.float64).copy()).reshape(-1, 3)


def _hash(tensors: Mapping[str, Any]) -> str:
    found = sha256()
    for name, value in sorted(tensors.items()):
        found.update(name.encode())
        if isinstance(value, Tensor):
            plain = whole(value).detach().cpu().contiguous()
            found.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
            found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def _of_text(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
