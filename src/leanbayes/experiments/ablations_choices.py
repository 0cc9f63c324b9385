"""Ablations in which one setting of a fine-tuned method changes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from torch import Tensor

from leanbayes.experiments.ablations_bench import Bench, figures
from leanbayes.experiments.ablations_training import ensemble, method_of, tuning
from leanbayes.experiments.experiment import Row
from leanbayes.methods import Method
from leanbayes.shifts import corrupt

if TYPE_CHECKING:
    from leanbayes.model import BayesianModel
    from leanbayes.sensitivity import Criterion

Work = Iterator[tuple[str, Callable[[], Row]]]
CRITERIA: Final[tuple[Criterion, ...]] = ("loss_grad", "output_jacobian")
SIDES: Final = ("in", "out", "both")


def members(bench: Bench) -> Work:
    """How many components a mixture has; the table's rows of rank_one, implicit and PSE."""
    plan = bench.plan
    for name, label in (("rank_one", "rank_one"), ("implicit", "implicit_4")):
        for count in plan.members:
            changes = {"members": count}
            yield f"{name} {count}", partial(_tuned, bench, "members", name, label, count, changes)
    for count in plan.candidates:
        changes, name = ensemble(plan, members=count), "shared_ensemble"
        yield f"{name} {count}", partial(_tuned, bench, "members", name, name, count, changes)


def ranks(bench: Bench) -> Work:
    """The rank of the factors that tell the candidates of PSE apart."""
    name = "shared_ensemble"
    for rank in bench.plan.ranks:
        changes = ensemble(bench.plan, rank=rank)
        yield f"{name} {rank}", partial(_tuned, bench, "rank", name, name, rank, changes)


def _tuned(
    bench: Bench, ablation: str, series: str, label: str, x: int, changes: dict[str, Any]
) -> Row:
    """Fine-tune a row of the table with another value of a field."""
    method = method_of(label, bench.num_data, **changes)
    done = bench.trained(method, tuning(bench.plan, label))
    return {"ablation": ablation, **bench.row(done, series, x)}


def rates(bench: Bench) -> Work:
    """How many parameters are random, and by what they are ranked; scores are measured once."""
    for criterion in CRITERIA:
        for rate in bench.plan.rates:
            yield f"{criterion} {100 * rate:g} %", partial(_partial, bench, criterion, rate)


def _partial(bench: Bench, criterion: Criterion, rate: float) -> Row:
    method = method_of("partial_1", bench.num_data, rate=rate, criterion=criterion)
    ranked = bench.scores(criterion)
    done = bench.trained(method, tuning(bench.plan, "partial_1"), scores=ranked)
    return {"ablation": "rate", **bench.row(done, criterion, 100 * rate)}


def likelihoods(bench: Bench) -> Work:
    """Average of the members' log-likelihoods, or the log of their mixture."""
    for kind in ("average", "mixture"):
        yield kind, partial(_likelihood, bench, kind)


def _likelihood(bench: Bench, kind: Literal["average", "mixture"]) -> Row:
    draws = bench.plan.likelihood_draws
    method = method_of("rank_one", bench.num_data, assign="tile")
    config = tuning(bench.plan, "rank_one", samples=draws, likelihood_of=kind)
    return {
        "ablation": "likelihood",
        **bench.row(bench.trained(method, config), "rank_one", kind),
    }


def factors(bench: Bench) -> Work:
    """Random factors on inputs, on outputs or on both; the other side has points."""
    for side in SIDES:
        method = partial(method_of, "rank_one", stochastic=side)
        yield side, partial(_factors, bench, method, side)


def _factors(bench: Bench, method: Callable[[int], Method], side: str) -> Row:
    done = bench.trained(method(bench.num_data), tuning(bench.plan, "rank_one"))
    return {
        "ablation": "factors",
        **bench.row(done, "rank_one", side, corrupted=_corrupted(bench, done.model)),
    }


def _corrupted(bench: Bench, model: BayesianModel) -> dict[str, Row]:
    """Figures of the first test images under every corruption, and of the same images clean."""
    plan = bench.plan
    x, y = (part[: plan.corrupted] for part in bench.data.test)
    images = {"clean": x, **{name: _changed(bench, x, name) for name in plan.corruptions}}
    return {k: figures(bench.predicted(model, found).probs, y) for k, found in images.items()}


def _changed(bench: Bench, x: Tensor, name: str) -> Tensor:
    """Images under a corruption, which knows pixels of [0, 1] alone."""
    scale, plan = bench.data.normalize, bench.plan
    pixels = (x if scale is None else scale.undo(x)).clamp(0, 1)
    found = corrupt(pixels, name, plan.severity, seed=plan.seed)
    return found if scale is None else scale(found)
