"""`lb.restore`: the weights of a run's best or last checkpoint, for prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import nn

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.model import unwrap
from leanbayes.train.ema import Average
from leanbayes.train.state import unpack
from leanbayes.train.store import Store


def restore(model: nn.Module, folder: str | Path, which: Literal["best", "last"] = "best") -> int:
    """Give a converted network the weights of a checkpoint of a run; in one process.

    Under `ema` they are the averages, by which the best was chosen.

    Args:
        model: A model that was converted as the run's was; `lb.fit` need not have seen it.
        folder: The run's directory.
        which: By the monitored figure, or the newest.

    Returns:
        The step of the checkpoint.

    Raises:
        CheckpointError: There is none, or it is of another model; the model is unchanged.
    """
    if which not in ("best", "last"):
        raise ConfigError(f"which is 'best' or 'last', found {which!r}")
    store, inner = Store(folder), unwrap(model)
    found = store.best() if which == "best" else store.newest()
    if found is None:
        words = " (only runs with validation= have a best one)" if which == "best" else ""
        raise CheckpointError(f"{Path(folder).name} holds no valid {which} checkpoint{words}")
    step, files = found
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
