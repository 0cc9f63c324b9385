"""The negative ELBO per datum: mean negative log-likelihood + KL / num_data, in one place."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from leanbayes.counts import checked_count
from leanbayes.errors import ConfigError
from leanbayes.likelihood import HALF, Likelihood, mean_nll, needed, tensor_of
from leanbayes.model import BayesianModel, unwrap
from leanbayes.plan import call, count_rows, fold


class Objective:
    """What one batch costs.

    Attributes:
        loss: `nll + kl_weight * kl / num_data`, to be minimised; the nll alone without the KL.
        nll: Mean negative log-likelihood a datum; 0 where no datum has a label.
    """

    def __init__(self, nll: Tensor, model: BayesianModel, kl_scale: float | None) -> None:
        self.nll = nll
        self._model = model
        self._kl: Tensor | None = None
        self.loss = nll if kl_scale is None else nll + kl_scale * self.kl.to(nll.dtype)

    @property
    def kl(self) -> Tensor:
        """The KL, summed and undivided; computed when it is first asked for."""
        if self._kl is None:
            self._kl = self._model.kl()
        return self._kl

    def __repr__(self) -> str:
        return f"Objective(loss={self.loss.item():.6g}, nll={self.nll.item():.6g})"


def objective(  # noqa: PLR0913
    model: nn.Module,
    batch: tuple[Any, Tensor],
    likelihood: Likelihood,
    *,
    num_data: int | None = None,
    samples: int = 1,
    kl_weight: float = 1.0,
    likelihood_of: Literal["average", "mixture"] = "average",
    include_kl: bool = True,
    step: int | None = None,
) -> Objective:
    """`mean(-log p(y | x, w)) + kl_weight * KL(q || p) / num_data`: the loss of one batch.

    The weights w are sampled from q, as the method's training plan says: for `MeanField` once a
    row. At `kl_weight=1` the loss is the negative ELBO by datum. Cost: a forward pass of `samples`
    times the batch, and the KL when it is asked for.

    Args:
        model: A BayesianModel, or its DDP, FSDP2 or compiled wrapper.
        batch: Inputs (a tensor, tuple or dict) and targets.
        likelihood: What gives targets a probability: `lb.Categorical()` for class labels.
        num_data: Size of the training set, `len(train_set)`: examples, or labelled elements
            (pixels, tokens) where every position has a target. Needed where the KL is included.
        samples: Draws for each example; rows are repeated, draw-major.
        kl_weight: Weight of the KL; below 1 the posterior is colder.
        likelihood_of: `average` of the log-likelihoods of the draws (the ELBO), or the log of the
            `mixture` over the draws of an example.
        include_kl: Write False if `lb.attach_kl` adds the gradients of the KL.
        step: Number of the step, by which members take turns on rows; at random without it, which
            suits batches that come in the same order every epoch.

    Returns:
        An `Objective` with `loss`, `nll` and `kl`.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> batch = torch.randn(8, 4), torch.randint(0, 3, (8,))
        >>> result = lb.objective(model, batch, lb.Categorical(), num_data=100)
        >>> bool((result.loss - result.nll - result.kl / 100).abs() < 1e-6)
        True
    """
    inner = unwrap(model)
    samples = checked_count("samples", samples)
    _check(inner, likelihood_of, include_kl)
    _check_weight(kl_weight)
    needed(likelihood, "objective")
    if likelihood_of == "mixture" and getattr(likelihood, "class_weights", None) is not None:
        raise ConfigError(
            "class weights weigh the log-likelihood of a draw, and a mixture has one of all draws: "
            "write likelihood_of='average', or leave class_weights out"
        )
    _warn_of_half(inner)
    scale = kl_weight / checked_num_data(num_data) if include_kl else None
    inputs, target = _pair(batch)
    samples = samples * inner.method.repeats
    plan = inner.training_plan(count_rows((inputs,), {}) * samples, samples, step)
    output = call(model, fold(inputs, samples), plan=plan)
    targets = fold(target, samples)
    log_prob = likelihood.log_prob(tensor_of(output), targets)
    if likelihood_of == "mixture":
        log_prob = torch.logsumexp(log_prob.reshape(samples, -1), 0) - math.log(samples)
        targets = target
    return Objective(mean_nll(likelihood, log_prob, targets), inner, scale)


def _check(model: BayesianModel, likelihood_of: str, include_kl: bool) -> None:
    if likelihood_of not in ("average", "mixture"):
        raise ConfigError(f"likelihood_of is 'average' or 'mixture', found {likelihood_of!r}")
    if include_kl and model.kl_attached:
        raise ConfigError(
            "an optimiser adds the KL gradients of this model already (lb.attach_kl), so the KL "
            "would count twice: write lb.objective(..., include_kl=False)"
        )


def _pair(batch: Any) -> tuple[Any, Tensor]:
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    size = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
    raise ConfigError(
        f"a batch is a pair (inputs, targets), found a {type(batch).__name__}{size}. Several "
        "inputs go into one tuple or dict: lb.objective(model, ((a, b), targets), ...)"
    )


def _check_weight(kl_weight: Any) -> None:
    if callable(kl_weight):
        raise ConfigError(
            f"kl_weight of lb.objective is a number, found {kl_weight!r}: of a schedule write "
            "kl_weight=schedule(step). lb.attach_kl takes the schedule itself, and counts the steps"
        )


def _warn_of_half(model: BayesianModel) -> None:
    scale = next((p for _, _, q, _ in model.posteriors() for p in q.parameters()), None)
    if scale is not None and scale.dtype in HALF:
        warnings.warn(
            "the posterior is stored in float16 or bfloat16, whose spacing (0.03 near a log_std of "
            "-5.5) swallows the steps of an optimiser. Keep the model in float32 and train under "
            "torch.autocast",
            stacklevel=3,
        )


def checked_num_data(num_data: int | None) -> int:
    """The number of training data, or an error that says what it is for."""
    if num_data is None or isinstance(num_data, bool) or not num_data > 0:
        raise ConfigError(
            "num_data must be the number of training data, a positive number: it divides the KL. "
            f"Found {num_data!r}; write num_data=len(train_set)"
        )
    return num_data
