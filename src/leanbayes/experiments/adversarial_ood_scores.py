"""Figures of the experiment on adversarial inputs: who tells foreign inputs from clean ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from leanbayes import metrics
from leanbayes.experiments.experiment import Row
from leanbayes.experiments.fashion_widths import summary
from leanbayes.prediction import Classification

KINDS: Final = ("epistemic", "total")  # mutual information, entropy of the average
SHOWN: Final = ("clean", "noise", "pgd")  # in the histograms
BINS: Final = 40


@dataclass(frozen=True)
class Seen:
    """What a network answered under a seed.

    Attributes:
        clean: To all test images.
        y: Their labels.
        beside: To those test images that foreign inputs are compared with: as many.
        foreign: To foreign inputs, by name.
        labels: Of foreign inputs that have a label, by name.
        random: Whether its draws differ: a point has no mutual information.
    """

    clean: Classification
    y: Tensor
    beside: Classification
    foreign: Mapping[str, Classification]
    labels: Mapping[str, Tensor]
    random: bool


def scores(seen: Seen) -> dict[str, float | None]:
    """Quality on clean test images; average precision, AUROC and uncertainty of foreign inputs."""
    probs, y = seen.clean.probs, seen.y
    row: dict[str, float | None] = {
        "accuracy": float(metrics.accuracy(probs, y)),
        "nll": float(metrics.nll(probs, y)),
        "ece": float(metrics.ece(probs, y)),
        "total": float(seen.clean.total.mean()),
        "epistemic": float(seen.clean.epistemic.mean()) if seen.random else None,
    }
    for name, found in seen.foreign.items():
        for kind in KINDS:
            row |= _told_apart(seen, name, found, kind)
        if name in seen.labels:
            row[f"accuracy_{name}"] = float(metrics.accuracy(found.probs, seen.labels[name]))
    return row


def _told_apart(seen: Seen, name: str, found: Classification, kind: str) -> dict[str, float | None]:
    keys = (f"ap_{name}_{kind}", f"auroc_{name}_{kind}", f"{kind}_{name}")
    if kind == "epistemic" and not seen.random:
        return dict.fromkeys(keys)
    inside, outside = getattr(seen.beside, kind), getattr(found, kind)
    values = (
        metrics.average_precision(inside, outside),
        metrics.auroc(inside, outside),
        outside.mean(),
    )
    return {key: float(value) for key, value in zip(keys, values, strict=True)}


def over_seeds(found: Sequence[Mapping[str, float | None]]) -> Row:
    """Mean and standard error of every figure; None where there is none."""
    columns = {key: [row[key] for row in found] for key in found[0]}
    known = {key: [v for v in values if v is not None] for key, values in columns.items()}
    return {key: summary(values) if values else None for key, values in known.items()}


def histograms(found: Sequence[Seen], samples: int) -> Row | None:
    """Counts of the mutual information over all seeds, from 0 to its ceiling ln(samples)."""
    if not found[0].random:
        return None
    top = math.log(samples)
    row: Row = {"edges": [top * number / BINS for number in range(BINS + 1)]}
    for name in SHOWN:
        parts = [seen.beside if name == "clean" else seen.foreign[name] for seen in found]
        values = torch.cat([part.epistemic for part in parts]).double()
        row[name] = torch.histc(values.clamp(0, top), BINS, 0, top).long().tolist()
    return row
