"""Toy regression `y = x^3`: does uncertainty grow where there are no data?

Two papers show it: iBNN with 30 points and ReLU networks of 256 units and 1 to 5 layers, where
variational inference on weights is said to lose its uncertainty with depth and noise on inputs is
not; and PBN with 20 points, noise N(0, 9) and one layer of 100 units, of whose weights a part is
random. Points lie in [-4, 4], predictions in [-6, 6].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from leanbayes.experiments.experiment import Experiment, Row
from leanbayes.likelihood import Gaussian
from leanbayes.methods import MAP, Implicit, MeanField, Method, Partial
from leanbayes.models import create
from leanbayes.predict import predict
from leanbayes.train.adapt import adapt
from leanbayes.train.config import FitConfig

NOISE_STD, INSIDE, OUTSIDE = 3.0, 4.0, 6.0
RATES = (0.05, 0.2, 0.5, 0.9)
SAMPLES = 200


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture: a network, a method, and whether its uncertainty must grow.

    Attributes:
        paper: Whose version it is, `ibnn` or `pbn`.
        method: Over the weights.
        layers: Hidden layers.
        scratch: The method trains fresh weights, for as many steps as others train in all; else it
            starts from a network that was trained as a point.
        grows: Claimed: at |x| = 6 the epistemic std is at least twice that at 0.
    """

    paper: str
    method: Method
    layers: int
    grows: bool
    scratch: bool = False

    @property
    def label(self) -> str:
        """Words for a title."""
        rate = f" {100 * self.method.rate:.3g} %" if isinstance(self.method, Partial) else ""
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        start = " from scratch" if self.scratch else ""
        return f"{self.method.name}{rate}{start}, {layers}"


def panels() -> Iterator[Panel]:
    """Both papers' pictures."""
    for layers in range(1, 6):
        yield Panel(paper="ibnn", method=MAP(), layers=layers, grows=False)
        yield Panel(paper="ibnn", method=_vi(), layers=layers, grows=layers == 1)
        yield Panel(paper="ibnn", method=_vi(), layers=layers, grows=False, scratch=True)
        yield Panel(paper="ibnn", method=Implicit(), layers=layers, grows=True)
    yield Panel(paper="pbn", method=MAP(), layers=1, grows=False)
    yield Panel(paper="pbn", method=_vi(), layers=1, grows=True)
    for rate in RATES:
        yield Panel(paper="pbn", method=Partial(rate=rate), layers=1, grows=rate >= 0.2)


def _vi() -> Method:
    return MeanField(prior_std=1.0)


@dataclass(frozen=True, kw_only=True)
class Toy(Experiment):
    """Both papers' pictures of `y = x^3`.

    Attributes:
        steps: Of the point estimate, and again of the method.
    """

    name: ClassVar[str] = "toy"

    steps: int = 2000

    def parts(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """Every panel."""
        for panel in panels():
            yield f"{panel.paper}: {panel.label}", partial(self.row, panel)

    def row(self, panel: Panel) -> Row:
        """The curve of a panel, and whether it does what it claims."""
        found = run_panel(panel, seed=self.seed, steps=20 if self.smoke else self.steps)
        growth = found["growth"]
        met = growth is not None and growth >= 2 if panel.grows else None
        return {"method": panel.method.to_json(), "claims_growth": panel.grows, "met": met, **found}


def points(paper: str, seed: int) -> tuple[Tensor, Tensor]:
    """Training points of a version: x [N, 1] uniform in [-4, 4], y = x^3 with noise."""
    generator = torch.Generator().manual_seed(seed)
    count = 30 if paper == "ibnn" else 20
    x = (2 * torch.rand(count, 1, generator=generator) - 1) * INSIDE
    return x, x**3 + NOISE_STD * torch.randn(count, 1, generator=generator)


def run_panel(panel: Panel, *, seed: int = 0, steps: int = 2000) -> dict[str, Any]:
    """Train a panel; its curve over [-6, 6] and how much the epistemic std grows outside.

    `growth` is the smaller epistemic std at -6 and 6 over that at 0.
    """
    x, y = points(panel.paper, seed)
    likelihood = Gaussian(
        precision=1 / NOISE_STD**2, target_mean=float(y.mean()), target_std=float(y.std())
    )
    torch.manual_seed(seed)
    width = 256 if panel.paper == "ibnn" else 100
    net = create("mlp", inputs=1, hidden=(width,) * panel.layers, outputs=1)
    data = (x / INSIDE, y)
    if panel.scratch:
        steps *= 2
    else:
        adapt(net, MAP(), data, likelihood=likelihood, config=_config(seed, steps))
    done = adapt(net, panel.method, data, likelihood=likelihood, config=_config(seed, steps))
    grid = torch.linspace(-OUTSIDE, OUTSIDE, 121)[:, None]
    found = predict(done.model, grid / INSIDE, samples=SAMPLES, seed=seed)
    return _curve(grid, found) | {"points": torch.cat([x, y], 1).tolist()}


def _config(seed: int, steps: int) -> FitConfig:
    return FitConfig(
        steps=steps,
        batch_size=64,
        optimizer="Adam",
        lr=2e-3,
        posterior_lr=5e-3,
        seed=seed,
        progress=False,
    )


def _curve(grid: Tensor, found: Any) -> dict[str, Any]:
    epistemic = found.epistemic.sqrt()[:, 0]
    middle = epistemic[len(epistemic) // 2]
    ends = torch.minimum(epistemic[0], epistemic[-1])
    return {
        "x": grid[:, 0].tolist(),
        "mean": found.mean[:, 0].tolist(),
        "epistemic_std": epistemic.tolist(),
        "std": found.std[:, 0].tolist(),
        "growth": float(ends / middle) if middle > 0 else None,
    }
