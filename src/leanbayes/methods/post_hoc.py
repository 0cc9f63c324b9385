"""What methods that are fitted after training share: a point estimate trains, a law is measured."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any, ClassVar, Final, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from leanbayes.arguments import refuse_examples
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Likelihood, mean_nll, needed, tensor_of
from leanbayes.methods.base import Method
from leanbayes.noise import KeyedNoise
from leanbayes.plan import MEAN, Plan, call
from leanbayes.posteriors.fixed_gaussian import Measured

Batch = tuple[Any, Tensor]
Settings = TypeVar("Settings")
FIXED_SEED: Final = 0  # of draws that are made when the posterior is fitted
TRIED, LOST = 3, 1.0  # draws that are compared with the point, and nats that are too many


@dataclass(frozen=True, kw_only=True)
class PostHoc(Method):
    """Trains as the point estimate (weight decay is the prior); draws in prediction only.

    Attributes:
        init_std: Standard deviation of every entry until `lb.fit_posterior` has measured one: a
            placeholder, small enough to keep a trained network.
    """

    trains_as_point: ClassVar[bool] = True

    init_std: float = 0.005

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:  # noqa: ARG002
        """The mean network."""
        return MEAN

    def unfitted(self, model: Any) -> str | None:
        """A sentence while the spread is the placeholder; of the smallest tensor, as of all."""
        laws = [q for _, _, q, _ in model.posteriors() if isinstance(q, Measured)]
        least = min(laws, key=_entries, default=None)
        if least is None or not least.is_placeholder(self.init_std):
            return None
        return (
            f"{type(self).__name__} has not been fitted: its draws have the placeholder spread of "
            f"init_std={self.init_std:g}, which says nothing of the data. Write "
            "lb.fit_posterior(model, loader, lb.Categorical()) first, with training data and the "
            "likelihood of the task"
        )


def _entries(law: Measured) -> int:
    return sum(p.numel() for p in law.parameters())


def parsed(kind: type[Settings], method: Method, options: dict[str, Any]) -> Settings:
    """Options of a fit as a dataclass; unknown ones are an error that lists the known."""
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(
            f"fit_posterior of {method.name} has no option {', '.join(unknown)}; "
            f"expected some of {', '.join(known)}"
        )
    return kind(**options)


def batches(loader: Iterable[Any], device: torch.device) -> Iterator[tuple[Any, Tensor]]:
    """Inputs and targets on the device; a loader without batches is an error."""
    refuse_examples(loader)
    empty = True
    for item in loader:
        if not (isinstance(item, (tuple, list)) and len(item) == 2):
            raise ConfigError(
                f"expected batches (inputs, targets), found {type(item).__name__}; a single batch "
                "is written [(inputs, targets)]"
            )
        empty = False
        inputs, target = pytree.tree_map_only(Tensor, lambda x: x.to(device), tuple(item))
        yield inputs, target
    if empty:
        raise ConfigError(
            "the loader gave no batches. Expected at least one; a generator can be read only once, "
            "so hand over a list or a DataLoader"
        )


def checked_likelihood(likelihood: Any) -> Likelihood:
    """The likelihood, or an error that says what it is for."""
    return needed(likelihood, "fit_posterior")


def check_init_std(init_std: float) -> None:
    """Raise on a negative scale."""
    if not init_std >= 0:
        raise ConfigError(f"init_std must be at least 0, found {init_std!r}")


def loss_of(model: Any, batch: Batch, likelihood: Likelihood, plan: Plan) -> Tensor:
    """Mean negative log-likelihood of a batch."""
    inputs, target = batch
    log_prob = likelihood.log_prob(tensor_of(call(model, inputs, plan=plan)), target)
    return mean_nll(likelihood, log_prob, target)


@torch.no_grad()
def draw_losses(
    model: Any, batch: Batch, likelihood: Likelihood, advice: Callable[[Mapping[str, float]], str]
) -> dict[str, float]:
    """The loss of the point and of a few draws on a batch; a warning where draws are lost."""
    model.eval()
    method, few = model.method, range(TRIED)
    plans = [method.prediction_plan([k], KeyedNoise(FIXED_SEED, [k])) for k in few]
    # The point last: layers that are called by themselves keep the plan of the last pass.
    *drawn, mean = (float(loss_of(model, batch, likelihood, plan)) for plan in (*plans, MEAN))
    found = {"mean_loss": mean, "draw_loss": fmean(drawn)}
    if not found["draw_loss"] - mean < LOST:
        warnings.warn(advice(found), stacklevel=5)
    return found
