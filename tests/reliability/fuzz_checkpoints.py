"""Damage checkpoints in many ways and load them: `python fuzz_checkpoints.py FOLDER COUNT SEED`.

Prints one JSON object: cases, refusals, and what went wrong. A signal ends the process, which the
caller sees. Every refusal must be a CheckpointError that names a file of the checkpoint.
"""

import json
import random
import shutil
import sys
import time
from pathlib import Path

import torch
from damage import bombs, damaged, forged
from torch import nn

import leanbayes as lb
from leanbayes.train.state import generators, pack, unpack
from leanbayes.train.store import Store

PEAK, NOW = "VmHWM", "VmRSS"


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def tensors_of(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree
    return (
        [t for item in items for t in tensors_of(item)]
        if isinstance(tree, dict | list | tuple)
        else []
    )


def fingerprint(tensors):
    plain = [t.detach().contiguous() for t in tensors]
    return {(str(t.dtype), t.shape, t.view(-1).view(torch.uint8).numpy().tobytes()) for t in plain}


class RunCheckpoint:
    """The state of a run in a Store."""

    def __init__(self, folder):
        self.folder = folder / "run"
        net = make_net()
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()
        self.tree = {
            "step": 7,
            "rates": (0.1, float("inf")),
            "model": dict(net.state_dict()),
            "optimizer": optimizer.state_dict(),
            "generators": [generators()],
            "history": [{"nll": 0.25, "step": 3}],
        }
        self.path = Store(self.folder).save(7, pack(self.tree), best=True)
        self.known = fingerprint(tensors_of(self.tree))

    def load(self):
        return unpack(Store(self.folder).read(7), self.path)

    def is_right(self, tree):
        return fingerprint(tensors_of(tree)) <= self.known

    def is_untouched(self):
        return True


class ModelCheckpoint:
    """A model of `lb.save`."""

    def __init__(self, folder, method):
        self.path = folder / method.name
        model = lb.bayesianize(make_net(), method, likelihood=lb.Gaussian(learn=True))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
        lb.save(model, self.path)
        self.known = fingerprint(model.state_dict().values())

    def load(self):
        self.net = make_net()
        self.before = fingerprint(self.net.state_dict().values())
        return lb.load(self.net, self.path)

    def is_right(self, model):
        return fingerprint(model.state_dict().values()) <= self.known

    def is_untouched(self):
        same = fingerprint(self.net.state_dict().values()) == self.before
        return same and all(type(m).__module__.startswith("torch.") for m in self.net)


def memory(name):
    """A figure of this process in bytes; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def forget_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def size_of(path):
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())


def judged(subject, must_refuse):
    """What is wrong with the way this checkpoint was read; None where nothing is."""
    try:
        value = subject.load()
    except lb.CheckpointError as error:
        names = ("MANIFEST.json", "best", "state.", "leanbayes.json", "model.safetensors")
        if str(subject.path) not in str(error) and not any(n in str(error) for n in names):
            return f"no file is named: {error}"
        return None if subject.is_untouched() else "the network was changed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if must_refuse or not subject.is_right(value):
        return "loaded"
    return None


def one_case(subject, kept, rng, payloads):
    shutil.rmtree(subject.path)
    shutil.copytree(kept, subject.path)
    if rng.random() < 0.6:
        words, must_refuse = damaged(subject.path, rng, payloads), True
    else:
        words, must_refuse = forged(subject.path, rng, payloads)
    size, measured = size_of(subject.path), forget_peak()
    before, start = memory(NOW), time.process_time()
    wrong = judged(subject, must_refuse)
    seconds, grown = time.process_time() - start, memory(PEAK) - before
    if wrong is None and measured and grown > 2.2 * size + 50e6:
        wrong = f"{grown / 1e6:.0f} MB for {size / 1e6:.1f} MB"
    if wrong is None and seconds > 2:
        wrong = f"{seconds:.1f} s"
    return words, wrong, must_refuse


def main(folder, count, seed):
    sentinel = folder / "code-was-run"
    payloads = bombs(sentinel)
    methods = [lb.MeanField(), lb.BatchEnsemble(), lb.SWAG()]
    subjects = [RunCheckpoint(folder), *(ModelCheckpoint(folder, method) for method in methods)]
    kept = [shutil.copytree(s.path, folder / "kept" / str(i)) for i, s in enumerate(subjects)]
    failures, refusals = [], 0
    for case in range(count):
        rng = random.Random(seed * 1_000_003 + case)
        which = case % len(subjects)
        words, wrong, refused = one_case(subjects[which], kept[which], rng, payloads)
        refusals += refused
        if wrong:
            failures.append([case, type(subjects[which]).__name__, words, wrong[:300]])
    for subject, copy in zip(subjects, kept, strict=True):
        shutil.rmtree(subject.path)
        shutil.copytree(copy, subject.path)
        assert subject.is_right(subject.load())
    return {
        "cases": count,
        "refused": refusals,
        "failures": failures,
        "code_run": sentinel.exists(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
