"""What the demo says: plain data for demo.json, and that data as text."""

from __future__ import annotations

import platform
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leanbayes.cli.table import render

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.comparison import Comparison
    from leanbayes.cli.setting import Settings

HEAD = ("method", "accuracy", "NLL", "ECE", "OOD total", "OOD epistemic", "added", "seconds")
READING = """\
How to read it
  NLL and ECE: lower is better. ECE is the gap between confidence and accuracy ({bins} bins).
  OOD: AUROC of telling digits from clothes by total or by epistemic uncertainty; chance is 0.5.
  added: parameters on top of the network's {parameters:,}; seconds: fine-tuning and prediction."""


def record(
    settings: Settings, found: Comparison, picture: str | None, *, seconds: float
) -> dict[str, Any]:
    """Figures, settings, versions and seconds as plain data."""
    import torch

    import leanbayes as lb

    return {
        "versions": {
            "leanbayes": lb.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "settings": {**asdict(settings), "weight_decay": settings.weight_decay},
        "parameters": found.parameters,
        "methods": [{**asdict(score), "seconds": score.seconds} for score in found.scores],
        "left_out": found.left_out,
        "picture": picture,
        "training_seconds": found.training_seconds,
        "seconds": seconds,
    }


def text(result: dict[str, Any], out: Path) -> str:
    """The header, the table, where the files are, and how to read it."""
    settings = result["settings"]
    files = [out / name for name in (result["picture"], "demo.json") if name is not None]
    parts = [
        _header(settings, result),
        render(HEAD, [_cells(score) for score in result["methods"]]),
        *(f"left out: {name} ({reason})" for name, reason in result["left_out"].items()),
        READING.format(bins=settings["bins"], parameters=result["parameters"]),
        f"Written in {result['seconds']:.0f} s: {', '.join(map(str, files))}",
    ]
    return "\n\n".join(parts)


def _header(settings: dict[str, Any], result: dict[str, Any]) -> str:
    return (
        f"LeNet, {result['parameters']:,} parameters, trained for {_epochs(settings['epochs'])} on "
        f"{settings['train_images']:,} images of Fashion-MNIST.\n"
        "Every method, map too, then fine-tunes a copy of it for "
        f"{_epochs(settings['tuning_epochs'])}, with default arguments.\n"
        f"Scores: {settings['test_images']:,} test images; OOD: {settings['ood_images']:,} "
        f"handwritten digits; {settings['samples']} samples; seed {settings['seed']}."
    )


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' if count != 1 else ''}"


def _cells(score: dict[str, Any]) -> list[str]:
    epistemic = score["ood_auroc_epistemic"]
    return [
        score["method"],
        f"{score['accuracy']:.4f}",
        f"{score['nll']:.4f}",
        f"{score['ece']:.4f}",
        f"{score['ood_auroc_total']:.4f}",
        "-" if epistemic is None else f"{epistemic:.4f}",
        f"{score['parameters_added']:,}",
        f"{score['seconds']:.1f}",
    ]
