"""Names that a shell offers after Tab."""

from __future__ import annotations

from collections.abc import Iterable


def method_names(incomplete: str) -> list[str]:
    """Methods that begin so."""
    import leanbayes as lb

    return _beginning(lb.methods(), incomplete)


def model_names(incomplete: str) -> list[str]:
    """Networks of the zoo that begin so."""
    import leanbayes as lb

    return _beginning(lb.models.MODELS, incomplete)


def recipe_names(incomplete: str) -> list[str]:
    """Recipes that begin so."""
    import leanbayes as lb

    return _beginning(lb.recipes(), incomplete)


def data_names(incomplete: str) -> list[str]:
    """Readers that begin so."""
    from leanbayes.cli.readers import DATA

    return _beginning(DATA, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
