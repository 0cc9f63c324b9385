"""Prices of a run: what its method costs against the deterministic network of the comparison."""

from __future__ import annotations

from typing import Any

import torch

import leanbayes as lb
from leanbayes.cli.compare.ask import Ask
from leanbayes.cli.figures import batches
from leanbayes.cli.prepare import Prepared, fitted
from leanbayes.cli.settings_file import RunSettings
from leanbayes.train.layout import turn_

CPU_ROWS = 64  # of the batch that is measured: ratios hardly depend on it, seconds do
FAILURES = (lb.LeanBayesError, RuntimeError)
SECONDS = 5.0  # after which no further measurement of a time begins


def priced(
    model: lb.BayesianModel, ready: Prepared, point: RunSettings, ask: Ask
) -> dict[str, Any]:
    """Figures of `lb.price`; words where they could not be had, since the run itself has ended."""
    try:
        return _priced(model, ready, point, ask)
    except FAILURES as error:
        return unpriced(error)


def unpriced(error: Exception) -> dict[str, Any]:
    """Words in place of a price."""
    return {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:400]}


def _priced(
    model: lb.BayesianModel, ready: Prepared, point: RunSettings, ask: Ask
) -> dict[str, Any]:
    fit, device = ready.settings.fit, next(model.parameters()).device
    common = fitted(point.model, ready.data, ready.settings.likelihood)
    with torch.random.fork_rng(devices=[]):
        baseline = lb.models.create(common.name, **common.options).to(device)
    if fit.channels_last:
        turn_(baseline)
    most = fit.batch_size if device.type == "cuda" else min(fit.batch_size, CPU_ROWS)
    rows = max(most, 2, model.method.index_members)
    found = lb.price(
        model,
        baseline,
        next(batches(ready.data.train, rows)),
        likelihood=ready.likelihood,
        samples=ask.draws(ready.settings),
        rounds=1 if ask.smoke else 5,
        seconds=SECONDS,
        draws=fit.samples,
        precision=fit.precision,
        regularizer=fit.regularizer,
        ood_rows=_ood_rows(rows, fit),
        in_turn=isinstance(model.method, lb.DeepEnsemble),
    )
    return found.to_json()


def _ood_rows(rows: int, fit: lb.FitConfig) -> int | None:
    """As many to the rows that are measured as in the training."""
    if fit.ood_batch_size is None:
        return None
    return max(1, rows * fit.ood_batch_size // fit.batch_size)
