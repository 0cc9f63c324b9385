"""The most and the least certain images of a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from leanbayes.evaluation.asked import Asked
from leanbayes.evaluation.part import Batch, rows_at
from leanbayes.evaluation.png import data_uri
from leanbayes.evaluation.split import Split
from leanbayes.prediction import BinaryClassification, Classification, Prediction


def examples(asked: Asked, split: Split, table: Tensor) -> dict[str, list[Any]] | None:
    """So many of each as the suite says; None where inputs are no images with one label each.

    Args:
        asked: The model, which is asked once more about these rows.
        split: A clean one.
        table: Uncertainty of its rows, [N, 3].
    """
    count = min(asked.suite.examples, len(table))
    x, _ = rows_at(split.part, [0])
    image = isinstance(x, Tensor) and x.dim() == 4 and x.shape[1] in (1, 3)
    if count == 0 or not image or asked.suite.task not in ("classification", "binary"):
        return None
    order = table[:, 0].argsort(stable=True).tolist()
    chosen = {"certain": order[:count], "uncertain": order[::-1][:count]}
    return {name: _shown(asked, split, rows) for name, rows in chosen.items()}


def _shown(asked: Asked, split: Split, rows: list[int]) -> list[dict[str, Any]]:
    x, y = rows_at(split.part, rows)
    found = asked.predict(asked.inputs(split, Batch(0, x, y))).to("cpu")
    pixels = x if split.scale is None else split.scale.undo(x)
    assert y is not None
    labels = _labels(found).tolist()
    return [
        {
            "image": data_uri(pixels[at]),
            "label": _name(labels[at], asked.suite.classes),
            "target": _name(int(y[at]), asked.suite.classes),
            **_numbers(found, at),
        }
        for at in range(len(rows))
    ]


def _numbers(found: Prediction, at: int) -> dict[str, float]:
    names = ("confidence", "total", "epistemic")
    return {name: float(getattr(found, name)[at].mean()) for name in names}


def _labels(found: Prediction) -> Tensor:
    assert isinstance(found, (Classification, BinaryClassification))
    return found.label.reshape(len(found))


def _name(label: int, classes: Sequence[str]) -> str:
    return classes[label] if 0 <= label < len(classes) else str(label)
