"""Train one network, then fine-tune and measure a copy of it with every method.

Only public names of leanbayes are used: what the demo does, a user can write.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import leanbayes as lb
from leanbayes.cli.progress import Tick, stage
from leanbayes.cli.setting import Batches, Data, Settings
from leanbayes.prediction import Classification

BASELINE = "map"
PIECE = 500  # images a step of the progress bar in prediction


@dataclass(frozen=True, kw_only=True)
class Score:
    """One row of the table: a method on the test images.

    Attributes:
        method: Its name.
        accuracy: Fraction of right labels.
        nll: Negative log-likelihood, nats an image.
        ece: Expected calibration error.
        ood_auroc_total: Digits told from clothes by the total uncertainty.
        ood_auroc_epistemic: The same by the epistemic part; None where there is none.
        parameters_added: By the conversion.
        tuning_seconds: Of the fine-tuning.
        prediction_seconds: Of the test images and the digits.
    """

    method: str
    accuracy: float
    nll: float
    ece: float
    ood_auroc_total: float
    ood_auroc_epistemic: float | None
    parameters_added: int
    tuning_seconds: float
    prediction_seconds: float

    @property
    def seconds(self) -> float:
        """Fine-tuning and prediction together."""
        return self.tuning_seconds + self.prediction_seconds


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the demo found.

    Attributes:
        parameters: Of the network.
        training_seconds: Of the training that all methods start from.
        scores: One a method, the baseline first.
        predictions: Of the test images, by method.
        left_out: Why a method of the registry has no score, by name.
    """

    parameters: int
    training_seconds: float
    scores: list[Score]
    predictions: dict[str, Classification]
    left_out: dict[str, str]


def compare(settings: Settings, data: Data) -> Comparison:
    """Train the network, then score every method of the registry with its default arguments."""
    with _one_thread(settings.seed):
        start = time.perf_counter()
        net = train(settings, data)
        seconds = time.perf_counter() - start
        scores: list[Score] = []
        predictions: dict[str, Classification] = {}
        left_out: dict[str, str] = {}
        known = lb.methods()
        for name in sorted(known, key=lambda name: (name != BASELINE, name)):
            try:
                model = converted(net, known[name], settings, data)
            except (TypeError, lb.ConfigError) as error:  # it needs arguments, data or a factory
                left_out[name] = str(error)
                continue
            score, predictions[name] = scored(model, settings, data)
            scores.append(score)
    return Comparison(
        parameters=sum(p.numel() for p in net.parameters()),
        training_seconds=seconds,
        scores=scores,
        predictions=predictions,
        left_out=left_out,
    )


def train(settings: Settings, data: Data) -> nn.Module:
    """An ordinary network, trained in the ordinary way."""
    net = lb.models.create("lenet", width=settings.width)
    optimizer = torch.optim.Adam(
        net.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    batches = Batches(data.x, data.y, settings.epochs, settings)
    with stage("training", len(batches)) as tick:
        _descend(batches, optimizer, lambda x, y: cross_entropy(net(x), y), tick)
    return net


def converted(
    net: nn.Module, method: type[lb.Method], settings: Settings, data: Data
) -> lb.BayesianModel:
    """A copy of the network under a method with default arguments."""
    torch.manual_seed(settings.seed)
    return lb.bayesianize(copy.deepcopy(net), method(), example=data.x[:8])


def scored(model: lb.BayesianModel, settings: Settings, data: Data) -> tuple[Score, Classification]:
    """Fine-tune and measure."""
    batches = Batches(data.x, data.y, settings.tuning_epochs, settings)
    pieces = [torch.split(x, PIECE) for x in (data.x_test, data.x_ood)]
    start = time.perf_counter()
    with stage(model.method.name, len(batches) + sum(map(len, pieces))) as tick:
        fine_tune(model, settings, batches, tick)
        tuned = time.perf_counter()
        inside, outside = (predicted(model, settings, images, tick) for images in pieces)
    done = time.perf_counter()
    measure = lb.metrics
    score = Score(
        method=model.method.name,
        accuracy=measure.accuracy(inside.probs, data.y_test).item(),
        nll=measure.nll(inside.probs, data.y_test).item(),
        ece=measure.ece(inside.probs, data.y_test, bins=settings.bins).item(),
        ood_auroc_total=measure.auroc(inside.total, outside.total).item(),
        ood_auroc_epistemic=measure.auroc(inside.epistemic, outside.epistemic).item()
        if model.method.is_random
        else None,
        parameters_added=model.report.added,
        tuning_seconds=tuned - start,
        prediction_seconds=done - tuned,
    )
    return score, inside


def fine_tune(model: lb.BayesianModel, settings: Settings, batches: Batches, tick: Tick) -> None:
    """Train on the negative log-likelihood; the optimiser adds the gradients of the KL."""
    groups = lb.param_groups(
        model,
        lr=settings.tuning_lr,
        posterior_lr=settings.posterior_lr,
        weight_decay=settings.weight_decay,
    )
    optimizer = torch.optim.Adam(groups)
    handle = lb.attach_kl(optimizer, model, num_data=len(batches.x))
    likelihood = lb.Categorical()
    model.train()
    _descend(
        batches,
        optimizer,
        lambda x, y: lb.objective(model, (x, y), likelihood, include_kl=False).loss,
        tick,
    )
    handle.remove()


def predicted(
    model: lb.BayesianModel, settings: Settings, images: Sequence[Tensor], tick: Tick
) -> Classification:
    """The averaged prediction, with the draws of the seed, whatever the pieces."""

    def pieces() -> Iterator[Tensor]:
        for piece in images:
            yield piece
            tick()

    samples = settings.samples if model.method.members == 0 else None
    p = lb.predict(
        model, pieces(), likelihood=lb.Categorical(), samples=samples, seed=settings.seed
    )
    assert isinstance(p, Classification)
    return p


def _descend(
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, Tensor], Tensor],
    tick: Tick,
) -> None:
    for x, y in batches:
        optimizer.zero_grad()
        torch.autograd.backward(loss(x, y))
        optimizer.step()
        tick()


@contextmanager
def _one_thread(seed: int) -> Iterator[None]:
    """Seed, and keep to one thread: two wait for each other as soon as a core is shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
