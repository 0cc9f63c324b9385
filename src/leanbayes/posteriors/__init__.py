"""Distributions over one tensor. They know probability, not layers."""

from leanbayes.posteriors.base import Posterior as Posterior
from leanbayes.posteriors.gaussian import Gaussian as Gaussian
