"""The papers' training settings by name; one file a paper, one line here for each."""

from __future__ import annotations

from leanbayes.errors import ConfigError
from leanbayes.recipes import (
    bayesadapter,
    bayesadapter_baselines,
    ibnn,
    patching,
    pbn,
    rank1,
    rank1_baselines,
    rank1_mortality,
)
from leanbayes.recipes.recipe import Recipe as Recipe
from leanbayes.recipes.recipe import Recipes
from leanbayes.train.fields import nearest

_ALL: Recipes = {
    **bayesadapter.RECIPES,
    **bayesadapter_baselines.RECIPES,
    **ibnn.RECIPES,
    **patching.RECIPES,
    **pbn.RECIPES,
    **rank1.RECIPES,
    **rank1_baselines.RECIPES,
    **rank1_mortality.RECIPES,
}


def recipe(name: str) -> Recipe:
    """The method and the training settings of a paper's experiment.

    Example:
        >>> import leanbayes as lb
        >>> found = recipe("bayesadapter-cifar10")
        >>> found.method.name, found.config.epochs, found.config.posterior_lr
        ('mean_field', 12, 0.001)
    """
    if name not in _ALL:
        raise ConfigError(f"no recipe is called {name!r}; {nearest(name, sorted(_ALL))}")
    return _ALL[name](name)


def recipes() -> dict[str, str]:
    """Every recipe by name, with one line on what it is.

    Example:
        >>> recipes()["rank1-cifar10"]
        'Rank-1 BNN, Gaussian, from scratch: WRN-28-10 on CIFAR-10, 4 members'
    """
    return {name: build(name).line for name, build in _ALL.items()}
