"""What a file of figures says about how they came about: command, code, machine."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from leanbayes.train.folder import environment


def provenance(command: str, device: torch.device | None = None) -> dict[str, Any]:
    """The command, the commit, versions and the kind of machine; no names, no paths.

    Example:
        >>> sorted(provenance("leanbayes demo"))
        ['command', 'commit', 'environment']
    """
    found = {**environment(device), "processor": processor()}
    return {"command": command, "commit": commit(), "environment": found}


def shown(place: object) -> str:
    """A path for a record: as it was typed, or its last part where it is one of this machine.

    Example:
        >>> shown("data/uci"), shown("/elsewhere/uci")
        ('data/uci', 'uci')
    """
    path = Path(str(place))
    return path.name if path.is_absolute() else str(place)


def commit() -> str | None:
    """The commit of leanbayes' own clone, with `+` where it has changes; None outside of one."""
    here = Path(__file__).resolve().parent
    try:
        # An installed package may lie in somebody else's clone, whose commit says nothing.
        _git(here, "ls-files", "--error-unmatch", "version.py")
        return _git(here, "rev-parse", "HEAD") + (
            "+" if _git(here, "status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def processor() -> str:
    """Name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
