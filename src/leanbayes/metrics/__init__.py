"""Metrics as pure functions, tensors in, detached float64 tensors out, and accumulators of batches.

A function gives a 0-dim tensor where it does not say otherwise. An accumulator adds up batches and
processes: ``update``, ``merge``, ``reduce``, ``value``.
"""

from leanbayes.metrics.accumulate import ECE, MCE, Accumulator, Average, ClasswiseECE, MeanIoU
from leanbayes.metrics.calibration import (
    Reliability,
    adaptive_ece,
    classwise_ece,
    ece,
    mce,
    reliability,
)
from leanbayes.metrics.corruption import (
    corruption_errors,
    mean_corruption_error,
    relative_corruption_errors,
    relative_mean_corruption_error,
)
from leanbayes.metrics.crps import crps_gaussian, crps_mixture, crps_samples
from leanbayes.metrics.diversity import disagreement, label_disagreement, normalised_disagreement
from leanbayes.metrics.ood import auroc, average_precision, fpr95
from leanbayes.metrics.overlap import class_iou, confusion, iou_of_pairs, mean_iou
from leanbayes.metrics.paired import Paired, paired_test
from leanbayes.metrics.pooled import AURC, AdaptiveECE, Detection
from leanbayes.metrics.proper import accuracy, brier, nll, nll_of_samples
from leanbayes.metrics.regression import interval_coverage, log_predictive_density, rmse
from leanbayes.metrics.resample import Interval, bootstrap, bootstrap_mean
from leanbayes.metrics.selective import accuracy_at_coverage, aurc, bucket_accuracy, rejection_curve
from leanbayes.metrics.uncertainty import entropy, mutual_information

__all__ = [
    "AURC",
    "ECE",
    "MCE",
    "Accumulator",
    "AdaptiveECE",
    "Average",
    "ClasswiseECE",
    "Detection",
    "Interval",
    "MeanIoU",
    "Paired",
    "Reliability",
    "accuracy",
    "accuracy_at_coverage",
    "adaptive_ece",
    "aurc",
    "auroc",
    "average_precision",
    "bootstrap",
    "bootstrap_mean",
    "brier",
    "bucket_accuracy",
    "class_iou",
    "classwise_ece",
    "confusion",
    "corruption_errors",
    "crps_gaussian",
    "crps_mixture",
    "crps_samples",
    "disagreement",
    "ece",
    "entropy",
    "fpr95",
    "interval_coverage",
    "iou_of_pairs",
    "label_disagreement",
    "log_predictive_density",
    "mce",
    "mean_corruption_error",
    "mean_iou",
    "mutual_information",
    "nll",
    "nll_of_samples",
    "normalised_disagreement",
    "paired_test",
    "rejection_curve",
    "relative_corruption_errors",
    "relative_mean_corruption_error",
    "reliability",
    "rmse",
]
