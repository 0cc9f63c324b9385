"""What the papers say that the table `cifar10-wrn` can show, and what of theirs it cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Check:
    """One comparison of two rows, or of a row and a number.

    Attributes:
        figure: Name of a figure; those of `PRICES` are prices. `training_work`: epochs times the
            price of a step, which does not depend on what else the device had to do.
        one: The row that is to be better.
        other: The row that it is better than, or a number that it reaches.
        times: The other row's value is multiplied by this first.
    """

    figure: str
    one: str
    other: str | float
    times: float = 1.0


@dataclass(frozen=True)
class Claim:
    """Words of a paper (or of our own plan), and what has to hold for them.

    Attributes:
        words: Of the claim.
        checks: All have to hold.
        rivals: Rows that are trained whole, whatever start the others begin at.
    """

    words: str
    checks: tuple[Check, ...]
    rivals: tuple[str, ...] = ()


PRICES: Final = ("training_work", "added_share", "predict_ratio_sample")
NLL_ECE: Final = ("nll", "ece")


def _beats(words: str, one: str, others: Sequence[str], figures: Sequence[str] = NLL_ECE) -> Claim:
    return Claim(words, tuple(Check(f, one, other) for other in others for f in figures))


def _reaches(words: str, one: str, least: Mapping[str, float]) -> Claim:
    return Claim(words, tuple(Check(name, one, value) for name, value in least.items()))


def _rivals(words: str, one: str, other: str) -> Claim:
    """A lower NLL than an ensemble of networks that are trained on their own."""
    return Claim(words, (Check("nll", one, other),), rivals=(other,))


def _target(one: str) -> Claim:
    wanted = {"nll": 0.105, "ece": 0.006, "added_share": 0.07, "predict_ratio_sample": 1.3}
    words = "NLL <= 0.105 and ECE <= 0.006 at 7 % more parameters and 1.3x the cost of a draw"
    return _reaches(f"{one}: {words}", one, wanted)


CLAIMS: Final[tuple[Claim, ...]] = (
    _beats("BayesAdapter: fine-tuned mean-field beats MAP in NLL and ECE", "mean_field", ["map"]),
    _beats(
        "BayesAdapter: a fine-tuned shared ensemble beats MAP in NLL and ECE",
        "shared_ensemble",
        ["map"],
    ),
    _beats(
        "BayesAdapter: fine-tuning beats VI from scratch in NLL",
        "mean_field",
        ["vi_scratch"],
        ["nll"],
    ),
    Claim(
        "BayesAdapter: so it does at a tenth of its work (the start, which all share, not counted)",
        (
            Check("nll", "mean_field_short", "vi_scratch"),
            Check("training_work", "mean_field_short", "vi_scratch", 0.1),
        ),
    ),
    _beats("iBNN: 16 members beat 4 in NLL", "implicit_16", ["implicit_4"], ["nll"]),
    _beats(
        "EMP: ECMP is better calibrated than EMP, MC dropout and MAP",
        "ecmp",
        ["emp", "mc_dropout", "map"],
        ["ece"],
    ),
    # MAP is from scratch by definition, and has the epochs of these rows.
    _beats(
        "EMP, all from scratch: ECMP is better calibrated than EMP and MAP",
        "ecmp_scratch",
        ["emp_scratch", "map"],
        ["ece"],
    ),
    _beats(
        "EMP, all from scratch: ECMP is better calibrated than MC dropout",
        "ecmp_scratch",
        ["mc_dropout_scratch"],
        ["ece"],
    ),
    _beats("iBNN, from scratch: 4 members beat MAP in NLL and ECE", "implicit_4_scratch", ["map"]),
    _beats("Rank-1, from scratch: beats MAP in NLL and ECE", "rank_one_scratch", ["map"]),
    _beats("Rank-1: beats BatchEnsemble in NLL and ECE", "rank_one", ["batch_ensemble"]),
    _beats("Rank-1: ECE under corruption below MAP's", "rank_one", ["map"], ["corrupted_ece"]),
    _beats("PBN: 1 % of random parameters beat MAP in NLL", "partial_1", ["map"], ["nll"]),
    _beats("PBN: 5 % of random parameters beat MAP in NLL", "partial_5", ["map"], ["nll"]),
    _beats("PBN: 1 % above VI in accuracy", "partial_1", ["vi_scratch"], ["accuracy"]),
    _reaches(
        "BayesAdapter: the regulariser lifts the AP on PGD examples above 0.9 (mean-field)",
        "mean_field_reg",
        {"ap_epistemic_pgd": 0.9},
    ),
    _reaches(
        "BayesAdapter: the same (shared ensemble)", "shared_ensemble_reg", {"ap_epistemic_pgd": 0.9}
    ),
    _target("shared_ensemble"),
    _target("norms_rank_one"),
    _target("shared_ensemble_head"),
    _target("shared_ensemble_dropout"),
    _target("shared_ensemble_norms"),
    _target("partial_5_loss"),
    _rivals(
        "As many parameters in four networks of half the width: the shared ensemble's NLL is lower",
        "shared_ensemble",
        "deep_ensemble_narrow",
    ),
    _rivals(
        "The deep ensemble's NLL with one network's parameters (shared ensemble)",
        "shared_ensemble",
        "deep_ensemble",
    ),
    _rivals(
        "The deep ensemble's NLL with one network's parameters (5 % of them random)",
        "partial_5_loss",
        "deep_ensemble",
    ),
)

# Tables and figures of the papers whose data cannot be had here.
NOT_RUN: Final[Mapping[str, str]] = {
    "ImageNet and ImageNet-C (all five papers)": "no data at hand",
    "CIFAR-100 (iBNN, EMP, Rank-1) and SVHN (PBN)": "no data at hand",
    "CIFAR-10-C as published (Rank-1, PBN)": "no data at hand; the same 15 kinds and 5 severities "
    "are made from the test images",
    "CASIA and the sets of faces (BayesAdapter)": "no data at hand; classes never seen stand in "
    "for faces (`leanbayes experiment verification`)",
    "Cityscapes (PBN)": "no data at hand; CamVid stands in for it",
    "YearPredictionMSD (EMP)": "no data at hand; the other UCI tables are run",
    "Fake images of a GAN (BayesAdapter)": "no data at hand; Tiny-ImageNet is the foreign set here",
    "MIMIC-III (Rank-1)": "no data at hand; PhysioNet 2012 stands in for it",
}
