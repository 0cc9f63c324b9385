"""Train a Bayesian network, kill the run, and go on as if nothing had happened.

Run:       python examples/03_training.py     (about 40 seconds; 12 with --smoke)
Expected:  point estimate: nll 0.511, accuracy 0.822
           stopped at step 20 with exit code 143
           went on from step 20
           mean field: nll 0.516, accuracy 0.834
           the same bits as a run that was not stopped: True
"""

import os
import signal
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import leanbayes as lb
from leanbayes.train.callbacks import Run

SMOKE = "--smoke" in sys.argv
IMAGES, EPOCHS = (1200, 2) if SMOKE else (5000, 8)
STOP = 20  # the step at which the run is asked to end

splits = lb.data.fashion_mini()
train = splits.x_train[:IMAGES], splits.y_train[:IMAGES]
data: dict[str, Any] = {"data": train, "validation": (splits.x_test[:1000], splits.y_test[:1000])}


def words(figures: Mapping[str, float]) -> str:
    """Figures in a line."""
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items())


class Stop(lb.Callback):
    """What a cluster does when somebody else needs the machine."""

    def on_step(self, run: Run, _figures: Mapping[str, float]) -> None:
        """Send the signal, once."""
        if run.step == STOP:
            os.kill(os.getpid(), signal.SIGTERM)


class Resumed(lb.Callback):
    """Tells where a run starts."""

    def on_start(self, run: Run) -> None:
        """The step is that of the checkpoint."""
        print(f"went on from step {run.step}")


# Your trained network; here a point estimate, trained by the same function.
torch.manual_seed(0)
net = lb.models.create("lenet", num_classes=10)
config = lb.FitConfig(epochs=EPOCHS, batch_size=64, optimizer="AdamW", lr=1e-2, progress=False)
point = lb.adapt(net, lb.MAP(), config=config, **data)
trained = lb.collapse(point.model)
print(f"point estimate: {words(point.figures)}")

# Every number of the Bayesian fine-tuning, and where it is kept.
config = replace(config, epochs=max(2, EPOCHS // 2), lr=1e-3, posterior_lr=5e-3)


def adapt(folder: Path, *callbacks: lb.Callback) -> lb.Adapted:
    """From the trained network, or from where the folder's run was cut off."""
    own = replace(config, folder=str(folder), save_every=7, log_every=10)
    torch.manual_seed(1)
    return lb.adapt(deepcopy(trained), lb.MeanField(), config=own, callbacks=callbacks, **data)


with TemporaryDirectory() as place:
    try:
        adapt(Path(place) / "stopped", Stop())
    except SystemExit as stop:
        print(f"stopped at step {STOP} with exit code {stop.code}")
    again = adapt(Path(place) / "stopped", Resumed())
    whole = adapt(Path(place) / "whole")

print(f"mean field: {words(again.figures)}")
pairs = zip(again.model.state_dict().values(), whole.model.state_dict().values(), strict=True)
same = all(torch.equal(a, b) for a, b in pairs)
print(f"the same bits as a run that was not stopped: {same}")
