"""Calibration after training: a temperature for the predictive, sets and intervals that cover."""

from leanbayes.calibration.conformal import Conformal as Conformal
from leanbayes.calibration.conformal import class_scores as class_scores
from leanbayes.calibration.conformal import rank_of as rank_of
from leanbayes.calibration.record import Calibration as Calibration
from leanbayes.calibration.temperature import fit_temperature as fit_temperature
from leanbayes.calibration.temperature import tempered as tempered
