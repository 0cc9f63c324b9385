"""`card.json` of a finished run: what is needed to build the network again and feed it.

    {"format": 1, "leanbayes": "0.1.0",
     "model": {"name": "resnet20", "options": {"num_classes": 10}},
     "data": {"name": "cifar10", "task": "classification", "classes": [...], "normalize": {...},
              "reader": "cifar10", "options": {...}},
     "inputs": {"shape": [3, 32, 32], "type": "float32"}}

Where files lie on a machine is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leanbayes as lb
from leanbayes.cli.settings_file import Named
from leanbayes.data.dataset import Data, Normalize, as_float
from leanbayes.errors import CheckpointError, ConfigError, DataError
from leanbayes.model import BayesianModel
from leanbayes.storage import parse_json, render_json
from leanbayes.train.fields import listed
from leanbayes.train.folder import write_file

CARD, MODEL, FORMAT = "card.json", "model", 1
PLACES = ("root", "path", "file", "folder", "clean", "pairs")  # options that say where files lie


@dataclass(frozen=True)
class Card:
    """What a run was about.

    Attributes:
        model: Name and options for `lb.models.create`.
        data: `Data.card()`, with `reader` and its `options`.
        inputs: Shape of an example without its row, and its type.
        version: Of leanbayes.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    inputs: Mapping[str, Any]
    version: str = lb.__version__

    @staticmethod
    def of(model: Named, data: Data, reader: Named) -> Card:
        """The card of a network by name, and of data with the reader they come from."""
        inputs = first_inputs(data.train, 1)
        kept = {key: value for key, value in reader.options.items() if key not in PLACES}
        return Card(
            {"name": model.name, "options": listed(model.options)},
            {**data.card(), "reader": reader.name, "options": listed(kept)},
            {"shape": list(inputs.shape[1:]), "type": str(inputs.dtype).removeprefix("torch.")},
        )

    @staticmethod
    def read(run: Path) -> Card:
        """The card of a run's folder."""
        path = run / CARD
        if not path.is_file():
            raise CheckpointError(
                f"{run} has no {CARD}; expected a folder in which the command `leanbayes train` or "
                "`leanbayes adapt` has finished (of a run in Python write lb.predict, lb.evaluate)"
            )
        found = parse_json(path, _bytes(path))
        if found.get("format") != FORMAT:
            raise CheckpointError(f"{path} has format {found.get('format')!r}, expected {FORMAT}")
        card = Card(*(found.get(key) for key in ("model", "data", "inputs", "leanbayes")))  # type: ignore[arg-type]
        card._check(path)
        return card

    def _check(self, path: Path) -> None:
        model, data, inputs = self.model, self.data, self.inputs
        tables = all(isinstance(table, dict) for table in (model, data, inputs))
        shape = inputs.get("shape") if tables else None
        sizes = isinstance(shape, list) and all(isinstance(n, int) and 0 < n < 2**31 for n in shape)
        known = tables and sizes and isinstance(model.get("name"), str)
        if not known or not isinstance(model.get("options"), dict):
            raise CheckpointError(f"{path} is damaged: expected model, data and inputs of a run")
        if not hasattr(torch, str(inputs.get("type"))) or not isinstance(data.get("classes"), list):
            raise CheckpointError(f"{path} is damaged in 'inputs' or 'data'")

    def write(self, run: Path) -> None:
        """Into a run's folder, whole or not at all."""
        tables = {"model": self.model, "data": self.data, "inputs": self.inputs}
        text = {"format": FORMAT, "leanbayes": self.version, **tables}
        write_file(run / CARD, render_json(run / CARD, text) + b"\n")

    @property
    def name(self) -> str:
        """Of the network."""
        return str(self.model["name"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an example's input."""
        return tuple(self.inputs["shape"])

    @property
    def whole(self) -> bool:
        """Whether inputs are whole numbers, such as ids."""
        return not getattr(torch, self.inputs["type"]).is_floating_point

    @property
    def classes(self) -> list[str]:
        """Names of the labels."""
        return [str(name) for name in self.data["classes"]]

    @property
    def normalize(self) -> Normalize | None:
        """How inputs are scaled."""
        found = self.data.get("normalize")
        if found is None:
            return None
        try:
            return Normalize(tuple(found["mean"]), tuple(found["std"]))
        except (TypeError, KeyError, ValueError) as error:
            raise CheckpointError(f"{CARD} is damaged in 'normalize': {error}") from None

    @property
    def bytes_fit(self) -> bool:
        """Whether bytes, as parts of 255, can be on the scale of the images of the training.

        Numbers from 0 to 1 have a mean from 0 to 1 and a standard deviation of at most 0.5; 1 is
        written where there is no scale, or no spread.
        """
        scale = self.normalize
        if scale is None:
            return True
        spread = all(s <= 0.51 or s == 1 for s in scale.std)
        return spread and all(-0.01 <= m <= 1.01 for m in scale.mean)

    def prepared(self, x: Tensor) -> Tensor:
        """Raw inputs as the network saw them in training: type and scale."""
        kind = getattr(torch, self.inputs["type"])
        if not kind.is_floating_point:
            return x.to(kind)
        scale = self.normalize
        return (as_float(x) if scale is None else scale(x)).to(kind)

    def rescaled(self, x: Tensor, scale: Normalize | None) -> Tensor:
        """Inputs of other data, brought from their scale to that of the run."""
        if tuple(x.shape[1:]) != self.shape:
            found, wanted = ("x".join(map(str, s)) for s in (x.shape[1:], self.shape))
            raise DataError(f"inputs are {found}; those of the run were {wanted}")
        own = self.normalize
        if scale == own or not x.is_floating_point():
            return x
        raw = x if scale is None else scale.undo(x)
        return raw if own is None else own(raw)

    def check_trusted(self, allowed: str | None = None) -> None:
        """Refuse a network that runs foreign code unless it was named by hand."""
        if ":" in self.name and allowed != self.name:
            raise ConfigError(
                f"the run's network is {self.name!r}, which runs code from outside leanbayes: "
                f"write --model {self.name} if you trust it"
            )

    def network(self, allowed: str | None = None) -> nn.Module:
        """The network with fresh weights.

        Args:
            allowed: A name outside the zoo that may be used: it runs the code it names, and a file
                must not decide on that.
        """
        self.check_trusted(allowed)
        try:
            return lb.models.create(self.name, **self.model["options"])
        except (TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{CARD}: {self.name} cannot be built: {error}") from None


def load_run(run: Path, allowed: str | None = None) -> tuple[Card, BayesianModel]:
    """Card and model of a finished run."""
    if not run.is_dir():
        raise CheckpointError(f"no run at {run}; expected the folder of a finished run")
    card = Card.read(run)
    return card, lb.load(card.network(allowed).eval(), run / MODEL)


def first_inputs(part: Any, rows: int) -> Tensor:
    """Inputs of the first rows, of tensors or of a Dataset."""
    if isinstance(part, tuple | list) and isinstance(part[0], Tensor):
        return part[0][:rows]
    return torch.stack([torch.as_tensor(part[at][0]) for at in range(min(rows, len(part)))])


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
