"""The one path of `train`, `adapt` and `compare`: from settings to a folder with a model."""

from __future__ import annotations

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

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.fit.seed)
        found = prepare(settings)
        options = found.arguments()
        likelihood = found.likelihood
        method, config = settings.method, settings.fit
        done = lb.adapt(found.net, method, likelihood=likelihood, config=config, **options)
    if settings.fit.folder is not None and is_first():
        folder = Path(settings.fit.folder)
        lb.save(done.model, folder / MODEL)
        found.card.write(folder)
    return done


def is_first() -> bool:
    """True in the process that speaks and writes."""
    from leanbayes.train.processes import Processes

    return Processes.found().rank == 0
