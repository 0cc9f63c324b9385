"""One optimisation step: forward, backward, guards, KL edit, update."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leanbayes.budget import rows_between
from leanbayes.edit import KLEdit, attach_kl
from leanbayes.errors import PlanError
from leanbayes.likelihood import Likelihood, widened
from leanbayes.model import BayesianModel
from leanbayes.objective import Objective, objective
from leanbayes.plan import count_rows
from leanbayes.train.advice import LabelGuard, is_out_of_memory, memory_advice, warn_batchnorm
from leanbayes.train.config import FitConfig
from leanbayes.train.evaluation import on_device
from leanbayes.train.feed import Augment
from leanbayes.train.guards import FiniteGuard
from leanbayes.train.keyed import kept
from leanbayes.train.layout import turned_inputs
from leanbayes.train.optim import Rates, clear, kl_weight_at, rest, trainable
from leanbayes.train.runtime import Runtime
from leanbayes.train.sizes import fewest_rows
from leanbayes.train.state import generators, set_generators
from leanbayes.untouched import kept_modes


@dataclass
class Parts:
    """What a step needs and what of it changes in a run."""

    module: nn.Module  # wrapped
    model: BayesianModel
    likelihood: Likelihood
    optimizer: torch.optim.Optimizer
    runtime: Runtime
    config: FitConfig
    num_data: int
    steps_per_epoch: int
    augment: Augment | None = None
    fixed_order: bool = False  # of the data in all epochs


class Stepper:
    """Takes steps; `accumulate` may grow where memory runs out.

    A batch is cut into `accumulate` parts of rows, fewer where a part would have too few rows. The
    gradient is that of the whole batch, each part weighted by its labels, whatever the number of
    parts; what is drawn once a batch is drawn once a part, and BatchNorm sees a part at a time.
    """

    def __init__(self, parts: Parts, total_steps: int) -> None:
        self.parts = parts
        self.accumulate = parts.config.accumulate
        self.guard = FiniteGuard(parts.likelihood, fp16=parts.config.precision == "fp16")
        self.labels = LabelGuard(parts.likelihood, parts.augment)
        self.rates = Rates(parts.optimizer, parts.config, total_steps)
        self.kl_weight = kl_weight_at(parts.config, total_steps)
        self._likelihood = list(parts.likelihood.parameters())
        self._least = fewest_in_part(parts.model, parts.config)
        self._rows: int | None = None  # of the first batch: what a compiled network is made for
        self._autocast = parts.runtime.autocast()  # to build one takes a part of a small step
        self.edit: KLEdit | None = None
        if parts.config.kl == "edit":
            self.edit = attach_kl(parts.optimizer, parts.model, num_data=parts.num_data)

    def take(self, step: int, batch: tuple[Any, Any], ood: Any = None) -> dict[str, Tensor]:
        """One step; gives the loss and the negative log-likelihood as tensors, to read later."""
        parts = self.parts
        self.labels.check(batch, parts.model)
        batch = on_device(batch, parts.runtime.device)
        ood = None if ood is None else on_device(ood, parts.runtime.device)
        self.rates.set(step)
        if self.edit is not None:
            self.edit.kl_weight = self.kl_weight(step)
        figures = self._gradients(step, batch, ood)
        # Averaged first: unscaling looks for infinities, and all processes must see the same.
        parts.runtime.average_gradients(self._likelihood)
        parts.runtime.unscale(parts.optimizer)
        if parts.config.train != "all":  # before the clip: what rests is no part of the norm
            rest(parts.optimizer, trainable(parts.config, step, parts.steps_per_epoch))
        self.guard.check(step, figures["loss"], parts.module, parts.runtime, batch)
        if parts.config.clip is not None:
            self.guard.clip(parts.config.clip)
        parts.runtime.step(parts.optimizer)
        clear(parts.optimizer)
        return figures

    def _gradients(self, step: int, batch: tuple[Any, Any], ood: Any) -> dict[str, Tensor]:
        """Forward and backward of all parts; again with smaller parts where memory runs out."""
        before = generators() if self.parts.config.auto_batch else None
        while True:
            try:
                return self._accumulated(step, batch, ood)
            except (RuntimeError, MemoryError) as error:
                rows = count_rows((batch[0],), {})
                if not is_out_of_memory(error):
                    raise
                if before is None or self.accumulate >= rows // self._least:
                    raise memory_advice(error, rows // self.accumulate) from error
                self._halve(before, rows)

    def _halve(self, before: Any, rows: int) -> None:
        self.accumulate *= 2
        warn_batchnorm(self.parts.model, rows, self.accumulate)
        self.parts.optimizer.zero_grad()
        set_generators(before)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _accumulated(self, step: int, batch: tuple[Any, Any], ood: Any) -> dict[str, Tensor]:
        parts = self.parts
        count = min(self.accumulate, max(1, count_rows((batch[0],), {}) // self._least))
        pieces = list(_pieces(batch, ood, count, parts.likelihood))
        totals: dict[str, Tensor] = {}
        for number, (share, other, piece, ood_piece) in enumerate(pieces):
            last = number == len(pieces) - 1
            with parts.runtime.synchronising(parts.module, last):
                with self._autocast:
                    found = self._objective(step, piece, ood_piece)
                loss = found.loss if count == 1 else _weighed(found, share, other)
                parts.runtime.backward(loss)
            loss, nll = loss.detach(), found.nll.detach()
            if count == 1:
                return {"loss": loss, "nll": nll}
            totals["loss"] = totals.get("loss", 0.0) + loss
            totals["nll"] = totals.get("nll", 0.0) + nll * share
        return totals

    def _objective(self, step: int, batch: tuple[Any, Any], ood: Any) -> Objective:
        parts, config = self.parts, self.parts.config
        inputs, target = batch
        if parts.augment is not None:
            inputs = parts.augment(inputs)
            ood = None if ood is None else parts.augment(ood)
        if config.channels_last:
            inputs, ood = turned_inputs((inputs, ood))
        options: dict[str, Any] = {
            "num_data": parts.num_data,
            "samples": config.samples,
            "likelihood_of": config.likelihood_of,
            "kl_weight": self.kl_weight(step),
            "include_kl": self.edit is None,
            "step": self._turn(step),
        }
        module = self._module(step, count_rows((inputs,), {}))
        if config.regularizer is not None and ood is not None:
            likelihood: Any = parts.likelihood  # the regulariser itself refuses others
            return config.regularizer.objective(
                module, (inputs, target), ood, likelihood, **options
            )
        return objective(module, (inputs, target), parts.likelihood, **options)

    def _turn(self, step: int) -> int:
        """The number by which members take turns.

        Where all epochs have the same batches, that of a batch goes up by one an epoch: by the step
        itself its rows might meet the same members for ever.
        """
        epoch, place = divmod(step, self.parts.steps_per_epoch)
        return epoch + place if self.parts.fixed_order else step

    def _module(self, step: int, rows: int) -> nn.Module:
        """The network to call: a compiled one not for the short batch that ends an epoch.

        That would be a second graph, which takes longer to make than all of its steps. A wrapper
        around the compiled network has to see every batch.
        """
        parts = self.parts
        self._rows = rows if self._rows is None else self._rows
        is_last = (step + 1) % parts.steps_per_epoch == 0
        alone = getattr(parts.module, "_orig_mod", None) is parts.model
        return parts.model if alone and is_last and rows < self._rows else parts.module


def fewest_in_part(model: BayesianModel, config: FitConfig) -> int:
    """Rows that a part of a batch needs: members that are dealt out to rows want one each."""
    samples = 1 if config.batchnorm == "refresh" else config.samples  # it draws once a row
    copies = samples * model.method.repeats
    try:
        with kept():  # a rule that draws members needs no row for each
            model.training_plan(copies, copies, 0)
        members = 1
    except PlanError:
        members = model.method.index_members
    return fewest_rows(model, config.batchnorm, members)


def _pieces(
    batch: tuple[Any, Any], ood: Any, pieces: int, likelihood: Likelihood
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Parts of a batch with two shares: of its labels, and of its OOD inputs (else of its rows).

    Labels may all lack, rows never do; some parts have no OOD inputs.
    """
    if pieces == 1:
        yield 1.0, 1.0, batch, ood
        return
    rows = count_rows((batch[0],), {})
    ood_rows = 0 if ood is None else count_rows((ood,), {})
    for k in range(pieces):
        first, last = (rows * i // pieces for i in (k, k + 1))
        part = rows_between(batch, rows, first, last)
        share, other, beside = _share(part[1], batch[1], likelihood), (last - first) / rows, None
        if ood is not None:
            first, last = (ood_rows * i // pieces for i in (k, k + 1))
            other = (last - first) / ood_rows
            beside = rows_between(ood, ood_rows, first, last) if last > first else None
        yield share, other, part, beside


def _weighed(found: Objective, share: Any, other: Any) -> Tensor:
    """The NLL of a part by its labels; what else is in the loss, by shares that add up to 1."""
    loss: Tensor = found.loss * other + found.nll * (share - other)
    return loss


def _share(part: Tensor, whole: Tensor, likelihood: Likelihood) -> Any:
    """What a part counts in the mean over a batch, 0 where nothing is labelled."""
    mine, every = _labels(part, likelihood), _labels(whole, likelihood)
    if not isinstance(every, Tensor):
        return mine / every
    every = widened(every)
    return mine / torch.where(every > 0, every, 1)


def _labels(target: Tensor, likelihood: Likelihood) -> Any:
    """How many data a batch holds, by the likelihood, which has to see the shape only."""
    return likelihood.count(widened(target.new_zeros(())).expand(target.shape), target)


@contextmanager
def modes(model: BayesianModel, frozen: bool) -> Iterator[None]:
    """Training mode, with BatchNorm in `eval()` where it is frozen; as before afterwards."""
    with kept_modes(model):
        model.train()
        if frozen:
            for module in model.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        yield
