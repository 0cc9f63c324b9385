"""Verification in one picture: ROC curves of the pairs, and who notices foreign inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

Rows = Sequence[dict[str, Any]]

# A colour a method; its regularised kin has the same.
COLOURS: Final = {
    "pretrained": "black",
    "map": "0.55",
    "mc_dropout": "#e08214",
    "mean_field": "#b2182b",
    "shared_ensemble": "#2166ac",
}
PANELS: Final = {"noise_test": "noisy test images", "pgd": "adversarial images (PGD)"}


def draw_roc(rows: Rows, path: Path) -> None:
    """Curves of all rows with `roc` (regularised methods dashed), and a panel a kind of inputs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [row for row in rows if "roc" in row]
    panels = [name for name in PANELS if all(f"ap_{name}_total" in row for row in shown)]
    figure = Figure(figsize=(6 + 4.2 * len(panels), 5), layout="constrained")
    FigureCanvasAgg(figure)
    ratios = [1.3] + [1.0] * len(panels)
    axes = figure.subplots(1, 1 + len(panels), squeeze=False, width_ratios=ratios)[0]
    _curves(axes[0], shown)
    for axis, name in zip(axes[1:], panels, strict=True):
        _bars(axis, shown, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _colour(row: dict[str, Any]) -> str:
    return COLOURS.get(row["label"].removesuffix("_reg"), "0.3")


def _curves(axis: Any, rows: Rows) -> None:
    axis.plot([0, 1], [0, 1], color="0.9", linewidth=1)
    for row in rows:
        style = "--" if row.get("regularised") else "-"
        label = f"{row['label']} ({100 * row['verification']['mean']:.1f} %, {row['auroc']:.3f})"
        curve = row["roc"]["fpr"], row["roc"]["tpr"]
        axis.plot(*curve, style, color=_colour(row), linewidth=1.2, label=label)
    axis.set_xlabel("different pairs accepted")
    axis.set_ylabel("same pairs accepted")
    axis.set_title("pairs of unseen classes (accuracy, area)", fontsize=10)
    axis.legend(loc="lower right", fontsize=8)


def _bars(axis: Any, rows: Rows, name: str) -> None:
    """Average precision by epistemic uncertainty, by entropy for a point; chance is one half."""
    kinds = [_kind(row, name) for row in rows]
    values = [row[f"ap_{name}_{kind}"] for row, kind in zip(rows, kinds, strict=True)]
    hatches = ["//" if row.get("regularised") else "" for row in rows]
    colours = [_colour(row) for row in rows]
    axis.barh(range(len(rows)), values, color=colours, hatch=hatches, edgecolor="white")
    for place, value in enumerate(values):
        axis.text(value + 0.01, place, f"{value:.3f}", va="center", fontsize=8)
    marks = ["" if kind == "epistemic" else " (entropy)" for kind in kinds]
    labels = [row["label"] + mark for row, mark in zip(rows, marks, strict=True)]
    axis.set_yticks(range(len(rows)), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.12)
    axis.axvline(0.5, color="0.6", linewidth=1, linestyle=":")
    axis.set_title(f"average precision: {PANELS[name]}", fontsize=10)


def _kind(row: dict[str, Any], name: str) -> str:
    return "total" if row[f"ap_{name}_epistemic"] is None else "epistemic"
