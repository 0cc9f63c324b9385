"""The cost at scale: WRN-28-10 in bf16 and channels last, eager and compiled, time and memory.

Every cell builds its own model, so that the peak memory is its own. Ratios are to the deterministic
network of the same column (eager or compiled). A cell that torch.compile cannot do says why.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leanbayes as lb
from rows import ROWS

NUM_DATA = 50_000
SAMPLES = 4
STEPS = 5  # runs in one timing
Work = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """What all cells share."""

    device: torch.device
    depth: int
    width: int
    batch: int
    rounds: int

    def net(self) -> nn.Module:
        """A fresh network, channels last, on the device."""
        torch.manual_seed(0)
        net = lb.models.create("wide_resnet", depth=self.depth, width=self.width)
        return net.to(self.device, memory_format=torch.channels_last)

    def data(self) -> tuple[Tensor, Tensor]:
        """One batch of noise."""
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(self.batch, 3, 32, 32, generator=generator)
        y = torch.randint(10, (self.batch,), generator=generator)
        return x.to(self.device, memory_format=torch.channels_last), y.to(self.device)

    def autocast(self) -> AbstractContextManager[None]:
        """Bfloat16 where PyTorch thinks it right."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def compiled_if(module: nn.Module, compiled: bool) -> nn.Module:
    return torch.compile(module) if compiled else module  # type: ignore[return-value]


def plain_step(setting: Setting, compiled: bool) -> Work:
    """A training step of the deterministic network."""
    net, (x, y) = setting.net().train(), setting.data()
    opt = torch.optim.SGD(net.parameters(), lr=1e-5, momentum=0.9)
    forward = compiled_if(net, compiled)

    def step() -> None:
        opt.zero_grad()
        with setting.autocast():
            loss = F.cross_entropy(forward(x), y)
        loss.backward()
        opt.step()

    return step


def method_step(method: lb.Method, setting: Setting, compiled: bool) -> Work:
    """A training step of a method, the KL as an edit of the gradients."""
    x, y = setting.data()
    model = lb.bayesianize(setting.net().train(), method, example=x[:2])
    opt = torch.optim.SGD(lb.param_groups(model, lr=1e-5), momentum=0.9)
    handle = lb.attach_kl(opt, model, num_data=NUM_DATA)
    forward, likelihood = compiled_if(model, compiled), lb.Categorical()

    def step() -> object:
        opt.zero_grad()
        with setting.autocast():
            loss = lb.objective(forward, (x, y), likelihood, include_kl=False).loss
        loss.backward()
        opt.step()
        return handle  # an edit lives as long as its handle

    return step


def plain_passes(setting: Setting, compiled: bool) -> Work:
    """As many forward passes of the deterministic network as a prediction has samples."""
    net, (x, _) = compiled_if(setting.net().eval(), compiled), setting.data()

    def run() -> None:
        with torch.inference_mode(), setting.autocast():
            for _ in range(SAMPLES):
                net(x)

    return run


