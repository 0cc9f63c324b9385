"""What is added up of one split: scores, and where asked for the sweep over samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from leanbayes.errors import DataError
from leanbayes.evaluation.asked import Asked
from leanbayes.evaluation.dense import DenseScore
from leanbayes.evaluation.numbers import NumberScore
from leanbayes.evaluation.part import Batch, batches_of, rows_at, share_of
from leanbayes.evaluation.scores import LabelScore, Score
from leanbayes.evaluation.split import Split
from leanbayes.evaluation.suite import Suite
from leanbayes.evaluation.sweep import Sweep
from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression


class Tally:
    """Scores of a split, and the sweep; begun by its first prediction."""

    def __init__(self, score: Score, task: str, sweep: Sweep | None) -> None:
        self.score, self.task, self.sweep = score, task, sweep

    def add(self, found: Prediction, target: Tensor | None) -> None:
        """Take a batch."""
        self.score.add(found, target)
        if self.sweep is not None:
            self.sweep.add(found, target)

    def merge(self, other: Self) -> None:
        """Take over what was seen of the rows that come next."""
        self.score.merge(other.score)
        if self.sweep is not None and other.sweep is not None:
            self.sweep.merge(other.sweep)

    def figures(self) -> dict[str, float]:
        """Of the scores."""
        return self.score.figures()

    def curves(self) -> dict[str, Any]:
        """Of the scores and of the sweep."""
        swept = {} if self.sweep is None else {"samples": self.sweep.curve()}
        return {**self.score.curves(), **swept}


def tally_of(
    asked: Asked, split: Split, rank: int, world: int, advance: Callable[[int], None]
) -> Tally | None:
    """This process' rows of a split; None where it has none.

    Args:
        asked: The model and how it is asked.
        split: The split.
        rank: Of this process among those that share the rows.
        world: How many share them.
        advance: Told the cost of every batch.
    """
    asked, keep = asked.on(split), keeps_samples(asked.suite, split)
    size = asked.rows_of_pass(rows_at(split.part, [0])[0], keep)
    tally = None
    for batch in batches_of(split.part, share_of(split.count, size, rank, world), size):
        with warnings.catch_warnings():
            if split.is_limited:  # fewer samples than members, where it says so
                warnings.simplefilter("ignore")
            found = _predicted(asked, split, batch, keep)
        dense = isinstance(found, Classification) and found.probs.dim() > 2
        found = found if dense else found.to("cpu")
        tally = tally or _begun(asked, split, found, keep)
        tally.add(found, None if split.kind == "foreign" else batch.y)
        advance(len(found) * split.price)
    return tally


def keeps_samples(suite: Suite, split: Split) -> bool:
    """True for clean rows whose draws are looked at one by one; of dense outputs for a sweep."""
    return split.kind == "clean" and (suite.sweep or suite.task in ("classification", "binary"))


def _predicted(asked: Asked, split: Split, batch: Batch, keep: bool) -> Prediction:
    x = asked.inputs(split, batch)
    try:
        return asked.predict(x, keep=keep)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if split.kind != "foreign":
            raise
        shape = "x".join(map(str, x.shape[1:])) if isinstance(x, Tensor) else type(x).__name__
        raise DataError(
            f"split {split.name!r}: the network cannot run on inputs of {shape} ({error}); bring "
            "foreign data to the shape of its own"
        ) from error


def _begun(asked: Asked, split: Split, found: Prediction, keep: bool) -> Tally:
    score, task = _score(found, asked.suite, asked.inner.method.distinct_draws)
    if split.kind == "foreign":
        score = Score(score.classes)
    return Tally(score, task, Sweep(asked) if keep and asked.suite.sweep else None)


def _score(found: Prediction, suite: Suite, distinct: int) -> tuple[Score, str]:
    match found:
        case Classification() if found.probs.dim() > 2:
            classes = found.probs.shape[1]
            return DenseScore(classes, suite.ignore_index, suite.classes), "segmentation"
        case Classification():
            return LabelScore(found.probs.shape[1], suite.ignore_index, distinct), "classification"
        case BinaryClassification():
            return LabelScore(2, suite.ignore_index, distinct), "binary"
        case Regression():
            return NumberScore(), "regression"
        case _:
            raise TypeError(f"no figures for {type(found).__name__}")
