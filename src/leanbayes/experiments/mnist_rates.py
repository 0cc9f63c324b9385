"""PBN on MNIST (Abboud et al., Figs. 3, 4 and 11): how many random parameters are enough?

LeNet 300-100 with BatchNorm, trained as a point first; then the most sensitive 1 to 95 % of its
parameters become random (recipe `pbn-mnist`), or all of them (`MeanField`, from the trained network
and from scratch, which is the paper's VI). MeanField's objective is the ELBO with one draw a batch,
as many draws a step, the same optimiser and the same scales at the start; norms stay points. Every
method but the first and the last has the epochs of the point estimate behind it: 15 and not 50
(`--set epochs=50` is the paper's length).

The standard deviations have a rate of their own, 1. At the network's 0.01 they stay where they
start: the gradient of the KL in rho is about 1 / 60,000 a step, which with momentum adds up to
0.03 in 15 epochs, and the map of sigma shows nothing but the choice of parameters. Tried on 12,000
to 20,000 training images and 1,000 to 2,000 further ones of the training part, with training images
of Fashion-MNIST as the foreign ones: at 1 they move (VI from scratch, after 720 steps: 0.0068 to
0.0121, AUROC 0.887 to 0.903, NLL 0.129 and 0.132; Partial at 10 %: accuracy 0.979 to 0.981, NLL
0.081 to 0.092).

A row has the figures of the test images, of the test images turned by 0 to 180 degrees, the area
under the ROC curve with Fashion-MNIST as far OOD, the standard deviations of the first layer
averaged over its units (28x28), and the operations of the training, as `training_flops` counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn

from leanbayes import metrics, select
from leanbayes.convert import bayesianize
from leanbayes.data import Data
from leanbayes.errors import ConfigError
from leanbayes.experiments.experiment import Experiment, Row, plain
from leanbayes.experiments.grey_images import SIDE, grey_images
from leanbayes.experiments.kept_network import Kept, kept
from leanbayes.experiments.training_flops import Pass, count_pass
from leanbayes.likelihood import Categorical
from leanbayes.methods import MAP, MeanField, Method, Partial
from leanbayes.model import BayesianModel
from leanbayes.models import create
from leanbayes.predict import predict
from leanbayes.prediction import Classification
from leanbayes.recipes import recipe
from leanbayes.schedule import annealed
from leanbayes.shifts import rotate
from leanbayes.train.adapt import Adapted, adapt
from leanbayes.train.config import FitConfig

RATES: Final = (0.01, 0.05, 0.1, 0.2, 0.5, 0.95)
ANGLES: Final = tuple(range(0, 181, 15))
SMOKE_RATES, SMOKE_ANGLES, SMOKE_STEPS = (0.05, 0.5), (0, 90, 180), 10


@dataclass(frozen=True, kw_only=True)
class MnistRates(Experiment):
    """LeNet 300-100 on MNIST by the rate of random parameters.

    Attributes:
        images: An npz file below the root (.npz or .npz.xz) instead of MNIST's idx files.
        foreign: The same for Fashion-MNIST.
        keep: File that the point estimate is written to and read from, so that it is trained once
            for all processes.
        rates: Of random parameters.
        pretrain_epochs: Of the point estimate.
        epochs: Of every method after it, and of the network from scratch.
        samples: Draws of a prediction.
        posterior_lr: Learning rate of the (inverse softplus of) standard deviations; that of the
            network if None.
    """

    name: ClassVar[str] = "mnist-rates"
    asked: ClassVar[tuple[str, ...]] = ("rates",)

    images: str = ""
    foreign: str = ""
    keep: str = ""
    rates: tuple[float, ...] = RATES
    pretrain_epochs: int = 15
    epochs: int = 15
    samples: int = 5
    posterior_lr: float | None = 1.0

    def __post_init__(self) -> None:
        wrong = [rate for rate in self.rates if not 0 < rate <= 1]
        if wrong:
            raise ConfigError(f"rates are above 0 and at most 1, found {wrong[0]!r}")

    def parts(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """The point estimate, every rate, all parameters from there on and from scratch."""
        bench = Bench(self)
        yield "map", bench.point
        for rate in SMOKE_RATES if self.smoke else self.rates:
            method = replace(_partial(), rate=rate)
            yield f"partial {100 * rate:g} %", partial(bench.row, method, rate)
        yield "mean_field", partial(bench.row, _vi(), 1.0)
        yield "mean_field from scratch", partial(bench.row, _vi(), 1.0, trained=False)


def _partial() -> Partial:
    method = recipe("pbn-mnist").method
    assert isinstance(method, Partial)
    return method


def _vi() -> MeanField:
    """All parameters, from the standard deviation that Partial's start from."""
    start = math.log1p(math.exp(_partial().init_rho[0]))
    return MeanField(estimator="shared", select=select.linears, init_std=start)


