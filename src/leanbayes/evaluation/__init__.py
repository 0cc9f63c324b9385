"""Evaluation of a model on a suite of splits: clean, corrupted, shifted, foreign, adversarial."""

from leanbayes.evaluation.against import against
from leanbayes.evaluation.attack import Attack
from leanbayes.evaluation.run import evaluate
from leanbayes.evaluation.shift import Shift
from leanbayes.evaluation.split import Split
from leanbayes.evaluation.suite import Suite

__all__ = ["Attack", "Shift", "Split", "Suite", "against", "evaluate"]
