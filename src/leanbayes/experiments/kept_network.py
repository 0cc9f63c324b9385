"""A network that several parts of an experiment start from, trained once and kept in a file.

Parts may run in processes of their own (`--jobs`). Without a file every process trains the network
for itself from the same seed, which on a GPU is not the same network to the last bit; with one the
first process trains and the others wait for it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from leanbayes.convert import tensor_hash
from leanbayes.errors import ConfigError
from leanbayes.experiments.experiment import Row
from leanbayes.train.folder import write_file


class Kept(NamedTuple):
    """A trained network: its state and the steps that led to it."""

    state: dict[str, Tensor]
    steps: int

    @property
    def mark(self) -> str:
        """Other for any other weights: rows say by it which network they go on from."""
        lines = (f"{name} {tensor_hash(value)}\n" for name, value in sorted(self.state.items()))
        return sha256("".join(lines).encode()).hexdigest()[:16]


def kept(path: str, origin: Row, train: Callable[[], Kept]) -> Kept:
    """Train a network, or take it from the file that another run has written.

    Args:
        path: The file; nothing is kept if empty.
        origin: How it is trained, plain data: a file of other settings is refused.
        train: Trains it.
    """
    if not path:
        return train()
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with _alone(file):
        if not file.exists():
            write_file(file, _packed({**train()._asdict(), "origin": origin}))
        found = torch.load(file, map_location="cpu", weights_only=True)
    if found.pop("origin") != origin:
        raise ConfigError(
            f"{file.name} holds a network that was trained otherwise: write another keep=, or "
            "remove the file"
        )
    return Kept(**found)


def _packed(record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(record, stream)
    return stream.getvalue()


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process that holds it."""
    import fcntl  # no such thing outside of Unix, where nobody is to pay for it

    with file.with_name(file.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
