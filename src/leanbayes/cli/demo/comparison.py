"""Train one network, then fine-tune and measure a copy of it with every method.

Only public names of leanbayes are used: what the demo does, a user can write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import leanbayes as lb
from leanbayes.cli.demo.entries import Entry, Task, training_steps
from leanbayes.cli.demo.lineup import lineup
from leanbayes.cli.demo.setting import Data, Settings
from leanbayes.cli.demo.suite import evaluated
from leanbayes.cli.demo.tuning import train
from leanbayes.cli.progress import Tick, stage
from leanbayes.prediction import Classification

PIECE = 500  # images a step of the progress bar in prediction


@dataclass(frozen=True, kw_only=True)
class Score:
    """One row of the table: a method on the test images.

    Seconds are those of the processor, on one thread: a busy machine changes them little.

    Attributes:
        label: Its name in the table.
        method: Its name in the registry.
        accuracy: Fraction of right labels.
        nll: Negative log-likelihood, nats an image.
        ece: Expected calibration error.
        brier: Squared distance of the probabilities from the label, summed over classes.
        ood_auroc_total: Digits told from clothes by the total uncertainty.
        ood_auroc_epistemic: The same by the epistemic part; None where there is none.
        parameters_added: Numbers that are stored on top of the network's.
        samples: Draws a prediction.
        tuning_steps: Of the fine-tuning.
        tuning_seconds: Of the fine-tuning.
        fitting_seconds: Of what comes on top: scores, a fit afterwards, trainings of members.
        prediction_seconds: Of the test images and the digits.
    """

    label: str
    method: str
    accuracy: float
    nll: float
    ece: float
    brier: float
    ood_auroc_total: float
    ood_auroc_epistemic: float | None
    parameters_added: int
    samples: int
    tuning_steps: int
    tuning_seconds: float
    fitting_seconds: float
    prediction_seconds: float

    @property
    def seconds(self) -> float:
        """All of them together."""
        return self.tuning_seconds + self.fitting_seconds + self.prediction_seconds

    def step_ratio(self, other: Score) -> float:
        """The price of a training step against another method's."""
        own, others = (s.tuning_seconds / s.tuning_steps for s in (self, other))
        return own / others

    def training_ratio(self, other: Score, start: float) -> float:
        """The price of all training and fitting, with the seconds before the fine-tuning in it."""
        own, others = (start + s.tuning_seconds + s.fitting_seconds for s in (self, other))
        return own / others

    def predict_ratio(self, other: Score) -> float:
        """The price of a prediction with all its draws against another method's."""
        return self.prediction_seconds / other.prediction_seconds


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What one seed gave.

    Attributes:
        seed: The seed.
        parameters: Of the network.
        training_seconds: Of the training that all methods start from.
        scores: One an entry, the baseline first.
        predictions: Of the test images, by label.
        left_out: Why a method of the registry has no score, by name.
        evaluations: Of the demo's suite, by label, where they were asked for.
    """

    seed: int
    parameters: int
    training_seconds: float
    scores: list[Score]
    predictions: dict[str, Classification]
    left_out: dict[str, str]
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)


def compare(
    settings: Settings, data: Data, prefix: str = "", *, evaluate: bool = False
) -> Comparison:
    """Train the network, then score every entry of the lineup.

    Args:
        settings: With the seed.
        data: All images.
        prefix: Of the stages' names.
        evaluate: Also on the demo's suite.
    """
    scores: list[Score] = []
    predictions: dict[str, Classification] = {}
    left_out: dict[str, str] = {}
    evaluations: dict[str, dict[str, Any]] = {}
    with _one_thread():
        start = time.process_time()
        with stage(f"{prefix}training", training_steps(settings)) as tick:
            task = Task(settings, data, train(settings, data, tick))
        seconds = time.process_time() - start
        for entry in lineup(lb.methods()):
            try:
                found = scored(entry, task, prefix, evaluate=evaluate)
            except NotBuilt as error:
                left_out[entry.name] = str(error)
                continue
            score, predictions[entry.label], evaluation = found
            scores.append(score)
            if evaluation is not None:
                evaluations[entry.label] = evaluation
    return Comparison(
        seed=settings.seed,
        parameters=sum(p.numel() for p in task.net.parameters()),
        training_seconds=seconds,
        scores=scores,
        predictions=predictions,
        left_out=left_out,
        evaluations=evaluations,
    )


class NotBuilt(Exception):  # noqa: N818
    """A method that cannot be built without arguments, data or a factory."""


def scored(
    entry: Entry, task: Task, prefix: str = "", *, evaluate: bool = False
) -> tuple[Score, Classification, dict[str, Any] | None]:
    """Build, fit and measure; the evaluation comes last and is in none of the seconds."""
    settings, data = task.settings, task.data
    pieces = [torch.split(x, PIECE) for x in (data.x_test, data.x_ood)]
    steps = entry.steps(settings)
    total = steps + entry.more_steps(settings) + sum(map(len, pieces)) + evaluate
    clock = Clock()
    with stage(prefix + entry.label, total) as tick:
        model = _built(entry, task, tick)
        building = clock.lap()
        entry.fit(model, task, tick)
        tuning = clock.lap()
        entry.finish(model, task, tick)
        finishing = clock.lap()
        inside, outside = (predicted(entry, model, settings, x, tick) for x in pieces)
        predicting, evaluation = clock.lap(), None
        if evaluate:
            evaluation = evaluated(model, entry.samples(model, settings), settings, data)
            tick()
    measure, random = lb.metrics, model.method.is_random
    score = Score(
        label=entry.label,
        method=entry.name,
        accuracy=measure.accuracy(inside.probs, data.y_test).item(),
        nll=measure.nll(inside.probs, data.y_test).item(),
        ece=measure.ece(inside.probs, data.y_test, bins=settings.bins).item(),
        brier=measure.brier(inside.probs, data.y_test).item(),
        ood_auroc_total=measure.auroc(inside.total, outside.total).item(),
        ood_auroc_epistemic=measure.auroc(inside.epistemic, outside.epistemic).item()
        if random
        else None,
        parameters_added=model.report.added,
        samples=entry.samples(model, settings),
        tuning_steps=steps,
        tuning_seconds=tuning,
        fitting_seconds=building + finishing,
        prediction_seconds=predicting,
    )
    return score, inside, evaluation


class Clock:
    """Processor seconds since the last lap."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def lap(self) -> float:
        """Seconds since then."""
        before, self.last = self.last, time.process_time()
        return self.last - before


def _built(entry: Entry, task: Task, tick: Tick) -> lb.BayesianModel:
    try:
        return entry.built(task, tick)
    except (TypeError, lb.ConfigError) as error:
        if entry.own:  # an entry of our own that fails is a defect
            raise
        raise NotBuilt(str(error)) from error


def predicted(
    entry: Entry,
    model: lb.BayesianModel,
    settings: Settings,
    images: Sequence[Tensor],
    tick: Tick,
) -> Classification:
    """The averaged prediction, with the draws of the seed, whatever the pieces."""

    def pieces() -> Iterator[Tensor]:
        for piece in images:
            yield piece
            tick()

    p = lb.predict(
        model,
        pieces(),
        likelihood=lb.Categorical(),
        samples=entry.samples(model, settings),
        seed=settings.seed,
    )
    assert isinstance(p, Classification)
    return p


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep to one thread, since two wait for each other where a core is shared; keep the state."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
