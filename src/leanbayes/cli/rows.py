"""A prediction as rows of a table, one an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression

Row = dict[str, Any]
COVERED = 0.95  # by low to high


def rows_of(names: Sequence[str], found: Prediction, classes: Sequence[str]) -> list[Row]:
    """Rows with the columns of the task.

    Classes: file, label, confidence, total, aleatoric, epistemic; of dense outputs the most common
    label and the means over all elements. Regression: mean, std, low and high (95 %), and the two
    variances, a set of columns a target.
    """
    match found:
        case Classification():
            columns = _labelled(found, classes)
        case BinaryClassification():
            columns = _binary(found, classes)
        case Regression():
            columns = _numbers(found)
        case _:
            raise TypeError(f"no table for {type(found).__name__}")
    return [
        {"file": name, **{key: values[at] for key, values in columns.items()}}
        for at, name in enumerate(names)
    ]


def _labelled(found: Classification, classes: Sequence[str]) -> Mapping[str, list[Any]]:
    labels = found.label if found.label.dim() == 1 else found.label.flatten(1).mode(1).values
    return {"label": [_name(i, classes) for i in labels.tolist()], **_uncertainty(found)}


def _binary(found: BinaryClassification, classes: Sequence[str]) -> Mapping[str, list[Any]]:
    if found.probs.dim() == 1 or found.probs.shape[1] == 1:
        labels = [_name(i, classes) for i in found.label.flatten().tolist()]
        probs = found.probs.flatten().tolist()
        return {"label": labels, "probability": probs, **_uncertainty(found)}
    targets = found.probs.flatten(1).unbind(1)
    named = {f"probability_{at}": values.tolist() for at, values in enumerate(targets)}
    return {**named, **_uncertainty(found)}


def _uncertainty(found: Classification | BinaryClassification) -> dict[str, list[Any]]:
    names = ("confidence", "total", "aleatoric", "epistemic")
    return {name: _by_row(getattr(found, name)) for name in names}


def _by_row(values: Tensor) -> list[Any]:
    return (values if values.dim() == 1 else values.flatten(1).mean(1)).tolist()


def _numbers(found: Regression) -> Mapping[str, list[Any]]:
    low, high = found.interval(COVERED)
    named = {"mean": found.mean, "std": found.std, "low": low, "high": high}
    named |= {"total": found.total, "aleatoric": found.aleatoric, "epistemic": found.epistemic}
    if found.mean.dim() == 1 or found.mean.shape[1] == 1:
        return {name: values.flatten().tolist() for name, values in named.items()}
    return {
        f"{name}_{at}": column.tolist()
        for name, values in named.items()
        for at, column in enumerate(values.flatten(1).unbind(1))
    }


def _name(label: int, classes: Sequence[str]) -> str:
    return classes[label] if label < len(classes) else str(label)
