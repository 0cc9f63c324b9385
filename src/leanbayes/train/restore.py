"""`lb.restore`: the weights of a run's best, last or any checkpoint, for prediction."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import nn

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.model import BayesianModel, unwrap
from leanbayes.train.ema import Average
from leanbayes.train.state import unpack
from leanbayes.train.store import Found, Store
from leanbayes.train.whole_state import LIKELIHOOD, Tensors, living_tensors, load_tensors


def restore(
    model: nn.Module, folder: str | Path, which: Literal["best", "last"] | int = "best"
) -> int:
    """Give a converted network the weights of a checkpoint of a run; in one process.

    Under `ema` they are the averages, by which the best was chosen. A likelihood that is kept with
    the model (`lb.fit` keeps it, or `model.likelihood = ...`) gets its learnt noise back too. A
    calibration goes: it was that of other weights.

    Args:
        model: A model that was converted as the run's was; `lb.fit` need not have seen it.
        folder: The run's directory.
        which: By the monitored figure, the newest, or that of a step.

    Returns:
        The step of the checkpoint.

    Raises:
        CheckpointError: There is none, or it is of another model; the model is unchanged.
    """
    inner, (step, files) = unwrap(model), _found(Path(folder), which)
    tree = unpack(files)
    try:
        load_tensors(*_pairs(inner, tree))
        if tree["average"] is not None and not tree["progress"]["done"]:
            average = Average(inner, tree["average"]["decay"])
            average.load(tree["average"])
            average.settle(inner)
    except (CheckpointError, LookupError, TypeError, AttributeError) as error:
        where = f"checkpoint {step} of {Path(folder).name}"
        raise CheckpointError(f"{where} is of another model: {error}") from error
    inner.calibration = None
    return step


def _pairs(model: BayesianModel, tree: Mapping[str, Any]) -> tuple[Tensors, Tensors]:
    """Living and saved tensors by name, those of the likelihood beside those of the model."""
    living, saved, noise = living_tensors(model), dict(tree["model"]), dict(tree["likelihood"])
    if model.likelihood is not None:
        own = model.likelihood.state_dict(keep_vars=True)
        living |= {LIKELIHOOD + name: tensor for name, tensor in own.items()}
        saved |= {LIKELIHOOD + name: tensor for name, tensor in noise.items()}
    elif noise:
        warnings.warn(
            f"the run has learnt the noise of its likelihood ({', '.join(noise)}) and the model "
            "keeps none that could have it: write model.likelihood = lb.Gaussian(learn=True), or "
            "what the run had, before lb.restore",
            stacklevel=3,
        )
    return living, saved


def _found(folder: Path, which: str | int) -> Found:
    store = Store(folder)
    if isinstance(which, int) and not isinstance(which, bool):
        if which not in store.steps():
            kept = ", ".join(map(str, store.steps())) or "none"
            raise CheckpointError(f"{folder.name} has no checkpoint {which}; it keeps {kept}")
        return which, store.read(which)
    if which not in ("best", "last"):
        raise ConfigError(f"which is 'best', 'last' or the number of a step, found {which!r}")
    found = store.best() if which == "best" else store.newest()
    if found is None:
        words = " (only runs with validation= have a best one)" if which == "best" else ""
        raise CheckpointError(f"{folder.name} holds no valid {which} checkpoint{words}")
    return found
