"""The pictures of `ablations`: a file for every ablation that has rows, figures by its setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]
Rows = Sequence[Row]
Points = list[tuple[float, Row]]

# Figure, its name on the axis, and what it is multiplied by.
ACCURACY: Final = ("accuracy", "accuracy, %", 100.0)
NLL: Final = ("nll", "NLL, nats", 1.0)
ECE: Final = ("ece", "ECE, %", 100.0)
NOTICED: Final = ("ap_pgd_epistemic", "AP of PGD images by mutual information", 1.0)
QUALITY: Final = (ACCURACY, NLL, ECE)
COLOURS: Final = ("#2166ac", "#b2182b", "#e08214", "#1b7837", "#762a83")
START: Final = "start"
CEILING: Final = math.log(2)  # of the mutual information of two draws: a margin of None


def draw_ablations(rows: Rows, path: Path) -> None:
    """Write `NAME_ABLATION.png` beside `path`, which is `NAME.png`, for every ablation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start = next((row for row in rows if row["ablation"] == START), None)
    for name, drawing in DRAWINGS.items():
        chosen = [row for row in rows if row["ablation"] == name]
        if chosen:
            drawing(chosen, start).savefig(path.with_name(f"{path.stem}_{name}.png"), dpi=100)


def _figure(panels: int) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * panels, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    for axis in axes:
        axis.grid(alpha=0.3)
    return figure, axes


def _by_series(rows: Rows) -> dict[str, list[Row]]:
    """Rows of a line, under the name of the line."""
    names = dict.fromkeys(row["series"] for row in rows)
    return {name: [row for row in rows if row["series"] == name] for name in names}


def _reference(axis: Any, start: Row | None, key: str, factor: float) -> None:
    """A line at what the trained network has."""
    if start is not None and key in start:
        height = factor * start[key]
        axis.axhline(height, color="0.5", linewidth=1, linestyle=":", label="trained network")


def _finish(axes: Sequence[Any], x: str) -> None:
    for axis in axes:
        axis.set_xlabel(x, fontsize=9)
        axis.legend(fontsize=7)


def _ticks(axis: Any, places: Sequence[float], labels: Sequence[str]) -> None:
    axis.set_xticks(list(places), list(labels), fontsize=8)
    axis.minorticks_off()


def _lines(x: str, *, log: bool = True) -> Callable[[Rows, Row | None], Any]:
    """A drawing of quality against a number, a line a series."""

    def drawing(rows: Rows, start: Row | None) -> Any:
        figure, axes = _figure(len(QUALITY))
        for axis, (key, title, factor) in zip(axes, QUALITY, strict=True):
            for (name, line), colour in zip(_by_series(rows).items(), COLOURS, strict=False):
                values = [factor * row[key] for row in line]
                axis.plot([row["x"] for row in line], values, "o-", color=colour, label=name)
            _reference(axis, start, key, factor)
            axis.set_ylabel(title, fontsize=9)
            places = sorted({row["x"] for row in rows})
            if log:
                axis.set_xscale("log")
            _ticks(axis, places, [f"{place:g}" for place in places])
        _finish(axes, x)
        return figure

    return drawing


def _draw_samples(rows: Rows, start: Row | None) -> Any:
    """Averages as lines, single draws with their spread at 1, mean networks as dashed levels."""
    figure, axes = _figure(len(QUALITY))
    for axis, (key, title, factor) in zip(axes, QUALITY, strict=True):
        for number, line in enumerate(_by_series(rows).values()):
            _samples_of(axis, line, (key, factor), number)
        _reference(axis, start, key, factor)
        axis.set_xscale("log")
        places = sorted({row["x"] for row in rows})
        _ticks(axis, places, [f"{place:g}" for place in places])
        axis.set_ylabel(title, fontsize=9)
    _finish(axes, "draws (squares: single ones; dashed: mean network)")
    return figure


def _samples_of(axis: Any, line: Rows, what: tuple[str, float], number: int) -> None:
    (key, factor), colour, name = what, COLOURS[number], line[0]["series"]
    beside = 0.9 * 0.93**number  # left of one draw, so that marks of methods lie apart
    kinds = {kind: [row for row in line if row["kind"] == kind] for kind in KINDS}
    places = [row["x"] for row in kinds["average"]]
    axis.plot(places, [factor * row[key] for row in kinds["average"]], "o-", c=colour, label=name)
    for row in kinds["single draws"]:
        spread = factor * row[f"{key}_sd"]
        axis.errorbar(
            [beside], [factor * row[key]], [spread], color=colour, marker="s", ms=4, capsize=2
        )
    for row in kinds["mean network"]:
        axis.axhline(factor * row[key], color=colour, linewidth=1, linestyle="--")


KINDS: Final = ("average", "single draws", "mean network")


