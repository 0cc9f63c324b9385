"""The one path of `train`, `adapt` and `compare`: from settings to a folder with a model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leanbayes.cli.settings_file import RunSettings
    from leanbayes.train.adapt import Adapted


def run(settings: RunSettings) -> Adapted:
    """What the file says, from the first to the last step; the model is saved beside the run."""
    import torch

    import leanbayes as lb
    from leanbayes.cli.card import MODEL
    from leanbayes.cli.prepare import prepare
    from leanbayes.cli.record_file import alone_in

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.fit.seed)
        found = prepare(settings)
        options = found.arguments()
        likelihood = found.likelihood
        method, config = settings.method, settings.fit
        folder = _own_folder(config.folder)
        with alone_in(folder, "--folder", "checkpoints"):
            done = lb.adapt(found.net, method, likelihood=likelihood, config=config, **options)
            if folder is not None:
                lb.save(done.model, folder / MODEL)
                found.card.write(folder)
    return done


def _own_folder(place: str | None) -> Path | None:
    """The folder of the first process, made; where it cannot be the training says so."""
    if place is None or not is_first():
        return None
    folder = Path(place)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_first() -> bool:
    """True in the process that speaks and writes."""
    from leanbayes.train.processes import Processes

    return Processes.found().rank == 0
