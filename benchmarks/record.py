"""Write the figures of a benchmark together with what is needed to repeat it."""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import leanbayes as lb


def write_record(path: str, results: dict[str, Any], settings: dict[str, Any]) -> None:
    """One JSON file: command, settings, versions, commit, machine, results."""
    record = {
        "command": shlex.join(["python", *sys.argv]),
        "settings": {k: v for k, v in settings.items() if k != "json"},
        "versions": {
            "leanbayes": lb.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "commit": commit(),
        "machine": {
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "results": results,
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n")


def commit() -> str | None:
    """The commit of the working tree, with `+` where it has changes; None outside a clone."""
    here = Path(__file__).resolve().parent
    try:
        head = _git(here, "rev-parse", "HEAD")
        return head + ("+" if _git(here, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def processor() -> str:
    """Name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
