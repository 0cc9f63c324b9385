"""The picture of `fashion-widths`: error (the paper's Fig. 4), NLL and ECE by model size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PANELS = {"test_error": ("error, %", 100.0), "nll": ("NLL", 1.0), "ece": ("ECE", 1.0)}
COLORS = {"implicit": "#2166ac", "vi": "#b2182b", "map": "0.4"}


def draw_widths(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A line a method, with standard errors."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, (key, (title, factor)) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        for name in dict.fromkeys(row["name"] for row in rows):
            _line(axis, [row for row in rows if row["name"] == name], key, factor)
        _sizes(axis, sorted({row["parameters"] for row in rows}))
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _line(axis: Any, rows: Sequence[dict[str, Any]], key: str, factor: float) -> None:
    name = rows[0]["name"]
    axis.errorbar(
        [row["parameters"] for row in rows],
        [factor * row[key]["mean"] for row in rows],
        [factor * (row[key]["error"] or 0.0) for row in rows],
        label=name,
        color=COLORS.get(name),
        marker="o",
        capsize=3,
    )


def _sizes(axis: Any, sizes: Sequence[int]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(sizes, [f"{size / 1000:.0f}K" for size in sizes])
    axis.minorticks_off()
    axis.set_xlabel("model size", fontsize=8)
