"""The picture of `mnist-rates`: the paper's Figs. 4 and 11 above, the maps of its Fig. 3 below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = 5  # of maps

Rows = Sequence[dict[str, Any]]


def draw_rates(rows: Rows, path: Path) -> None:
    """Brier score, turned images, entropies, AUROC, operations, and a map of sigma a row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    maps = [row for row in rows if row["sigma"] is not None]
    lines = -(-len(maps) // COLUMNS)
    figure = Figure(figsize=(16, 8 + 3 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=(8, 3 * max(lines, 1)))
    above, below = parts
    axes = above.subplots(2, 3).flatten()
    _points(axes[0], rows, {"test images": "brier"}, "Brier score")
    _curves(axes[1], rows, "accuracy", "accuracy")
    _points(axes[2], rows, {"MNIST": "total", "Fashion": "foreign_total"}, "mean entropy, nats")
    kinds = {"total": "auroc_total", "epistemic": "auroc_epistemic"}
    _points(axes[3], rows, kinds, "AUROC, Fashion-MNIST")
    _curves(axes[4], rows, "epistemic", "epistemic uncertainty, nats")
    _costs(axes[5], rows)
    if maps:
        _maps(below, maps, lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _color(number: int, rows: Rows) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](number / max(1, len(rows) - 1) * 0.9)


def _points(axis: Any, rows: Rows, keys: dict[str, str], title: str) -> None:
    """A point a row and key: the axis need not start at 0, and small differences are seen."""
    for (label, key), style in zip(keys.items(), ("o", "D"), strict=False):
        values = [math.nan if row[key] is None else row[key] for row in rows]
        axis.plot(range(len(rows)), values, style, label=label)
    axis.legend(fontsize=7)
    labels = [row["label"].replace("partial ", "") for row in rows]
    axis.set_xticks(range(len(rows)), labels, rotation=30, ha="right", fontsize=7)
    axis.grid(axis="y", alpha=0.3)
    axis.set_title(title, fontsize=9)


def _curves(axis: Any, rows: Rows, key: str, title: str) -> None:
    for number, row in enumerate(rows):
        turned = row["rotation"]
        axis.plot(
            turned["degrees"], turned[key], color=_color(number, rows), label=row["label"], lw=1.2
        )
    axis.set_xlabel("rotation, degrees", fontsize=8)
    if key == "accuracy":  # the same names as in the other, where curves leave no room
        axis.legend(fontsize=6)
    axis.set_title(f"rotated MNIST: {title}", fontsize=9)


def _costs(axis: Any, rows: Rows) -> None:
    for number, row in enumerate(rows):
        axis.plot(
            row["flops"], row["accuracy"], "o", color=_color(number, rows), label=row["label"]
        )
    axis.set_xlabel("training FLOPs, that of the point estimate included", fontsize=8)
    axis.legend(fontsize=6)
    axis.set_title("accuracy against training FLOPs", fontsize=9)


def _maps(figure: Any, rows: Rows, lines: int) -> None:
    """Every map with a scale of its own: the mean grows with the rate."""
    axes = figure.subplots(lines, COLUMNS, squeeze=False).flatten()
    figure.suptitle("sigma of the first layer, mean over its units", fontsize=9)
    for axis, row in zip(axes, rows, strict=False):
        shown = axis.imshow(row["sigma"], cmap="inferno")
        figure.colorbar(shown, ax=axis, shrink=0.8)
        axis.set_title(row["label"], fontsize=8)
    for axis in axes:
        axis.set_axis_off()
