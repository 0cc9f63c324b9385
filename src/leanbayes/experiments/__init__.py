"""Experiments of the papers, on the library's own public functions."""

from collections.abc import Mapping
from typing import Final

from leanbayes.experiments.ablations import Ablations
from leanbayes.experiments.adversarial_ood import AdversarialOOD
from leanbayes.experiments.experiment import Experiment, Row
from leanbayes.experiments.fashion_widths import FashionWidths
from leanbayes.experiments.mnist_rates import MnistRates
from leanbayes.experiments.toy import Toy
from leanbayes.experiments.uci import UCI
from leanbayes.experiments.verification import OpenSet

__all__ = [
    "EXPERIMENTS",
    "UCI",
    "Ablations",
    "AdversarialOOD",
    "Experiment",
    "FashionWidths",
    "MnistRates",
    "OpenSet",
    "Row",
    "Toy",
]

EXPERIMENTS: Final[Mapping[str, type[Experiment]]] = {
    cls.name: cls
    for cls in (Toy, UCI, MnistRates, FashionWidths, OpenSet, AdversarialOOD, Ablations)
}
