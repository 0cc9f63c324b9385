"""Ablations of the training itself: its course, its margin, and where it starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from leanbayes import metrics
from leanbayes.experiments.ablations_bench import Bench, Trained
from leanbayes.experiments.ablations_training import (
    ensemble,
    method_of,
    pretraining,
    regularised,
    tuning,
)
from leanbayes.experiments.experiment import Row
from leanbayes.experiments.open_set_data import Budget, NoisyBatches
from leanbayes.experiments.verification import told_apart
from leanbayes.experiments.verification_attack import pgd
from leanbayes.methods import Method

Work = Iterator[tuple[str, Callable[[], Row]]]
# Rows of the table, fine-tuned and from scratch, and the rate of what is new there as a share of
# the network's: that of the table.
PAIRS: Final = {
    "mean_field": ("vi_scratch", 1.0),
    "shared_ensemble": ("shared_ensemble_scratch", 0.1),
}


def curves(bench: Bench) -> Work:
    """The sensitive parameters of the trained network, there and on random weights; and VI."""
    yield "partial from the trained network", partial(_partial_curve, bench, scratch=False)
    yield "the same mask from random weights", partial(_partial_curve, bench, scratch=True)
    yield "mean_field from scratch", partial(_vi_curve, bench)


def _partial_curve(bench: Bench, *, scratch: bool) -> Row:
    method = method_of("partial_5", bench.num_data, rate=bench.plan.curve_rate)
    done = course(bench, method, scratch=scratch, masked=True)
    series = "the same mask from random weights" if scratch else "partial from the trained network"
    return _curve_row(bench, done, series, scratch=scratch)


def _vi_curve(bench: Bench) -> Row:
    done = course(bench, method_of("vi_scratch", bench.num_data), scratch=True, masked=False)
    return _curve_row(bench, done, "mean_field from scratch", scratch=True)


def course(bench: Bench, method: Method, *, scratch: bool, masked: bool) -> Trained:
    """Train with figures of the test images after every epoch.

    One set of scores, of the trained network, chooses the mask wherever the weights start from.
    """
    plan = bench.plan
    config = pretraining(plan) if scratch else tuning(plan, "partial_5")
    ranked = bench.scores("output_jacobian") if masked else None
    watched: dict[str, Any] = {"validation": bench.data.test, "scores": ranked}
    config = replace(config, evaluate_samples=plan.curve_draws)
    return bench.trained(method, config, scratch=scratch, **watched)


def _curve_row(bench: Bench, done: Trained, series: str, *, scratch: bool) -> Row:
    history = done.result.history
    curve = {
        "epoch": list(range(1, len(history) + 1)),
        **{key: [found[key] for found in history] for key in ("nll", "accuracy")},
    }
    before = 0 if scratch else bench.plan.epochs
    return {
        "ablation": "curve",
        **bench.row(done, series, done.config.epochs, curve=curve, epochs_before=before),
    }


def margins(bench: Bench) -> Work:
    """The regulariser's margin, from none of it (0) to no margin (None)."""
    for gamma in (0.0, *bench.plan.gammas):
        yield f"mean_field {gamma}", partial(_margin, bench, gamma)


def _margin(bench: Bench, gamma: float | None) -> Row:
    plan, data = bench.plan, bench.data
    method = method_of("mean_field", bench.num_data, init_log_std=plan.reg_log_std)
    config = regularised(plan, gamma, bench.num_data)
    # Noisy images are cropped and mirrored with the clean ones, by the training.
    noise = NoisyBatches(data, partial(data.noisy, eps=plan.eps), plan.batch_size // 4)
    done = bench.trained(method, config, ood=None if gamma == 0 else noise)
    return {"ablation": "gamma", **bench.row(done, "mean_field", gamma, **_noticed(bench, done))}


def _noticed(bench: Bench, done: Trained) -> Row:
    """Average precision of attacked images among the same images, and what they do."""
    plan, (x, y) = bench.plan, bench.data.test
    budget = Budget(
        eps=plan.eps,
        samples=plan.attack_draws,
        seed=plan.seed,
        most=plan.attacked,
        steps=plan.attack_steps,
    )
    found = bench.predicted(done.model, pgd(done.model, bench.data, budget))
    clean = bench.predicted(done.model, x[: plan.attacked])
    attacked = float(metrics.accuracy(found.probs, y[: plan.attacked].cpu()))
    return {**told_apart("pgd", clean, found, random=True), "accuracy_pgd": attacked}


def from_scratch(bench: Bench) -> Work:
    """Both variationals, fine-tuned and from scratch; the longest runs come last."""
    plan = bench.plan
    lengths = sorted({max(1, round(plan.epochs / 10)), plan.tune_epochs})
    for name in PAIRS:
        for epochs in lengths:
            yield f"{name} fine-tuned {epochs}", partial(_tuned, bench, name, epochs)
    for epochs in (plan.epochs, plan.epochs + plan.tune_epochs):
        for name in PAIRS:
            yield f"{name} from scratch {epochs}", partial(_scratch, bench, name, epochs)


def _tuned(bench: Bench, name: str, epochs: int) -> Row:
    method = method_of(name, bench.num_data, **_fields(bench, name))
    done = bench.trained(method, tuning(bench.plan, name, epochs=epochs))
    total = epochs + bench.plan.epochs
    return {
        "ablation": "scratch",
        **bench.row(done, f"{name} fine-tuned", epochs, total_epochs=total),
    }


def _scratch(bench: Bench, name: str, epochs: int) -> Row:
    label, share = PAIRS[name]
    method = method_of(label, bench.num_data, **_fields(bench, name))
    config = pretraining(bench.plan, epochs=epochs, posterior_lr=share * bench.plan.lr)
    done = bench.trained(method, config, scratch=True)
    return {
        "ablation": "scratch",
        **bench.row(done, f"{name} from scratch", epochs, total_epochs=epochs),
    }


def _fields(bench: Bench, name: str) -> dict[str, Any]:
    return ensemble(bench.plan) if name == "shared_ensemble" else {}
