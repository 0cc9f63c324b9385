"""What is served: the model, and what its inputs and outputs mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

from torch import Tensor

from leanbayes.data.decode import Frame
from leanbayes.data.tables import Column
from leanbayes.model import BayesianModel
from leanbayes.modes import mixes_rows
from leanbayes.serving.limits import Limits
from leanbayes.version import __version__

Kind = Literal["classes", "numbers"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """A model with what a request needs to become its input.

    Attributes:
        model: On its device.
        name: Of the network.
        data: Name of the data it was trained on.
        classes: Names of the labels; empty in regression.
        shape: Of an input without its row.
        whole: True where inputs are whole numbers (indices of an embedding).
        prepared: Raw inputs, bytes or numbers, as the network saw them in training.
        resize: Shorter side of an image before its middle is cut out; None: as small as covers it.
        columns: Of a table, in the order of the inputs; empty where they have no names. Such
            numbers come to `prepared` as float64.
        images: False where images of files are on another scale than those of the training, which
            then come as numbers alone.
    """

    model: BayesianModel
    name: str
    data: str
    classes: Sequence[str]
    shape: tuple[int, ...]
    prepared: Callable[[Tensor], Tensor]
    whole: bool = False
    resize: int | None = None
    columns: Sequence[Column] = ()
    images: bool = True

    @property
    def frame(self) -> Frame | None:
        """How an image becomes an input; None where inputs are no images."""
        if not self.images or len(self.shape) != 3 or self.shape[0] not in (1, 3) or self.whole:
            return None
        return Frame.of(self.shape[1:], self.resize)

    @property
    def inputs(self) -> int:
        """Numbers of an input."""
        return prod(self.shape)

    @property
    def size(self) -> str:
        """The shape in words."""
        return "x".join(map(str, self.shape)) or "one number"

    @property
    def alone(self) -> bool:
        """True where rows of a pass would change each other's answers."""
        return self.model.sequence_first or mixes_rows(self.model.net)

    @cached_property
    def draws(self) -> tuple[int, int]:
        """Samples and seed of a request that names none: those that a calibration was made with."""
        known = self.model.calibration
        if known is None:
            return self.model.method.default_samples, 0
        return known.samples, known.seed

    def class_name(self, at: int) -> str:
        """Of a label; its number where it has none."""
        return str(self.classes[at]) if at < len(self.classes) else str(at)

    def calibration(self) -> Mapping[str, Any] | None:
        """What was calibrated after training, as plain data without the scores."""
        known = self.model.calibration
        if known is None:
            return None
        conformal = known.conformal
        about = None if conformal is None else {"score": conformal.score, "alpha": conformal.alpha}
        return {"temperature": known.temperature, "conformal": about, "samples": self.draws[0]}

    def info(self, kind: Kind, limits: Limits) -> dict[str, Any]:
        """What `GET /info` answers, for answers of a kind."""
        method = self.model.method
        samples, seed = self.draws
        return {
            "leanbayes": __version__,
            "network": self.name,
            "method": method.to_json(),
            "random": method.is_random,
            "members": method.index_members,
            "data": self.data,
            "task": kind,
            "classes": [self.class_name(at) for at in range(len(self.classes))],
            "input": self._input(),
            "calibration": self.calibration(),
            "samples": {"default": min(samples, limits.samples), "most": limits.samples},
            "seed": seed,
            "limits": {"upload": limits.upload, "pixels": limits.pixels},
        }

    def _input(self) -> dict[str, Any]:
        known = [{"name": c.name, "categories": list(c.categories)} for c in self.columns]
        return {
            "shape": list(self.shape),
            "image": self.frame is not None,
            "whole": self.whole,
            "columns": known,
        }
