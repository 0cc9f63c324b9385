"""What a method costs: a training step and a prediction, as multiples of the deterministic network.

    python benchmarks/step_cost.py                               # ResNet-18 at width 16, an MLP
    python benchmarks/step_cost.py --net mlp --rounds 15 --json mlp.json
    python benchmarks/step_cost.py --device cuda --net wrn       # WRN-28-10, bf16, channels last

A step is forward, cross entropy, backward and SGD with momentum. A prediction of S samples is set
against S plain forward passes. Every measurement stands right beside one of the deterministic
network, in turns, and only their ratio counts: slow drifts of the machine cancel. Times are CPU
times of one thread. A new method is a new line of rows.py. README.md tells more.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leanbayes as lb
from record import write_record
from rows import ROWS, Row
from wide_resnet import measure_wide_resnet

NUM_DATA = 50_000
TURN = 0.05  # seconds that one of the two runs at least before the other has its turn
LEARNING_RATE = 1e-5  # small: the weights stay where they are, however many steps are timed
Work = Callable[[], object]


@dataclass(frozen=True)
class Net:
    """A network to measure on; `limited` where the limits of the rows apply."""

    title: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    limited: bool = False


NETS = {
    "resnet": Net(
        "ResNet-18 topology, width 16, 32x32",
        partial(lb.models.create, "resnet18", width=16, num_classes=10, stem="cifar"),
        (3, 32, 32),
        limited=True,
    ),
    "mlp": Net(
        "MLP 100-512-512-10",
        partial(lb.models.create, "mlp", inputs=100, hidden=(512, 512), outputs=10),
        (100,),
    ),
}


@dataclass
class Pair:
    """A piece of work, the deterministic work it is set against, and what was measured."""

    label: str
    what: str
    work: Work
    reference: Work
    runs: tuple[int, int] = (1, 1)
    turns: int = 1
    ratios: list[float] = field(default_factory=list)
    reference_ms: list[float] = field(default_factory=list)

    def warm_up(self, seconds: float) -> None:
        """Run both, and choose how many runs make a turn and how many turns a round."""
        own, reference = (timed(run, 2) and timed(run, 2) for run in (self.work, self.reference))
        self.runs = (math.ceil(TURN / own), math.ceil(TURN / reference))
        self.turns = max(1, round(seconds / (own * self.runs[0] + reference * self.runs[1])))

    def measure(self) -> None:
        """One round: the two in turns, who is first alternating too."""
        totals = [0.0, 0.0]
        for turn in range(self.turns):
            for which in (0, 1) if turn % 2 else (1, 0):
                run = (self.work, self.reference)[which]
                totals[which] += timed(run, self.runs[which]) / self.turns
        self.ratios.append(totals[0] / totals[1])
        self.reference_ms.append(1e3 * totals[1])


def keep_memory() -> bool:
    """Let glibc keep freed memory instead of handing it back to the system; True where it does.

    Pages that go back are cleared and mapped anew at the next step, up to a tenth of its time.
    Which of two networks pays for that depends on where their tensors happen to lie in the heap.
    """
    trim_threshold, mmap_max = -1, -4  # names of the settings in malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(trim_threshold, 2**31 - 1) & mallopt(mmap_max, 0))


def timed(run: Work, times: int) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - start) / times


def train_step(row: Row, net: nn.Module, x: Tensor, y: Tensor) -> Work:
    """A step of the method on its own copy of the network."""
    model = lb.bayesianize(copy.deepcopy(net).train(), row.method, example=x)
    opt = torch.optim.SGD(lb.param_groups(model, lr=LEARNING_RATE), momentum=0.9)
    handle = None if row.kl_in_graph else lb.attach_kl(opt, model, num_data=NUM_DATA)
    likelihood = lb.Categorical()
    options: dict[str, Any] = {"num_data": NUM_DATA, "include_kl": handle is None}

    def step() -> object:
        opt.zero_grad()
        lb.objective(model, (x, y), likelihood, **options).loss.backward()
        opt.step()
        return handle  # an edit lives as long as its handle

    return step


def plain_step(net: nn.Module, x: Tensor, y: Tensor) -> Work:
    """The same step of the deterministic network."""
    plain = copy.deepcopy(net).train()
    opt = torch.optim.SGD(plain.parameters(), lr=LEARNING_RATE, momentum=0.9)

    def step() -> None:
        opt.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        opt.step()

    return step


def plain_passes(net: nn.Module, x: Tensor, samples: int) -> Work:
    """So many forward passes of the deterministic network, in eval and inference mode."""
    plain = copy.deepcopy(net).eval()

    def run() -> None:
        with torch.inference_mode():
            for _ in range(samples):
                plain(x)

    return run


def prediction(row: Row, net: nn.Module, x: Tensor, args: argparse.Namespace) -> Work:
    """`lb.predict` with the method's own sampling."""
    model = lb.bayesianize(copy.deepcopy(net).eval(), row.method, example=x)
    options: dict[str, Any] = {"samples": args.samples, "chunk": args.chunk}
    return partial(lb.predict, model, x, likelihood=lb.Categorical(), **options)


