"""The Laplace approximation: a Gaussian at the trained weights, as wide as the loss is flat."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from leanbayes.devices import device_of
from leanbayes.errors import ConfigError, DataError
from leanbayes.likelihood import Likelihood
from leanbayes.methods.curvature import Curvature, Diagonal, Kronecker
from leanbayes.methods.post_hoc import (
    Batch,
    PostHoc,
    batches,
    check_init_std,
    checked_likelihood,
    draw_losses,
    parsed,
)
from leanbayes.methods.prior import resolve_prior_std
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.fixed_gaussian import FixedGaussian
from leanbayes.posteriors.kronecker import Eigenbases, KroneckerGaussian
from leanbayes.select import Site


@dataclass(frozen=True, kw_only=True)
class Laplace(PostHoc, name="laplace"):
    """`q(w) = N(w*, (H + 1 / prior_std^2)^-1)`, H the Gauss-Newton matrix of the training data.

    `structure="diagonal"` keeps the diagonal of H, for all layers or the last one. It is estimated
    by random signs, an example and output each (Hutchinson): no per-example gradients, so memory
    is that of a training step. `structure="kronecker"` is for a linear last layer, weight and bias
    together: `H = G x A` with `A = sum a a^T` over the inputs of the layer and G the mean Hessian
    of the outputs. The sum with the prior is drawn from exactly, in the eigenbases of G and A; for
    a Gaussian likelihood the product is exact as well. Train with weight decay, then

        model = lb.bayesianize(net, lb.Laplace(structure="kronecker"), example=x)
        lb.fit_posterior(model, loader, lb.Categorical(), prior="fit")

    Options: see `Measurement`. The Gauss-Newton matrix is the Hessian of the linearised network,
    `f(w*) + J (w - w*)`, and `predictive="linearised"` draws from that one (Immer et al. 2021). By
    default draws go through the network itself, which knows nothing of how weights make up for
    each other: over all layers of a deep network the diagonal is then too wide unless the prior is
    narrow, and the evidence does not tell (a small convolutional net falls from 83 % to 51 % with
    `prior="fit"`, to 81 % with a better likelihood at `prior_std=0.05`); where they are lost,
    `lb.fit_posterior` warns. In the last layer both are the same where it is linear.

    MacKay 1992; Ritter et al. 2018; Immer et al. 2021; Daxberger et al. 2021. Own code, for
    laplace-torch requires torchvision, which the core must not import.

    Cost: diagonal 1x the parameters; Kronecker `O^2 + J^2 + O J` numbers for the last layer; a fit
    is one pass over the data with `probes` backward passes (Kronecker: none). A linearised draw is
    a pass in dual numbers, about 3x.

    Attributes:
        structure: `diagonal` or `kronecker`.
        where: `all` or `last_layer`; by default all for diagonal, the last layer for kronecker.
        prior_std: Standard deviation of the prior, 1 unless `weight_decay` is given.
        weight_decay: The weight decay of training, to be read as a prior with `num_data`.
        num_data: Number of training examples, for `weight_decay`.
        predictive: `sampled` or `linearised`.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> model = lb.bayesianize(net, lb.Laplace(structure="kronecker", prior_std=0.5))
        >>> data = [(torch.eye(2), torch.zeros(2, 1))]
        >>> figures = lb.fit_posterior(model, data, lb.Gaussian(precision=12.0))
        >>> net.slots.weight.bases.std.tolist()  # (12 + 4)^-1/2
        [[0.25, 0.25]]
    """

    paper: ClassVar[str] = "MacKay 1992; Daxberger et al. 2021, Laplace redux"
    cost: ClassVar[str] = (
        "+1x stored (last layer: its two factors); no training, 1 pass to fit; "
        "1.1x a draw, 3x linearised"
    )
    advice: ClassVar[str] = "a trained network that must not be trained any further"

    structure: Literal["diagonal", "kronecker"] = "diagonal"
    where: Literal["all", "last_layer"] | None = None
    prior_std: float | None = None
    weight_decay: float | None = None
    num_data: int | None = None
    predictive: Literal["sampled", "linearised"] = "sampled"

    def __post_init__(self) -> None:
        if self.predictive not in ("sampled", "linearised"):
            raise ConfigError(f"predictive is sampled or linearised; found {self.predictive!r}")
        if self.structure not in ("diagonal", "kronecker"):
            raise ConfigError(f"structure is diagonal or kronecker; found {self.structure!r}")
        if self.where not in (None, "all", "last_layer"):
            raise ConfigError(f"where is all or last_layer; found {self.where!r}")
        if self.structure == "kronecker" and self.where == "all":
            raise ConfigError(
                "Kronecker factors are for the last layer: write where='last_layer', or "
                "structure='diagonal' for all layers"
            )
        check_init_std(self.init_std)
        self.resolved_prior_std()

    def resolved_prior_std(self) -> float:
        """The standard deviation of the prior, however it was given."""
        return resolve_prior_std(self.prior_std, self.weight_decay, self.num_data)

    def slots(self, site: Site) -> dict[str, Posterior]:
        """A Gaussian for every tensor, or one for the weight and bias of the last layer."""
        if self.structure == "kronecker":
            return self._kronecker(site) if site.last else {}
        if self.where == "last_layer" and not site.last:
            return {}
        return {
            slot: FixedGaussian(
                tensor, std=self.init_std, fixed_row=site.fixed_row, linear=self.linearised
            )
            for slot, tensor in site.tensors.items()
        }

    @property
    def linearised(self) -> bool:
        """Whether it is; Kronecker factors are for a linear last layer, which is linear anyway."""
        return self.predictive == "linearised" and self.structure == "diagonal"

    def _kronecker(self, site: Site) -> dict[str, Posterior]:
        if not isinstance(site.layer, nn.Linear):
            raise ConfigError(
                f"the last layer '{site.name}' is a {type(site.layer).__name__}; Kronecker factors "
                "need a Linear. Write structure='diagonal', where='last_layer'"
            )
        weight, has_bias = site.layer.weight, site.layer.bias is not None
        bases = Eigenbases(weight, weight.shape[0], weight.shape[1] + has_bias, self.init_std)
        parts: dict[str, Posterior] = {"weight": KroneckerGaussian(bases, "weight")}
        return {**parts, "bias": KroneckerGaussian(bases, "bias")} if has_bias else parts

    def _curvature(self, model: Any, settings: Measurement) -> Curvature:
        if self.structure == "kronecker":
            return Kronecker(model)
        return Diagonal(model, settings.probes, settings.seed)

    def check_fit(self, **options: Any) -> None:
        """Raise on options that `fit` does not know or cannot take."""
        parsed(Measurement, self, options)

    def fit(
        self, model: Any, loader: Iterable[Any], likelihood: Any, **options: Any
    ) -> dict[str, float]:
        """Measure the curvature over the loader and write the scales."""
        settings = parsed(Measurement, self, options)
        likelihood = checked_likelihood(likelihood)
        if getattr(likelihood, "class_weights", None) is not None:
            raise ConfigError(
                "Laplace measures the curvature of the likelihood itself: hand over one without "
                "class_weights"
            )
        curvature = self._curvature(model, settings)
        fit, seen, batch = _measure(model, loader, likelihood, curvature)
        factor = 1.0 if settings.num_data is None else settings.num_data / seen
        curvature.finish(factor)
        prior_std = self.resolved_prior_std()
        if settings.prior == "fit":
            prior_std = max(GRID, key=curvature.log_evidence)
        curvature.write(prior_std)
        evidence = factor * fit + curvature.log_evidence(prior_std)
        found = {"num_data": float(seen), "prior_std": prior_std, "log_evidence": evidence}
        if self.structure == "kronecker" or self.where == "last_layer" or self.linearised:
            return found  # draws are those of the law that was measured, however wide
        return found | draw_losses(model, batch, likelihood, _advice)


# Standard deviations that `prior="fit"` chooses from: ten a decade.
GRID = [10 ** (k / 10) for k in range(-40, 21)]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """How the curvature is measured: the options of `lb.fit_posterior`.

    Attributes:
        probes: Random sign vectors a batch for the diagonal; its relative error is about
            `sqrt(2 / (probes * batches))`. None is exact, at a backward pass an example and output.
        prior: `fixed` is the method's; `fit` takes the standard deviation with the largest
            evidence of the approximation, on a grid of ten a decade from 1e-4 to 1e2.
        num_data: Size of the training set where the loader gives a part of it.
        seed: Of the signs; None takes them from the global generator.
    """

    probes: int | None = 10
    prior: Literal["fixed", "fit"] = "fixed"
    num_data: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.probes is not None and self.probes < 1:
            raise ConfigError(f"probes must be at least 1, or None; found {self.probes!r}")
        if self.prior not in ("fixed", "fit"):
            raise ConfigError(f"prior is fixed or fit; found {self.prior!r}")
        if self.num_data is not None and not self.num_data > 0:
            raise ConfigError(f"num_data must be positive, found {self.num_data!r}")


def _measure(
    model: Any, loader: Iterable[Any], likelihood: Likelihood, curvature: Curvature
) -> tuple[float, int, Batch]:
    """Run over the data; log-likelihood of the trained network, number of data, the last batch."""
    model.eval()
    total, seen = 0.0, 0
    for inputs, target in batches(loader, device_of(model)):
        batch = inputs, target
        log_prob = curvature.add(inputs, target, likelihood)
        total += float(log_prob.double().sum())
        _check_finite(total, seen)
        seen += int(likelihood.count(log_prob, target))
    if not seen:
        raise DataError("no datum has a label: expected some, whose curvature can be measured")
    return total, seen, batch


def _check_finite(total: float, seen: int) -> None:
    """Before anything is written: one missing value would make every scale NaN."""
    if not math.isfinite(total):
        raise DataError(
            f"the log-likelihood of the batch after {seen} data is {total}: inputs, targets or "
            "weights hold infinite values or nan. Clean the data (write: assert "
            "inputs.isfinite().all()), or load weights that are finite. The posterior is unchanged"
        )


def _advice(found: Mapping[str, float]) -> str:
    return (
        f"Laplace's draws are far from what was trained: loss {found['draw_loss']:.3g} of a few "
        f"draws on a batch, {found['mean_loss']:.3g} of the network itself. Write "
        "predictive='linearised', the network that the law belongs to; or where='last_layer', or "
        "a smaller prior_std"
    )
