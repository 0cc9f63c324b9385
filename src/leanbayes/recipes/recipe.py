"""What a recipe is: a method and the settings of its training, as a paper has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leanbayes.methods.base import Method
from leanbayes.train.config import FitConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A paper's settings, to use as they are or to change with `dataclasses.replace`.

    Attributes:
        name: The word for it in `lb.recipes()`.
        method: For `lb.bayesianize`.
        config: For `lb.fit`.
        paper: Where it comes from.
        notes: What it is for, in the first line; then what to bring along, and where it differs
            from the paper or the paper is silent.
    """

    name: str
    method: Method
    config: FitConfig
    paper: str
    notes: str

    @property
    def line(self) -> str:
        """The first line of the notes."""
        return self.notes.splitlines()[0]


Recipes = dict[str, Callable[[str], Recipe]]
