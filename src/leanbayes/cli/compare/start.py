"""The shared start of a comparison: the point estimate, trained once a seed and kept in a folder.

The folder of a start is that of a finished run, as `leanbayes train` leaves it, with `start.json`
beside: its settings, the seconds and a hash of the weights. A start that was cut off goes on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import leanbayes as lb
from leanbayes.cli.card import MODEL
from leanbayes.cli.compare.ask import Ask, arguments_of, config_of, seeded, telling
from leanbayes.cli.compare.data import Sets
from leanbayes.cli.prepare import Prepared, prepare
from leanbayes.cli.settings_file import RunSettings
from leanbayes.convert import fingerprint_of
from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.storage import parse_json
from leanbayes.train.folder import differences, write_file

RECORD = "start.json"


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A start that is there.

    Attributes:
        seed: Of its weights and batches.
        seconds: Of the training, in the command that ended it.
        steps: Of the training.
        hash: sha256 over the sha256 of every tensor.
        jobs: Starts and runs that shared the device with it, and itself: its seconds are those of
            all.
        compiled: Whether its network was: the weights are others then, by rounding.
    """

    seed: int
    seconds: float
    steps: int
    hash: str
    jobs: int = 1
    compiled: bool = False


@dataclass(frozen=True)
class Starts:
    """Trains starts; one that is there is left as it is.

    Attributes:
        settings: Of the point estimate.
        ask: As for all runs.
        folder: Where they are kept.
        sets: The data.
        configs: What starts are, by seed, as far as they are known.
    """

    settings: RunSettings
    ask: Ask
    folder: str
    sets: Sets = field(default_factory=Sets)
    configs: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    def place(self, seed: int) -> Path:
        """The folder of one start."""
        return Path(self.folder) / f"start-{seed}"

    def config(self, seed: int) -> dict[str, Any]:
        """What a start is, as plain data; the network is built for it once a seed."""
        if seed not in self.configs:
            with torch.random.fork_rng(devices=[]):
                self.configs[seed] = _config(self._ready(seed), self.ask)
        return deepcopy(self.configs[seed])

    def found(self, seed: int) -> Begun | None:
        """The start of this seed, if it has been trained."""
        path = self.place(seed) / RECORD
        if not path.is_file():
            return None
        known = _read(path)
        return Begun(**{key: known[key] for key in Begun.__annotations__ if key in known})

    def __call__(self, seed: int) -> Begun:
        """Train it, or go on with it; where it is there, leave it as it is."""
        done = self.found(seed)
        if done is not None:
            return done
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            ready = self._ready(seed)
            config = json.loads(json.dumps(_config(ready, self.ask), default=str))
            folder = self.place(seed)
            fit = replace(ready.settings.fit, folder=str(folder), keep=1)
            arguments = {**arguments_of(ready), "config": fit}
            method, likelihood = ready.settings.method, ready.likelihood
            found = lb.adapt(ready.net, method, likelihood=likelihood, **arguments)
        begun = Begun(
            seed=seed,
            seconds=time.perf_counter() - start,
            steps=found.result.steps,
            hash=hash_of(found.model),
            jobs=self.ask.jobs,
            compiled=fit.compile,
        )
        lb.save(found.model, folder / MODEL)
        ready.card.write(folder)
        text = json.dumps({**asdict(begun), "config": config}, indent=1)
        write_file(folder / RECORD, text.encode())
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # it has ended: nobody goes on
        return begun

    def check(self, seed: int) -> None:
        """Refuse a start that is there, but is not the one asked for."""
        path = self.place(seed) / RECORD
        if not path.is_file():
            return
        known = _read(path)["config"]
        config = json.loads(json.dumps(self.config(seed), default=str))
        lines = differences(telling(known), telling(config), "", frozenset())
        if lines:
            raise ConfigError(
                f"{path.parent} holds a start with other settings: {'; '.join(lines)}. Choose "
                "another --keep (or --out), or the old settings to go on"
            )

    def _ready(self, seed: int) -> Prepared:
        settings = seeded(self.settings, seed, self.ask)
        data = self.sets.read(settings.data)
        torch.manual_seed(seed)
        return prepare(settings, data)


def _read(path: Path) -> dict[str, Any]:
    """What a start says of itself; older files have no `jobs` and no `compiled`."""
    advice = f"Remove {path.parent}, and the start is trained again"
    try:
        known: dict[str, Any] = parse_json(path, path.read_bytes())
    except CheckpointError as error:
        raise CheckpointError(f"{error}. {advice}") from None
    lacking = [key for key in ("seed", "seconds", "steps", "hash", "config") if key not in known]
    if lacking:
        raise CheckpointError(f"{path} is damaged: it has no {lacking[0]!r}. {advice}")
    return known


def _config(ready: Prepared, ask: Ask) -> dict[str, Any]:
    """Without what concerns predictions alone."""
    found = {k: v for k, v in config_of(ready, ask).items() if k not in ("samples", "suite")}
    return {**found, "data": {k: v for k, v in found["data"].items() if k != "part"}}


def hash_of(model: lb.BayesianModel) -> str:
    """One hash of all tensors of the network, by name."""
    found = fingerprint_of(lb.collapse(deepcopy(model)))
    lines = (f"{name} {value}\n" for name, value in sorted(found.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
