"""What the rows of the ablations share: data, the trained network, training and figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from leanbayes import metrics
from leanbayes.convert import bayesianize
from leanbayes.data import Data, augment_named, read
from leanbayes.errors import DataError
from leanbayes.experiments.ablations_training import pretraining
from leanbayes.experiments.experiment import Row, plain
from leanbayes.experiments.kept_network import Kept, kept
from leanbayes.experiments.open_set_data import OpenSetData
from leanbayes.likelihood import Categorical
from leanbayes.methods import MAP, Method
from leanbayes.model import BayesianModel
from leanbayes.models import create
from leanbayes.predict import predict
from leanbayes.prediction import Classification
from leanbayes.sensitivity import Criterion, Scores, sensitivity
from leanbayes.train.adapt import adapt
from leanbayes.train.config import FitConfig
from leanbayes.train.loop import FitResult, fit

if TYPE_CHECKING:
    from leanbayes.experiments.ablations import Ablations

AUGMENT: Final = "crop+flip"
SMOKE_TRAIN, SMOKE_TEST = 32, 24
PER_MEMBER: Final = {"rank_one": 1, "implicit": 5}


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, how it was trained, and how long that took, conversion included.

    `start` is the mark of the trained network, where anything of it went in.
    """

    model: BayesianModel
    config: FitConfig
    result: FitResult
    seconds: float
    start: str | None = None


