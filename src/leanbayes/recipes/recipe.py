"""What a recipe is: method, training, network and data of an experiment, as a paper has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leanbayes.methods.base import Method
from leanbayes.train.config import FitConfig

MADE_UP = "made_up"


@dataclass(frozen=True)
class Part:
    """A network of `lb.models.create` or a reader of `lb.data.read`, by name.

    Attributes:
        name: Of the network or reader.
        options: Its arguments.
        small: Name and options in its place that run in a second: a network of the same kind, and
            options of the reader `made_up`.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    small: tuple[str, Mapping[str, Any]] = (MADE_UP, {})

    def table(self, small: bool) -> dict[str, Any]:
        """As a settings file has it."""
        name, options = self.small if small else (self.name, self.options)
        return {"name": name, "options": dict(options)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A paper's settings, to use as they are or to change with `dataclasses.replace`.

    Attributes:
        name: The word for it in `lb.recipes()`.
        method: For `lb.bayesianize`.
        config: For `lb.fit`.
        network: For `lb.models.create`; its outputs follow the data.
        data: For `lb.data.read`.
        paper: Where it comes from.
        notes: What it is for, in the first line; then what to bring along, and where it differs
            from the paper or the paper is silent.
        trained: It starts from a trained network, not from scratch.
        augment: What is done to training images, where the paper says it.
        likelihood: Table of a settings file; empty for what the task of the data asks for.
        fitting: Options of `lb.fit_posterior`, where something is fitted after the training.
    """

    name: str
    method: Method
    config: FitConfig
    network: Part
    data: Part
    paper: str
    notes: str
    trained: bool = False
    augment: str | None = None
    likelihood: Mapping[str, Any] = field(default_factory=dict)
    fitting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The first line of the notes."""
        return self.notes.splitlines()[0]

    def tables(self, *, small: bool = False) -> dict[str, Any]:
        """Network, data and likelihood as tables of a settings file; or a small form of them."""
        data = self.data.table(small)
        if self.augment is not None:
            data["augment"] = self.augment
        found = {"model": self.network.table(small), "data": data}
        return found | ({"likelihood": dict(self.likelihood)} if self.likelihood else {})


Recipes = dict[str, Callable[[str], Recipe]]
