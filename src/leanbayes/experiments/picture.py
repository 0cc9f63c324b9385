"""Pictures of experiments; needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from leanbayes.errors import ConfigError
from leanbayes.experiments.ablations_picture import draw_ablations
from leanbayes.experiments.adversarial_ood_picture import draw_adversarial
from leanbayes.experiments.fashion_widths_picture import draw_widths
from leanbayes.experiments.mnist_rates_picture import draw_rates
from leanbayes.experiments.verification_picture import draw_roc

COLUMNS = 4


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The picture of the experiment that the rows come from, known by what they hold."""
    for key, drawing in DRAWINGS.items():
        if any(key in row for row in rows):
            drawing(rows, path)
            return
    raise ConfigError("picture: this experiment has nothing to draw")


def draw_curves(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel a row that holds a curve: mean, three epistemic std in grey, the training points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = [row for row in rows if "epistemic_std" in row]
    lines = -(-len(curves) // COLUMNS)
    figure = Figure(figsize=(4 * COLUMNS, 2.6 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, COLUMNS, squeeze=False, sharex=True, sharey=True).flatten()
    for axis, row in zip(axes, curves, strict=False):
        _panel(axis, row)
    axes[0].legend(fontsize=7)
    for axis in axes[len(curves) :]:
        axis.set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _panel(axis: Any, row: dict[str, Any]) -> None:
    x, mean, std = row["x"], row["mean"], row["epistemic_std"]
    low = [m - 3 * s for m, s in zip(mean, std, strict=True)]
    high = [m + 3 * s for m, s in zip(mean, std, strict=True)]
    axis.fill_between(x, low, high, color="0.8", label="3 epistemic std")
    axis.plot(x, mean, color="#b2182b", linewidth=1, label="mean")
    truth = [v**3 for v in x]
    axis.plot(x, truth, color="#2166ac", linewidth=1, linestyle="--", label="x^3")
    points = zip(*row["points"], strict=True)
    axis.plot(*points, ".", color="black", markersize=3, label="training points")
    axis.set_ylim(-250, 250)
    growth = row["growth"]
    tail = "" if growth is None else f" (std x {growth:.1f} outside)"
    axis.set_title(row["label"] + tail, fontsize=8)


DRAWINGS: Final[Mapping[str, Callable[[Sequence[dict[str, Any]], Path], None]]] = {
    "ablation": draw_ablations,  # a file each, beside the one that is named
    "epistemic_std": draw_curves,
    "histograms": draw_adversarial,
    "roc": draw_roc,
    "rotation": draw_rates,
    "width": draw_widths,
}
