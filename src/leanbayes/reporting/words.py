"""Names of figures and prices in words, which of them are better high, and numbers as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

# +1 where more is better, -1 where less is; names that end in * match by their beginning.
DIRECTIONS: Mapping[str, int] = {
    **dict.fromkeys(("accuracy", "lpd", "auc_pr", "mean_iou", "verification", "auroc"), 1),
    **dict.fromkeys(("auroc_*", "ood_auroc_*", "error_auroc", "iou_*", "ap_*", "accuracy_*"), 1),
    **dict.fromkeys(("nll", "ece", "mce", "brier", "rmse", "test_error", "fpr95", "aurc"), -1),
    **dict.fromkeys(("crps", "adaptive_ece", "classwise_ece", "fpr95_*", "rmce", "ce_*"), -1),
    **dict.fromkeys(("mean_corruption_error", "relative_mce"), -1),
    # Under an attack, such as nll_pgd.
    **dict.fromkeys(("nll_*", "ece_*", "rmse_*"), -1),
    **dict.fromkeys(("lpd_*", "mean_iou_*"), 1),
}
TITLES: Mapping[str, str] = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "mce": "MCE",
    "brier": "Brier score",
    "rmse": "RMSE",
    "lpd": "log density",
    "crps": "CRPS",
    "auc_pr": "AUC-PR",
    "aurc": "AURC",
    "mean_iou": "mean IoU",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "class-wise ECE",
    "coverage_95": "95 % coverage",
    "error_auroc": "AUROC of errors",
    "ood_auroc_total": "OOD AUROC, total",
    "ood_auroc_epistemic": "OOD AUROC, epistemic",
    "auroc_total": "OOD AUROC, total",
    "auroc_epistemic": "OOD AUROC, epistemic",
    "parameters": "parameters",
    "parameters_added": "parameters added",
    "samples": "draws a prediction",
    "step_ratio": "price of a training step",
    "training_ratio": "price of all training",
    "predict_ratio": "price of a prediction",
    "predict_ratio_sample": "price of a draw",
    "flops_step_ratio": "FLOPs of a training step",
    "flops_predict_ratio": "FLOPs of a prediction",
    "activation_ratio": "activations kept",
    "peak_memory_ratio": "peak memory",
    "mean_corruption_error": "mean corruption error",
    "seconds": "seconds",
    "training_seconds": "seconds of training",
}
TIMES = (
    *("step_ratio", "training_ratio", "predict_ratio", "predict_ratio_sample"),
    *("flops_step_ratio", "flops_predict_ratio", "activation_ratio", "peak_memory_ratio"),
)
SCORES = {"auroc": "AUROC", "ap": "AP", "fpr95": "FPR95"}


def direction(name: str) -> int:
    """+1, -1, or 0 where nobody can say.

    Example:
        >>> direction("nll"), direction("iou_road"), direction("coverage_95")
        (-1, 1, 0)
        >>> direction("corrupted_nll"), direction("nll (validation)"), direction("ece_pgd")
        (-1, -1, -1)
    """
    name = name.partition(" (")[0].removeprefix("corrupted_")
    if name in DIRECTIONS:
        return DIRECTIONS[name]
    stems = (key[:-1] for key in DIRECTIONS if key.endswith("*"))
    return next((DIRECTIONS[f"{stem}*"] for stem in stems if name.startswith(stem)), 0)


def title(name: str) -> str:
    """A name in words.

    Example:
        >>> title("nll"), title("iou_side_walk"), title("nll (validation)")
        ('NLL', 'iou side walk', 'NLL (validation)')
        >>> title("corrupted_ece"), title("auroc_total_digits"), title("accuracy_at_80")
        ('ECE, corrupted', 'AUROC digits, total', 'accuracy at 80 %')
    """
    stem, _, part = name.partition(" (")
    if stem in TITLES:
        return TITLES[stem] + (f" ({part}" if part else "")
    if stem.startswith("corrupted_"):
        return f"{title(stem.removeprefix('corrupted_'))}, corrupted"
    score, _, rest = stem.partition("_")
    by, _, data = rest.partition("_")
    if score in SCORES and by in ("total", "epistemic") and data:
        return f"{SCORES[score]} {data.replace('_', ' ')}, {by}"
    if stem.startswith("accuracy_at_"):
        return f"accuracy at {stem.removeprefix('accuracy_at_')} %"
    return name.replace("_", " ")


def capital(words: str) -> str:
    """Words at the start of a line.

    Example:
        >>> capital("log density"), capital("NLL")
        ('Log density', 'NLL')
    """
    return f"{words[:1].upper()}{words[1:]}"


def number(value: float | None, digits: int = 4) -> str:
    """A figure as text: whole numbers with commas, others to some digits.

    Example:
        >>> number(0.123456), number(41806), number(None), number(1234.5), number(1e-9)
        ('0.1235', '41,806', '-', '1,234.5', '1e-09')
    """
    if value is None or not math.isfinite(value):
        return "-" if value is None else str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if size >= 100:
        return f"{value:,.1f}"
    return f"{value:.{digits}f}" if size >= 10.0**-digits else f"{value:.3g}"


def figure(mean: float | None, error: float | None) -> str:
    """Mean and standard error.

    Example:
        >>> figure(0.5, 0.0123)
        '0.5000 ± 0.0123'
    """
    if mean is None:
        return "-"
    if not math.isfinite(mean):
        return str(mean)
    shown = f"{mean:.4f}" if abs(mean) < 1000 else f"{mean:,.1f}"
    return shown if error is None or not math.isfinite(error) else f"{shown} ± {error:.4f}"
