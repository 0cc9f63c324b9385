"""Write the figures of a benchmark together with what is needed to repeat it."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

import leanbayes as lb
from leanbayes.records import commit, processor


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