def size_ratio(row: Row, net: nn.Module, x: Tensor) -> float:
    """Parameters and buffers of the converted network over those of the original."""
    return entries(lb.bayesianize(copy.deepcopy(net), row.method, example=x)) / entries(net)


def entries(net: nn.Module) -> int:
    """Number of entries of all parameters and buffers."""
    return sum(t.numel() for t in (*net.parameters(), *net.buffers()))


def measure(name: str, rows: tuple[Row, ...], args: argparse.Namespace) -> dict[str, Any]:
    """All rows on one network."""
    spec = NETS[name]
    torch.manual_seed(0)
    net, batch = spec.build(), args.batch or 64
    x, y = torch.randn(batch, *spec.shape), torch.randint(10, (batch,))
    step, passes = plain_step(net, x, y), plain_passes(net, x, args.samples)
    pairs = [Pair(r.label, "train", train_step(r, net, x, y), step) for r in rows]
    predicting = [r for r in rows if r.predicts]
    pairs += [Pair(r.label, "predict", prediction(r, net, x, args), passes) for r in predicting]
    for pair in pairs:
        pair.warm_up(args.seconds)
    for _ in range(args.rounds):
        for pair in pairs:
            pair.measure()
    sizes = {row.label: size_ratio(row, net, x) for row in rows}
    return {
        "title": spec.title,
        "parameters": sum(p.numel() for p in net.parameters()),
        "batch": batch,
        "train_ms": _reference(pairs, "train"),
        "forward_ms": _reference(pairs, "predict") / args.samples,
        "rows": [_figures(row, pairs, sizes[row.label], spec.limited) for row in rows],
    }


def _reference(pairs: list[Pair], what: str) -> float:
    times = [ms for pair in pairs if pair.what == what for ms in pair.reference_ms]
    return median(times) if times else math.nan


def _figures(row: Row, pairs: list[Pair], size: float, limited: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {"label": row.label, "method": row.method.to_json()}
    limits = {"train": row.train, "predict": row.predict} if limited else {}
    for pair in pairs:
        if pair.label == row.label:
            figures[pair.what] = _judged(pair.ratios, limits.get(pair.what, math.inf))
    return {**figures, "size": _judged([size], row.size)}


def _judged(ratios: list[float], limit: float) -> dict[str, Any]:
    cell: dict[str, Any] = {"median": median(ratios), "min": min(ratios), "max": max(ratios)}
    cell["ratios"] = ratios
    if math.isfinite(limit):
        cell["limit"] = limit
        cell["verdict"] = "pass" if cell["median"] <= limit else "miss"
    return cell


def table(result: dict[str, Any]) -> str:
    """The figures of one network as a Markdown table."""
    head = f"{result['title']}: {result['parameters']:,} parameters, batch {result['batch']}"
    lines = [
        f"\n{head}; deterministic step {result['train_ms']:.3g} ms, forward "
        f"{result['forward_ms']:.3g} ms\n",
        "| method | train step x | predict x forwards | parameters + buffers x |",
        "|---|---|---|---|",
    ]
    for row in result["rows"]:
        cells = [_cell(row.get(what)) for what in ("train", "predict", "size")]
        lines.append(f"| {row['label']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "as above"
    text = f"{cell['median']:.3f}"
    if len(cell["ratios"]) > 1:
        text += f" ({cell['min']:.2f}-{cell['max']:.2f})"
    return f"{text} <= {cell['limit']:.2f}: {cell['verdict']}" if "limit" in cell else text


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--net", choices=("resnet", "mlp", "all", "wrn"), default="all")
    parser.add_argument("--rows", default="", help="only labels that hold this text")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a row in a round")
    parser.add_argument("--samples", type=int, default=20, help="of a prediction; wrn: 4")
    parser.add_argument("--chunk", type=int, help="samples folded into one pass")
    parser.add_argument("--batch", type=int, help="default 64; wrn: 256")
    parser.add_argument(
        "--allocator",
        choices=("keep", "system"),
        default="keep",
        help="keep: freed memory stays in the process, which halves the noise",
    )
    parser.add_argument("--json", help="write figures, versions and the command here")
    parser.add_argument("--device", default="cpu", help="wrn only")
    parser.add_argument("--depth", type=int, default=28, help="wrn only")
    parser.add_argument("--width", type=int, default=10, help="wrn only")
    parser.add_argument("--eager", action="store_true", help="wrn only: leave torch.compile out")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    rows = tuple(row for row in ROWS if args.rows in row.label)
    if args.net == "wrn":
        results: dict[str, Any] = {"wrn": measure_wide_resnet(args)}
    else:
        torch.set_num_threads(1)
        if args.allocator == "keep" and not keep_memory():
            args.allocator = "system"
        results = {}
        for name in NETS if args.net == "all" else [args.net]:
            results[name] = measure(name, rows, args)
            print(table(results[name]), flush=True)
    if args.json:
        write_record(args.json, results, vars(args))


if __name__ == "__main__":
    main()