def _draw_curve(rows: Rows, start: Row | None) -> Any:
    figure, axes = _figure(2)
    for axis, (key, title, factor) in zip(axes, (NLL, ACCURACY), strict=True):
        for row, colour in zip(rows, COLOURS, strict=False):
            curve, before = row["curve"], row["epochs_before"]
            label = row["series"] + (f" (after {before} epochs)" if before else "")
            values = [factor * value for value in curve[key]]
            axis.plot(curve["epoch"], values, "o-", markersize=3, color=colour, label=label)
        _reference(axis, start, key, factor)
        axis.set_ylabel(f"test {title}", fontsize=9)
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_yscale("log")  # the first epochs from scratch are far off
    for which in ("major", "minor"):
        axes[0].tick_params(axis="y", which=which, labelsize=8)
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if value < 1 else "")
    _finish(axes, "epoch")
    return figure


def _draw_gamma(rows: Rows, start: Row | None) -> Any:
    """No margin stands at the ceiling of the mutual information of two draws."""
    figure, axes = _figure(3)
    points: Points = sorted(
        ((CEILING if row["x"] is None else row["x"], row) for row in rows), key=lambda pair: pair[0]
    )
    labels = ["none" if row["x"] is None else f"{place:g}" for place, row in points]
    for axis, (key, title, factor) in zip(axes, (ACCURACY, NLL, NOTICED), strict=True):
        values = [factor * row[key] for _, row in points]
        axis.plot(
            [place for place, _ in points], values, "o-", color=COLOURS[0], label="mean_field"
        )
        _reference(axis, start, key, factor)
        _ticks(axis, [place for place, _ in points], labels)
        axis.set_ylabel(title, fontsize=9)
    axes[2].axhline(0.5, color="0.6", linewidth=1, linestyle=":", label="chance")
    _finish(axes, "margin gamma, nats (0: no regulariser; none: at ln 2)")
    return figure


def _draw_scratch(rows: Rows, start: Row | None) -> Any:
    """NLL by the seconds of the method, and by those of the network it starts from as well."""
    figure, axes = _figure(2)
    before = (start or {}).get("training_seconds") or 0.0
    for axis, added in zip(axes, (0.0, before), strict=True):
        for (name, line), colour in zip(_by_series(rows).items(), COLOURS, strict=False):
            more = added if name.endswith("fine-tuned") else 0.0
            places = [row["training_seconds"] + more for row in line]
            axis.plot(places, [row["nll"] for row in line], "o-", color=colour, label=name)
            for place, row in zip(places, line, strict=True):
                spot = (place, row["nll"])
                axis.annotate(
                    f"{row['x']:g} ep.", spot, (3, 3), textcoords="offset points", fontsize=7
                )
        axis.margins(x=0.15)  # room for the words beside the last marks
        _reference(axis, start, "nll", 1.0)
        axis.set_ylabel(NLL[1], fontsize=9)
    _finish(axes[:1], "training of the method, s")
    _finish(axes[1:], "training, that of the start included, s")
    return figure


def _draw_likelihood(rows: Rows, start: Row | None) -> Any:
    figure, axes = _figure(len(QUALITY))
    for axis, (key, title, factor) in zip(axes, QUALITY, strict=True):
        values = [factor * row[key] for row in rows]
        axis.plot(range(len(rows)), values, "o", color=COLOURS[0], label=rows[0]["series"])
        _reference(axis, start, key, factor)
        _ticks(axis, range(len(rows)), [row["x"] for row in rows])
        axis.set_xlim(-0.5, len(rows) - 0.5)
        axis.set_ylabel(title, fontsize=9)
    _finish(axes, "likelihood of the members")
    return figure


def _draw_factors(rows: Rows, start: Row | None) -> Any:  # noqa: ARG001
    """Clean and corrupted images side by side, a mark a side of the factors, none on another."""
    figure, axes = _figure(len(QUALITY))
    images = list(rows[0]["corrupted"])
    for axis, (key, title, factor) in zip(axes, QUALITY, strict=True):
        for number, (row, colour) in enumerate(zip(rows, COLOURS, strict=False)):
            values = [factor * row["corrupted"][name][key] for name in images]
            places = [at + BESIDE * (number - (len(rows) - 1) / 2) for at in range(len(images))]
            axis.plot(places, values, "o", markersize=5, color=colour, label=row["x"])
        _ticks(axis, range(len(images)), [name.replace("_", "\n") for name in images])
        axis.set_ylabel(title, fontsize=9)
    _finish(axes, "test images (random factors: in, out, both)")
    return figure


BESIDE: Final = 0.2  # between marks of one kind of images


DRAWINGS: Final[Mapping[str, Callable[[Rows, Row | None], Any]]] = {
    "factors": _draw_factors,
    "curve": _draw_curve,
    "samples": _draw_samples,
    "likelihood": _draw_likelihood,
    "rate": _lines("random parameters, %"),
    "gamma": _draw_gamma,
    "scratch": _draw_scratch,
    "members": _lines("members K"),
    "rank": _lines("rank of the factors", log=False),
}
