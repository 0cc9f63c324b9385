"""Adversarial inputs on the embedded images: who notices them? After BayesAdapter.

Plain Bayesian networks are about as sure of adversarial images as of clean ones; trained to be
unsure of images under uniform noise (`lb.OODRegularizer`), they notice images under PGD, which they
have never seen (Deng et al. 2022: average precision on CIFAR-10 from 0.307 to 0.985 for the
mean-field Gaussian, from 0.326 to 0.783 for the parameter-sharing ensemble). Here: LeNet on 5,000
images of the embedded Fashion-MNIST subset, no files needed.

One network is trained, and every method goes on from it under one budget: the same steps of the
same number of rows at the same rates. With the regulariser half of the rows are clean and the other
half two draws of noisy ones, so that it sees half of the clean rows. A run of another seed has
other batches, draws and foreign inputs, but the same trained network. Foreign inputs stand against
as many clean test images, so that chance is an average precision of about 0.5:

- pgd: those clean images, attacked by `lb.attacks.pgd` in the very model under test, the
  regularised one too: 20 steps from a random start against the average of new draws every step. The
  attack is after the label, as in the paper; it does not try to hide from the mutual information.
- noise: those clean images plus U(-eps, eps), as the regulariser has seen training images.
- digits: handwritten digits, which nothing was trained on.

The budget eps is 0.1 of the range of a pixel, usual for 28x28 grey images, in steps of 0.0097, as
much of eps as the paper's 0.003 of 0.031; `_small` figures have the paper's 0.031, with networks
that were regularised at 0.1. What else differs from the paper: 10 members and draws instead of 20,
to be done in minutes on one core (`--set members=20 --set samples=20`); Adam; a margin gamma that
binds (the MI of two draws never reaches the paper's 0.75).

Settings were chosen on the last 1,000 training images (`--set held_out=true`), never on a test
image; what was tried is in `adversarial_ood_training`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn

from leanbayes import attacks
from leanbayes.data import digits_28, fashion_mini
from leanbayes.data.embedded_sets import digits_labels
from leanbayes.errors import ConfigError
from leanbayes.experiments.adversarial_ood_scores import Seen, histograms, over_seeds, scores
from leanbayes.experiments.adversarial_ood_training import (
    METHODS,
    REGULARISED,
    method_named,
    pretraining,
    tuning,
)
from leanbayes.experiments.experiment import Experiment, Row, plain
from leanbayes.experiments.kept_network import Kept, kept
from leanbayes.experiments.open_set_data import NoisyBatches, OpenSetData, seeded
from leanbayes.likelihood import Categorical
from leanbayes.methods import MAP
from leanbayes.model import BayesianModel
from leanbayes.models import create
from leanbayes.predict import predict
from leanbayes.prediction import Classification
from leanbayes.train.adapt import adapt

TRAIN: Final = 5000  # the rest of the training images is for choosing settings
STEP_SHARE: Final = 0.003 / 0.031  # of a step in the budget, as in the paper
SMOKE: Final = {
    "width": 1,
    "runs": 2,
    "steps": 2,
    "batch_size": 16,
    "members": 3,
    "samples": 3,
    "attacked": 6,
    "attack_steps": 2,
}
SMOKE_IMAGES: Final = 40


@dataclass(frozen=True, kw_only=True)
class AdversarialOOD(Experiment):
    """Who notices adversarial images: plain Bayesian networks and regularised ones.

    Attributes:
        keep: File that the trained network is written to and read from, so that it is trained
            once for all processes.
        methods: Names of methods; `_reg` trains with the regulariser.
        runs: Of every row, with the seeds `seed`, `seed + 1`, ..., from the same network.
        width: Of the LeNet.
        pretrain_epochs: Of the network that all methods start from.
        steps: Of every method after it.
        batch_size: Rows of a step, clean and noisy ones together.
        lr: Rate of the trained parameters under every method at the start; it falls by cosine.
        posterior_lr: The same for the factors of shared_ensemble.
        log_std_lr: The same for the log-scales of mean_field.
        log_std: Between these numbers mean_field's log-scales start.
        factor_std: Spread of shared_ensemble's factors at the start.
        weight_decay: Of the training, and the prior of the methods.
        members: Candidates of shared_ensemble.
        samples: Draws of a prediction, and of every step of an attack.
        alpha: Weight of the regulariser.
        gamma: Its margin in nats; None has none, which with two draws is the paper's 0.75.
        eps: Largest change of a pixel of [0, 1], in training and in foreign inputs.
        small_eps: A second budget that is only tested; the paper's for CIFAR-10.
        attacked: Images that are attacked a seed, other ones for every seed.
        attack_steps: Of an attack.
        held_out: Test on the last 1,000 training images, to choose settings by.
    """

    name: ClassVar[str] = "adversarial-ood"
    asked: ClassVar[tuple[str, ...]] = ("methods",)

    keep: str = ""
    methods: tuple[str, ...] = METHODS
    runs: int = 3
    width: int = 2
    pretrain_epochs: int = 20
    steps: int = 500
    batch_size: int = 128
    lr: float = 1e-2
    posterior_lr: float = 3e-3
    log_std_lr: float = 1e-2
    log_std: tuple[float, float] = (-4.5, -3.5)
    factor_std: float = 0.2
    weight_decay: float = 2e-4
    members: int = 10
    samples: int = 10
    alpha: float = 3.0
    gamma: float | None = 0.5
    eps: float = 0.1
    small_eps: float = 0.031
    attacked: int = 100
    attack_steps: int = 20
    held_out: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown:
            raise ConfigError(f"methods: no {unknown[0]!r}; expected some of {', '.join(METHODS)}")
        if self.batch_size < 4 or self.batch_size % 4:
            raise ConfigError(f"batch_size is a multiple of 4, found {self.batch_size}")
        if self.smoke:
            for name, value in SMOKE.items():
                object.__setattr__(self, name, value)

    def parts(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """Every method."""
        bench = Bench(self)
        for name in self.methods:
            yield name, partial(bench.row, name)


@dataclass(frozen=True)
class Bench:
    """Data and the trained network, which all rows share."""

    plan: AdversarialOOD

    @cached_property
    def data(self) -> OpenSetData:
        """Clothes to train and test on; digits are the others. Pixels are not scaled."""
        found = fashion_mini()
        tests = (found.x_test, found.y_test)
        if self.plan.held_out:
            tests = (found.x_train[TRAIN:], found.y_train[TRAIN:])
        parts = (
            (found.x_train[:TRAIN], found.y_train[:TRAIN]),
            tests,
            (digits_28(), digits_labels()),
        )
        train, test, others = (self._sent(part) for part in parts)
        return OpenSetData(train=train, test=test, others=others, normalize=None)

    def _sent(self, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = (tensor[: SMOKE_IMAGES if self.plan.smoke else None] for tensor in part)
        return x.to(self.plan.device), y.to(self.plan.device)

    @cached_property
    def start(self) -> Kept:
        """The trained network that all methods start from."""
        config = pretraining(self.plan)
        origin = {
            "config": plain(config),
            "width": self.plan.width,
            "rows": len(self.data.train[1]),
        }
        return kept(self.plan.keep, origin, self._trained)

    def _trained(self) -> Kept:
        net = self._net()
        done = adapt(net, MAP(), self.data.train, config=pretraining(self.plan))
        return Kept(net.state_dict(), done.result.steps)

    def _net(self) -> nn.Module:
        torch.manual_seed(self.plan.seed)
        return create("lenet", width=self.plan.width)

    def row(self, name: str) -> Row:
        """Figures of a method: mean and standard error over the seeds."""
        plan, seeds = self.plan, [self.plan.seed + number for number in range(self.plan.runs)]
        method = method_named(plan, name, len(self.data.train[1]))
        found = [self._run(name, seed) for seed in seeds]
        config = plain(tuning(plan, name, plan.seed))
        config.pop("seed")
        return {
            "data": "fashion_mini",
            "method": method.to_json(),
            "regularised": name.endswith(REGULARISED),
            "seeds": seeds,
            "start": self.start.mark,
            "steps": plan.steps,
            **over_seeds([scores(seen) for seen in found]),
            "histograms": histograms(found, plan.samples),
            "rows": self._rows(),
            "config": config,
        }

    def _run(self, name: str, seed: int) -> Seen:
        plan, data = self.plan, self.data
        state, net = self.start.state, self._net()
        net.load_state_dict(deepcopy(state))
        noise = partial(data.noisy, eps=plan.eps)
        ood = (
            NoisyBatches(data, noise, plan.batch_size // 4) if name.endswith(REGULARISED) else None
        )
        torch.manual_seed(seed)
        method = method_named(plan, name, len(data.train[1]))
        done = adapt(net, method, data.train, ood=ood, config=tuning(plan, name, seed))
        return self._seen(done.model, seed)

    def _seen(self, model: BayesianModel, seed: int) -> Seen:
        """What a network answers to all test images, and to foreign inputs beside some of them."""
        plan, data, rows = self.plan, self.data, self._chosen(len(self.data.test[1]), seed)
        clean = self._predicted(model, data.test[0], seed)
        x, y = (part[rows.to(part.device)] for part in data.test)
        inputs = {"digits": data.others[0][self._chosen(len(data.others[0]), seed)]}
        for mark, eps in (("", plan.eps), ("_small", plan.small_eps)):
            with seeded(seed, x.device):
                inputs[f"noise{mark}"] = data.noisy(x, eps)
            inputs[f"pgd{mark}"] = self._attacked(model, (x, y), eps, seed)
        return Seen(
            clean=clean,
            y=data.test[1].cpu(),
            beside=self._predicted(model, x, seed),
            foreign={name: self._predicted(model, found, seed) for name, found in inputs.items()},
            labels={name: y.cpu() for name in inputs if name != "digits"},
            random=model.method.is_random,
        )

    def _chosen(self, count: int, seed: int) -> Tensor:
        """Rows of a set, other ones for every run as long as they last."""
        first = (seed - self.plan.seed) * self.plan.attacked
        return torch.arange(first, first + self.plan.attacked) % count

    def _attacked(
        self, model: BayesianModel, part: tuple[Tensor, Tensor], eps: float, seed: int
    ) -> Tensor:
        """PGD against the average of the draws of this very network."""
        return attacks.pgd(
            model,
            *part,
            eps=eps,
            step_size=STEP_SHARE * eps,
            steps=self.plan.attack_steps,
            samples=self.plan.samples,
            seed=seed,
            likelihood=Categorical(),
        )

    def _predicted(self, model: BayesianModel, x: Tensor, seed: int) -> Classification:
        options: dict[str, Any] = {"samples": self.plan.samples, "seed": seed}
        found = predict(model, x, likelihood=Categorical(), **options).to("cpu")
        assert isinstance(found, Classification)
        return found

    def _rows(self) -> Row:
        found = {"train": len(self.data.train[1]), "test": len(self.data.test[1])}
        return {**found, "foreign": self.plan.attacked}
