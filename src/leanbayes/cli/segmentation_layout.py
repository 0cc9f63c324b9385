"""Where the panels of a picture of segmentation lie, and the colours of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from leanbayes.data.files import optional

MAPS: Final = ("prediction", "total uncertainty", "epistemic part", "wrong pixels")
WIDTH, GAP, BLOCK, LEFT, SCALE = 2.3, 0.06, 0.16, 0.32, 0.6  # inches

# Street scenes in the colours that Cityscapes made usual; CamVid has other words for some.
STREET: Final[Mapping[str, str]] = {
    "road": "#804080",
    "sidewalk": "#f423e8",
    "pavement": "#f423e8",
    "building": "#464646",
    "wall": "#66669c",
    "fence": "#be9999",
    "pole": "#999999",
    "traffic light": "#faaa1e",
    "traffic sign": "#dcdc00",
    "sign": "#dcdc00",
    "vegetation": "#6b8e23",
    "tree": "#6b8e23",
    "terrain": "#98fb98",
    "sky": "#4682b4",
    "person": "#dc143c",
    "pedestrian": "#dc143c",
    "rider": "#ff0000",
    "car": "#00008e",
    "truck": "#000046",
    "bus": "#003c64",
    "train": "#005064",
    "motorcycle": "#0000e6",
    "bicycle": "#770b20",
    "bicyclist": "#00c8c8",
}


@dataclass(frozen=True)
class Places:
    """Where panels lie, in inches: all of one size, whatever stands around them."""

    rows: int
    blocks: int
    height: float  # of a panel
    legend: int  # lines

    @property
    def columns(self) -> list[float]:
        """Left edges: image and truth, then four a block after a gap."""
        at = [LEFT + k * (WIDTH + GAP) for k in range(2 + len(MAPS) * self.blocks)]
        return [x + BLOCK * ((k + 2) // len(MAPS)) for k, x in enumerate(at)]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the sheet."""
        panels = self.rows * (self.height + GAP)
        return self.columns[-1] + WIDTH + GAP, self._head + panels + SCALE + 0.24 * self.legend

    @property
    def _head(self) -> float:
        return 0.7 if self.blocks == 1 else 0.98  # title, heads of blocks, heads of columns

    def panel(self, row: int, column: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height as parts of the sheet."""
        top = self._head + row * (self.height + GAP)
        return self._part(self.columns[column], top, self.height)

    def scale(self, column: int) -> tuple[float, float, float, float]:
        """A bar under a column, a little narrower, so that numbers at its ends have room."""
        top = self._head + self.rows * (self.height + GAP)
        left, bottom, width, height = self._part(self.columns[column], top, 0.12)
        return left + 0.06 * width, bottom, 0.88 * width, height

    def head(self, column: int) -> tuple[float, float]:
        """Where the head of a block that begins with this column stands."""
        wide, high = self.size
        return self.columns[column] / wide, 1 - (self._head - 0.3) / high

    def _part(self, left: float, top: float, height: float) -> tuple[float, float, float, float]:
        wide, high = self.size
        return left / wide, 1 - (top + height) / high, WIDTH / wide, height / high


def class_colours(classes: Sequence[str]) -> list[Any]:
    """A colour a class: those of street scenes where all names are known, else a list of its own.

    Example:
        >>> class_colours(["sky", "road"])
        ['#4682b4', '#804080']
    """
    if all(name in STREET for name in classes):
        return [STREET[name] for name in classes]
    maps = optional("matplotlib", "matplotlib").colormaps
    if len(classes) <= 20:
        return list(maps["tab20"].colors[: len(classes)])
    return [maps["turbo"](at / (len(classes) - 1))[:3] for at in range(len(classes))]
