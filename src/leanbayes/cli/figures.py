"""Figures of a model on data: predictions in batches, scored by task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

import leanbayes as lb
from leanbayes.cli.card import Card
from leanbayes.cli.row_scores import row_scores
from leanbayes.cli.tally import DenseTally
from leanbayes.data.dataset import Normalize
from leanbayes.errors import DataError
from leanbayes.evaluation.numbers import numbers_of
from leanbayes.evaluation.rows import row_means
from leanbayes.evaluation.scores import elements, errors_found
from leanbayes.model import BayesianModel
from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression

EMPTY = "the data hold no examples"
KINDS = ("total", "epistemic")  # of uncertainty that tells foreign examples apart
ELEMENTS = 2**23  # probabilities of a pass of dense outputs: 64 MB in float64


class Tally(Protocol):
    """Takes predictions batch by batch, and says at the end how good they were."""

    def add(self, found: Any, target: Tensor) -> None:
        """Take a batch."""

    def figures(self) -> dict[str, float]:
        """Figures of all that was added."""


@dataclass(frozen=True)
class Uncertainty:
    """Total and epistemic uncertainty of rows [B]; of dense outputs the means over elements."""

    total: Tensor
    epistemic: Tensor

    @staticmethod
    def of(found: Prediction) -> Uncertainty:
        """That of a prediction."""
        return Uncertainty(*(row_means(getattr(found, name)) for name in KINDS))

    @staticmethod
    def cat(parts: list[Uncertainty]) -> Uncertainty:
        """Those of consecutive batches."""
        return Uncertainty(*(torch.cat([getattr(part, name) for part in parts]) for name in KINDS))


@dataclass(frozen=True)
class Judged:
    """What a model makes of a part: its rows, the figures, uncertainty and scores of every row."""

    count: int
    figures: dict[str, float]
    uncertainty: Uncertainty
    rows: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Judge:
    """A model, and how it predicts.

    Attributes:
        card: Of the run.
        model: The run's.
        batch: Rows of a pass; of dense outputs at most so many as `rows_of_pass` says.
        options: Of `lb.predict`.
    """

    card: Card
    model: BayesianModel
    batch: int
    options: Mapping[str, Any]

    def scored(self, part: Any, scale: Normalize | None, ignore_index: int) -> dict[str, float]:
        """Figures of a part, as `judged` has them."""
        return self.judged(part, scale, ignore_index).figures

    def judged(self, part: Any, scale: Normalize | None, ignore_index: int) -> Judged:
        """Figures and uncertainty of a part; dense outputs are counted and dropped by batches.

        Args:
            part: Inputs and targets, or a Dataset of them.
            scale: Of the inputs, which are brought to that of the run.
            ignore_index: The label that means "no label".
        """
        tally: Tally | None = None
        rows = []
        for found, target in self._passes(part, scale):
            tally = tally or self._tally(found, ignore_index)
            tally.add(found, target)
            rows.append(Uncertainty.of(found))
        if tally is None:
            raise DataError(EMPTY)
        every = Uncertainty.cat(rows)
        figures = tally.figures()  # looks at the labels first
        return Judged(
            len(every.total), figures, every, tally.rows() if isinstance(tally, Kept) else {}
        )

    def uncertainty(self, part: Any, scale: Normalize | None) -> Uncertainty:
        """Uncertainty of every row of a part, whose targets do not count."""
        rows = [Uncertainty.of(found) for found, _ in self._passes(part, scale)]
        if not rows:
            raise DataError(EMPTY)
        return Uncertainty.cat(rows)

    def predicted(self, part: Any, scale: Normalize | None) -> tuple[Prediction, Tensor]:
        """Prediction and targets of a whole part, all of it in memory."""
        passes = list(self._passes(part, scale))
        if not passes:
            raise DataError(EMPTY)
        found = [prediction for prediction, _ in passes]
        return type(found[0]).cat(found), torch.cat([target for _, target in passes])

    def figures(self, found: Prediction, target: Tensor, ignore_index: int) -> dict[str, float]:
        """Figures of a prediction that is there."""
        tally = self._tally(found, ignore_index)
        tally.add(found, target)
        return tally.figures()

    def _tally(self, found: Prediction, ignore_index: int) -> Tally:
        if isinstance(found, Classification) and found.probs.dim() > 2:
            return DenseTally(found.probs.shape[1], ignore_index, self.card.classes)
        return Kept(ignore_index)

    def _passes(self, part: Any, scale: Normalize | None) -> Iterator[tuple[Prediction, Tensor]]:
        # The density of a mixture of Gaussians needs its samples.
        keep = self.card.data.get("task") == "regression"
        options = {**self.options, "keep_samples": keep}
        for x, y in batches(part, rows_of_pass(self.card, self.batch)):
            rows = self.card.rescaled(x, scale)
            yield lb.predict(self.model, rows, **options).to("cpu"), y

    @staticmethod
    def told_apart(own: Uncertainty, foreign: Uncertainty) -> dict[str, float]:
        """AUROC of foreign examples against the data's own."""
        return {
            f"auroc_{name}": float(lb.metrics.auroc(getattr(own, name), getattr(foreign, name)))
            for name in KINDS
        }


