"""Inputs and data of another form than is asked for: errors that say what to give instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

from leanbayes.errors import ConfigError, PlanError


@contextmanager
def arguments_checked(net: torch.nn.Module, inputs: Any) -> Iterator[None]:
    """Within it a call that has too many or too few arguments says what the inputs stand for."""
    try:
        yield
    except TypeError as error:
        wrong = _unbound(net, inputs)
        if wrong is None:
            raise
        raise PlanError(wrong) from error


def _unbound(net: torch.nn.Module, inputs: Any) -> str | None:
    """Why the network cannot take these inputs; None where it can, as far as one sees."""
    several = isinstance(inputs, (tuple, list))
    positional = inputs if several else () if isinstance(inputs, Mapping) else (inputs,)
    keywords = inputs if isinstance(inputs, Mapping) else {}
    try:
        takes = signature(net.forward)
        takes.bind(*positional, **keywords)
    except TypeError as error:
        count = f"{len(positional)} positional" if positional else f"the keywords {list(keywords)}"
        return (
            f"the network takes {takes} and got {count}: {error}. A tuple is its arguments, a dict "
            "its keywords. Targets are no inputs: of a pair (x, y) give x alone. Several inputs go "
            "into one tuple or dict, in a loader as ((a, b), targets)"
        )
    except ValueError:  # a function without a signature
        return None
    return None


def refuse_examples(data: Any) -> None:
    """Raise where batches are asked for and a Dataset of single examples is given."""
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise ConfigError(
            f"expected batches (inputs, targets), found a {type(data).__name__}, which holds "
            "single examples. Write torch.utils.data.DataLoader(dataset, batch_size=128)"
        )
