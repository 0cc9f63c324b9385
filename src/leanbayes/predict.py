"""Posterior predictive by Monte Carlo: samples folded into the batch, chunked, summed as they come.

One draw a sample, shared by all rows and keyed by (seed, tensor, sample). Memory does not grow with
the number of samples unless they are asked for.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn

from leanbayes.arguments import arguments_checked
from leanbayes.batches import batches_of, row_shapes
from leanbayes.budget import (
    TooLargeError,
    bounded,
    bytes_per_row,
    leaves_of,
    rows_between,
    slices,
    worth_trying,
)
from leanbayes.counts import checked_count
from leanbayes.devices import device_of
from leanbayes.enumeration import enumerated, heads_of
from leanbayes.errors import ConfigError, NotFitted
from leanbayes.likelihood import Bernoulli, Categorical, Likelihood, Statistics, tensor_of
from leanbayes.likelihood.gaussian import RealTargets
from leanbayes.model import BayesianModel, is_sharded, unwrap
from leanbayes.modes import (
    eager,
    is_compiled,
    mixing,
    predicting,
    uncompiled,
)
from leanbayes.noise import FixedNoise, KeyedNoise, NoiseSource, RecordedNoise
from leanbayes.plan import MEAN, Plan, Run, call, count_rows, fold, unfold
from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression
from leanbayes.prefix import check_same, sequential_run, trunk_run


class Options(TypedDict, total=False):
    """What every call of `predict` may say, for checkers of types."""

    samples: int | None
    seed: int | None
    keep_samples: bool
    chunk: int | None
    memory: int
    trunk: str | None
    calibrated: bool


@overload
def predict(
    model: nn.Module, inputs: Any, *, likelihood: Categorical, **options: Unpack[Options]
) -> Classification: ...
@overload
def predict(
    model: nn.Module, inputs: Any, *, likelihood: Bernoulli, **options: Unpack[Options]
) -> BinaryClassification: ...
@overload
def predict(
    model: nn.Module, inputs: Any, *, likelihood: RealTargets, **options: Unpack[Options]
) -> Regression: ...
@overload
def predict(  # its class is that of the likelihood, which no checker sees
    model: nn.Module,
    inputs: Any,
    *,
    likelihood: Likelihood | None = None,
    **options: Unpack[Options],
) -> Any: ...
def predict(  # noqa: PLR0913
    model: nn.Module,
    inputs: Any,
    *,
    likelihood: Likelihood | None = None,
    samples: int | None = None,
    seed: int | None = None,
    keep_samples: bool = False,
    chunk: int | None = None,
    memory: int = 2**30,
    trunk: str | None = None,
    calibrated: bool = True,
) -> Prediction:
    """Average the predictions of several draws of the weights, and split their uncertainty.

    For labels `p = 1/S sum_s p(y | x, w_s)`: the total uncertainty is the entropy of p, the
    aleatoric part the mean entropy of the samples, the epistemic part their difference, the mutual
    information of label and weights. For numbers they are variances. The model runs in `eval()`
    without gradients, and every mode is restored. All rows see the same draws; what comes out for a
    row does not depend on the other rows, on chunks or on batches. Cost: `samples` forward passes.

    Args:
        model: A BayesianModel, or its DDP, FSDP2 or compiled wrapper.
        inputs: A tensor, a tuple of arguments, a dict of keywords; or a loader (or list) of inputs
            with targets, which are ignored, or of dicts, which the network gets whole, labels
            included; or a loader of inputs alone.
        likelihood: How outputs become probabilities; by default the one kept with the model.
        samples: Number of draws: 20 by default, the number of members for ensembles of points.
        seed: Makes the draws repeatable; without one the seed comes from the global generator.
        keep_samples: Keep every sample, [S, B, ...], as quantiles and densities of mixtures need.
        chunk: Samples that one pass computes together; one after another if None.
        memory: Bytes that the activations of a pass may take; inputs are cut accordingly.
        trunk: Name of a submodule without random layers, to be run once for all samples.
        calibrated: Use the model's calibration, if it has one (`lb.calibrate`).

    Returns:
        A `Prediction`: of classes, of yes or no, or of numbers, as the likelihood says.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> p = lb.predict(model, torch.randn(5, 4), likelihood=lb.Categorical(), seed=0)
        >>> p.probs.shape, bool((p.epistemic >= -1e-9).all())
        (torch.Size([5, 3]), True)
    """
    sampler = Sampler.of(model, likelihood, samples, seed)
    warn_unfitted(sampler.inner)
    chunk = None if chunk is None else checked_count("chunk", chunk)
    limits = Limits(keep_samples, chunk, memory, trunk)
    with predicting(sampler.inner), sampler.drawing():
        parts = []
        for batch in batches_of(inputs, sampler.inner):
            with arguments_checked(sampler.inner.net, batch):
                parts += sampler.parts(batch, limits)
    if not parts:
        raise ConfigError("nothing to predict: the loader gave no batch")
    whole, known = type(parts[0]).cat(parts), sampler.inner.calibration
    return whole if known is None or not calibrated else known.applied(whole)


def warn_unfitted(model: BayesianModel) -> None:
    """A warning where draws have a placeholder spread; shards are not looked into."""
    if not is_sharded(model) and (why := model.method.unfitted(model)) is not None:
        warnings.warn(why, NotFitted, stacklevel=3)


@dataclass(frozen=True)
class Limits:
    """What one call of `predict` may hold at once."""

    keep_samples: bool
    chunk: int | None
    memory: int
    trunk: str | None


@dataclass(frozen=True)
class Sampler:
    """One call of `predict`: the model, the likelihood, and which draws are averaged how.

    Attributes:
        memory: Tensors that all samples share, by key.
        fitting: Rows of a pass that was seen to fit, by the shape of a row.
        measured: Rows that fit by what two of them take.
    """

    model: nn.Module
    inner: BayesianModel
    likelihood: Likelihood
    weights: Tensor
    seed: int
    memory: dict[str, Tensor] = field(default_factory=dict)
    fitting: dict[Any, int] = field(default_factory=dict)
    measured: dict[Any, int] = field(default_factory=dict)

    @staticmethod
    def of(
        model: nn.Module, likelihood: Likelihood | None, samples: int | None, seed: int | None
    ) -> Sampler:
        """Fill in the defaults."""
        inner = unwrap(model)
        chosen = inner.likelihood if likelihood is None else likelihood
        if not isinstance(chosen, Likelihood):
            raise ConfigError(
                "predict needs a likelihood to read the outputs: lb.predict(..., "
                f"likelihood=lb.Categorical()); found {chosen!r}"
            )
        default = inner.method.default_samples
        count = default if samples is None else checked_count("samples", samples)
        key = int(torch.randint(2**62, ()).item()) if seed is None else seed
        return Sampler(model, inner, chosen, member_weights(count, inner.method.index_members), key)

    @cached_property
    def compiled(self) -> bool:
        """True where samples run in a graph; masks of activations need to see them first."""
        return (
            is_compiled(self.model)
            and self.heads == 1
            and not self.inner.method.linearised
            and not any(q.by_input for _, _, q, _ in self.inner.posteriors())
        )

    @cached_property
    def heads(self) -> int:
        """Copies of the output layer that every sample averages; 1 where they are drawn."""
        return heads_of(self.inner)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw whole networks at once, where neither a graph nor shards stand in the way."""
        one_by_one = self.compiled or self._sharded
        with (
            nullcontext() if self.compiled else eager([self.inner]),
            nullcontext() if one_by_one else self.inner.drawing_ahead(),
        ):
            yield

    def parts(self, batch: Any, limits: Limits) -> list[Prediction]:
        """Predictions of a batch: of the whole where its first pass fits into the memory."""
        rows, alike = count_rows((batch,), {}), row_shapes(batch)
        if self._undivided or rows <= self.fitting.get(alike, 0):
            return [self.predict(batch, limits)]
        leaves, free = leaves_of(self._modules), self._may_stop(limits)
        known = alike in self.measured
        if free and not known and worth_trying(leaves, batch, rows, limits.memory):
            with suppress(TooLargeError):
                whole = self.predict(batch, limits, bounded(leaves, limits.memory))
                self.fitting[alike] = rows
                return [whole]
        return [self.predict(piece, limits) for piece in self.pieces(batch, limits)]

    def _may_stop(self, limits: Limits) -> bool:
        """True where a pass of one sample can be watched, and ended in its midst.

        An encoder layer computes in another way while hooks watch it.
        """
        encoder = nn.TransformerEncoderLayer
        if self.compiled or self._sharded or limits.chunk not in (None, 1):
            return False
        return not any(isinstance(m, encoder) for m in self._modules)

    def pieces(self, batch: Any, limits: Limits) -> Iterator[Any]:
        """Cut a batch whose activations would not fit into the memory."""
        rows, alike = count_rows((batch,), {}), row_shapes(batch)
        if alike not in self.measured:
            self.measured[alike] = max(1, self._rows_per_pass(batch, rows, limits))
        return slices(batch, rows, self.measured[alike])

    @cached_property
    def _sharded(self) -> bool:
        return is_sharded(self.inner)

    @cached_property
    def _undivided(self) -> bool:
        """True where the rows of a pass belong together."""
        return self.inner.sequence_first or mixing(self._modules)

    @cached_property
    def _modules(self) -> list[nn.Module]:
        return list(self.inner.net.modules())

    def _rows_per_pass(self, batch: Any, rows: int, limits: Limits) -> int:
        if self._undivided:
            return sys.maxsize
        few = min(rows, 2)

        def run() -> None:
            # Compiled layers would not see the hooks that measure.
            with uncompiled(self.inner):
                call(self.inner, rows_between(batch, rows, 0, few), plan=MEAN)

        size = bytes_per_row(self.inner.net, few, run)
        return limits.memory // (size * (limits.chunk or 1))

    def predict(
        self, batch: Any, limits: Limits, watch: AbstractContextManager[None] | None = None
    ) -> Prediction:
        """All samples of one batch, by weighted running sums; the first pass under a watch."""
        sums: Statistics = {}
        kept: list[Tensor] = []
        weights = self._shares  # on the device before it has work to finish
        with ExitStack() as first:
            first.enter_context(nullcontext() if watch is None else watch)
            run = self._run(batch, limits)
            for ids in self._chunks(limits):
                plan = self.inner.method.prediction_plan(ids, self._noise(ids))
                output = unfold(tensor_of(run(plan, len(ids))), len(ids) * self.heads)
                first.close()
                add_weighted(sums, self.likelihood.statistics(output), self._weights_of(ids))
                if limits.keep_samples:
                    kept.append(self.likelihood.samples(output))
        return self._prediction(sums, kept, weights)

    def _prediction(self, sums: Statistics, kept: list[Tensor], weights: Tensor) -> Prediction:
        weights = weights.to(next(iter(sums.values())).device)
        samples = torch.cat(kept) if kept else None
        if samples is not None and len(samples) < len(weights):
            samples = samples.expand(len(weights), *samples.shape[1:])
        return self.likelihood.prediction(sums, samples, weights)

    def _weights_of(self, ids: range) -> Tensor | float:
        if not self.inner.method.is_random:  # one pass stands for all
            return 1.0
        if len(ids) == self.heads == 1:  # a number on the host: nothing is copied
            return self._numbers[ids.start]
        return self._shares[ids.start * self.heads : ids.stop * self.heads]

    @cached_property
    def _numbers(self) -> list[float]:
        numbers: list[float] = self.weights.tolist()
        return numbers

    @cached_property
    def _shares(self) -> Tensor:
        """Weights on the model's device; every sample stands for its heads in equal parts."""
        device = device_of(self.inner)
        if len(set(self._numbers)) == 1:  # made there: a copy would wait for what the device does
            each = self._numbers[0] / self.heads
            size = len(self.weights) * self.heads
            return torch.full((size,), each, dtype=self.weights.dtype, device=device)
        return (self.weights.repeat_interleave(self.heads) / self.heads).to(device)

    def _chunks(self, limits: Limits) -> Iterator[range]:
        if not self.inner.method.is_random:
            yield range(1)
            return
        size = self._chunk(limits)
        for start in range(0, len(self.weights), size):
            yield range(start, min(start + size, len(self.weights)))

    def _chunk(self, limits: Limits) -> int:
        return 1 if self._undivided else limits.chunk or 1

    def _noise(self, ids: Sequence[int]) -> NoiseSource:
        keyed = KeyedNoise(self.seed, ids, self.memory)
        if not self.compiled:
            return keyed
        # A generator cannot be traced: draw before the graph is entered, as the plan would.
        raw = RecordedNoise(self.inner.method.prediction_plan(ids, keyed).noise or keyed)
        for _, _, posterior, base in self.inner.posteriors():
            posterior.noise(base, len(ids), raw)
        return FixedNoise(raw.values)

    def _run(self, batch: Any, limits: Limits) -> Run:
        run = self._whole_run(batch, limits)
        return run if self.heads == 1 else enumerated(self.inner, run, self.heads)

    def _whole_run(self, batch: Any, limits: Limits) -> Run:
        def full(plan: Plan, samples: int) -> Any:
            # The wrapper only matters when it is compiled; DDP has nothing to do here.
            target = self.model if self.compiled else self.inner
            return call(target, fold(batch, samples), plan=plan)

        if limits.trunk is not None:
            fast = trunk_run(self.inner, batch, limits.trunk)
            plan = self.inner.method.prediction_plan(range(1), self._noise(range(1)))
            check_same(tensor_of(fast(plan, 1)), tensor_of(full(plan, 1)), limits.trunk)
            return fast
        if self.compiled or self._sharded or self.inner.method.linearised:
            return full
        return sequential_run(self.inner, batch) or full


def member_weights(samples: int, members: int) -> Tensor:
    """Weight of each draw: equal a member, then equal among the draws of a member.

    Draw t uses member t mod members.
    """
    if members == 0 or samples % members == 0:
        return torch.full((samples,), 1.0 / samples, dtype=torch.float64)
    if samples < members:
        warnings.warn(
            f"{samples} samples of {members} members: only the first {samples} members predict; "
            f"write samples={members} or a multiple",
            stacklevel=4,
        )
    member = torch.arange(samples) % members
    counts = torch.bincount(member).double()
    return 1.0 / (len(counts) * counts[member])


def add_weighted(sums: Statistics, values: Statistics, weights: Tensor | float) -> None:
    """Add the weighted sum over samples [S, ...] of every statistic; a number weighs one sample."""
    for name, value in values.items():
        if isinstance(weights, float):
            part = value[0] * weights
        else:
            part = torch.einsum("s,s...->...", weights.to(value), value)
        sums[name] = sums[name] + part if name in sums else part
