"""Train one network, then fine-tune and measure a copy of it with every method.

Only public names of leanbayes are used: what the demo does, a user can write.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import leanbayes as lb
from leanbayes.cli.progress import stage
from leanbayes.data import digits_28, fashion_mini
from leanbayes.prediction import Classification

BASELINE = "map"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every number that the demo depends on; the same for all methods.

    Chosen on 1,000 held-out training images, never on the test images. The prior of every method
    is N(0, 1): for plain weights that is a weight decay of 1 / train_images.

    Attributes:
        seed: Of the weights, the order of the batches and the draws.
        width: Of the LeNet.
        train_images: Images to train on, from the first.
        test_images: Images to test on.
        ood_images: Handwritten digits.
        epochs: Of the training that all methods start from.
        lr: Its learning rate (Adam).
        tuning_epochs: Further epochs of every method, the baseline included.
        tuning_lr: Learning rate of the network's own parameters then.
        posterior_lr: Learning rate of the parameters that a method adds.
        batch: Images a step.
        samples: Draws a prediction.
        bins: Of the expected calibration error.
    """

    seed: int = 0
    width: int = 2
    train_images: int = 6000
    test_images: int = 2000
    ood_images: int = 1797
    epochs: int = 12
    lr: float = 2e-3
    tuning_epochs: int = 6
    tuning_lr: float = 1e-4
    posterior_lr: float = 5e-3
    batch: int = 64
    samples: int = 20
    bins: int = 15

    @property
    def weight_decay(self) -> float:
        """The prior N(0, 1) as the weight decay of a mean loss."""
        return 1 / self.train_images


def smoke_settings(seed: int) -> Settings:
    """A few seconds: enough to see that everything works, too little to compare methods."""
    return Settings(
        seed=seed,
        width=1,
        train_images=1200,
        test_images=300,
        ood_images=300,
        epochs=1,
        tuning_epochs=1,
        batch=16,
        samples=5,
    )


@dataclass(frozen=True)
class Data:
    """Images to train on, to test on, and of another world."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    x_ood: Tensor
    classes: tuple[str, ...]

    @staticmethod
    def of(settings: Settings) -> Data:
        """Read the embedded sets."""
        full = fashion_mini()
        return Data(
            full.x_train[: settings.train_images],
            full.y_train[: settings.train_images],
            full.x_test[: settings.test_images],
            full.y_test[: settings.test_images],
            digits_28()[: settings.ood_images],
            full.classes,
        )


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
    _run_epochs(
        "training",
        settings,
        data,
        settings.epochs,
        optimizer,
        lambda x, y: cross_entropy(net(x), y),
    )
    return net


def converted(
    net: nn.Module, method: type[lb.Method], settings: Settings, data: Data
) -> lb.BayesianModel:
    """A copy of the network under a method with default arguments."""
    torch.manual_seed(settings.seed)
    return lb.bayesianize(copy.deepcopy(net), method(), example=data.x[:8])


def scored(model: lb.BayesianModel, settings: Settings, data: Data) -> tuple[Score, Classification]:
    """Fine-tune and measure."""
    start = time.perf_counter()
    fine_tune(model, settings, data)
    tuned = time.perf_counter()
    inside, outside = (predicted(model, settings, x) for x in (data.x_test, data.x_ood))
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


def fine_tune(model: lb.BayesianModel, settings: Settings, data: Data) -> None:
    """Train on the negative log-likelihood; the optimiser adds the gradients of the KL."""
    groups = lb.param_groups(
        model,
        lr=settings.tuning_lr,
        posterior_lr=settings.posterior_lr,
        weight_decay=settings.weight_decay,
    )
    optimizer = torch.optim.Adam(groups)
    handle = lb.attach_kl(optimizer, model, num_data=len(data.x))
    likelihood = lb.Categorical()
    model.train()
    _run_epochs(
        f"fine-tuning {model.method.name}",
        settings,
        data,
        settings.tuning_epochs,
        optimizer,
        lambda x, y: lb.objective(model, (x, y), likelihood, include_kl=False).loss,
    )
    handle.remove()


def predicted(model: lb.BayesianModel, settings: Settings, x: Tensor) -> Classification:
    """The averaged prediction for images, with the draws of the seed."""
    samples = settings.samples if model.method.members == 0 else None
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=samples, seed=settings.seed)
    assert isinstance(p, Classification)
    return p


def _run_epochs(
    name: str,
    settings: Settings,
    data: Data,
    epochs: int,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    # An own generator: every method sees the same batches, however many numbers it draws.
    order = torch.Generator().manual_seed(settings.seed)
    batches = -(-len(data.x) // settings.batch)
    with stage(name, epochs * batches) as tick:
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(data.x), generator=order), settings.batch):
                optimizer.zero_grad()
                torch.autograd.backward(loss(data.x[rows], data.y[rows]))
                optimizer.step()
                tick()


@contextmanager
def _one_thread(seed: int) -> Iterator[None]:
    """Seed, and keep to one thread: for so small a net two gain little, and lose on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
