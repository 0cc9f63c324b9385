"""What takes part in the demo: a label, how the method is built and how it is fitted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import leanbayes as lb
from leanbayes.cli.demo.setting import Batches, Data, Settings
from leanbayes.cli.demo.tuning import fine_tune, train
from leanbayes.cli.progress import Tick

BASELINE = "map"


@dataclass(frozen=True)
class Task:
    """What every entry starts from: the settings, the images and the trained network."""

    settings: Settings
    data: Data
    net: nn.Module

    def batches(self, epochs: int) -> Batches:
        """Epochs of training batches, the same for every method."""
        return Batches(self.data.x, self.data.y, epochs, self.settings)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method under the common recipe: a copy of the trained network, converted and fine-tuned.

    Attributes:
        label: Its row in the table.
        name: Of its method in the registry.
        method: The method itself; default arguments but for what `Choices` names.
        rate: Learning rate of what the method adds.
        every_member: Predict with every member once, since they are points; else `samples` draws.
        note: Where it leaves the common recipe; empty where it does not.
        own: False for a method that is registered elsewhere and comes with default arguments.
    """

    label: str
    name: str
    method: Callable[[Settings], lb.Method]
    rate: Callable[[Settings], float] = field(default=lambda s: s.tuning_lr)
    every_member: bool = False
    note: str = ""
    own: bool = True

    def steps(self, settings: Settings) -> int:
        """Steps of the fine-tuning."""
        return settings.tuning_epochs * -(-settings.train_images // settings.batch)

    def more_steps(self, settings: Settings) -> int:  # noqa: ARG002
        """Ticks of `built` and of `finish`."""
        return 0

    def built(self, task: Task, tick: Tick) -> lb.BayesianModel:  # noqa: ARG002
        """A converted copy of the network."""
        return self._converted(task, self.method(task.settings))

    def fit(self, model: lb.BayesianModel, task: Task, tick: Tick) -> None:
        """Fine-tune."""
        settings = task.settings
        fine_tune(model, settings, task.batches(settings.tuning_epochs), self.rate(settings), tick)

    def finish(self, model: lb.BayesianModel, task: Task, tick: Tick) -> None:
        """What a method does after the fine-tuning; most do nothing."""

    def samples(self, model: lb.BayesianModel, settings: Settings) -> int:
        """Draws of a prediction: a multiple of the members under one index."""
        if self.every_member or not model.method.is_random:
            return model.method.default_samples
        members = model.method.index_members or 1
        return -(-settings.samples // members) * members

    @staticmethod
    def _converted(task: Task, method: lb.Method, **options: Any) -> lb.BayesianModel:
        torch.manual_seed(task.settings.seed)
        return lb.bayesianize(copy.deepcopy(task.net), method, example=task.data.x[:8], **options)


@dataclass(frozen=True, kw_only=True)
class Scored(Entry):
    """Parameters are scored on the training images before some of them become random."""

    def more_steps(self, settings: Settings) -> int:
        """The batches of one epoch."""
        return -(-settings.train_images // settings.batch)

    def built(self, task: Task, tick: Tick) -> lb.BayesianModel:
        """Score, then convert: what `bayesianize(data=...)` does, with the demo's own bar."""
        net = copy.deepcopy(task.net)
        loader = _ticking(task.batches(1), tick)
        scores = lb.sensitivity(
            net, loader, lb.Categorical(), criterion="output_jacobian", progress=False
        )
        return self._converted(task, self.method(task.settings), scores=scores)


@dataclass(frozen=True, kw_only=True)
class PostHoc(Entry):
    """Fine-tuned as the baseline is, then fitted to the training images.

    Attributes:
        options: Of `lb.fit_posterior`.
        epochs: Passes over the training images that the fit makes.
    """

    options: Callable[[Settings], dict[str, Any]]
    epochs: Callable[[Settings], int] = field(default=lambda _settings: 1)

    def more_steps(self, settings: Settings) -> int:
        """The batches of the fit."""
        return self.epochs(settings) * -(-settings.train_images // settings.batch)

    def finish(self, model: lb.BayesianModel, task: Task, tick: Tick) -> None:
        """Measure the posterior around the trained weights."""
        loader = _Loader(task, tick)
        lb.fit_posterior(model, loader, lb.Categorical(), **self.options(task.settings))


@dataclass(frozen=True, kw_only=True)
class Ensemble(Entry):
    """Members that are trained from scratch, each as the network itself was."""

    def steps(self, settings: Settings) -> int:
        """Every member is fine-tuned as long as any other method, batch by batch in turns."""
        return settings.choices.ensemble_members * super().steps(settings)

    def more_steps(self, settings: Settings) -> int:
        """The trainings of the further members."""
        return (settings.choices.ensemble_members - 1) * training_steps(settings)

    def built(self, task: Task, tick: Tick) -> lb.BayesianModel:
        """Train the further members, other weights and other batches each, and join them."""
        settings, members = task.settings, task.settings.choices.ensemble_members
        seeds = [settings.seed + 1000 * k for k in range(1, members)]
        nets = iter([train(replace(settings, seed=seed), task.data, tick) for seed in seeds])
        method = replace(self.method(settings), factory=lambda: next(nets))  # type: ignore[call-arg]
        return self._converted(task, method)

    def fit(self, model: lb.BayesianModel, task: Task, tick: Tick) -> None:
        """Fine-tune, as many times longer as there are members."""
        settings = task.settings
        epochs = settings.tuning_epochs * settings.choices.ensemble_members
        fine_tune(model, settings, task.batches(epochs), self.rate(settings), tick)


def training_steps(settings: Settings) -> int:
    """Steps of a training from scratch."""
    return settings.epochs * -(-settings.train_images // settings.batch)


def _ticking(batches: Batches, tick: Tick) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in batches:
        yield batch
        tick()


class _Loader:
    """Epochs of batches, one whenever it is asked, each in an order of its own."""

    def __init__(self, task: Task, tick: Tick) -> None:
        self.task, self.tick, self.passes = task, tick, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.passes += 1
        settings = replace(self.task.settings, seed=self.task.settings.seed + self.passes)
        return _ticking(Batches(self.task.data.x, self.task.data.y, 1, settings), self.tick)
