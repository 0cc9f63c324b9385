"""A run in miniature that ckpt-chaos kills at every file event: `python chaos_target.py FOLDER`.

    pip install ckpt-chaos==0.1.8
    ckpt-chaos run --modes before,torn,term,unsynced --max-points 1000 --jobs 2 --timeout 120 \
        --step-regex "resumed from step (\\d+)" --checkpoint-glob "{out}/checkpoints/step-*" \
        --result-file "{out}/result" --fail-on \
        HARD_FAIL,SILENT_DIVERGENCE,LOST_WORK,CONTROL_FAIL \
        -- python tests/reliability/chaos_target.py {out}

Only Store, pack and unpack are at work, so that a failure is theirs. The result does not depend on
where it was interrupted. With KEEP=1 in the environment old checkpoints are removed on the way;
leave --checkpoint-glob out then, for ckpt-chaos cannot follow checkpoints that a run removes.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import torch

from leanbayes.train.state import generators, pack, set_generators, unpack
from leanbayes.train.store import Store

STEPS, EVERY = 8, 2


class Run:
    """Noisy descent with momentum: weights, optimiser and generators must all come back."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.store = Store(folder, keep=int(os.environ.get("KEEP", "100")))
        self.weight = torch.nn.Parameter(torch.randn(64))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1, momentum=0.9)
        self.step = 0

    def resume(self) -> None:
        found = self.store.newest()
        if found is not None:
            tree = unpack(found[1])
            self.step = tree["step"]
            self.weight.data.copy_(tree["weight"])
            self.optimizer.load_state_dict(tree["optimizer"])
            set_generators(tree["generators"])
        sys.stdout.write(f"resumed from step {self.step}\n")

    def save(self) -> None:
        tree = {
            "step": self.step,
            "weight": self.weight,
            "optimizer": self.optimizer.state_dict(),
            "generators": generators(),
        }
        self.store.save(self.step, pack(tree), best=self.step == EVERY)

    def advance(self) -> None:
        self.optimizer.zero_grad()
        (self.weight - torch.randn(64)).square().sum().backward()
        self.optimizer.step()
        self.step += 1

    def finish(self, result: Path) -> None:
        data = self.weight.detach().numpy().tobytes() + torch.randn(4).numpy().tobytes()
        beside = result.with_suffix(".new")
        beside.write_text(hashlib.sha256(data).hexdigest())
        beside.rename(result)


def main(folder: Path) -> int:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    run = Run(folder)
    run.resume()
    while run.step < STEPS and not stopped:
        run.advance()
        if run.step % EVERY == 0 or stopped:
            run.save()
    if stopped:
        return 143
    run.finish(folder / "result")
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(Path(sys.argv[1])))
