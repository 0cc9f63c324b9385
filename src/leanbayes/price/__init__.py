"""`lb.price`: what a method costs, in multiples of the deterministic network.

Operations are counted by torch's counter (matrix products and convolutions, 2 a multiply-add), and
what a step keeps for its backward pass by hooks on saved tensors; both are exact and the same on
every machine. Times are measured in one go, in turns with the deterministic network, and only
their ratio counts.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from leanbayes.devices import device_of
from leanbayes.errors import ConfigError, NotFitted
from leanbayes.likelihood import Likelihood
from leanbayes.model import BayesianModel, unwrap
from leanbayes.price.measure import (
    Clock,
    clock_of,
    flops,
    peak_bytes,
    saved_bytes,
    timed,
    turn_of,
)
from leanbayes.price.work import Bench
from leanbayes.regularizer import OODRegularizer
from leanbayes.untouched import untouched

__all__ = ["Price", "price"]

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a method costs; a ratio is one to the deterministic network on the same batch.

    Attributes:
        parameters: Numbers that are stored.
        parameters_added: Those on top of the deterministic network's.
        rows: Of the batch.
        samples: Draws of a prediction; 1 where all are the same network.
        flops_step: Operations of a training step.
        flops_step_ratio: None where torch cannot count the deterministic network (recurrent
            layers, whose kernels it does not know).
        flops_predict: Operations of a prediction with all draws.
        flops_predict_ratio: As above.
        step_ratio: Time of a training step.
        predict_ratio: Time of a prediction with all draws.
        predict_ratio_sample: The same by draw.
        step_seconds: Of the deterministic network.
        predict_seconds: Of the deterministic network.
        activation_bytes: What a step keeps for its backward pass, parameters and batch apart.
        activation_ratio: None where the deterministic network keeps nothing.
        peak_memory_bytes: Of a training on a GPU: parameters, gradients, momentum, activations.
        peak_memory_ratio: None elsewhere.
    """

    parameters: int
    parameters_added: int
    rows: int
    samples: int
    flops_step: int
    flops_step_ratio: float | None
    flops_predict: int
    flops_predict_ratio: float | None
    step_ratio: float
    predict_ratio: float
    predict_ratio_sample: float
    step_seconds: float
    predict_seconds: float
    activation_bytes: int
    activation_ratio: float | None
    peak_memory_bytes: int | None
    peak_memory_ratio: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def price(  # noqa: PLR0913
    model: nn.Module,
    baseline: nn.Module,
    batch: tuple[Any, Tensor],
    *,
    likelihood: Likelihood | None = None,
    samples: int | None = None,
    rounds: int = 5,
    seconds: float = 10.0,
    draws: int = 1,
    precision: Literal["fp32", "bf16", "fp16"] = "fp32",
    regularizer: OODRegularizer | None = None,
    ood_rows: int | None = None,
    in_turn: bool = False,
    clock: Clock | None = None,
) -> Price:
    """Measure a training step and a prediction against those of the deterministic network.

    Steps are taken by copies: models, modes, statistics and random generators stay as they are. A
    step is forward, backward and SGD with momentum, the KL as an edit of the gradients; a
    prediction is `lb.predict`, against one forward pass with the likelihood's probabilities.

    Args:
        model: A BayesianModel.
        baseline: The deterministic network on the same device.
        batch: Inputs and targets.
        likelihood: The one kept with the model if None.
        samples: Draws of a prediction; the method's own number if None.
        rounds: Measurements of every time, whose median counts.
        seconds: After which no further measurement of a time begins.
        draws: Of a training step.
        precision: `fp32`, or mixed with `bf16` or `fp16`.
        regularizer: Of the training.
        ood_rows: OOD inputs of a step; as many as clean ones if None.
        in_turn: For a DeepEnsemble whose members are trained one after another: a step is one of
            every member, and only one of them is in memory.
        clock: Gives seconds; by default the processor's on a CPU.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Linear(4, 3)
        >>> batch = torch.randn(8, 4), torch.randint(0, 3, (8,))
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> found = lb.price(model, net, batch, likelihood=lb.Categorical(), rounds=1)
        >>> found.parameters_added, found.flops_predict_ratio
        (15, 20.0)
    """
    inner, device = unwrap(model), device_of(model)
    chosen = inner.likelihood if likelihood is None else likelihood
    if not isinstance(chosen, Likelihood):
        raise ConfigError(
            "price needs a likelihood to read the outputs: lb.price(..., likelihood="
            f"lb.Categorical()); found {chosen!r}"
        )
    _check(rounds, precision, inner, in_turn)
    with untouched(inner), untouched(baseline), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotFitted)  # what a pass costs is the same
        here = tuple(_moved(part, device) for part in batch)
        bench = Bench(
            batch=(here[0], here[1]),
            likelihood=deepcopy(chosen).to(device),
            samples=samples,
            options={"samples": draws},
            dtype=PRECISIONS[precision],
            in_turn=in_turn,
            regularizer=regularizer,
            ood_rows=ood_rows,
        )
        return _price(inner, baseline, bench, rounds, seconds, clock or clock_of(device))


