"""The picture of the demo: the images that a model is most and least certain of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from leanbayes.prediction import Classification

COLUMNS = 8
RIGHT, WRONG = "#1b7837", "#b2182b"


@dataclass(frozen=True)
class Shown:
    """One image [H, W], its predicted and true label, its total uncertainty in nats."""

    image: Tensor
    predicted: str
    true: str
    nats: float

    @property
    def right(self) -> bool:
        """True where the prediction is."""
        return self.predicted == self.true

    @property
    def title(self) -> str:
        """Three lines: the prediction, whether it is true, how uncertain it is."""
        verdict = "\N{CHECK MARK} right" if self.right else f"\N{BALLOT X} true: {self.true}"
        nats = f"{self.nats:.2f}" if self.nats >= 0.005 else f"{self.nats:.0e}"
        return f"{self.predicted}\n{verdict}\n{nats} nats"


def ranked(
    p: Classification, images: Tensor, labels: Tensor, classes: tuple[str, ...]
) -> tuple[list[Shown], list[Shown]]:
    """The most certain images, the surest first, and the least certain, the least sure first."""

    def shown(rows: Tensor) -> list[Shown]:
        return [
            Shown(images[i, 0], classes[p.label[i]], classes[labels[i]], p.total[i].item())
            for i in rows.tolist()
        ]

    order = p.total.argsort(stable=True)
    return shown(order[:COLUMNS]), shown(order.flip(0)[:COLUMNS])


def draw_certain(path: Path, certain: list[Shown], uncertain: list[Shown], method: str) -> None:
    """Write the two rows as a PNG, without pyplot and its global state."""
    figure = Figure(figsize=(1.65 * COLUMNS, 5.9), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"How sure is {method} of these test images? "
        f"Total uncertainty, from 0 to ln 10 = 2.30 nats",
        fontsize=14,
    )
    rows: Any = figure.subfigures(2, 1)
    _draw_row(rows[0], "Most certain", certain)
    _draw_row(rows[1], "Least certain", uncertain)
    figure.savefig(path, dpi=110)


def _draw_row(figure: Any, heading: str, row: list[Shown]) -> None:
    figure.suptitle(heading, fontsize=13, fontweight="bold", x=0.008, ha="left")
    for axes, shown in zip(figure.subplots(1, COLUMNS), row, strict=True):
        axes.imshow(shown.image.numpy(), cmap="gray_r", vmin=0, vmax=1)
        axes.set_title(shown.title, fontsize=10.5, color=RIGHT if shown.right else WRONG)
        axes.set_xticks([])
        axes.set_yticks([])
