"""`lb.restore`: the weights of a run's best, last or any checkpoint, for prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import nn

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.model import unwrap
from leanbayes.train.ema import Average
from leanbayes.train.state import unpack
from leanbayes.train.store import Found, Store


def restore(
    model: nn.Module, folder: str | Path, which: Literal["best", "last"] | int = "best"
) -> int:
    """Give a converted network the weights of a checkpoint of a run; in one process.

    Under `ema` they are the averages, by which the best was chosen.

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
        own, saved = inner.state_dict(), tree["model"]
        strange = sorted(own.keys() ^ saved.keys())
        if strange or any(own[k].shape != saved[k].shape for k in own):
            raise CheckpointError(f"it is of another model: {strange[:3] or 'shapes differ'}")
        inner.load_state_dict(saved)
        if tree["average"] is not None and not tree["progress"]["done"]:
            average = Average(inner, tree["average"]["decay"])
            average.load(tree["average"])
            average.settle(inner)
    except (CheckpointError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {step} of {Path(folder).name}: {error}") from error
    return step


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
