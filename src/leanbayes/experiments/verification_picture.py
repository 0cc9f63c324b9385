"""ROC curves of verification, all methods in one picture; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def draw_roc(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """One curve a row with `roc`; regularised methods dashed, what all start from in black."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for row in rows:
        if "roc" in row:
            _curve(axis, row)
    axis.set_xlabel("different pairs accepted")
    axis.set_ylabel("same pairs accepted")
    axis.legend(loc="lower right", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _curve(axis: Any, row: dict[str, Any]) -> None:
    style: dict[str, Any] = {"linestyle": "--" if row.get("regularised") else "-"}
    if "regularised" not in row:
        style["color"] = "black"
    label = f"{row['label']} (area {row['auroc']:.3f})"
    axis.plot(row["roc"]["fpr"], row["roc"]["tpr"], linewidth=1, label=label, **style)
