"""Adversarial inputs in one picture: mutual information before and after, and who notices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

Rows = Sequence[dict[str, Any]]

VARIATIONALS: Final = ("mean_field", "shared_ensemble")
COLOURS: Final = {"clean": "#2166ac", "noise": "#e08214", "pgd": "#b2182b"}
INPUTS: Final = {
    "pgd": ("PGD", "#b2182b"),
    "noise": ("noise", "#e08214"),
    "digits": ("digits", "0.6"),
}
BAR: Final = 0.27


def draw_adversarial(rows: Rows, path: Path) -> None:
    """Histograms of both variationals without and with the regulariser, and average precisions."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 6), layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(1, 2, width_ratios=(1.7, 1))
    by_label = {row["label"]: row for row in rows}
    axes = parts[0].subplots(2, 2, sharex=True)
    for line, name in zip(axes, VARIATIONALS, strict=True):
        for axis, label in zip(line, (name, f"{name}_reg"), strict=True):
            _histogram(axis, by_label.get(label), label)
    for axis in axes[1]:
        axis.set_xlabel("mutual information, nats")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of the images")
    _bars(parts[1].subplots(), rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _histogram(axis: Any, row: dict[str, Any] | None, label: str) -> None:
    """Shares of the images; the axis is logarithmic, for most clean ones lie in the first bin."""
    if row is None:
        axis.set_visible(False)
        return
    found = row["histograms"]
    for name, colour in COLOURS.items():
        total = max(1, sum(found[name]))
        shares = [count / total for count in found[name]]
        axis.stairs(shares, found["edges"], fill=True, alpha=0.25, color=colour)
        axis.stairs(shares, found["edges"], color=colour, linewidth=1.2, label=name)
    axis.set_yscale("log")
    axis.set_ylim(1e-3, 1.5)
    axis.set_title(f"{label}: AP of PGD {row['ap_pgd_epistemic']['mean']:.3f}", fontsize=10)
    axis.legend(fontsize=8)


def _bars(axis: Any, rows: Rows) -> None:
    """Average precision by mutual information, by entropy for a point; chance is one half."""
    for number, (name, (words, colour)) in enumerate(INPUTS.items()):
        found = [row[f"ap_{name}_{_kind(row)}"] for row in rows]
        places = [place + (number - 1) * BAR for place in range(len(rows))]
        errors = [value["error"] or 0.0 for value in found]
        means = [value["mean"] for value in found]
        axis.barh(places, means, BAR, xerr=errors, color=colour, label=words)
        for place, mean in zip(places, means, strict=True):
            axis.text(0.01, place, f"{mean:.2f}", va="center", fontsize=7, color="white")
    labels = [row["label"] + (" (entropy)" if _kind(row) == "total" else "") for row in rows]
    axis.set_yticks(range(len(rows)), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.05)
    axis.axvline(0.5, color="0.3", linewidth=1, linestyle=":")
    axis.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.05))
    axis.set_title("average precision by mutual information", fontsize=10)


def _kind(row: dict[str, Any]) -> str:
    return "total" if row["ap_pgd_epistemic"] is None else "epistemic"
