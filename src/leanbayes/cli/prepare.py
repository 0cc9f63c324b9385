"""From settings to what a run needs: data, network with its weights, likelihood, card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leanbayes as lb
from leanbayes.cli.card import CARD, Card, first_inputs, load_run
from leanbayes.cli.readers import part_of, read_data
from leanbayes.cli.settings_file import Foreign, Named, RunSettings
from leanbayes.cli.smoke import few
from leanbayes.data.dataset import Data
from leanbayes.data.tables import Column, TableData
from leanbayes.errors import ConfigError
from leanbayes.likelihood import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    tensor_of,
)
from leanbayes.models import MODELS


@dataclass(frozen=True)
class Prepared:
    """Everything that `lb.adapt` takes, and the card of the run."""

    settings: RunSettings
    data: Data
    net: nn.Module
    likelihood: Likelihood
    card: Card

    def arguments(self) -> dict[str, Any]:
        """The data as arguments of `lb.adapt`."""
        found: dict[str, Any] = {"data": self.data.train, "validation": self.data.validation}
        if self.settings.fit.regularizer is not None:
            found["ood"] = _ood(self.data, self.settings.ood)
        if self.settings.fitting:
            found["fitting"] = self.settings.fitting
        if self.settings.augment is not None:
            found["augment"] = _augment(self.settings.augment, self.data)
        return found


def prepare(settings: RunSettings, data: Data | None = None) -> Prepared:
    """Read the data, build the network, load its weights; the generator decides on fresh ones.

    Args:
        settings: Of the run.
        data: What the reader gives, where it has been asked already.
    """
    if data is None:
        data = read_data(settings.data.name, settings.data.options)
    if data.train is None:
        raise lb.DataError(
            f"{data.name} has nothing to train on, only parts to be scored: give other data (for "
            "corrupted images clean=FOLDER)"
        )
    data = few(data) if settings.few else data
    inputs = first_inputs(data.train, 2)
    if len(inputs) == 0:
        raise lb.DataError(f"{data.name} has no training examples")
    model = fitted(settings.model, data, settings.likelihood)
    _check_columns(settings.weights, data)
    net, output = _network(model, settings.weights, inputs)
    card = Card.of(model, data, settings.data)
    return Prepared(settings, data, net, _likelihood(settings, data, output), card)


def fitted(model: Named, data: Data, likelihood: Likelihood) -> Named:
    """A network of the zoo gets as many inputs and outputs as the data ask for, unless it is told.

    A network that predicts its noise has two outputs a target.
    """
    make = MODELS.get(model.name)
    if make is None:
        return model
    outputs = _outputs(data) * (2 if isinstance(likelihood, HeteroscedasticGaussian) else 1)
    inputs = first_inputs(data.train, 1)[0].numel()
    known = {"num_classes": outputs, "outputs": outputs, "inputs": inputs}
    taken = signature(make).parameters
    found = {name: size for name, size in known.items() if name in taken and size}
    return Named(model.name, {**found, **model.options})


def _outputs(data: Data) -> int:
    """Outputs that the task needs; 0 where nobody knows."""
    if data.task == "regression":
        return 0 if data.target_scale is None else len(data.target_scale.mean)
    return 1 if data.task == "binary" else len(data.classes)


def _network(model: Named, weights: str | None, inputs: Tensor) -> tuple[nn.Module, Tensor]:
    """The network and its output of two rows: whatever it says against them is a wrong setting."""
    try:
        net = lb.models.create(model.name, **model.options)
        if weights is not None:
            net = with_weights(net, Path(weights), model.name)
        with torch.no_grad():
            output = tensor_of(net.eval()(inputs))
    except lb.CheckpointError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        shape = "x".join(map(str, inputs.shape[1:]))
        ids = "" if inputs.is_floating_point() else ", whole numbers as of an embedding (ids)"
        words = f"{model.name} with {dict(model.options)} does not run on inputs of {shape}{ids}: "
        raise ConfigError(f"model.options: {words}{error}") from None
    return net.train(), output


def with_weights(net: nn.Module, path: Path, name: str) -> nn.Module:
    """The network of this name with the weights of a file, or the mean ones of an earlier run."""
    if not path.is_dir():
        lb.models.load_weights(net, path)
        return net
    if not (path / CARD).is_file():
        raise lb.CheckpointError(
            f"{path} is a folder without {CARD}: expected a file of weights, or a finished run"
        )
    card, model = load_run(path, name)
    mean = lb.collapse(model)
    try:
        net.load_state_dict(mean.state_dict())
    except RuntimeError:
        words = f"a {card.name} with {dict(card.model['options'])}"
        raise lb.CheckpointError(f"{path} holds {words}, which does not fit the network") from None
    return net


def _check_columns(weights: str | None, data: Data) -> None:
    """Columns in another order may fit the trained network, and mean something else to it."""
    run = None if weights is None else Path(weights)
    if run is None or not isinstance(data, TableData) or not (run / CARD).is_file():
        return
    known = Card.read(run).data.get("columns") or []
    before = (Column(c["name"], tuple(c["categories"])) for c in known)
    for at, (old, new) in enumerate(zip(before, data.columns, strict=False), 1):
        if old != new:
            raise ConfigError(
                f"model.weights: column {at} of {run} is {_described(old)}, of the data "
                f"{_described(new)}: write a table with the columns and words of that run, in "
                "their order"
            )


def _described(column: Column) -> str:
    return f"{column.name!r} ({', '.join(column.categories[:9]) or 'numbers'})"


def _likelihood(settings: RunSettings, data: Data, output: Tensor) -> Likelihood:
    """The one of the settings, or what the task asks for; of targets in their own scale."""
    table: Mapping[str, Any] = settings.tables.get("likelihood", {})
    if table:
        found, given = settings.likelihood, table.get("options", {})
    else:
        found, given = _LIKELIHOODS[data.task](data, output), {}
    if data.target_scale is None or "target_mean" not in found.settings() or "target_mean" in given:
        return found
    mean, std = data.target_scale.mean, data.target_scale.std
    scale = {"target_mean": _single(mean), "target_std": _single(std)}
    return type(found)(**{**found.settings(), **scale})


def _single(values: tuple[float, ...]) -> float | tuple[float, ...]:
    return values[0] if len(values) == 1 else values


def _binary(_data: Data, output: Tensor) -> Likelihood:
    """Two outputs are two classes, one is the logit of the second."""
    return Categorical() if output.dim() == 2 and output.shape[1] == 2 else Bernoulli()


def _gaussian(data: Data, _output: Tensor) -> Likelihood:
    """Noise that is learnt, one a target, from the spread of the targets on."""
    spread = (1.0,) if data.target_scale is None else data.target_scale.std
    precision = [1 / (s * s) for s in spread]
    return Gaussian(precision=precision[0] if len(spread) == 1 else precision, learn=True)


_LIKELIHOODS: Mapping[str, Callable[[Data, Tensor], Likelihood]] = {
    "classification": lambda _data, _output: Categorical(),
    "segmentation": lambda data, _output: Categorical(ignore_index=data.ignore_index),
    "binary": _binary,
    "regression": _gaussian,
}


def _ood(data: Data, asked: Foreign) -> tuple[Tensor, Tensor]:
    """Noisy training images for the regulariser, and other images where they are named."""
    pair = data.train
    if not _are_images(pair):
        raise ConfigError("fit.regularizer: needs images in memory; for others write lb.fit(ood=)")
    scale = data.normalize
    mean, std = (None, None) if scale is None else (scale.mean, scale.std)
    others = None if asked.name is None else _others(data, asked)
    return lb.ood_inputs(pair[0], asked.eps, others, mean, std), pair[1]


def _others(data: Data, asked: Foreign) -> Tensor:
    """Images of other data, on the scale of these."""
    found = read_data(str(asked.name), asked.options, "data.ood.options")
    part = part_of(found, asked.part)
    if not _are_images(part):
        raise ConfigError(f"data.ood: needs images in memory, found {asked.part} of {found.name}")
    raw = part[0] if found.normalize is None else found.normalize.undo(part[0])
    return raw if data.normalize is None else data.normalize(raw)


def _are_images(part: Any) -> bool:
    return isinstance(part, tuple) and part[0].is_floating_point() and part[0].dim() == 4


def _augment(words: str, data: Data) -> Callable[[Any], Any]:
    from leanbayes.data.augment import augment_named

    if data.task == "segmentation":
        raise ConfigError(
            "data.augment: it would change images and not their label maps, which then no longer "
            "fit; leave it out, or write lb.fit with a Dataset that changes both"
        )
    try:
        return augment_named(words, normalize=data.normalize)
    except ConfigError as error:
        raise ConfigError(f"data.augment: {error}") from None
