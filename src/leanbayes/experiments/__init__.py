"""Experiments of the papers, on the library's own public functions."""

from collections.abc import Mapping
from typing import Final

from leanbayes.experiments.experiment import Experiment, Row
from leanbayes.experiments.toy import Toy
from leanbayes.experiments.uci import UCI

__all__ = ["EXPERIMENTS", "UCI", "Experiment", "Row", "Toy"]

EXPERIMENTS: Final[Mapping[str, type[Experiment]]] = {cls.name: cls for cls in (Toy, UCI)}