@dataclass
class Kept:
    """All predictions of a part, scored together: exact, at the price of keeping them."""

    ignore_index: int
    parts: list[Prediction] = field(default_factory=list)
    targets: list[Tensor] = field(default_factory=list)

    def add(self, found: Prediction, target: Tensor) -> None:
        """Keep a batch."""
        self.parts.append(found)
        self.targets.append(target)

    def rows(self) -> dict[str, Tensor]:
        """Scores of every row."""
        found, target = type(self.parts[0]).cat(self.parts), torch.cat(self.targets)
        return row_scores(found, target, self.ignore_index)

    def figures(self) -> dict[str, float]:
        """Figures of the task."""
        found, target = type(self.parts[0]).cat(self.parts), torch.cat(self.targets)
        match found:
            case Classification() | BinaryClassification():
                return _of_classes(found, target, self.ignore_index)
            case Regression():
                return _of_numbers(found, target)
            case _:
                raise TypeError(f"no figures for {type(found).__name__}")


def rows_of_pass(card: Card, batch: int) -> int:
    """Rows of a pass: of dense outputs so few that their probabilities stay below 64 MB.

    Example:
        >>> data = {"task": "segmentation", "classes": ["sky", "road"]}
        >>> rows_of_pass(Card({}, data, {"shape": [3, 1024, 1024]}), 256)
        4
    """
    if card.data.get("task") != "segmentation":
        return batch
    numbers = max(1, len(card.classes)) * torch.Size(card.shape[1:]).numel()
    return max(1, min(batch, ELEMENTS // numbers))


def batches(part: Any, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of inputs and targets, in the order of the data."""
    if isinstance(part, Dataset):
        yield from DataLoader(part, rows)
        return
    x, y = part
    for start in range(0, len(x), rows):
        yield x[start : start + rows], y[start : start + rows]


def size_of(part: Any) -> int:
    """Rows of a part."""
    rows: Any = part if isinstance(part, Dataset) else part[0]
    return len(rows)


def rows_at(part: Any, rows: list[int]) -> tuple[Tensor, Tensor]:
    """Inputs and targets of some rows of a part."""
    if isinstance(part, Dataset):
        x, y = next(iter(DataLoader(Subset(part, rows), len(rows))))
        return x, y
    return part[0][rows], part[1][rows]


def _of_classes(found: Prediction, target: Tensor, ignore_index: int) -> dict[str, float]:
    probs, labels, total = elements(found, target, ignore_index)
    figures = _scores(probs, labels) | errors_found(total, probs.argmax(1) == labels)
    return figures | (_auc_pr(probs[:, 1], labels) if probs.shape[1] == 2 else {})


def _auc_pr(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Area under precision and recall of the second class, where both occur."""
    no, yes = scores[labels == 0], scores[labels == 1]
    return {"auc_pr": float(lb.metrics.average_precision(no, yes))} if len(no) and len(yes) else {}


def _scores(probs: Tensor, labels: Tensor) -> dict[str, float]:
    metrics = lb.metrics
    names = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}
    scored = {name: float(figure(probs, labels)) for name, figure in names.items()}
    return {**scored, "brier": float(metrics.brier(probs, labels))}


def _of_numbers(found: Regression, target: Tensor) -> dict[str, float]:
    target = numbers_of(found, target)
    low, high = found.interval(0.95)
    return {
        "rmse": float(lb.metrics.rmse(found.mean, target)),
        "lpd": float(found.log_prob(target).mean()),
        "coverage_95": float(lb.metrics.interval_coverage(low, high, target)),
    }