def _price(
    model: BayesianModel,
    baseline: nn.Module,
    bench: Bench,
    rounds: int,
    seconds: float,
    clock: Clock,
) -> Price:
    nets, device = (model, baseline), device_of(model)
    samples = model.method.default_samples if bench.samples is None else bench.samples
    samples = samples if model.method.is_random else 1  # one pass stands for all
    known = not any(isinstance(module, nn.RNNBase) for module in baseline.modules())
    steps = [flops(bench.step(net)) for net in nets]
    passes = [flops(bench.counted_prediction(net)) for net in nets]
    saved = [saved_bytes(*bench.forward(net)) for net in nets]
    peaks = [peak_bytes(lambda net=net: bench.step(net), device) for net in nets]  # type: ignore[misc]
    limits: dict[str, Any] = {
        "rounds": rounds,
        "seconds": seconds,
        "clock": clock,
        "turn": turn_of(device),
    }
    step = timed(*(bench.step(net) for net in nets), **limits)
    prediction = timed(*(bench.prediction(net) for net in nets), **limits)
    return Price(
        parameters=model.report.base + model.report.added,
        parameters_added=model.report.base + model.report.added - _count(baseline),
        rows=bench.rows,
        samples=samples,
        flops_step=steps[0],
        flops_step_ratio=_ratio(*steps) if known else None,
        flops_predict=passes[0],
        flops_predict_ratio=_ratio(*passes) if known else None,
        step_ratio=step.ratio,
        predict_ratio=prediction.ratio,
        predict_ratio_sample=prediction.ratio / samples,
        step_seconds=step.seconds,
        predict_seconds=prediction.seconds,
        activation_bytes=saved[0],
        activation_ratio=_ratio(*saved),
        peak_memory_bytes=peaks[0],
        peak_memory_ratio=_ratio(*peaks),
    )


def _check(rounds: int, precision: str, model: BayesianModel, in_turn: bool) -> None:
    if isinstance(rounds, bool) or rounds < 1:
        raise ConfigError(f"rounds must be a whole number of at least 1, found {rounds!r}")
    if precision not in PRECISIONS:
        raise ConfigError(f"precision is one of {', '.join(PRECISIONS)}; found {precision!r}")
    if in_turn and not model.method.index_members:
        raise ConfigError(f"in_turn is for an ensemble of networks, found {model.method.name}")


def _ratio(own: int | None, other: int | None) -> float | None:
    return own / other if own is not None and other else None


def _count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def _moved(part: Any, device: torch.device) -> Any:
    from torch.utils import _pytree as pytree

    return pytree.tree_map_only(Tensor, lambda x: x.to(device), part)
