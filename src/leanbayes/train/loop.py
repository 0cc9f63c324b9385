"""`lb.fit`: the training loop, readable from top to bottom."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import torch

from leanbayes.errors import ConfigError, Interrupted
from leanbayes.likelihood import Likelihood, needed
from leanbayes.model import BayesianModel, unwrap
from leanbayes.refresh import refresh_batchnorm
from leanbayes.train.callbacks import Callback, Run
from leanbayes.train.config import FitConfig, checked_config
from leanbayes.train.ema import Average
from leanbayes.train.evaluation import evaluate_in_training, figure_names
from leanbayes.train.feed import Augment, Feed, Loader
from leanbayes.train.folder import open_run
from leanbayes.train.keyed import seeded
from leanbayes.train.optim import build_optimizer
from leanbayes.train.runtime import Runtime
from leanbayes.train.saving import Progress, Saver
from leanbayes.train.signals import Signals, exit_code
from leanbayes.train.spread import sigma_statistics, warn_posterior
from leanbayes.train.step import Parts, Stepper, fewest_in_part, modes
from leanbayes.train.store import Store
from leanbayes.train.watch import MetricsFile, Watch


@dataclass(frozen=True)
class FitResult:
    """What a run came to.

    Attributes:
        steps: Steps taken in all, over all restarts.
        epochs: Epochs, in parts too.
        history: Figures of every evaluation.
        best: The best value of the monitored figure; None without validation data, or where it
            was never a number.
        best_step: When that was.
        stopped: Why the run ended early, or "".
        seconds: Of this call.
    """

    steps: int
    epochs: float
    history: list[dict[str, float]]
    best: float | None
    best_step: int
    stopped: str
    seconds: float


def fit(  # noqa: PLR0913
    model: BayesianModel,
    train: Any,
    likelihood: Likelihood,
    *,
    validation: Any = None,
    ood: Any = None,
    config: FitConfig | None = None,
    callbacks: Sequence[Callback] = (),
    augment: Augment | None = None,
) -> FitResult:
    """Train a converted network, in one process or in all that torchrun has started.

    With `config.folder` the run is saved, and the same call goes on where it was cut off, bit for
    bit. SIGTERM and Ctrl-C end it after the current step, with everything saved. To convert as
    well: `lb.adapt`.

    Args:
        model: What `lb.bayesianize` gave; it is trained in place.
        train: A dataset, a pair (inputs, targets) of tensors, or a DataLoader.
        likelihood: How outputs give a probability to targets; kept with the model.
        validation: Data of the same kinds, for figures, the best checkpoint and early stopping.
        ood: Inputs for `config.regularizer`: a tensor of them, or data of the same kinds, whose
            targets are left out.
        config: Every number of the run.
        callbacks: Told of steps, evaluations and saves.
        augment: Changes the inputs of a batch on the device, in training only; those of `ood` too.

    Example:
        >>> import leanbayes as lb, torch
        >>> x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField(), example=x)
        >>> config = lb.FitConfig(epochs=2, batch_size=16, lr=0.1, progress=False)
        >>> lb.fit(model, (x, y), lb.Categorical(), config=config).steps
        8
    """
    config = FitConfig() if config is None else checked_config(config)
    with Runtime.of(config) as runtime:
        trainer = Trainer(model, likelihood, config, runtime, callbacks=callbacks, augment=augment)
        return trainer.run(train, validation, ood)


class Trainer:
    """One run: what `lb.fit` builds, for those who want the pieces.

    Attributes:
        model: The model in training.
        progress: Where the run stands.
    """

    def __init__(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        config: FitConfig,
        runtime: Runtime,
        *,
        callbacks: Sequence[Callback] = (),
        augment: Augment | None = None,
    ) -> None:
        self.model, self.likelihood = unwrap(model), needed(likelihood, "fit")
        self.config, self.runtime, self.augment = config, runtime, augment
        self.progress = Progress()
        self.callbacks = _checked_callbacks(callbacks)
        self.signals = Signals()

    def run(self, train: Any, validation: Any = None, ood: Any = None) -> FitResult:
        """Train to the end, or to the first reason to stop."""
        start = time.perf_counter()
        self.prepare(train, validation, ood)
        self.model.calibration = None  # it is that of the weights as they were
        try:
            with self.signals, modes(self.model, self.config.batchnorm == "frozen"):
                self._steps()
            self._finish()
        finally:  # an error that somebody holds keeps the optimiser alive, and the edit with it
            if self.stepper.edit is not None:
                self.stepper.edit.remove()
        return self._result(time.perf_counter() - start)

    def _steps(self) -> None:
        self.begin()
        if self.progress.pending:
            self._due()
        for batch, ood_batch in self.batches():
            self.advance(batch, ood_batch)
            if self.progress.stopped:
                break

    def advance(self, batch: tuple[Any, Any], ood: Any = None) -> None:
        """One step, and what is due after it: figures, evaluation, checkpoint, stop."""
        figures = self.stepper.take(self.progress.step, batch, ood)
        self.progress.step += 1
        self._after_step(figures)

    def prepare(self, train: Any, validation: Any = None, ood: Any = None) -> None:
        """Data, wrappers, optimiser and store; nothing has moved yet."""
        config, runtime = self.config, self.runtime
        if config.patience is not None and validation is None:
            raise ConfigError(
                f"patience={config.patience} waits for better figures of validation data, and "
                "there are none: give validation=, or leave patience out"
            )
        names = figure_names(self.likelihood)
        if validation is not None and config.monitor not in names:
            raise ConfigError(f"monitor is one of {', '.join(names)}; found {config.monitor!r}")
        runtime.seed(config.seed)
        smallest = fewest_in_part(self.model, config)
        self.feed = Feed(train, validation, ood, config, runtime, smallest=smallest)
        num_data = self.feed.num_data(self.likelihood)
        self.steps_per_epoch = self.feed.steps_per_epoch
        self.total_steps = config.total_steps(self.steps_per_epoch)
        module = runtime.prepare(self.model, self.likelihood)
        optimizer = build_optimizer(module, self.likelihood, config)
        optimizer.zero_grad()  # what a run that broke, or somebody else, has left
        parts = Parts(
            module=module,
            model=self.model,
            likelihood=self.likelihood,
            optimizer=optimizer,
            runtime=runtime,
            config=config,
            num_data=num_data,
            steps_per_epoch=self.steps_per_epoch,
            augment=self.augment,
            fixed_order=self.feed.train.fixed_order,
        )
        self.stepper = Stepper(parts, self.total_steps)
        self.average = None if config.ema is None else Average(self.model, config.ema)
        self.folder = None if config.folder is None else Path(config.folder)
        store = None if self.folder is None else Store(self.folder, keep=config.keep)
        self.saver = Saver(store, self.stepper, self.average)

    def begin(self) -> None:
        """Open the folder, go on with its newest checkpoint, tell everyone."""
        config, runtime = self.config, self.runtime
        if self.folder is not None and runtime.is_first:
            open_run(self.folder, config, self.model, device=runtime.device)
        runtime.barrier()
        resumed = self.saver.resume(self.total_steps) if config.resume else None
        self.progress = resumed or self.progress
        self.sigma = sigma_statistics(self.model)
        self.run_info = Run(
            config=config,
            step=self.progress.step,
            epoch=self.progress.step // self.steps_per_epoch,
            total_steps=self.total_steps,
            steps_per_epoch=self.steps_per_epoch,
            folder=self.folder,
            rank=runtime.rank,
            rows=self.feed.train.batch_size * config.samples * self.model.method.repeats,
        )
        if runtime.is_first:
            own: list[Callback] = [Watch()]
            own += [MetricsFile()] if self.folder is not None else []
            self.callbacks = [*own, *self.callbacks]
        self._tell("on_start")

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Batches from the present step to the end, each with one of OOD inputs if there are."""
        ended = self.progress.done or self.progress.stopped
        steps = 0 if ended else self.total_steps - self.progress.step
        return islice(self.feed.batches(self.progress.step), max(0, steps))

    def _after_step(self, figures: dict[str, Any]) -> None:
        config, step = self.config, self.progress.step
        if self.average is not None:
            self.average.update(self.model)
        if step % config.log_every == 0 or step == self.total_steps:
            self._log(figures)
        self._due()

    def _due(self) -> None:
        """Evaluation, checkpoint and the end, where this step asks for them."""
        step, saved = self.progress.step, False
        last = step == self.total_steps
        self.progress.pending = False
        if self.feed.validation is not None and (last or step % self._evaluate_every == 0):
            saved = self._evaluate()
        stop = self._asked_to_stop()
        if last or self.progress.stopped:  # the end of the run saves it, a signal or not
            return
        if not saved and (stop is not None or step % self._save_every == 0):
            self._save()
        if stop is not None:
            self._leave(stop)

    @property
    def _evaluate_every(self) -> int:
        return self.config.evaluate_every or self.steps_per_epoch

    @property
    def _save_every(self) -> int:
        return self.config.save_every or self.steps_per_epoch

    def _log(self, figures: dict[str, Any]) -> None:
        values = {name: float(self.runtime.mean(value)) for name, value in figures.items()}
        with torch.no_grad():
            values["kl"] = float(self.model.kl())
        values["kl_weight"] = self.stepper.kl_weight(self.progress.step - 1)
        values |= {f"lr_{g['name']}": g["lr"] for g in self.stepper.parts.optimizer.param_groups}
        values |= sigma_statistics(self.model)
        self._tell("on_step", values)

    def _evaluate(self) -> bool:
        """Validation figures; True where this step became the best checkpoint."""
        config, progress = self.config, self.progress
        assert self.feed.validation is not None
        self.stepper.guard.settle()
        with self._averaged():
            found = evaluate_in_training(
                self.stepper.parts.module,
                self.feed.validation,
                self.likelihood,
                self.runtime,
                samples=config.evaluate_samples,
                seed=config.seed,
                stop=lambda: self.signals.received is not None,
            )
        if found is None:
            self._leave_evaluation()
        progress.history.append({"step": progress.step, **found})
        self.sigma = warn_posterior(self.sigma, self.model)
        better = self._is_better(found[config.monitor])
        progress.waited = 0 if better else progress.waited + 1
        if better:
            progress.best, progress.best_step = found[config.monitor], progress.step
        if config.patience is not None and progress.waited >= config.patience:
            progress.stopped = f"no better {config.monitor} in {progress.waited} evaluations"
        self._tell("on_evaluate", found)
        if better:
            self._save(best=True)
        return better

    def _is_better(self, value: float) -> bool:
        best, name = self.progress.best, self.config.monitor
        if math.isnan(value):  # any number compares as worse than it: nothing would be best again
            warnings.warn(
                f"{name} of the validation data is nan, which is never the best: look for missing "
                "values among them, and whether any of them has a label",
                stacklevel=6,
            )
            return False
        if best is None or math.isnan(best):
            return True
        return value > best if name == "accuracy" else value < best

    def _averaged(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.average is None else self.average.applied(self.model)

    def _asked_to_stop(self) -> int | None:
        """The signal that any process has got; on a GPU asked now and then, as it has to wait."""
        if self.runtime.world == 1:
            return self.signals.received
        if self.runtime.device.type == "cuda" and self.progress.step % 8:
            return None
        number = int(self.runtime.any(torch.tensor([float(self.signals.received or 0)]))[0])
        return number or None

    def _leave_evaluation(self) -> NoReturn:
        """A long evaluation is no reason to let a signal wait: it is done again on resume."""
        received = torch.tensor([float(self.signals.received or 0)])
        self.progress.pending = True
        self._save()
        self._leave(int(self.runtime.any(received)[0]))

    def _leave(self, number: int) -> NoReturn:
        code = exit_code(number)
        if self.runtime.is_first and self.folder is not None:
            print(  # noqa: T201
                f"leanbayes: stopped at step {self.progress.step} of {self.total_steps}, all is "
                f"saved. The same call or command goes on from here: folder={self.folder.name!r}"
            )
        raise Interrupted(code)

    def _save(self, *, best: bool = False) -> None:
        self.stepper.guard.settle()  # no checkpoint of a broken step
        self.saver.save(self.progress, best=best)
        self._tell("on_save", self.folder)

    def _finish(self) -> None:
        self.model.likelihood = self.likelihood
        if self.progress.done:
            return
        self.stepper.guard.settle()
        if self.average is not None:
            self.average.settle(self.model)
        if self.config.batchnorm == "refresh":
            self._refresh()
        self.progress.done = True
        best = self.progress.best is not None and self.progress.best_step == self.progress.step
        self._save(best=best)

    def _refresh(self) -> None:
        """Statistics of what training saw: augmented inputs, from all of the data.

        Those of plain inputs would make another network of weights that learnt under the others.
        """
        every = Loader(self.feed.whole(), self.runtime.device, self.augment)
        with seeded(self.config.seed, self.runtime.device):  # the same in all processes
            refresh_batchnorm(self.model, every, draws=True)

    def _result(self, seconds: float) -> FitResult:
        progress = self.progress
        result = FitResult(
            steps=progress.step,
            epochs=progress.step / self.steps_per_epoch,
            history=progress.history,
            best=progress.best,
            best_step=progress.best_step,
            stopped=progress.stopped,
            seconds=seconds,
        )
        self._tell("on_end", result)
        return result

    def _tell(self, event: str, *what: Any) -> None:
        self.run_info.step = self.progress.step
        self.run_info.epoch = self.progress.step // self.steps_per_epoch
        for callback in self.callbacks:
            getattr(callback, event)(self.run_info, *what)


def _checked_callbacks(callbacks: Any) -> list[Callback]:
    """Objects that are told of a run, before it begins."""
    found = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    wrong = [each for each in found if isinstance(each, type) or not hasattr(each, "on_step")]
    if wrong or not isinstance(callbacks, Iterable):
        raise ConfigError(
            f"callbacks is a list of objects of classes of lb.Callback, found "
            f"{(wrong or found)[0]!r}. Write callbacks=[MyCallback()]"
        )
    return found
