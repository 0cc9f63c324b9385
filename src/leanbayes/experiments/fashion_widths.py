"""iBNN on Fashion-MNIST (Trinh et al. 2020, Fig. 4): does a wider LeNet do better or worse?

Every method trains from scratch. The paper names no settings of this figure; here they are, where
they come from (P: the paper, C: the authors' public code, I: inferred).

- Implicit: 8 components (P, Fig. 2, this network and these data); spread of the means, prior, rate
  and decay of VGG-16 on CIFAR-10, the paper's network without BatchNorm (I); rate of the noise 0.2
  a component (C); two draws a step, batch 128, the falling rate and the rising weight of the KL as
  fractions of the run (P, section 3.3). The KL is that of the paper, of the average draw.
- VI: Adam at 1e-3, standard deviations from 0.015 +- 0.001, one draw a batch (C); prior N(0, 1)
  (I); the rest as above, without decay.
- MAP: as Implicit, without noise.
- `--set clip=2` bounds the gradient of Implicit's likelihood (its norm is about 1.2 and rarely
  above 2.5): without it a seed at width 1 diverged at step 2963 of 5628 under the rate of 1.6.
- 12 epochs and not 300 (I): LeNet is small; `--set epochs=300` is the paper's length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from leanbayes import metrics
from leanbayes.data import Data
from leanbayes.errors import ConfigError
from leanbayes.experiments.experiment import Experiment, Row
from leanbayes.experiments.grey_images import grey_images
from leanbayes.likelihood import Categorical
from leanbayes.methods import MAP, MeanField, Method
from leanbayes.models import create
from leanbayes.predict import predict
from leanbayes.prediction import Classification
from leanbayes.recipes import recipe
from leanbayes.train.adapt import adapt
from leanbayes.train.config import FitConfig

WIDTHS: Final = (1, 2, 4, 8)
METHODS: Final = ("implicit", "vi", "map")
SMOKE_WIDTHS, SMOKE_RUNS, SMOKE_STEPS = (1, 2), 2, 4
RATE_PER_COMPONENT: Final = 0.2
VI_STDS: Final = (0.014, 0.016)


@dataclass(frozen=True, kw_only=True)
class FashionWidths(Experiment):
    """Error of LeNet by width, for noise on inputs, on weights, and none.

    Attributes:
        images: An npz file below the root (.npz or .npz.xz) instead of Fashion-MNIST's idx files.
        widths: Factors on all hidden channels.
        methods: Some of implicit, vi, map.
        runs: Of every row, with the seeds `seed`, `seed + 1`, ...
        epochs: Of every run.
        members: Components of Implicit.
        clip: Largest norm of the gradient of Implicit's likelihood; None does not clip.
    """

    name: ClassVar[str] = "fashion-widths"
    asked: ClassVar[tuple[str, ...]] = ("widths", "methods")

    images: str = ""
    widths: tuple[int, ...] = WIDTHS
    methods: tuple[str, ...] = METHODS
    runs: int = 3
    epochs: int = 12
    members: int = 8
    clip: float | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown:
            raise ConfigError(f"methods: no {unknown[0]!r}; expected some of {', '.join(METHODS)}")

    def parts(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """Every method at every width."""
        bench = Bench(self)
        for width in SMOKE_WIDTHS if self.smoke else self.widths:
            for name in self.methods:
                yield f"{name} x{width}", partial(bench.row, name, width)


def setting(name: str, *, members: int = 8, clip: float | None = None) -> tuple[Method, FitConfig]:
    """The method and the training settings under a name of METHODS."""
    source = recipe("ibnn-vgg16-cifar10")
    noisy = replace(source.config, posterior_lr=RATE_PER_COMPONENT * members, clip=clip)
    plain = replace(source.config, posterior_lr=None, posterior_schedule=None)
    low, high = VI_STDS
    vi = MeanField(estimator="shared", init_log_std=(math.log(low), math.log(high)))
    found: Mapping[str, tuple[Method, FitConfig]] = {
        "implicit": (replace(source.method, members=members), noisy),  # type: ignore[call-arg]
        "vi": (vi, replace(plain, optimizer="Adam", lr=1e-3, weight_decay=0.0)),
        "map": (MAP(), replace(plain, samples=1, kl_warmup=0.0)),
    }
    return found[name]


@dataclass(frozen=True)
class Bench:
    """The data, which all rows share."""

    plan: FashionWidths

    @cached_property
    def data(self) -> Data:
        """Fashion-MNIST."""
        plan = self.plan
        place: dict[str, Any] = {"root": plan.root, "device": plan.device, "smoke": plan.smoke}
        return grey_images("fashion_mnist", file=plan.images, **place)

    def row(self, name: str, width: int) -> Row:
        """Figures of a method at a width: mean and standard error over the seeds."""
        method, config = setting(name, members=self.plan.members, clip=self.plan.clip)
        config = self._config(config)
        runs = SMOKE_RUNS if self.plan.smoke else self.plan.runs
        seeds = [self.plan.seed + number for number in range(runs)]
        found = [self._run(method, replace(config, seed=seed), width) for seed in seeds]
        plain = {k: v for k, v in config.to_json().items() if v is not None and k != "seed"}
        return {
            "data": "fashion_mnist",
            "name": name,
            "method": method.to_json(),
            "width": width,
            "parameters": sum(p.numel() for p in create("lenet", width=width).parameters()),
            "seeds": seeds,
            **{key: summary([f[key] for f in found]) for key in found[0]},
            "config": plain,
        }

    def _config(self, config: FitConfig) -> FitConfig:
        smoke = self.plan.smoke
        return replace(
            config,
            epochs=None if smoke else self.plan.epochs,
            steps=SMOKE_STEPS if smoke else None,
            device=self.plan.device,
            log_every=10_000,
            progress=False,
        )

    def _run(self, method: Method, config: FitConfig, width: int) -> dict[str, float]:
        """Test error, negative log-likelihood and calibration error of one seed."""
        torch.manual_seed(config.seed)
        net = create("lenet", width=width)
        done = adapt(net, method, self.data.train, config=config)
        x, y = self.data.test
        found = predict(done.model, x, likelihood=Categorical(), seed=config.seed)
        assert isinstance(found, Classification)
        return scores(found.probs, y)


def scores(probs: Tensor, y: Tensor) -> dict[str, float]:
    """The figures of a row."""
    return {
        "test_error": 1 - float(metrics.accuracy(probs, y)),
        "nll": float(metrics.nll(probs, y)),
        "ece": float(metrics.ece(probs, y)),
    }


def summary(values: list[float]) -> Row:
    """Mean and standard error over seeds."""
    found = torch.tensor(values, dtype=torch.float64)
    error = float(found.std() / len(values) ** 0.5) if len(values) > 1 else None
    return {"mean": float(found.mean()), "error": error, "by_seed": values}
