"""The ablation of draws: predictions of 1 to 200, single draws, and the mean network.

Draw s of a prediction depends on the seed and on s alone, so that the first S of 200 draws are the
prediction with S draws. A method is trained and drawn from once, for all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from leanbayes import metrics
from leanbayes.convert import bayesianize, collapse
from leanbayes.experiments.ablations_bench import Bench, Trained, figures, origin, scores
from leanbayes.experiments.ablations_training import method_of, tuning
from leanbayes.experiments.experiment import Row
from leanbayes.methods import MAP

# Rows of the table.
METHODS: Final = ("mean_field", "emp", "ecmp", "mc_dropout")
SPREAD: Final = ("accuracy", "nll", "ece")
F64: Final = torch.float64


@dataclass(frozen=True, eq=False)
class Seen:
    """What a trained method answers to the test images.

    Attributes:
        origin: How it came about.
        draws: Probabilities [S, N, C] of every draw.
        mean: The figures of its mean network.
        y: Labels.
    """

    origin: Row
    draws: Tensor
    mean: Row
    y: Tensor


def draws(bench: Bench) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Every method: numbers of draws, then single draws, then the mean network."""
    for name in METHODS:
        for count in bench.plan.draws:
            yield f"{name} {count}", partial(_averaged, bench, name, count)
        yield f"{name} single draws", partial(_single, bench, name)
        yield f"{name} mean network", partial(_mean, bench, name)


def seen(bench: Bench, name: str) -> Seen:
    """The answers of a method, which is trained when first asked for."""
    found = bench.once(f"draws {name}", partial(_seen, bench, name))
    assert isinstance(found, Seen)
    return found


def _seen(bench: Bench, name: str) -> Seen:
    done = bench.trained(method_of(name, bench.num_data), tuning(bench.plan, name))
    x, y = bench.data.test
    found = bench.predicted(done.model, x, samples=max(bench.plan.draws), keep_samples=True)
    assert found.samples is not None
    return Seen(origin(done), found.samples, _mean_network(bench, done), y.cpu())


def _mean_network(bench: Bench, done: Trained) -> Row:
    """Figures of the network of the posterior means; its draws have nothing to disagree on."""
    plain = bayesianize(collapse(done.model), MAP())
    x, y = bench.data.test
    return scores(bench.predicted(plain, x), y)


def _averaged(bench: Bench, name: str, count: int) -> Row:
    found = seen(bench, name)
    chosen = found.draws[:count].double()
    information = float(metrics.mutual_information(chosen).mean())
    row = {**figures(chosen.mean(0), found.y), "mutual_information": information}
    return _row(found, name, count, "average", row)


def _single(bench: Bench, name: str) -> Row:
    """Mean and standard deviation of the figures of draws taken one by one."""
    found = seen(bench, name)
    singles = [figures(probs.double(), found.y) for probs in found.draws[: bench.plan.singles]]
    columns = {k: torch.tensor([row[k] for row in singles], dtype=F64) for k in singles[0]}
    row: dict[str, Any] = {key: float(values.mean()) for key, values in columns.items()}
    row |= {f"{key}_sd": float(columns[key].std()) for key in SPREAD}
    return _row(found, name, 1, "single draws", {**row, "mutual_information": 0.0})


def _mean(bench: Bench, name: str) -> Row:
    found = seen(bench, name)
    return _row(found, name, 1, "mean network", found.mean)


def _row(found: Seen, name: str, count: int, kind: str, row: Row) -> Row:
    head = {"ablation": "samples", "series": name, "kind": kind, "x": count}
    return {**head, **row, **found.origin, "draws": count}
