"""Segmentation and its uncertainty in one picture: image, truth, and what every method says of it.

Needs matplotlib; nothing of it is imported before something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from leanbayes.cli.segmentation_layout import MAPS, WIDTH, Places, class_colours
from leanbayes.data.files import Array, optional
from leanbayes.errors import ConfigError
from leanbayes.prediction import Classification, is_label
from leanbayes.train.folder import write_file

SUFFIXES: Final = (".png", ".pdf", ".svg")
HORIZONTAL: Final = {"orientation": "horizontal", "extend": "max"}
NOTHING: Final = 1e-6  # nats that count as none: rounding
WRONG, RIGHT, NO_LABEL = "#d55e00", "#d9d9d9", "#ffffff"  # vermilion: seen by everybody on grey
SHADES: Final = "cividis"  # of uncertainty: its order is seen without telling colours apart
SHARE: Final = 99.5  # per cent of the pixels within a scale of uncertainty; a few would stretch it


def draw_segmentation(  # noqa: PLR0913
    images: Tensor,
    truth: Tensor,
    predictions: Mapping[str, Classification],
    classes: Sequence[str],
    path: Path,
    *,
    ignore_index: int = -100,
    names: Sequence[str] = (),
    title: str | None = None,
) -> None:
    """Rows of images; columns: image, truth, and a block of four maps a method.

    A block has the prediction, total uncertainty (entropy of the mean), its epistemic part (mutual
    information of label and weights; both in nats, on scales that all methods share), and the
    pixels that are wrong.

    Args:
        images: [N, 3, H, W] or [N, 1, H, W] in [0, 1].
        truth: Labels [N, H, W].
        predictions: Dense predictions of these images, by the name of their method.
        classes: Name of every label.
        path: A .png, .pdf or .svg, which is there whole or not at all.
        ignore_index: The label that means "no label": left white.
        names: Of the images, beside their rows.
        title: Over all.

    Raises:
        ConfigError: matplotlib is missing, the file is of another kind, or shapes do not fit.
    """
    check_picture(path)
    _check_shapes(images, truth, predictions)
    sheet = _Sheet(images, truth, predictions, classes, ignore_index)
    sheet.draw(names)
    if title is not None:
        sheet.figure.suptitle(title, fontsize=14, y=1 - 0.12 / sheet.places.size[1], va="top")
    stream = io.BytesIO()
    sheet.figure.savefig(stream, format=path.suffix[1:], dpi=110)
    write_file(path, stream.getvalue())


def check_picture(path: Path) -> None:
    """Fail before the work, not after it."""
    if path.suffix not in SUFFIXES or path.is_dir():
        kinds = ", ".join(SUFFIXES)
        raise ConfigError(f"a picture is a file of {kinds}; found {str(path)!r}")
    optional("matplotlib", "matplotlib")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"picture {path} cannot be written: {error.strerror}") from None


def spread(count: int, wanted: int) -> list[int]:
    """Rows evenly over `count`: the middles of equal pieces.

    Example:
        >>> spread(12, 3)
        [2, 6, 10]
        >>> spread(2, 3)
        [0, 1]
    """
    wanted = min(wanted, count)
    return [(2 * at + 1) * count // (2 * wanted) for at in range(wanted)]


@dataclass
class _Sheet:
    """The figure under way, with what all panels share."""

    images: Tensor
    truth: Tensor
    predictions: Mapping[str, Classification]
    classes: Sequence[str]
    ignore_index: int

    @cached_property
    def places(self) -> Places:
        """Where everything lies."""
        height, width = self.images.shape[-2:]
        lines = -(-(len(self.classes) + 3) // self._in_a_line)
        return Places(len(self.images), len(self.predictions), WIDTH * height / width, lines)

    @property
    def _in_a_line(self) -> int:
        """Entries of the legend."""
        return 5 * (1 + len(self.predictions))

    @cached_property
    def figure(self) -> Any:
        """The sheet; without pyplot and its global state."""
        figure = optional("matplotlib.figure", "matplotlib").Figure(self.places.size)
        optional("matplotlib.backends.backend_agg", "matplotlib").FigureCanvasAgg(figure)
        return figure

    @cached_property
    def colours(self) -> Array:
        """RGB of every class, [C, 3], and of elements without a label behind them."""
        return _rgb([*class_colours(self.classes), NO_LABEL])

    def draw(self, names: Sequence[str]) -> None:
        """All panels, the scales under their columns, the legend."""
        for row in range(len(self.images)):
            self._scene(row, names)
        tops = {name: self._top(name) for name in ("total", "epistemic")}
        for block, method in enumerate(self.predictions):
            self._block(2 + len(MAPS) * block, method, tops)
        self._legend()

    def _scene(self, row: int, names: Sequence[str]) -> None:
        pixels = self.images[row].movedim(0, -1).clamp(0, 1).expand(-1, -1, 3)
        image = self._panel(row, 0, "image", pixels.cpu().numpy())
        self._panel(row, 1, "truth", self._painted(self.truth[row]))
        if row < len(names):
            image.set_ylabel(names[row], fontsize=10)

    def _block(self, start: int, method: str, tops: Mapping[str, float]) -> None:
        found = self.predictions[method]
        if len(self.predictions) > 1:
            words = {"fontsize": 13, "fontweight": "bold", "va": "bottom"}
            self.figure.text(*self.places.head(start), method, **words)
        for row in range(len(self.images)):
            self._panel(row, start, MAPS[0], self._painted(found.label[row]))
            self._mistakes(row, start + 3, found.label[row])
        for at, (name, top) in enumerate(tops.items(), start=1):
            self._shaded(start + at, MAPS[at], getattr(found, name).clamp_min(0), top)

    def _shaded(self, column: int, name: str, values: Tensor, top: float) -> None:
        """Maps of an uncertainty, and their scale below."""
        how = {"cmap": SHADES, "vmin": 0, "vmax": top}
        for row, value in enumerate(values.float().cpu().numpy()):
            axes = self._panel(row, column, name, value, **how)
            if value.max() < NOTHING:
                place = {"transform": axes.transAxes, "ha": "center", "va": "center"}
                axes.text(0.5, 0.5, "0 everywhere", color="white", fontsize=10, **place)
        bar = self.figure.colorbar(
            axes.images[0], cax=self._axes(self.places.scale(column)), **HORIZONTAL
        )
        bar.locator = optional("matplotlib.ticker", "matplotlib").MaxNLocator(4)
        bar.ax.tick_params(labelsize=9)
        bar.set_label("nats", fontsize=9, labelpad=0)

    def _mistakes(self, row: int, column: int, label: Tensor) -> None:
        truth = self.truth[row].to(label.device)
        known = is_label(truth, self.ignore_index)
        wrong = (label != truth) & known
        kind = torch.where(known, wrong.long(), 2).cpu().numpy()
        axes = self._panel(row, column, MAPS[3], _rgb([RIGHT, WRONG, NO_LABEL])[kind])
        share = 100 * int(wrong.sum()) / max(1, int(known.sum()))
        box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.5}
        axes.text(0.03, 0.04, f"{share:.1f} %", transform=axes.transAxes, fontsize=9, bbox=box)

    def _painted(self, labels: Tensor) -> Array:
        """Labels as colours; whatever is no class has none."""
        known = (labels >= 0) & (labels < len(self.classes)) & is_label(labels, self.ignore_index)
        painted: Array = self.colours[torch.where(known, labels, len(self.classes)).cpu().numpy()]
        return painted

    def _top(self, name: str) -> float:
        """Upper end of a scale, the same for all methods; 1 where nothing is uncertain."""
        every = [getattr(p, name).flatten().cpu().numpy() for p in self.predictions.values()]
        top = float(np.percentile(np.concatenate(every), SHARE))
        return top if top > NOTHING else 1.0

    def _panel(self, row: int, column: int, name: str, pixels: Array, **how: Any) -> Any:
        axes = self._axes(self.places.panel(row, column))
        axes.imshow(pixels, interpolation="nearest", aspect="auto", **how)
        axes.set_xticks([])
        axes.set_yticks([])
        if row == 0:
            axes.set_title(name, fontsize=11, pad=4)
        return axes

    def _axes(self, place: tuple[float, float, float, float]) -> Any:
        axes = self.figure.add_axes(place)
        for spine in axes.spines.values():
            spine.set(color="0.6", linewidth=0.6)
        return axes

    def _legend(self) -> None:
        patch = optional("matplotlib.patches", "matplotlib").Patch
        named = {**dict(zip(self.classes, self.colours, strict=False)), "no label": NO_LABEL}
        named |= {"right": RIGHT, "wrong": WRONG}
        handles = [
            patch(facecolor=c, edgecolor="0.6", linewidth=0.6, label=n) for n, c in named.items()
        ]
        how = {"loc": "lower center", "frameon": False, "fontsize": 10, "borderaxespad": 0.2}
        self.figure.legend(handles=handles, ncols=min(len(handles), self._in_a_line), **how)


def _rgb(colours: Sequence[Any]) -> Array:
    return np.array([optional("matplotlib.colors", "matplotlib").to_rgb(c) for c in colours])


def _check_shapes(images: Tensor, truth: Tensor, predictions: Mapping[str, Classification]) -> None:
    maps = (len(images), *images.shape[-2:])
    if images.dim() != 4 or images.shape[1] not in (1, 3) or len(images) == 0:
        raise ConfigError(f"images are {tuple(images.shape)}; expected [N, 3, H, W], N at least 1")
    found = {"truth": truth, **{name: p.label for name, p in predictions.items()}}
    for name, labels in found.items():
        if tuple(labels.shape) != maps:
            raise ConfigError(f"{name} has labels {tuple(labels.shape)}; expected {maps}")
    if not predictions:
        raise ConfigError("nothing to draw: expected predictions of at least one method")
