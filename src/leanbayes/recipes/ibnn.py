"""iBNN (Trinh et al. 2020): noise on the inputs of every layer, from scratch or trained.

Where the numbers come from (P: the paper, C: the authors' public code, I: inferred).

- Rates, prior, spread of the means and weight decay: P, table 2. 300 epochs, batch 128, SGD with
  Nesterov momentum 0.9, two draws a step, scales from |N(0.05, 0.02^2)|: P, section 3.3, and C.
- The network's rate stays until half of the run, falls linearly to a hundredth within the next 120
  epochs and stays there; that of the noise is constant: P, section 3.3.
- The KL rises linearly over the first 200 epochs: P; by epoch in the authors' code, by step here.
- Members 4, 8 and 16 are reported, and 24 and 32 for VGG-16 on CIFAR-100: P; 16 where the name does
  not say it.
- The KL of the average draw, and rows dealt to members in turn: C (`preset="paper"`).
- ImageNet: 15 epochs, batch 256, rates 1e-4 and 0.2, the latter to 0.05 within 4 epochs from epoch
  6 on, prior N(1, 0.1), no more: P, appendix. I: 0.1 is a standard deviation as everywhere else;
  means spread by 0.05, since 0.5 destroys a trained network; decay 1e-4; two draws.
- LeNet on Fashion-MNIST: 8 members: P, figure 2; the rate of the noise 0.2 a member: C; the rest as
  for VGG-16 on CIFAR-10: I.
- The point estimate of VGG-16 has dropout 0.5 twice, the others have none; MC dropout uses it, and
  0.3 before the second convolution of a block in WRN-28-10; VI: Adam 1e-3, scales 0.015 +- 0.001,
  one draw a batch: C; its prior N(0, 1): I.
- The toy regression is `leanbayes experiment toy`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from leanbayes import select
from leanbayes.methods.base import Method
from leanbayes.methods.implicit import Implicit
from leanbayes.methods.map import MAP
from leanbayes.methods.mc_dropout import MCDropout
from leanbayes.methods.mean_field import MeanField
from leanbayes.recipes import parts
from leanbayes.recipes.recipe import Part, Recipe, Recipes
from leanbayes.train.config import FitConfig

PAPER = "Trinh et al. 2020, iBNN"
MEMBERS = 16
BASELINES = {"sgd": "point estimate", "dropout": "MC dropout", "vi": "mean-field VI"}


@dataclass(frozen=True)
class _Column:
    """A column of table 2, its network and data."""

    words: str
    lr: float
    posterior_lr: float
    spread: float
    prior_std: float
    decay: float
    network: Part
    data: Part
    members: int = MEMBERS
    reported: tuple[int, ...] = (4, 8)

    @property
    def has_dropout(self) -> bool:
        """True for VGG-16, whose point estimate has dropout of its own."""
        return self.network.name == "vgg16"


_VGG, _WRN = parts.vgg(), parts.WRN_28_10
_VGG10, _VGG100 = parts.CIFAR10_WHOLE, parts.CIFAR100_WHOLE
TABLE = {
    "ibnn-vgg16-cifar10": _Column("VGG-16 on CIFAR-10", 0.05, 1.2, 0.75, 0.3, 5e-4, _VGG, _VGG10),
    "ibnn-vgg16-cifar100": _Column(
        *("VGG-16 on CIFAR-100", 0.05, 1.6, 0.75, 0.3, 3e-4, _VGG, _VGG100),
        reported=(4, 8, 24, 32),
    ),
    "ibnn-wrn-cifar10": _Column(
        "WRN-28-10 on CIFAR-10", 0.1, 2.4, 0.5, 0.1, 5e-4, _WRN, parts.CIFAR10
    ),
    "ibnn-wrn-cifar100": _Column(
        "WRN-28-10 on CIFAR-100", 0.1, 4.8, 0.5, 0.1, 5e-4, _WRN, parts.CIFAR100
    ),
    "ibnn-fashion": _Column(
        *("LeNet on Fashion-MNIST", 0.05, 8 * 0.2, 0.75, 0.3, 5e-4, parts.lenet(), parts.FASHION),
        members=8,
        reported=(),
    ),
}


# The masks of the network's own dropout, on the layers that it stands before.
_VGG_DROPOUT = MCDropout(rate=0.5, where=select.by_name("classifier.1", "classifier.4"))
_WRN_DROPOUT = MCDropout(rate=0.3, where=select.by_name("stage*.conv2"))


def _found(name: str) -> tuple[_Column, str]:
    """The column of a name, and the word after it."""
    key = next(key for key in TABLE if name == key or name.startswith(f"{key}-"))
    return TABLE[key], name[len(key) + 1 :]


def _plain(column: _Column) -> FitConfig:
    """The training of the network, without noise."""
    return FitConfig(
        epochs=300,
        batch_size=128,
        lr=column.lr,
        weight_decay=column.decay,
        schedule="linear",
        span=(0.5, 0.9),
        floor=0.01,
    )


def _scratch(name: str) -> Recipe:
    """A network from scratch, by table 2."""
    column, word = _found(name)
    members = int(word.removeprefix("k") or column.members)
    method = Implicit(
        members=members, prior_std=column.prior_std, init_std=column.spread, preset="paper"
    )
    config = replace(
        _plain(column),
        posterior_lr=column.posterior_lr,
        posterior_schedule="constant",
        samples=2,
        kl_warmup=200 / 300,
    )
    notes = (
        f"iBNN from scratch: {column.words}, {members} members\n"
        "The paper reports 4, 8 and 16 members. Its networks have no dropout here; the rate of the "
        "noise is made for plain SGD: with another optimiser take that of the network."
    )
    return _recipe(name, method, config, column.network, column.data, notes)


def _baseline(name: str) -> Recipe:
    """What iBNN is set beside, under the same training."""
    column, word = _found(name)
    network, config = column.network, _plain(column)
    method: Method = MAP()
    if word == "sgd" and column.has_dropout:
        network = parts.vgg(dropout=0.5)
    if word == "dropout":
        method = _VGG_DROPOUT if column.has_dropout else _WRN_DROPOUT
    if word == "vi":
        method = _vi()
        config = replace(config, optimizer="Adam", lr=1e-3, weight_decay=0.0, kl_warmup=200 / 300)
    notes = f"iBNN's baseline, {BASELINES[word]} from scratch: {column.words}"
    return _recipe(name, method, config, network, column.data, notes)


def _vi() -> Method:
    return MeanField(
        estimator="shared", prior_std=1.0, init_log_std=(math.log(0.014), math.log(0.016))
    )


def _trained(name: str) -> Recipe:
    """A trained network, by the appendix."""
    members = int(name.removeprefix("ibnn-imagenet").removeprefix("-k") or MEMBERS)
    method = Implicit(members=members, prior_std=0.1, init_std=0.05, preset="paper")
    config = FitConfig(
        epochs=15,
        batch_size=256,
        lr=1e-4,
        posterior_lr=0.2,
        weight_decay=1e-4,
        schedule="constant",
        posterior_schedule="linear",
        span=(6 / 15, 10 / 15),
        floor=0.25,
        samples=2,
    )
    notes = (
        f"iBNN from a trained network: ResNet-50 on ImageNet, {members} members\n"
        "The paper names neither the spread of the means, the weight decay nor the draws a step."
    )
    found = _recipe(name, method, config, parts.RESNET50, parts.IMAGENET, notes)
    return replace(found, trained=True)


def _recipe(
    name: str, method: Method, config: FitConfig, network: Part, data: Part, notes: str
) -> Recipe:
    given = {"network": network, "data": data, "paper": PAPER, "notes": notes}
    return Recipe(name=name, method=method, config=config, **given)  # type: ignore[arg-type]


def _baselines_of(key: str) -> list[str]:
    words = [word for word in BASELINES if key != "ibnn-fashion" or word != "dropout"]
    return [f"{key}-{word}" for word in words]


RECIPES: Recipes = {
    **dict.fromkeys(TABLE, _scratch),
    **{f"{key}-k{count}": _scratch for key in TABLE for count in TABLE[key].reported},
    **{name: _baseline for key in TABLE for name in _baselines_of(key)},
    "ibnn-imagenet": _trained,
    **{f"ibnn-imagenet-k{count}": _trained for count in (4, 8)},
}