class Bench:
    """A run of the experiment: what rows share is made when first asked for."""

    def __init__(self, plan: Ablations) -> None:
        self.plan = plan
        self._found: dict[str, Any] = {}

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gave when it was first asked for under this key."""
        if key not in self._found:
            self._found[key] = make()
        return self._found[key]

    @cached_property
    def data(self) -> OpenSetData:
        """Images and labels on the device; no class is left out."""
        plan = self.plan
        embedded = plan.smoke and not plan.root
        found = (
            read("fashion_mini", held_out=0)
            if embedded
            else read(plan.reader, root=plan.root, validation=0)
        )
        _check(found)
        counts = (SMOKE_TRAIN, SMOKE_TEST) if plan.smoke else (None, None)
        parts = zip((found.train, found.test), counts, strict=True)
        train, test = (tuple(x[:count].to(plan.device) for x in part) for part, count in parts)
        return OpenSetData(train=train, test=test, others=test, normalize=found.normalize)

    @property
    def num_data(self) -> int:
        """Training images."""
        return len(self.data.train[1])

    def net(self) -> nn.Module:
        """A network with random weights, the same ones every time."""
        plan, (x, y) = self.plan, self.data.train
        torch.manual_seed(plan.seed)
        shape: dict[str, Any] = {"depth": plan.depth, "width": plan.width, "channels": x.shape[1]}
        return create("wide_resnet", num_classes=int(y.max()) + 1, **shape).to(plan.device)

    @cached_property
    def start(self) -> Kept:
        """The trained network that rows start from."""
        config = pretraining(self.plan)
        size = [self.plan.depth, self.plan.width]
        origin = {"config": plain(config), "size": size, "rows": self.num_data}
        return kept(self.plan.keep, origin, partial(self._pretrained, config))

    def _pretrained(self, config: FitConfig) -> Kept:
        done = self.trained(MAP(), config, scratch=True)
        self._found["start seconds"] = done.seconds
        return Kept(done.model.net.state_dict(), done.result.steps)

    def trained_net(self) -> nn.Module:
        """A copy of the trained network."""
        state, net = self.start.state, self.net()
        net.load_state_dict(state)
        return net

    def point(self) -> Row:
        """The row of the trained network itself."""
        model = bayesianize(self.trained_net(), MAP())
        figures = scores(self.predicted(model, self.data.test[0]), self.data.test[1])
        return {
            "ablation": "start",
            "series": "map",
            "x": None,
            **figures,
            "method": MAP().to_json(),
            "start": self.start.mark,
            "epochs": self.plan.epochs,
            "steps": self.start.steps,
            # None where the network came from a file.
            "training_seconds": self._found.get("start seconds"),
            "config": plain(pretraining(self.plan)),
        }

    def scores(self, criterion: Criterion) -> Scores:
        """Sensitivities of the trained network, over all training images as they are."""
        return self.once(f"scores {criterion}", partial(self._scores, criterion))  # type: ignore[no-any-return]

    def _scores(self, criterion: Criterion) -> Scores:
        rows = self.plan.batch_size
        batches = zip(*(torch.split(tensor, rows) for tensor in self.data.train), strict=True)
        options: dict[str, Any] = {"criterion": criterion, "seed": self.plan.seed}
        found = sensitivity(
            self.trained_net(), list(batches), Categorical(), progress=False, **options
        )
        return {name: score.cpu() for name, score in found.items()}

    def trained(
        self,
        method: Method,
        config: FitConfig,
        *,
        scratch: bool = False,
        scores: Scores | None = None,
        **options: Any,
    ) -> Trained:
        """Train a method, from a copy of the trained network or from scratch.

        Args:
            method: What to train.
            config: How.
            scratch: From random weights.
            scores: Sensitivities that choose what is random; measured by the method if None.
            **options: Further ones of `lb.fit`: `ood`, `validation`.
        """
        net = self.net() if scratch else self.trained_net()
        torch.manual_seed(self.plan.seed)
        options["augment"] = augment_named(AUGMENT, normalize=self.data.normalize)
        self._wait()
        begun = time.perf_counter()
        if scores is None:
            done = adapt(net, method, self.data.train, config=config, **options)
            model, result = done.model, done.result
        else:
            example = self.data.train[0][: self.plan.batch_size]
            model = bayesianize(net, method, example=example, scores=scores)
            result = fit(model, self.data.train, Categorical(), config=config, **options)
        self._wait()
        seconds = time.perf_counter() - begun
        start = None if scratch and scores is None else self.start.mark
        return Trained(model, config, result, seconds, start)

    @property
    def _on_gpu(self) -> bool:
        return torch.device(self.plan.device).type == "cuda"

    def _wait(self) -> None:
        """Until the device has done what it was told to."""
        if self._on_gpu:
            torch.cuda.synchronize()

    def row(self, done: Trained, series: str, x: float | str | None, **more: Any) -> Row:
        """The row of a trained model: figures of the test images, and how it came about."""
        found = self.predicted(done.model, self.data.test[0])
        figures = scores(found, self.data.test[1])
        return {"series": series, "x": x, **figures, **more, **origin(done)}

    def predicted(self, model: BayesianModel, x: Tensor, **options: Any) -> Classification:
        """The predictive, by the usual number of draws unless told otherwise."""
        options = {"samples": draws_of(model.method), "seed": self.plan.seed, **options}
        if self._on_gpu:
            options["memory"] = self.plan.memory
        with self._autocast():
            found = predict(model, x, likelihood=Categorical(), **options).to("cpu")
        assert isinstance(found, Classification)
        return found

    def _autocast(self) -> AbstractContextManager[Any]:
        half = self.plan.precision == "bf16" and self._on_gpu
        return torch.autocast("cuda", torch.bfloat16) if half else nullcontext()


def origin(done: Trained) -> Row:
    """How a model came about, plain data."""
    method = done.model.method
    return {
        "method": method.to_json(),
        "draws": draws_of(method),
        "added": done.model.report.added,
        "start": done.start,
        "epochs": done.config.epochs,
        "steps": done.result.steps,
        "training_seconds": round(done.seconds, 2),
        "config": plain(done.config),
    }


def draws_of(method: Method) -> int:
    """Draws of a prediction: so many of every member in the papers of mixtures with a law."""
    each = PER_MEMBER.get(method.name)
    return method.default_samples if each is None else each * method.members


def scores(found: Classification, y: Tensor) -> dict[str, float]:
    """The figures of a prediction."""
    return {**figures(found.probs, y), "mutual_information": float(found.epistemic.mean())}


def figures(probs: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, negative log-likelihood, calibration error and Brier score."""
    y = y.cpu()
    return {
        "accuracy": float(metrics.accuracy(probs, y)),
        "nll": float(metrics.nll(probs, y)),
        "ece": float(metrics.ece(probs, y)),
        "brier": float(metrics.brier(probs, y)),
    }


def _check(found: Data) -> None:
    tensors = isinstance(found.train, tuple) and isinstance(found.test, tuple)
    if not (tensors and found.train[0].dim() == 4 and found.task == "classification"):
        raise DataError(
            f"reader {found.name!r} gives no labelled images in memory for training and test; "
            "write reader=npz with x_train, y_train, x_test, y_test, or reader=cifar10"
        )
