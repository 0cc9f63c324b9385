"""The ablations of the five papers on CIFAR-10, with a small wide ResNet: one row a setting.

One network is trained, and almost all rows go on from it. Each ablation turns one knob:

- factors: Rank-1 with random factors on inputs, outputs or both, on clean and corrupted images.
- curve: PBN's Fig. 6. The most sensitive 5 % of the trained network, the same mask on random
  weights, and VI from scratch: test figures after every epoch.
- samples: how many draws a prediction needs; single draws and the mean network beside them
  (BayesAdapter, EMP).
- likelihood: average against log-mixture likelihood (Rank-1, section 3.4). Every example trains
  every member, so that the mixture is over the members.
- rate: PBN's share of random parameters, ranked by the gradient of the loss (the paper) and by the
  Jacobian of the outputs.
- gamma: the margin of BayesAdapter's regulariser. Two draws never have more than ln 2 nats, so that
  the paper's 0.75, 1 and 1.5 are one objective, which is None here; 0 is no regulariser at all.
- scratch: BayesAdapter's speed-up, fine-tuning against training from scratch by seconds. Last come
  the rows from scratch whose epochs are those of start and fine-tuning together.
- members: components of Rank-1 and iBNN, candidates of the parameter-sharing ensemble.
- rank: of the parameter-sharing ensemble's factors, by channel: a rank costs a convolution.

They run in this order, the cheap ones first. Methods and rates are those of the table `cifar10-wrn`
(`recipes/cifar10_wrn.py`, which says where they come from); nothing was tuned for this network.
Two exceptions: training from scratch has the rate of the start, and the regulariser the rates and
scales that `verification` found for a small network on held-out images, where smaller ones do not
move. Predictions take the method's own number of draws unless the row says otherwise, rank_one one
of every member and implicit five. One seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from leanbayes.errors import ConfigError
from leanbayes.experiments.ablations_bench import Bench
from leanbayes.experiments.ablations_choices import factors, likelihoods, members, ranks, rates
from leanbayes.experiments.ablations_courses import curves, from_scratch, margins
from leanbayes.experiments.ablations_draws import draws
from leanbayes.experiments.experiment import Experiment, Row

# Cheap ones first.
ABLATIONS: Final[dict[str, Callable[[Bench], Iterator[tuple[str, Callable[[], Row]]]]]] = {
    "factors": factors,
    "curve": curves,
    "samples": draws,
    "likelihood": likelihoods,
    "rate": rates,
    "gamma": margins,
    "scratch": from_scratch,
    "members": members,
    "rank": ranks,
}
SMOKE: Final = {
    "depth": 10,
    "width": 1,
    "epochs": 2,
    "tune_epochs": 1,
    "batch_size": 16,
    "draws": (1, 3, 4),
    "singles": 2,
    "members": (1, 2),
    "candidates": (2, 4),
    "ensemble": 4,
    "ranks": (1, 2),
    "rates": (0.01, 0.5),
    "gammas": (0.25, None),
    "attacked": 8,
    "attack_steps": 2,
    "attack_draws": 2,
    "corrupted": 8,
}


@dataclass(frozen=True, kw_only=True)
class Ablations(Experiment):
    """Ablations of the papers' methods on CIFAR-10.

    Attributes:
        reader: Of the data: npz with x_train, y_train, x_test, y_test, or cifar10. A smoke run
            without a root takes the embedded images.
        keep: File that the trained network is written to and read from, so that it is trained once
            for all processes.
        ablations: Some of them by name.
        depth: Of the wide ResNet.
        width: Its factor on channels.
        epochs: Of the start, and of training from scratch.
        tune_epochs: Of fine-tuning.
        batch_size: Rows of a step; with the regulariser half of them clean, half noisy.
        lr: Rate of the start and from scratch; it falls by cosine.
        draws: Of a prediction, for `samples`.
        singles: Single draws that `samples` averages the figures of.
        members: Components of rank_one and implicit.
        candidates: Members of shared_ensemble, for `members`.
        ensemble: Of shared_ensemble elsewhere.
        ranks: Of shared_ensemble.
        per_channel: Factors of shared_ensemble by channel, not by kernel position.
        rates: Of random parameters.
        gammas: Margins of the regulariser in nats; None has none, as has any from ln 2 on.
        eps: Largest change of a pixel of [0, 1], in noise and attack.
        reg_lr: Rate of the network under the regulariser.
        reg_posterior_lr: The same for the log-scales.
        reg_log_std: Between these numbers they start.
        attacked: Test images that are attacked, the first ones.
        attack_steps: Of an attack.
        attack_draws: Of every step of an attack.
        curve_rate: Share of random parameters of `curve`.
        curve_draws: Of the figures after every epoch.
        likelihood_draws: Of every member, an example and step of `likelihood`.
        corruptions: Of `factors`.
        severity: Of the corruptions, 1 to 5.
        corrupted: Test images that are corrupted, the first ones.
        precision: On a GPU, of training and prediction; the CPU has fp32.
        memory: Bytes that the activations of a prediction may take on a GPU.
    """

    name: ClassVar[str] = "ablations"
    asked: ClassVar[tuple[str, ...]] = (
        "ablations",
        *("draws", "members", "candidates", "ranks", "rates", "gammas"),
    )

    reader: str = "npz"
    keep: str = ""
    ablations: tuple[str, ...] = tuple(ABLATIONS)
    depth: int = 16
    width: int = 4
    epochs: int = 30
    tune_epochs: int = 12
    batch_size: int = 256
    lr: float = 0.2
    draws: tuple[int, ...] = (1, 20, 100, 200)
    singles: int = 20
    members: tuple[int, ...] = (1, 2, 4, 8, 16)
    candidates: tuple[int, ...] = (5, 10, 20, 40)
    ensemble: int = 20
    ranks: tuple[int, ...] = (1, 8, 16)
    per_channel: bool = True
    rates: tuple[float, ...] = (0.001, 0.01, 0.05, 0.1, 0.5)
    gammas: tuple[float | None, ...] = (0.1, 0.25, 0.5, None)
    eps: float = 0.031
    reg_lr: float = 3e-2
    reg_posterior_lr: float = 1.0
    reg_log_std: tuple[float, float] = (-4.5, -3.5)
    attacked: int = 500
    attack_steps: int = 20
    attack_draws: int = 5
    curve_rate: float = 0.05
    curve_draws: int = 5
    likelihood_draws: int = 1
    corruptions: tuple[str, ...] = ("gaussian_noise", "defocus_blur", "fog")
    severity: int = 3
    corrupted: int = 1000
    precision: Literal["fp32", "bf16"] = "bf16"
    memory: int = 2**34

    def __post_init__(self) -> None:
        unknown = [name for name in self.ablations if name not in ABLATIONS]
        if unknown:
            names = ", ".join(ABLATIONS)
            raise ConfigError(f"ablations: no {unknown[0]!r}; expected some of {names}")
        if self.smoke:
            for name, value in SMOKE.items():
                object.__setattr__(self, name, value)
        if self.batch_size < 4 or self.batch_size % 4:
            raise ConfigError(f"batch_size is a multiple of 4, found {self.batch_size}")
        if not self.draws or not 2 <= self.singles <= max(self.draws):
            raise ConfigError(
                f"singles are 2 or more of the draws, found singles={self.singles} and "
                f"draws={self.draws}"
            )

    def parts(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """The network that rows start from, then the ablations, the cheap ones first."""
        bench = Bench(self)
        yield "start", bench.point
        for name, ablation in ABLATIONS.items():
            if name in self.ablations:
                for label, work in ablation(bench):
                    yield f"{name}: {label}", work
