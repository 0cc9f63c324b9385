"""How outputs give a probability to targets, and what is averaged over samples in prediction."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isabstract
from typing import Any

from leanbayes.errors import ConfigError
from leanbayes.likelihood.base import HALF as HALF
from leanbayes.likelihood.base import Likelihood as Likelihood
from leanbayes.likelihood.base import Statistics as Statistics
from leanbayes.likelihood.base import mean_nll as mean_nll
from leanbayes.likelihood.base import needed as needed
from leanbayes.likelihood.base import tensor_of as tensor_of
from leanbayes.likelihood.base import widened as widened
from leanbayes.likelihood.discrete import Bernoulli as Bernoulli
from leanbayes.likelihood.discrete import Categorical as Categorical
from leanbayes.likelihood.gaussian import Gaussian as Gaussian
from leanbayes.likelihood.gaussian import HeteroscedasticGaussian as HeteroscedasticGaussian
from leanbayes.likelihood.gaussian import RealTargets as RealTargets

_KINDS: tuple[type[Likelihood], ...] = (Categorical, Bernoulli, Gaussian, HeteroscedasticGaussian)


def likelihood_from_json(data: Mapping[str, Any]) -> Likelihood:
    """Rebuild a likelihood from its name and settings; classes of users go by their names too."""
    own = [cls for cls in _subclasses(Likelihood) if not isabstract(cls)]  # type: ignore[type-abstract]
    known = {cls.__name__: cls for cls in (*own, *_KINDS)}
    if data.get("name") not in known:
        raise ConfigError(
            f"unknown likelihood {data.get('name')!r}; expected {sorted(known)}. Import the module "
            "of a class of your own first"
        )
    return known[data["name"]](**data["settings"])


def _subclasses(cls: type[Likelihood]) -> list[type[Likelihood]]:
    return [s for child in cls.__subclasses__() for s in (*_subclasses(child), child)]
