"""A small run that others kill: `python target.py FOLDER [METHOD]`, alone or under torchrun.

Leaves the sha256 of the final weights in FOLDER/digest. The problem takes a second or two, so that
a random moment falls into it. Under ckpt-chaos, with the options that chaos_target.py gives:

    TARGET_STEPS=30 KEEP=100 ckpt-chaos run ... --result-file "{out}/digest" \\
        -- python tests/reliability/target.py {out}
"""

import hashlib
import os
import sys
from pathlib import Path

import torch
from torch import nn

import leanbayes as lb

STEPS = int(os.environ.get("TARGET_STEPS", "300"))
KEEP = int(os.environ.get("KEEP", "2"))


class Said(lb.Callback):
    """Says where the run begins, for ckpt-chaos."""

    def on_start(self, run: lb.Run) -> None:
        sys.stdout.write(f"resumed from step {run.step}\n")


def digest(model: lb.BayesianModel) -> str:
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def main(folder: str, method: str = "mean_field") -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(256, 20), torch.randint(0, 5, (256,))
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    model = lb.bayesianize(net, lb.methods()[method](), example=x[:8])
    config = lb.FitConfig(
        steps=STEPS,
        batch_size=32,
        lr=0.02,
        device="cpu",
        save_every=10,
        keep=KEEP,
        folder=folder,
        seed=1,
        log_every=50,
    )
    lb.fit(model, (x, y), lb.Categorical(), config=config, callbacks=[Said()])
    if int(os.environ.get("RANK", "0")) == 0:
        written = Path(folder, "digest.new")
        written.write_text(digest(model))
        written.rename(Path(folder, "digest"))


if __name__ == "__main__":
    main(*sys.argv[1:])
