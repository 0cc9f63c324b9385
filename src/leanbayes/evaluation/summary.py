"""One flat table of an evaluation's main figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MEANS: Final = ("accuracy", "nll", "ece", "brier", "mean_iou", "rmse", "lpd")
APART: Final = ("auroc_total", "auroc_epistemic", "ap_total", "ap_epistemic")
ATTACKED: Final = ("accuracy", "nll", "ece", "mean_iou", "rmse", "lpd")
LEFT_OUT: Final = ("mce",)  # there the mean corruption error would have this name


def summarised(splits: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of the first clean split, means over corrupted ones, and how strange data stand out.

    Example:
        >>> clean = {"kind": "clean", "figures": {"accuracy": 0.9}}
        >>> fog = {"kind": "corrupted", "figures": {"accuracy": 0.5}}
        >>> ood = {"kind": "foreign", "figures": {"auroc_total": 0.75}}
        >>> summarised({"test": clean, "corrupted/fog/1": fog, "ood/digits": ood})
        {'accuracy': 0.9, 'corrupted_accuracy': 0.5, 'auroc_total_digits': 0.75}
    """
    clean = [split["figures"] for split in splits.values() if split["kind"] == "clean"]
    found = {k: v for k, v in clean[0].items() if k not in LEFT_OUT} if clean else {}
    found |= _means([s["figures"] for s in splits.values() if s["kind"] == "corrupted"])
    for name, split in splits.items():
        found |= _apart(name.removeprefix("ood/"), split)
    return found


def _means(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    columns = {name: [row.get(name) for row in rows] for name in MEANS}
    return {
        f"corrupted_{name}": sum(values) / len(values)  # type: ignore[arg-type]
        for name, values in columns.items()
        if values and None not in values
    }


def _apart(name: str, split: Mapping[str, Any]) -> dict[str, Any]:
    names = {"foreign": APART, "adversarial": (*ATTACKED, *APART)}.get(split["kind"], ())
    figures = split["figures"]
    return {f"{figure}_{name}": figures[figure] for figure in names if figure in figures}
