"""What the tests of accumulators add up, in one process and in two."""

from functools import partial

import torch

from leanbayes import metrics

CLASSES, ROWS = 4, 90
SCORES = ("accuracy", "nll", "brier")

# name: (a new accumulator, the function of all examples at once)
CLASSIFIERS = {
    **{
        name: (partial(metrics.Average, getattr(metrics, name)), getattr(metrics, name))
        for name in SCORES
    },
    "top 2": (partial(metrics.Average, metrics.accuracy, top=2), partial(metrics.accuracy, top=2)),
    "ece": (metrics.ECE, metrics.ece),
    "ece 20": (partial(metrics.ECE, 20, 5), partial(metrics.ece, bins=20, min_count=5)),
    "mce": (metrics.MCE, metrics.mce),
    "mce 20": (partial(metrics.MCE, 20, 5), partial(metrics.mce, bins=20, min_count=5)),
    "classwise": (metrics.ClasswiseECE, metrics.classwise_ece),
    "mean_iou": (metrics.MeanIoU, metrics.mean_iou),
    "adaptive": (metrics.AdaptiveECE, metrics.adaptive_ece),
    "aurc": (metrics.AURC, metrics.aurc),
}
DETECTORS = {f.__name__: f for f in (metrics.auroc, metrics.average_precision, metrics.fpr95)}


def examples(seed=0, rows=ROWS, ties=True):
    """Probabilities [rows, CLASSES], some of them equal, and labels that follow them loosely."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, CLASSES, dtype=torch.float64, generator=generator)
    if ties:
        logits = logits.round()
    probs = logits.softmax(1)
    target = torch.multinomial((probs + 0.1), 1, generator=generator).squeeze(1)
    return probs, target


def scores(seed=0, rows=ROWS):
    """Scores with ties, and whether they are out of the distribution."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.rand(rows, generator=generator) < 0.4
    return (2 * torch.randn(rows, generator=generator) + out).round(), out


def added(make, tensors, sizes):
    """An accumulator that was given the rows in batches of these sizes."""
    found, start = make(), 0
    for size in sizes:
        found.update(*(x[start : start + size] for x in tensors))
        start += size
    return found