@dataclass(frozen=True)
class Bench:
    """Data and the trained network, which all rows share."""

    plan: MnistRates

    @cached_property
    def data(self) -> Data:
        """MNIST."""
        return self._read("mnist", self.plan.images)

    @cached_property
    def foreign(self) -> Tensor:
        """Test images of Fashion-MNIST, scaled as MNIST is."""
        found = self._read("fashion_mnist", self.plan.foreign)
        assert found.normalize is not None
        assert self.data.normalize is not None
        return self.data.normalize(found.normalize.undo(found.test[0]))

    def _read(self, name: str, file: str) -> Data:
        plan = self.plan
        place: dict[str, Any] = {"root": plan.root, "device": plan.device, "smoke": plan.smoke}
        return grey_images(name, file=file, **place)

    @cached_property
    def trained(self) -> Kept:
        """The point estimate that the methods start from."""
        config = self._config(MAP())
        origin = {"config": plain(config), "rows": len(self.data.train[1])}
        return kept(self.plan.keep, origin, partial(self._train, config))

    def _train(self, config: FitConfig) -> Kept:
        net = self._net()
        done = adapt(net, MAP(), self.data.train, config=config)
        return Kept(net.state_dict(), done.result.steps)

    @cached_property
    def _pass(self) -> Pass:
        batch = recipe("pbn-mnist").config.batch_size
        return count_pass(create("lenet300", norm=True), torch.zeros(batch, 1, SIDE, SIDE))

    def _net(self) -> nn.Module:
        torch.manual_seed(self.plan.seed)
        return create("lenet300", norm=True)

    def point(self) -> Row:
        """The row of the point estimate."""
        net, steps = self._net(), self.trained.steps
        net.load_state_dict(self.trained.state)
        model = bayesianize(net.to(self.plan.device), MAP())
        flops = {
            "flops": float(steps * self._pass.both),
            "paper_flops": steps * self._pass.paper_step(1, 0.0),
        }
        found = self._figures(model, 0.0, self._config(MAP()))
        return {"random": 0, "start": self.trained.mark, "steps": steps, **found, **flops}

    def row(self, method: Method, rate: float, *, trained: bool = True) -> Row:
        """The row of a method, from the trained network or from scratch."""
        # Before the seed is set: the row is the same whether or not another came before it.
        start = self.trained.state if trained else None
        config, net = self._config(method), self._net()
        if start is not None:
            net.load_state_dict(start)
        done = adapt(net, method, self.data.train, config=config)
        return {
            "random": done.report.added,
            "start": self.trained.mark if trained else None,
            "steps": done.result.steps,
            **self._figures(done.model, rate, config),
            **self._flops(done, rate, config.samples, trained),
        }

    def _flops(self, done: Adapted, rate: float, draws: int, trained: bool) -> Row:
        """Operations of all training that led to a model."""
        steps, added = done.result.steps, done.report.added
        before = self.trained.steps if trained else 0
        scored = self._steps_per_epoch if done.model.method.looks_at_data else 0
        paper = before * self._pass.paper_step(1, 0.0) + steps * self._pass.paper_step(draws, rate)
        own = (before + scored) * self._pass.both + steps * self._pass.step(draws, added)
        return {"flops": float(own), "paper_flops": paper}

    @property
    def _steps_per_epoch(self) -> int:
        return -(-len(self.data.train[1]) // recipe("pbn-mnist").config.batch_size)

    def _config(self, method: Method) -> FitConfig:
        """The recipe's; only Partial has its weight of the KL, which is made for a mean of it."""
        plan = self.plan
        epochs = plan.pretrain_epochs if isinstance(method, MAP) else plan.epochs
        schedule = annealed(epochs=epochs, steps_per_epoch=self._steps_per_epoch)
        by_tensor = isinstance(method, Partial)
        return replace(
            recipe("pbn-mnist").config,
            epochs=None if plan.smoke else epochs,
            steps=SMOKE_STEPS if plan.smoke else None,
            samples=5 if method.is_random else 1,
            posterior_lr=plan.posterior_lr,
            kl_weight=float(len(self.data.train[1])) if by_tensor else 1.0,
            kl_schedule=schedule if by_tensor else None,
            seed=plan.seed,
            device=plan.device,
            log_every=10_000,
            progress=False,
        )

    def _figures(self, model: BayesianModel, rate: float, config: FitConfig) -> Row:
        """Everything but the training."""
        x, y = self.data.test
        inside, outside = self._predict(model, x), self._predict(model, self.foreign)
        return {
            "data": "mnist",
            "method": model.method.to_json(),
            "rate": rate,
            **scores(inside, y),
            "brier": float(metrics.brier(inside.probs, y)),
            "ece": float(metrics.ece(inside.probs, y)),
            **against(inside, outside, random=model.method.is_random),
            "rotation": self._rotation(model),
            "sigma": sigma_map(model),
            "config": plain(config),
        }

    def _rotation(self, model: BayesianModel) -> Row:
        """Figures by angle, a list each."""
        x, y = self.data.test
        assert self.data.normalize is not None
        black = float(self.data.normalize(torch.zeros(1, 1, 1, 1)))
        angles = SMOKE_ANGLES if self.plan.smoke else ANGLES
        found = [scores(self._predict(model, rotate(x, angle, black)), y) for angle in angles]
        return {"degrees": list(angles), **{key: [f[key] for f in found] for key in found[0]}}

    def _predict(self, model: BayesianModel, x: Tensor) -> Classification:
        options: dict[str, Any] = {"samples": self.plan.samples, "seed": self.plan.seed}
        found = predict(model, x, likelihood=Categorical(), **options)
        assert isinstance(found, Classification)
        return found


def scores(found: Classification, y: Tensor) -> dict[str, float]:
    """Accuracy, negative log-likelihood, and the mean of both uncertainties."""
    return {
        "accuracy": float(metrics.accuracy(found.probs, y)),
        "nll": float(metrics.nll(found.probs, y)),
        "total": float(found.total.mean()),
        "epistemic": float(found.epistemic.mean()),
    }


def against(inside: Classification, outside: Classification, *, random: bool) -> Row:
    """How well uncertainty tells foreign images; a point estimate has no epistemic one."""
    epistemic = metrics.auroc(inside.epistemic, outside.epistemic) if random else None
    return {
        "foreign_total": float(outside.total.mean()),
        "foreign_epistemic": float(outside.epistemic.mean()),
        "auroc_total": float(metrics.auroc(inside.total, outside.total)),
        "auroc_epistemic": None if epistemic is None else float(epistemic),
    }


def sigma_map(model: BayesianModel) -> list[list[float]] | None:
    """Standard deviation of the weights of every pixel, averaged over the units of the first layer.

    Fixed weights count as 0; None where nothing is random.
    """
    if not model.method.is_random:
        return None
    layers = (layer for layer in model.net.modules() if isinstance(layer, nn.Linear))
    first: nn.Module = next(layers)
    std = torch.zeros(SIDE * SIDE)
    for host, slot, posterior, base in model.posteriors():
        if host is first and slot == "weight":
            std = posterior.std(base).detach().mean(0).cpu()  # type: ignore[operator]
    rows = std.double().reshape(SIDE, SIDE).tolist()
    return [[float(f"{value:.4g}") for value in row] for row in rows]
