"""PBN (Abboud et al.): noise on the parameters that the loss feels most, from a trained network.

Where the numbers come from (P: the paper, I: inferred; there is no public code).

- MNIST and the small ResNet: batch 50, SGD 0.01 with momentum 0.9 and a fixed rate, decay 1e-5, 50
  epochs: P, H.2.1 and H.3.1. ResNet-18: batch 200, decay 1e-4, five epochs of linear warm-up to
  1.6, a tenth from epoch 30 on, 50 epochs, 100 with noise: P, H.3.2; its dropout of 0.2 is left
  out.
- U-Net: images of 256x512, SGD 0.1 with momentum 0.9, halved where the validation stands still, 150
  epochs, four times as many for VI: P, H.4. Here it is halved at 0.4, 0.6 and 0.8 of the run; batch
  8, 2,975 scenes (P has 4,500), no class weights, no decay: I. 20 classes in the paper, 19 with the
  others ignored in the reader.
- ImageNet: the paper gives only the rate of 1 %. The rest is the usual fine-tuning: 10 epochs from
  0.001 on by cosine, batch 256, decay 1e-4: I. Its baselines are of others.
- Rates of random parameters 10 % (MNIST and the small ResNet; 0.1 to 95 % are tried), 5 %
  (ResNet-18) and 1 % (U-Net, ImageNet): P, section 4.
- Five draws a step and a prediction; the weight of the KL from 0.2 to 0.01 over the epochs: P, H.6.
  The printed formula runs the other way; the text is followed.
- I: the KL is averaged over the random entries of a tensor, summed over tensors and not divided by
  the number of data, the one reading under which such weights have a sensible size; `kl_weight` is
  the number of data, which takes the division back. VI is the same at a rate of 100 %, from
  scratch.
- Ensembles have five members: P; each with the epochs of the point estimate.
- The toy regression is `leanbayes experiment toy`, all rates on MNIST `leanbayes experiment
  mnist-rates`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from leanbayes.methods.base import Method
from leanbayes.methods.deep_ensemble import DeepEnsemble
from leanbayes.methods.map import MAP
from leanbayes.methods.partial import Partial
from leanbayes.recipes import parts
from leanbayes.recipes.recipe import Part, Recipe, Recipes
from leanbayes.schedule import annealed
from leanbayes.train.config import FitConfig

PAPER = "Abboud et al., sensitivity-guided partial BNN (PBN)"
MEMBERS = 5
WORDS = {
    "map": "point estimate, from scratch",
    "vi": "mean-field VI, from scratch",
    "ensemble": f"deep ensemble of {MEMBERS}, from scratch",
}


@dataclass(frozen=True)
class _Task:
    """What differs between the paper's data sets; epochs of the point estimate, PBN and VI."""

    words: str
    rate: float
    num_data: int
    epochs: tuple[int, int, int]
    batch: int
    lr: float
    decay: float
    network: Part
    data: Part
    warmup_epochs: int = 0
    milestones: tuple[int, ...] = ()  # epochs; fractions of the run where `fractions`
    factor: float = 0.1
    fractions: tuple[float, ...] = ()
    cosine: bool = False

    @property
    def steps_per_epoch(self) -> int:
        """Batches that hold all data."""
        return -(-self.num_data // self.batch)


def _small(words: str, num_data: int, network: Part, data: Part) -> _Task:
    return _Task(words, 0.1, num_data, (50, 50, 50), 50, 0.01, 1e-5, network, data)


TASKS = {
    "pbn-mnist": _small("LeNet-300-100 on MNIST", 60_000, parts.LENET300, parts.MNIST),
    "pbn-cifar10-small": _small(
        "a small ResNet on CIFAR-10", 50_000, parts.RESNET_SMALL, parts.CIFAR10_WHOLE
    ),
    "pbn-svhn-small": _small("a small ResNet on SVHN", 73_257, parts.RESNET_SMALL, parts.SVHN),
    "pbn-cifar10": _Task(
        *("ResNet-18 on CIFAR-10", 0.05, 50_000, (50, 100, 100), 200, 1.6, 1e-4),
        *(parts.RESNET18_CONV7, parts.CIFAR10),
        warmup_epochs=5,
        milestones=(30,),
    ),
    "pbn-imagenet": _Task(
        *("ResNet-50 on ImageNet", 0.01, 1_281_167, (90, 10, 90), 256, 1e-3, 1e-4),
        *(parts.RESNET50, parts.IMAGENET),
        cosine=True,
    ),
    "pbn-cityscapes": _Task(
        *("U-Net on Cityscapes", 0.01, 2975, (150, 150, 600), 8, 0.1, 0.0),
        *(parts.UNET, parts.CITYSCAPES),
        factor=0.5,
        fractions=(0.4, 0.6, 0.8),
    ),
}


def _config(task: _Task, epochs: int) -> FitConfig:
    """The training of the network, without noise."""
    marks = tuple(mark / epochs for mark in task.milestones) or task.fractions
    return FitConfig(
        epochs=epochs,
        batch_size=task.batch,
        lr=task.lr,
        momentum=0.9,
        nesterov=False,
        weight_decay=task.decay,
        schedule="step" if marks else "cosine" if task.cosine else "constant",
        milestones=marks,
        decay=task.factor,
        warmup=task.warmup_epochs * task.steps_per_epoch,
    )


def _noisy(task: _Task, epochs: int) -> FitConfig:
    return replace(
        _config(task, epochs),
        samples=5,
        kl_weight=float(task.num_data),
        kl_schedule=annealed(epochs=epochs, steps_per_epoch=task.steps_per_epoch),
    )


def _build(name: str) -> Recipe:
    task = TASKS[name]
    notes = (
        f"PBN at {task.rate:.0%}, from a trained network: {task.words}\n"
        "Bring data to lb.bayesianize, by which parameters are chosen. The schedule of the KL "
        f"counts {task.steps_per_epoch} steps an epoch. Tensors with random entries have no decay."
    )
    method, config = Partial(rate=task.rate, preset="paper"), _noisy(task, task.epochs[1])
    return replace(_recipe(name, task, method, config, notes), trained=True)


def _baseline(name: str) -> Recipe:
    key, _, row = name.rpartition("-")
    task = TASKS[key]
    plain, _, full = task.epochs
    settings: dict[str, tuple[Method, FitConfig]] = {
        "map": (MAP(), _config(task, plain)),
        "vi": (Partial(rate=1.0, criterion="magnitude", preset="paper"), _noisy(task, full)),
        "ensemble": (DeepEnsemble(members=MEMBERS, assign="turns"), _in_turns(task, plain)),
    }
    return _recipe(name, task, *settings[row], f"PBN's baseline, {WORDS[row]}: {task.words}")


def _in_turns(task: _Task, epochs: int) -> FitConfig:
    """As many epochs for every member."""
    config = _config(task, epochs)
    return replace(config, epochs=MEMBERS * epochs, warmup=MEMBERS * config.warmup)


def _recipe(name: str, task: _Task, method: Method, config: FitConfig, notes: str) -> Recipe:
    return Recipe(
        name=name,
        method=method,
        config=config,
        network=task.network,
        data=task.data,
        paper=PAPER,
        notes=notes,
    )


RECIPES: Recipes = {
    **dict.fromkeys(TASKS, _build),
    **{f"{key}-{row}": _baseline for key in TASKS if key != "pbn-imagenet" for row in WORDS},
}
