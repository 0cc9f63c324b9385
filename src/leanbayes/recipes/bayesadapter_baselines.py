"""The other rows of BayesAdapter's tables: point estimate, from scratch, dropout, Laplace, ...

Where the numbers come from (P: the paper, C: the authors' public code, I: inferred).

- WRN-28-10: 200 epochs, rate 0.1, a fifth at epochs 60, 120 and 160, decay 2e-4, cutout of 16
  pixels: C; batch 128: I. ResNet-50 is a published checkpoint: P; what stands here is the usual
  training of 90 epochs, rate 0.1, a tenth at epochs 30 and 60, batch 256: I. MobileNetV2: 90
  epochs: P; the rest as for ResNet-50: I. Decays as in fine-tuning: P.
- Dropout 0.3 before the second convolution of a block (WRN-28-10), 0.2 after the second and third
  of a bottleneck (ResNet-50), 0.2 before the last layer (MobileNetV2): P, appendix B.
- From scratch (`vbnn`): the priors of the fine-tuning under the training of the point estimate: P,
  section 4; the epochs on ImageNet: I.
- Five point estimates as an ensemble; SWAG with 20 draws; Laplace with a diagonal Fisher matrix: P.
  What SWAG's iterates are made with: I.
"""

from __future__ import annotations

from dataclasses import replace

from leanbayes import select
from leanbayes.methods.base import Method
from leanbayes.methods.deep_ensemble import DeepEnsemble
from leanbayes.methods.laplace import Laplace
from leanbayes.methods.map import MAP
from leanbayes.methods.mc_dropout import MCDropout
from leanbayes.methods.swag import SWAG
from leanbayes.recipes.bayesadapter import mean_field, shared_ensemble
from leanbayes.recipes.bayesadapter_tasks import PAPER, TASKS, Task
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.train.config import FitConfig

MEMBERS = 5
DROPOUT = {
    "cifar10": MCDropout(rate=0.3, where=select.by_name("stage*.conv2")),
    "imagenet": MCDropout(
        rate=0.2, where=select.by_name("layer*.conv2", "layer*.conv3"), position="after"
    ),
    "casia": MCDropout(rate=0.2),
}
ROWS = {
    "cifar10": ("map", "laplace", "dropout", "swag", "ensemble", "vbnn", "vbnn-pse"),
    "imagenet": ("map", "laplace", "dropout", "vbnn", "vbnn-pse"),
    "casia": ("map", "dropout"),
}
WORDS = {
    "map": "point estimate, from scratch",
    "laplace": "diagonal Laplace, of a trained network",
    "dropout": "MC dropout, from scratch",
    "swag": "SWAG of 20 draws, of a trained network",
    "ensemble": f"deep ensemble of {MEMBERS}, from scratch",
    "vbnn": "mean-field Gaussian, from scratch",
    "vbnn-pse": "parameter-sharing ensemble of 20, from scratch",
}
AFTER = ("laplace", "swag")  # fitted after a training that is over


def pretraining(data: str) -> FitConfig:
    """The training of the point estimate."""
    task, small = TASKS[data], data == "cifar10"
    marks, epochs = ((60, 120, 160), 200) if small else ((30, 60), 90)
    return FitConfig(
        epochs=epochs,
        batch_size=128 if small else 256,
        lr=0.1,
        momentum=0.9,
        nesterov=task.nesterov,
        weight_decay=task.decay,
        schedule="step",
        milestones=tuple(mark / epochs for mark in marks),
        decay=0.2 if small else 0.1,
    )


def _config(data: str, row: str) -> FitConfig:
    if row in AFTER:  # one step that moves nothing
        return FitConfig(steps=1, batch_size=256, lr=0.0, batchnorm="frozen")
    config = pretraining(data)
    if row != "ensemble":
        return config
    assert config.epochs is not None
    return replace(config, epochs=MEMBERS * config.epochs)


def _method(data: str, task: Task, row: str) -> Method:
    match row:
        case "map":
            return MAP()
        case "laplace":
            return Laplace(weight_decay=task.decay, num_data=task.num_data)
        case "dropout":
            return DROPOUT[data]
        case "swag":
            return SWAG(rank=20)
        case "ensemble":
            return DeepEnsemble(members=MEMBERS, assign="turns")
        case _:
            return shared_ensemble(task) if row == "vbnn-pse" else mean_field(task)


def _build(name: str) -> Recipe:
    _, data, row = name.split("-", 2)
    task = TASKS[data]
    notes = [f"BayesAdapter's baseline, {WORDS[row]}: {task.words}"]
    if row in AFTER:
        notes.append("Bring the trained network: nothing is trained, all is measured.")
    return Recipe(
        name=name,
        method=_method(data, task, row),
        config=_config(data, row),
        network=task.network,
        data=task.data,
        paper=PAPER,
        notes="\n".join(notes),
        trained=row in AFTER,
        augment=None if row in AFTER else task.augment,
        fitting={"weight_decay": task.decay} if row == "swag" else {},
    )


RECIPES: Recipes = {f"bayesadapter-{data}-{row}": _build for data in ROWS for row in ROWS[data]}