def prediction(method: lb.Method, chunk: int, setting: Setting, compiled: bool) -> Work:
    """`lb.predict` with a given number of samples folded into a pass."""
    x, _ = setting.data()
    model = lb.bayesianize(setting.net().eval(), method, example=x[:2])
    forward, likelihood = compiled_if(model, compiled), lb.Categorical()

    def run() -> None:
        with setting.autocast(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of members that do not predict: the price is theirs
            lb.predict(forward, x, likelihood=likelihood, samples=SAMPLES, chunk=chunk)

    return run


SHARED = lb.MeanField(estimator="shared")
Cell = tuple[str, str, Callable[[Setting, bool], Work]]


def cells(labels: str) -> list[Cell]:
    """The deterministic network, and a step and a prediction of every method."""
    methods = {row.label: row.method for row in ROWS if not row.kl_in_graph}
    chosen = {label: method for label, method in methods.items() if labels in label}
    step: list[Cell] = [("train", label, partial(method_step, m)) for label, m in chosen.items()]
    passes: list[Cell] = [
        ("predict", label, partial(prediction, method, 1)) for label, method in chosen.items()
    ]
    folded: Cell = ("predict", "MeanField shared, 4 folded", partial(prediction, SHARED, SAMPLES))
    return [
        ("train", "deterministic", plain_step),
        *step,
        ("predict", "deterministic", plain_passes),
        *passes,
        *([folded] if labels in folded[1] else []),
    ]


def measure_wide_resnet(args: argparse.Namespace) -> dict[str, Any]:
    """All cells, printed as they come."""
    torch.backends.cudnn.benchmark = True
    device = torch.device(args.device)
    setting = Setting(device, args.depth, args.width, args.batch or 256, args.rounds)
    parameters = sum(p.numel() for p in setting.net().parameters())
    print(
        f"\nWRN-{args.depth}-{args.width}: {parameters:,} parameters, batch {setting.batch}, "
        f"bf16, channels last, {device}; prediction of {SAMPLES} samples\n\n"
        "| what | method | mode | ms (min-max) | x | peak GiB | first call s |\n"
        "|---|---|---|---|---|---|---|",
        flush=True,
    )
    figures: list[dict[str, Any]] = []
    for compiled in (False,) if args.eager else (False, True):
        for what, label, build in cells(args.rows):
            cell = {"what": what, "label": label, "compiled": compiled}
            cell |= measure_cell(partial(build, setting, compiled), setting)
            figures.append(with_ratio(cell, figures))
            print(line(figures[-1]), flush=True)
    return {"parameters": parameters, "batch": setting.batch, "cells": figures}


def measure_cell(build: Callable[[], Work], setting: Setting) -> dict[str, Any]:
    """Time and peak memory of one cell; an error instead where it cannot run."""
    release()
    try:
        return timings(build(), setting)
    except Exception as error:  # the other cells still count
        return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"}


def timings(work: Work, setting: Setting) -> dict[str, Any]:
    """Warm up (and compile), then time rounds of several runs."""
    start = time.perf_counter()
    work()
    synchronise(setting.device)
    first = time.perf_counter() - start
    for _ in range(3):
        work()
    if setting.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    rounds = [milliseconds(work, setting.device) for _ in range(setting.rounds)]
    peak = torch.cuda.max_memory_allocated() if setting.device.type == "cuda" else None
    spread = {"ms": median(rounds), "min": min(rounds), "max": max(rounds)}
    return {**spread, "peak_bytes": peak, "first_call_s": first}


def milliseconds(work: Work, device: torch.device) -> float:
    """Time of one run: by events on a GPU, CPU time elsewhere."""
    if device.type != "cuda":
        begin = time.process_time()
        for _ in range(STEPS):
            work()
        return 1e3 * (time.process_time() - begin) / STEPS
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(STEPS):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / STEPS


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def release() -> None:
    """Let go of the last cell's model and graphs."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def with_ratio(cell: dict[str, Any], before: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the ratio to the deterministic cell of the same kind."""
    same = (cell["what"], "deterministic", cell["compiled"])
    for other in (*before, cell):
        if (other["what"], other["label"], other["compiled"]) == same and "ms" in other:
            cell["ratio"] = cell["ms"] / other["ms"] if "ms" in cell else None
    return cell


def line(cell: dict[str, Any]) -> str:
    """One row of the printed table."""
    head = f"| {cell['what']} | {cell['label']} | {'compiled' if cell['compiled'] else 'eager'} |"
    if "error" in cell:
        return f"{head} {cell['error']} | | | |"
    peak = "-" if cell["peak_bytes"] is None else f"{cell['peak_bytes'] / 2**30:.2f}"
    ratio = f"{cell['ratio']:.3f}" if cell.get("ratio") else "-"
    times = f"{cell['ms']:.1f} ({cell['min']:.1f}-{cell['max']:.1f})"
    return f"{head} {times} | {ratio} | {peak} | {cell['first_call_s']:.1f} |"
