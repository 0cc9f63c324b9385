"""What a method costs: a training step and a prediction, as multiples of the deterministic network.

    python benchmarks/step_cost.py                               # ResNet-18 at width 16, an MLP
    python benchmarks/step_cost.py --net mlp --rounds 15 --json mlp.json
    python benchmarks/step_cost.py --device cuda --net wrn       # WRN-28-10, bf16, channels last

A step is forward, cross entropy, backward and SGD with momentum. A prediction of S samples is set
against S plain forward passes. Every measurement stands right beside one of the deterministic
network, in turns, and only their ratio counts: slow drifts of the machine cancel. Times are CPU
times of one thread. A new method is a new line of ROWS.
"""

from __future__ import annotations

import argparse
import copy
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
from wide_resnet import measure_wide_resnet

NUM_DATA = 50_000
LEARNING_RATE = 1e-5  # small: the weights stay where they are, however many steps are timed
Work = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line of the table; the limits on time are those for the ResNet."""

    label: str
    method: lb.Method
    train: float = math.inf
    predict: float = math.inf
    size: float = math.inf
    kl_in_graph: bool = False


ROWS = (
    Row("MeanField shared", lb.MeanField(estimator="shared"), 1.08, 1.10, 2.0),
    Row("MeanField auto", lb.MeanField(), 2.3, 1.10, 2.0),
    Row("MeanField exemplar", lb.MeanField(estimator="exemplar"), size=2.0),
    Row("MeanField shared, KL in graph", lb.MeanField(estimator="shared"), kl_in_graph=True),
)


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
    times: tuple[int, int] = (1, 1)
    ratios: list[float] = field(default_factory=list)
    reference_ms: list[float] = field(default_factory=list)

    def warm_up(self, seconds: float) -> None:
        """Run both, and choose how often each is repeated so that one timing lasts `seconds`."""
        counts = []
        for run in (self.work, self.reference):
            timed(run, 2)
            counts.append(max(1, round(seconds / timed(run, 2))))
        self.times = (counts[0], counts[1])

    def measure(self, swap: bool) -> None:
        """Time the two side by side; the order alternates from round to round."""
        both = (self.work, self.times[0]), (self.reference, self.times[1])
        first, second = (timed(run, times) for run, times in (both[::-1] if swap else both))
        own, reference = (second, first) if swap else (first, second)
        self.ratios.append(own / reference)
        self.reference_ms.append(1e3 * reference)


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
    pairs += [Pair(r.label, "predict", prediction(r, net, x, args), passes) for r in rows]
    for pair in pairs:
        pair.warm_up(args.seconds)
    for index in range(args.rounds):
        for pair in pairs:
            pair.measure(swap=index % 2 == 1)
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
    return median(ms for pair in pairs if pair.what == what for ms in pair.reference_ms)


def _figures(row: Row, pairs: list[Pair], size: float, limited: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {"label": row.label, "method": row.method.to_json()}
    for what, limit in (("train", row.train), ("predict", row.predict)):
        ratios = next(p.ratios for p in pairs if (p.label, p.what) == (row.label, what))
        spread = {"median": median(ratios), "min": min(ratios), "max": max(ratios)}
        figures[what] = {**spread, "ratios": ratios, "limit": limit if limited else math.inf}
    figures["size"] = {"median": size, "limit": row.size}
    for cell in (figures["train"], figures["predict"], figures["size"]):
        cell["limit"] = cell["limit"] if math.isfinite(cell["limit"]) else None
        cell["verdict"] = _verdict(cell["median"], cell["limit"])
    return figures


def _verdict(value: float, limit: float | None) -> str | None:
    if limit is None:
        return None
    return "pass" if value <= limit else "miss"


def table(result: dict[str, Any]) -> str:
    """The figures of one network as a Markdown table."""
    lines = [
        f"\n{result['title']}: {result['parameters']:,} parameters, batch {result['batch']}; "
        f"deterministic step {result['train_ms']:.3g} ms, forward {result['forward_ms']:.3g} ms\n",
        "| method | train step x | predict x forwards | parameters + buffers x |",
        "|---|---|---|---|",
    ]
    for row in result["rows"]:
        cells = [_cell(row[what]) for what in ("train", "predict", "size")]
        lines.append(f"| {row['label']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any]) -> str:
    text = f"{cell['median']:.3f}"
    if "min" in cell:
        text += f" ({cell['min']:.2f}-{cell['max']:.2f})"
    return text if cell["limit"] is None else f"{text} <= {cell['limit']}: {cell['verdict']}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--net", choices=("resnet", "mlp", "all", "wrn"), default="all")
    parser.add_argument("--rows", default="", help="only labels that hold this text")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one timing")
    parser.add_argument("--samples", type=int, default=20, help="of a prediction; wrn: 4")
    parser.add_argument("--chunk", type=int, help="samples folded into one pass")
    parser.add_argument("--batch", type=int, help="default 64; wrn: 256")
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
        results = {}
        for name in NETS if args.net == "all" else [args.net]:
            results[name] = measure(name, rows, args)
            print(table(results[name]), flush=True)
    if args.json:
        write_record(args.json, results, vars(args))


if __name__ == "__main__":
    main()
