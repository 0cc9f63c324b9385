"""A training step of every method on one GPU under DDP and FSDP2, by the trainer itself.

    python benchmarks/wrapped_steps.py --json wrapped.json            # WRN-28-10, bf16, NCCL
    python benchmarks/wrapped_steps.py --device cpu --depth 10 --width 1 --batch 8 --steps 2

One process with a process group, as torchrun would start it. Every cell builds its own model; a
cell that fails says why, and the file is written after every cell.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch

import leanbayes as lb
from leanbayes.train.loop import Trainer
from leanbayes.train.runtime import Runtime
from record import write_record
from rows import ROWS

SKIPPED = ("KL in graph", "by block", "Cauchy", "by position", "exemplar")  # dearer kin of a row


def measure(method: lb.Method, config: lb.FitConfig, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a step and peak memory; what was wrong where it cannot run."""
    torch.manual_seed(0)
    device = torch.device(args.device)
    x = torch.randn(4 * args.batch, 3, 32, 32, device=device)
    y = torch.randint(10, (len(x),), device=device)
    net = lb.models.create("wide_resnet", depth=args.depth, width=args.width).to(device)
    model = lb.bayesianize(net, method, example=x[:2])
    on_gpu = device.type == "cuda"
    with Runtime.of(config) as runtime:
        trainer = Trainer(model, lb.Categorical(), config, runtime)
        trainer.prepare((x, y))
        trainer.model.train()
        trainer.begin()
        batches = trainer.batches()
        start = time.perf_counter()
        for _ in range(3):
            trainer.advance(*next(batches))
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        first, times = time.perf_counter() - start, []
        for _ in range(args.steps):
            start = time.perf_counter()
            trainer.advance(*next(batches))
            if on_gpu:
                torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
        trainer.stepper.guard.settle()
        peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None
    return {"ms": median(times), "GiB": peak, "first_s": first}


def cell(method: lb.Method, config: lb.FitConfig, args: argparse.Namespace) -> dict[str, Any]:
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        return measure(method, config, args)
    except Exception as error:  # the other cells still count
        return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--depth", type=int, default=28)
    parser.add_argument("--width", type=int, default=10)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", default="", help="only labels that hold this text")
    parser.add_argument("--modes", default="ddp,fsdp2,ddp+compile")
    parser.add_argument("--seconds", type=float, default=500.0, help="no new cell after that")
    parser.add_argument("--json")
    args = parser.parse_args()
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_PORT": 29511}.items():
        os.environ.setdefault(name, str(value))
    os.environ.setdefault("MASTER_ADDR", "localhost")
    base = lb.FitConfig(
        steps=10**6,
        batch_size=args.batch,
        lr=1e-5,
        progress=False,
        device=args.device,
        precision="bf16",
        log_every=1000,
    )
    every = {"MAP": lb.MAP(), **{row.label: row.method for row in ROWS}}
    wanted = [n for n in every if args.rows in n and not any(word in n for word in SKIPPED)]
    methods = {label: every[label] for label in wanted}
    results: dict[str, dict[str, Any]] = {}
    begin = time.perf_counter()
    for mode in args.modes.split(","):
        strategy, _, compiled = mode.partition("+")
        config = replace(base, strategy=strategy, compile=bool(compiled))
        for label, method in methods.items():
            if time.perf_counter() - begin > args.seconds:
                found: dict[str, Any] = {"error": "not run: out of time"}
            else:
                found = cell(method, config, args)
            results.setdefault(mode, {})[label] = found
            print(mode, label, found, flush=True)
            if args.json:
                write_record(args.json, results, vars(args))


if __name__ == "__main__":
    main()
