"""Metrics as pure functions: tensors in, one detached 0-dim float64 tensor out."""

from leanbayes.metrics.calibration import Reliability, ece, mce, reliability
from leanbayes.metrics.ood import auroc, average_precision, fpr95
from leanbayes.metrics.proper import accuracy, brier, nll, nll_of_samples
from leanbayes.metrics.regression import interval_coverage, log_predictive_density, rmse

__all__ = [
    "Reliability",
    "accuracy",
    "auroc",
    "average_precision",
    "brier",
    "ece",
    "fpr95",
    "interval_coverage",
    "log_predictive_density",
    "mce",
    "nll",
    "nll_of_samples",
    "reliability",
    "rmse",
]
