"""Open-set verification, after the face verification of BayesAdapter (Deng et al. 2022).

A network learns some classes; pairs of images of the other classes are of the same or of different
things, and cosine scores of the features before its last layer, averaged over draws, have to tell
which (paper: section 4.3 and appendix B). The classifier itself has to be unsure of foreign inputs.
The paper trains MobileNetV2 on CASIA and verifies LFW; here seven classes of CIFAR-10 are known.

One network is trained (`keep`: once for all processes, or else rows would start from networks that
differ by a GPU's rounding), and all methods go on from a copy of it under one budget: the recipes
of BayesAdapter on CIFAR-10, the same number of steps of the same number of rows. With the
regulariser half of the rows are clean and the other half two draws of noisy ones, so that it sees
half of the clean rows. Dropout of 0.2 stands before the last layer, as in the paper: the features
themselves are not random under it. PGD attacks the average of all draws.

What differs from the recipes, for ResNet-20 is a hundredth of their network, and why. A recipe's
log-scales of -6 to -5 leave such a network with a mutual information of 0.002 nats, and the
gradient that the regulariser has in them is as small: at a rate of 1e-3 they do not move. So
log-scales start at -4.5 to -3.5 and have a rate of 1, and the rate of the network is 3e-2 for all
methods alike, for it has to learn to see noise; both fall by cosine. Both were chosen on a tenth of
the training images (`--set held_out=0.1`), with two of the seven classes as the foreign ones, by
the average precision of noisy images by epistemic uncertainty (0.5 by chance); beside it is the
accuracy on clean ones, 0.911 before:

    rates of network, log-scales    mean_field_reg      shared_ensemble_reg
    0.01, 0.1                       0.683 (0.886)       0.997 (0.873)
    0.03, 0.1                       0.716 (0.871)       1.000 (0.887)
    0.1, 0.1                        0.677 (0.858)       1.000 (0.863)
    0.03, 0.3                       0.995 (0.863)
    0.03, 1                         0.999 (0.852)
    0.03, 3                         0.998 (0.843)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor, nn

from leanbayes import metrics
from leanbayes.convert import bayesianize
from leanbayes.data import Pairs, augment_named, pairs_from_labels, read
from leanbayes.errors import ConfigError
from leanbayes.experiments.experiment import Experiment, Row, plain
from leanbayes.experiments.kept_network import Kept, kept
from leanbayes.experiments.open_set_data import (
    Budget,
    Foreign,
    OpenSetData,
    noisy_test,
    noisy_training,
)
from leanbayes.experiments.verification_attack import pgd
from leanbayes.experiments.verification_training import (
    METHODS,
    paper_figures,
    pretraining,
    setting,
)
from leanbayes.features import predict_features
from leanbayes.likelihood import Categorical
from leanbayes.methods import MAP
from leanbayes.model import BayesianModel
from leanbayes.models import create, load_weights
from leanbayes.predict import predict
from leanbayes.prediction import Classification
from leanbayes.records import shown
from leanbayes.train.adapt import adapt
from leanbayes.train.config import FitConfig
from leanbayes.verification import Verification, verify

AUGMENT: Final = "crop+flip"
FOLDS, CURVE_POINTS = 10, 50
# Inputs to be told from clean test images by uncertainty.
FOREIGN: Final[Mapping[str, Foreign]] = {
    "noise": noisy_training,
    "noise_test": noisy_test,
    "pgd": pgd,
}


@dataclass(frozen=True, kw_only=True)
class OpenSet(Experiment):
    """Verification of classes that the network has never seen.

    Attributes:
        reader: Of the data: cifar10, or npz with x_train, y_train, x_test, y_test.
        model: A network of `lb.models`: resnet20, mobilenet_v2, ...
        weights: File of a network trained on the known classes; without one it is trained.
        keep: File that the trained network is written to and read from, so that it is trained
            once for all processes.
        known: Labels that are trained on; pairs come from all others.
        methods: Names of methods.
        foreign: Names of foreign inputs.
        pretrain_epochs: Of the network that all methods start from.
        epochs: Of every method, counted in batches without regulariser.
        batch_size: Rows of a step, clean and noisy ones together.
        lr: Rate of the trained parameters under every method at the start; it falls by cosine.
        posterior_lr: The same for the factors of shared_ensemble.
        log_std_lr: The same for the log-scales of mean_field.
        log_std: Between these numbers mean_field's log-scales start.
        weight_decay: Of the training, and the prior of the methods.
        estimator: How mean_field draws: `auto`, or `exemplar` as in the paper.
        eps: Largest noise of a pixel of [0, 1] in foreign inputs.
        train_eps: The same for the regulariser; `eps` if None (the paper's faces: a quarter).
        samples: Draws of a prediction.
        pairs: Number of pairs, half of them of the same class.
        attacked: Test images that are attacked, the first ones.
        held_out: Share of the training images to test on instead, to choose settings by; two of
            the known classes then play the others. 0 tests on the test images.
        precision: Of the training.
    """

    name: ClassVar[str] = "verification"
    asked: ClassVar[tuple[str, ...]] = ("methods",)

    reader: str = "cifar10"
    model: str = "resnet20"
    weights: str = ""
    keep: str = ""
    known: tuple[int, ...] = tuple(range(7))
    methods: tuple[str, ...] = tuple(METHODS)
    foreign: tuple[str, ...] = tuple(FOREIGN)
    pretrain_epochs: int = 30
    epochs: int = 12
    batch_size: int = 256
    lr: float = 3e-2
    posterior_lr: float = 0.1
    log_std_lr: float = 1.0
    log_std: tuple[float, float] = (-4.5, -3.5)
    weight_decay: float = 2e-4
    estimator: Literal["auto", "exemplar"] = "auto"
    eps: float = 0.031
    train_eps: float | None = None
    samples: int = 20
    pairs: int = 6000
    attacked: int = 1000
    held_out: float = 0.0
    precision: Literal["fp32", "bf16"] = "fp32"

    def __post_init__(self) -> None:
        for kind, given, all_of_them in (
            ("methods", self.methods, METHODS),
            ("foreign", self.foreign, FOREIGN),
        ):
            unknown = [name for name in given if name not in all_of_them]
            if unknown:
                names = ", ".join(all_of_them)
                raise ConfigError(f"{kind}: no {unknown[0]!r}; expected some of {names}")
        if self.batch_size < 4 or self.batch_size % 4:
            raise ConfigError(f"batch_size is a multiple of 4, found {self.batch_size}")
        if self.smoke:
            small = {"batch_size": 16, "samples": 4, "pairs": 40, "attacked": 8}
            for name, value in small.items():
                object.__setattr__(self, name, value)

    def parts(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """The network that all start from, then every method."""
        study = Study(self)
        yield "pretrained", study.pretrained
        for name in self.methods:
            yield name, partial(study.adapted, name)


class Study:
    """A run of the experiment: data and trained network are made when first asked for."""

    def __init__(self, settings: OpenSet) -> None:
        self.settings = settings

    @cached_property
    def data(self) -> OpenSetData:
        """The images, cut by class."""
        chosen = self.settings
        found = read(chosen.reader, root=chosen.root, validation=0)
        few = 5 if chosen.smoke else None
        data = OpenSetData.of(found, chosen.known, most=few, device=chosen.device)
        return data.held_out(chosen.held_out) if chosen.held_out else data

    @cached_property
    def pairs(self) -> Pairs:
        """Pairs of images of the other classes."""
        return pairs_from_labels(self.data.others[1].cpu(), self.settings.pairs, self.settings.seed)

    @cached_property
    def start(self) -> tuple[nn.Module, Row]:
        """The trained network, and how it came about."""
        chosen = self.settings
        torch.manual_seed(chosen.seed)
        net = create(chosen.model, num_classes=int(self.data.train[1].max()) + 1)
        if chosen.weights:
            load_weights(net, chosen.weights)
            return net.to(chosen.device), {"weights": shown(chosen.weights)}
        config = pretraining(chosen)
        origin = {"config": plain(config), "model": chosen.model, "rows": len(self.data.train[1])}
        found = kept(chosen.keep, origin, partial(self._trained, deepcopy(net), config))
        net.load_state_dict(found.state)
        came = {"start": found.mark, "steps": found.steps, "config": origin["config"]}
        return net.to(chosen.device), came

    def _trained(self, net: nn.Module, config: FitConfig) -> Kept:
        done = adapt(net, MAP(), self.data.train, config=config, augment=self._augment)
        return Kept(net.state_dict(), done.result.steps)

    def pretrained(self) -> Row:
        """Figures of the network itself, before any method."""
        net, origin = self.start
        model = bayesianize(deepcopy(net), MAP())
        return {"method": MAP().to_json(), **origin, **self.figures(model), "paper": None}

    def adapted(self, name: str) -> Row:
        """Figures of a method that goes on from a copy of the network."""
        data, chosen = self.data, self.settings
        method, config = setting(chosen, name, len(data.train[1]))
        ood, regularised = None, config.regularizer is not None
        if regularised:
            eps = chosen.eps if chosen.train_eps is None else chosen.train_eps
            ood = data.noisy_batches(eps, chosen.batch_size // 4, AUGMENT)
        net = deepcopy(self.start[0])
        torch.manual_seed(chosen.seed)
        done = adapt(net, method, data.train, ood=ood, config=config, augment=self._augment)
        return {
            "method": method.to_json(),
            "regularised": regularised,
            "start": self.start[1].get("start"),
            "steps": done.result.steps,
            "added": done.report.added,
            "config": plain(config),
            **self.figures(done.model),
            "paper": paper_figures(name),
        }

    def figures(self, model: BayesianModel) -> Row:
        """Verification of the pairs, classification of the known classes, foreign inputs."""
        return {**self._verified(model), **self._classified(model), "rows": self._rows()}

    def _verified(self, model: BayesianModel) -> Row:
        pairs = self.pairs
        features = predict_features(model, self.data.others[0], **self._draws).cpu()
        first, second = features[pairs.first], features[pairs.second]
        found = verify(first, second, pairs.same, folds=FOLDS, seed=self.settings.seed)
        error = found.accuracy_std / math.sqrt(FOLDS - 1)  # of the mean over the folds
        return {
            "verification": {"mean": found.accuracy, "error": error},
            "auroc": found.auroc,
            "roc": thinned(found),
        }

    def _classified(self, model: BayesianModel) -> Row:
        y, clean = self.data.test[1].cpu(), self._predicted(model, self.data.test[0])
        row: Row = {
            "accuracy": float(metrics.accuracy(clean.probs, y)),
            "nll": float(metrics.nll(clean.probs, y)),
            "ece": float(metrics.ece(clean.probs, y)),
            "total": float(clean.total.mean()),
            "epistemic": float(clean.epistemic.mean()),
        }
        chosen = self.settings
        budget = Budget(eps=chosen.eps, most=chosen.attacked, **self._draws)
        budget = replace(budget, steps=2) if chosen.smoke else budget
        for name in chosen.foreign:
            found = self._predicted(model, FOREIGN[name](model, self.data, budget))
            row |= told_apart(name, clean, found, random=model.method.is_random)
        return row

    def _predicted(self, model: BayesianModel, x: Tensor) -> Classification:
        found = predict(model, x, likelihood=Categorical(), **self._draws).to("cpu")
        assert isinstance(found, Classification)
        return found

    def _rows(self) -> Row:
        data = self.data
        parts = {"train": data.train, "test": data.test, "others": data.others}
        return {"pairs": len(self.pairs.same), **{k: len(part[1]) for k, part in parts.items()}}

    @property
    def _draws(self) -> dict[str, Any]:
        return {"samples": self.settings.samples, "seed": self.settings.seed}

    @cached_property
    def _augment(self) -> Callable[[Tensor], Tensor]:
        return augment_named(AUGMENT, normalize=self.data.normalize)


def thinned(found: Verification, points: int = CURVE_POINTS) -> Row:
    """About so many points of the ROC curve, evenly along the way from (0, 0) to (1, 1)."""
    way = found.fpr + found.tpr  # rises along the curve, from 0 to 2
    rows = torch.searchsorted(way, torch.linspace(0, 2, points, dtype=way.dtype))
    rows = torch.unique(rows.clamp(max=len(way) - 1))
    return {"fpr": found.fpr[rows].tolist(), "tpr": found.tpr[rows].tolist()}


def told_apart(name: str, clean: Classification, found: Classification, *, random: bool) -> Row:
    """Average precision of foreign inputs among as many clean ones, and mean uncertainties.

    The draws of a point have nothing to disagree on: it has no epistemic uncertainty.
    """
    row: Row = {}
    for kind in ("total", "epistemic"):
        inside, outside = getattr(clean, kind)[: len(found.probs)], getattr(found, kind)
        known = random or kind == "total"
        row[f"ap_{name}_{kind}"] = _precision(inside, outside) if known else None
        row[f"{kind}_{name}"] = float(outside.mean()) if known else None
    return row


def _precision(clean: Tensor, foreign: Tensor) -> float:
    return float(metrics.average_precision(clean, foreign))
