"""SWAG: a Gaussian around the average of SGD iterates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leanbayes.counts import checked_count
from leanbayes.devices import device_of
from leanbayes.errors import ConfigError
from leanbayes.layers.base import Host
from leanbayes.layers.draw_statistics import DrawStatistics
from leanbayes.likelihood import Likelihood
from leanbayes.methods.post_hoc import (
    FIXED_SEED,
    Batch,
    PostHoc,
    batches,
    check_init_std,
    checked_likelihood,
    draw_losses,
    loss_of,
    parsed,
)
from leanbayes.moments import moments_of, write_statistics
from leanbayes.noise import KeyedNoise, NoiseSource, PortableNoise
from leanbayes.ops import at_least_float32
from leanbayes.plan import MEAN, Plan, call
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.swag import LowRankGaussian
from leanbayes.select import Site


@dataclass(frozen=True, kw_only=True)
class SWAG(PostHoc, name="swag"):
    """Stochastic weight averaging, Gaussian: moments of the iterates of constant-rate SGD.

    `w = mean + sqrt(var / 2) z1 + D z2 / sqrt(2 (R - 1))` with the mean and the variance of all
    iterates and the last R deviations `D_t = w_t - mean_t` from the running mean; z1 by entry, z2
    one vector a sample for the whole network, so layers vary together. With `rank=0`
    `w = mean + sqrt(var) z1` (SWAG-Diagonal). Train as usual, with weight decay; then collect:

        lb.fit_posterior(model, loader, lb.Categorical(), lr=0.01, epochs=20, weight_decay=5e-4)

    which leaves the average in the network's own parameters (those without a slot, too) and
    refreshes BatchNorm. Options: see `Collection`.

    Maddox et al., A simple baseline for Bayesian uncertainty in deep learning, 2019. The paper
    recomputes the statistics of BatchNorm for every sample. That is `draws=K`: K draws are made
    when the posterior is fitted, with statistics of their own each, and predictions take those in
    turn, whatever their seed and device. Without it all samples share the statistics of the
    average, which fits as long as draws are near it; where they are not, `lb.fit_posterior` warns.

    Cost: (R + 1) x the parameters in storage; no step costs more; collecting costs its epochs, and
    K draws cost K passes over the loader (or `draw_batches` of it).

    Attributes:
        rank: Deviations R that are kept; 0 keeps the diagonal alone.
        draws: Fixed draws K with BatchNorm statistics of their own; None for fresh ones.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.SWAG(rank=2))
        >>> data = [(torch.randn(8, 4), torch.randint(0, 3, (8,)))]
        >>> lb.fit_posterior(model, data, lb.Categorical(), lr=0.1, epochs=5)["collected"]
        5.0
    """

    paper: ClassVar[str] = "Maddox et al. 2019, SWAG"
    cost: ClassVar[str] = (
        "+(rank + 1)x stored, 21x by default; training step 1x, then epochs to collect; 1.2x a draw"
    )
    advice: ClassVar[str] = (
        "a trained network with its training data, and room for 21 copies of its weights"
    )

    collects: ClassVar[bool] = True

    rank: int = 20
    draws: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", checked_count("rank", self.rank, least=0))
        if self.rank == 1:
            raise ConfigError(
                f"rank must be at least 2, or 0 for the diagonal alone; found {self.rank!r}"
            )
        if self.draws is not None:
            object.__setattr__(self, "draws", checked_count("draws", self.draws))
        check_init_std(self.init_std)

    def slots(self, site: Site) -> dict[str, Posterior]:
        """A diagonal plus low-rank Gaussian for every tensor; statistics of the fixed draws."""
        filled: dict[str, Posterior] = {
            slot: LowRankGaussian(
                tensor, rank=self.rank, std=self.init_std, fixed_row=site.fixed_row
            )
            for slot, tensor in site.tensors.items()
        }
        if self.draws and isinstance(site.layer, _BatchNorm) and filled:
            mean, variance = site.layer.running_mean, site.layer.running_var
            if mean is not None and variance is not None:
                filled["statistics"] = DrawStatistics(torch.stack([mean, variance]), self.draws)
        return filled

    @property
    def distinct_draws(self) -> int:
        """The fixed draws."""
        return self.draws or 0

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:
        """Fresh draws; of K fixed ones sample t is draw t mod K, as it was fitted."""
        if self.draws is None:
            return super().prediction_plan(samples, noise)
        which = [t % self.draws for t in samples]
        if isinstance(noise, KeyedNoise):  # wherever they are made, draws fit their statistics
            noise = PortableNoise(FIXED_SEED, which, noise.memory)
        return Plan(groups=len(which), component=torch.tensor(which), noise=noise)

    def check_fit(self, **options: Any) -> None:
        """Raise on options that `fit` does not know or cannot take."""
        parsed(Collection, self, options)

    def fit(
        self, model: Any, loader: Iterable[Any], likelihood: Any, **options: Any
    ) -> dict[str, float]:
        """Collect iterates, write their moments, refresh BatchNorm."""
        settings = parsed(Collection, self, options)
        likelihood = checked_likelihood(likelihood)
        iterates = Iterates(model)
        loss, batch = _collect(model, loader, likelihood, settings, iterates)
        iterates.write(settings.scale)
        if settings.refresh:
            write_statistics(model, loader, partial(call, model))
            for k in range(self.draws or 0):
                self._measure(model, islice(loader, settings.draw_batches), k)
        found = {"collected": float(iterates.count), "loss": loss}
        return found | draw_losses(model, batch, likelihood, partial(_advice, draws=self.draws))

    def _measure(self, model: Any, loader: Iterable[Any], k: int) -> None:
        """Give one fixed draw its own BatchNorm statistics."""
        plan = self.prediction_plan([k], KeyedNoise(FIXED_SEED, [k]))
        run = partial(call, model, plan=plan)
        for layer, moments in moments_of(model, loader, run)[0].items():
            values = moments.values()
            if values is not None and isinstance(layer, Host) and "statistics" in layer.slots:
                own: Any = layer.posterior("statistics")
                base = layer.base("statistics")
                own.measure(k, base, values.to(base))


@dataclass(frozen=True, kw_only=True)
class Collection:
    """How SWAG's iterates are made and collected: the options of `lb.fit_posterior`.

    Attributes:
        lr: The constant learning rate; the spread of the posterior grows with it.
        epochs: Passes over the loader.
        collect_every: Steps between two collected iterates; None collects at the end of an epoch.
        momentum: Of SGD.
        weight_decay: Of SGD, on every parameter; that of training.
        scale: Factor on the covariance; 1 is the paper's law.
        refresh: Recompute BatchNorm statistics under the average, and those of the fixed draws, at
            the end.
        draw_batches: Batches for the statistics of a fixed draw; None takes all.
    """

    lr: float = 0.01
    epochs: int = 20
    collect_every: int | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0
    scale: float = 1.0
    refresh: bool = True
    draw_batches: int | None = None

    def __post_init__(self) -> None:
        if not (self.lr > 0 and self.scale >= 0 and self.momentum >= 0 and self.weight_decay >= 0):
            raise ConfigError(
                "lr must be positive and momentum, weight_decay and scale at least 0; found "
                f"lr={self.lr}, momentum={self.momentum}, weight_decay={self.weight_decay}, "
                f"scale={self.scale}"
            )
        counts = {name: getattr(self, name) for name in ("epochs", "collect_every", "draw_batches")}
        if any(count is not None and count < 1 for count in counts.values()):
            found = ", ".join(f"{name}={count}" for name, count in counts.items())
            raise ConfigError(
                f"epochs, collect_every and draw_batches must be at least 1; found {found}"
            )


class Iterates:
    """Running moments of every trainable parameter, and the deviations of those with a slot."""

    def __init__(self, model: Any) -> None:
        found = {id(base): (q, base) for _, _, q, base in model.posteriors()}
        slots = {k: (q, b) for k, (q, b) in found.items() if isinstance(q, LowRankGaussian)}
        trained = {id(p): p for p in model.net.parameters() if p.requires_grad}
        self.trained = list(trained.values())
        self.tensors = {**trained, **{key: base for key, (_, base) in slots.items()}}
        self.posteriors: dict[int, LowRankGaussian] = {k: q for k, (q, _) in slots.items()}
        self.count = 0
        zeros = {key: torch.zeros_like(at_least_float32(p)) for key, p in self.tensors.items()}
        self.mean = zeros
        # Sums of squared deviations: mean squares less squared means would cancel in float32.
        self.squares = {key: zero.clone() for key, zero in zeros.items()}

    @torch.no_grad()
    def add(self) -> None:
        """Collect the parameters as they are (Welford's recursion)."""
        self.count += 1
        for key, tensor in self.tensors.items():
            value = tensor.to(self.mean[key].dtype)
            before = value - self.mean[key]
            self.mean[key] += before / self.count
            after = value - self.mean[key]
            self.squares[key] += before * after
            posterior = self.posteriors.get(key)
            if posterior is not None and posterior.rank:
                posterior.set_deviation((self.count - 1) % posterior.rank, after)

    @torch.no_grad()
    def write(self, scale: float) -> None:
        """Put the means into the parameters and the spread into the slots."""
        for key, tensor in self.tensors.items():
            tensor.copy_(self.mean[key])
        for key, posterior in self.posteriors.items():
            variance = self.squares[key] * (scale / self.count)
            if posterior.deviations is None:
                posterior.set_std(variance.sqrt())
            else:
                posterior.set_std((variance / 2).sqrt())
                posterior.deviations.mul_(math.sqrt(scale / (2 * (posterior.rank - 1))))

    def check(self) -> None:
        """Raise where there are too few iterates for the deviations."""
        rank = max((q.rank for q in self.posteriors.values()), default=0)
        if self.count < max(rank, 2):
            raise ConfigError(
                f"collected {self.count} iterates, fewer than rank={rank} or than 2: give more "
                "epochs or a smaller collect_every, or convert with lb.SWAG(rank=...)"
            )


def _collect(
    model: Any,
    loader: Iterable[Any],
    likelihood: Likelihood,
    settings: Collection,
    iterates: Iterates,
) -> tuple[float, Batch]:
    """Constant-rate SGD under the mean network; the last loss and its batch."""
    if not iterates.trained:
        raise ConfigError("no parameter requires a gradient: SWAG has no iterates to collect")
    optimizer = torch.optim.SGD(
        iterates.trained,
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    model.train()
    step, loss, device = 0, torch.zeros(()), device_of(model)
    for _ in range(settings.epochs):
        total: Tensor | float = 0.0
        for batch in batches(loader, device):
            loss = _step(model, batch, likelihood, optimizer)
            total, step = total + loss, step + 1
            if settings.collect_every is not None and step % settings.collect_every == 0:
                iterates.add()
        if settings.collect_every is None:
            iterates.add()
        _check_finite(float(total), step, settings.lr)
    optimizer.zero_grad()
    iterates.check()
    return float(loss), batch


def _step(
    model: Any, batch: Batch, likelihood: Likelihood, optimizer: torch.optim.Optimizer
) -> Tensor:
    optimizer.zero_grad()
    loss = loss_of(model, batch, likelihood, MEAN)
    # Only the network's parameters: the likelihood's noise stays what it is.
    loss.backward(inputs=[p for group in optimizer.param_groups for p in group["params"]])  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def _advice(found: Mapping[str, float], draws: int | None) -> str:
    words = "draws with BatchNorm statistics of their own, lb.SWAG(draws=20)"
    also = "" if draws else f"{words}, where the network has BatchNorm; or "
    return (
        f"SWAG's draws are far from what was trained: loss {found['draw_loss']:.3g} of a few draws "
        f"on a batch, {found['mean_loss']:.3g} of their average. Write {also}a smaller lr, which "
        "makes the spread of the iterates smaller, or scale < 1"
    )


def _check_finite(loss: float, step: int, lr: float) -> None:
    """Of all batches of an epoch: the last one may have no label, and with it no loss."""
    if not math.isfinite(loss):
        raise ConfigError(
            f"the loss is {loss} after {step} steps at the constant learning rate {lr}: the "
            "iterates left the optimum, and the network is no longer what it was. Load its "
            "weights again and give a smaller lr"
        )
