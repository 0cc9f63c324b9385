"""How outputs give a probability to targets, and what is averaged over samples in prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leanbayes.errors import ConfigError
from leanbayes.likelihood.base import HALF as HALF
from leanbayes.likelihood.base import Likelihood as Likelihood
from leanbayes.likelihood.base import Statistics as Statistics
from leanbayes.likelihood.base import matched as matched
from leanbayes.likelihood.base import tensor_of as tensor_of
from leanbayes.likelihood.base import widened as widened
from leanbayes.likelihood.discrete import Bernoulli as Bernoulli
from leanbayes.likelihood.discrete import Categorical as Categorical
from leanbayes.likelihood.gaussian import Gaussian as Gaussian
from leanbayes.likelihood.gaussian import HeteroscedasticGaussian as HeteroscedasticGaussian
from leanbayes.likelihood.gaussian import RealTargets as RealTargets

_KINDS: tuple[type[Likelihood], ...] = (Categorical, Bernoulli, Gaussian, HeteroscedasticGaussian)


def likelihood_from_json(data: Mapping[str, Any]) -> Likelihood:
    """Rebuild a likelihood from its name and settings."""
    known = {cls.__name__: cls for cls in _KINDS}
    if data.get("name") not in known:
        raise ConfigError(f"unknown likelihood {data.get('name')!r}; expected {sorted(known)}")
    return known[data["name"]](**data["settings"])
