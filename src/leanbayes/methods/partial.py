"""PBN: a posterior over the most sensitive parameters only, chosen over the whole network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.methods.base import KLKind, Method
from leanbayes.methods.preset import Preset, settled
from leanbayes.methods.prior import check_not_negative, check_pairs, resolve_prior_std
from leanbayes.noise import NoiseSource
from leanbayes.plan import MEAN, Plan
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.estimators import Estimator
from leanbayes.posteriors.sparse_gaussian import Reduction, SparseGaussian
from leanbayes.select import Site
from leanbayes.sensitivity import Criterion, sensitivity

PRESETS: Mapping[str, tuple[Any, Any]] = {
    "criterion": ("output_jacobian", "loss_grad"),
    "estimator": ("auto", "shared"),
    "kl_reduction": ("sum", "tensor_mean"),
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "criterion": get_args(Criterion),
    "estimator": get_args(Estimator),
    "kl_reduction": get_args(Reduction),
}


@dataclass(frozen=True, kw_only=True)
class Partial(Method, name="partial"):
    """`W = mu + m * softplus(rho) * eps` with a fixed mask m over the most sensitive parameters.

    The mask holds the k = round(rate * candidates) entries of the highest score over all tensors
    together; ties go to the entry that comes first in `named_parameters()`. Candidates are all
    parameters of the selected layers, norms and biases included. rho is stored for them alone, and
    prior N(0, prior_std^2) and KL act on them alone; every mean keeps training. At rate 1 this is
    `MeanField`, at rate 0 the network itself.

    Abboud et al., sensitivity-guided partial Bayesian networks. What is read differently here:

    - The paper sets 'rho near zero' for deterministic weights, which would be a scale of 0.69; here
      their scale is 0.
    - The theory ranks `|df/dtheta| sigma`, the algorithm |gradient of the converged loss|, which is
      noise around 0. The default is the output Jacobian; see `lb.sensitivity`.
    - A summed KL costs about 4 nats a random weight at the start and is divided by num_data, as in
      `lb.objective`. `kl_reduction="tensor_mean"` averages over the random entries of each tensor
      instead, the reading under which the paper's weights of 0.2 to 0.01 make sense; it is a
      tempered objective and no longer an ELBO.

    A partly random tensor gets no weight decay (`lb.param_groups` keeps it out, for its random
    entries have a prior): its other entries then have neither KL nor decay.

    `lb.bayesianize(net, lb.Partial(rate=0.01), data=loader, likelihood=lb.Categorical())` scores
    and selects; `scores=` takes scores from elsewhere. The mask is saved with the model, and comes
    from the file when it is loaded.

    Cost: exactly round(rate * candidates) parameters more, and as many indices. A training step and
    a draw cost 1.05x to 1.1x the network's at 1 %; scoring a pass and a backward pass a batch.

    Attributes:
        rate: Fraction of the candidates that become random.
        criterion: What parameters are ranked by: `output_jacobian`, `fisher`, `loss_grad`,
            `magnitude` or `random`, as in `lb.sensitivity`.
        exclude_stem: Keep the first layer deterministic, so that prediction can share its work.
        estimator: `auto`: one draw a batch, and for a Linear on [B, I] one a row with the noise
            integrated out. `shared`: one draw a batch. The others as for `MeanField`.
        prior_std: Standard deviation of the prior, 1 unless `weight_decay` is given.
        weight_decay: The weight decay of pre-training, to be read as a prior with `num_data`.
        num_data: Number of training examples, for `weight_decay`.
        kl_reduction: `sum` or `tensor_mean`.
        init_rho: Mean and standard deviation of the normal law from which rho starts.
        init_std: One standard deviation for every random entry instead; 0 is the network itself.
        seed: Seed of the random signs in the scores, and of `criterion="random"`.
        preset: `paper`: loss_grad, one draw a batch, tensor_mean, 5 samples, Linear and
            convolution layers only.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Linear(9, 11)
        >>> model = lb.bayesianize(net, lb.Partial(rate=0.1, criterion="magnitude"))
        >>> model.report.added
        11
    """

    paper: ClassVar[str] = "Abboud et al., sensitivity-guided partial BNN (PBN)"
    cost: ClassVar[str] = "+1 % parameters at rate 0.01; training step 1.1x; 1.05x a draw"
    advice: ClassVar[str] = (
        "large trained networks: only the weights that the output reacts to become random"
    )
    kl_kind: ClassVar[KLKind] = "exact"
    looks_at_data: ClassVar[bool] = True

    rate: float = 0.01
    criterion: Criterion | None = None
    exclude_stem: bool = False
    estimator: Estimator | None = None
    prior_std: float | None = None
    weight_decay: float | None = None
    num_data: int | None = None
    kl_reduction: Reduction | None = None
    init_rho: tuple[float, float] = (-5.0, 0.1)
    init_std: float | None = None
    seed: int = 0
    preset: Preset = "recommended"

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = settled(getattr(self, name), name, self.preset, PRESETS)
            if value not in choices:
                raise ConfigError(f"{name} is one of {', '.join(choices)}; found {value!r}")
            object.__setattr__(self, name, value)
        if isinstance(self.rate, bool) or not 0 <= self.rate <= 1:
            raise ConfigError(
                f"rate is the fraction of random parameters, from 0 to 1; found {self.rate!r}"
            )
        check_pairs(init_rho=self.init_rho)
        check_not_negative(init_std=self.init_std)
        self.resolved_prior_std()

    def resolved_prior_std(self) -> float:
        """The standard deviation of the prior, however it was given."""
        return resolve_prior_std(self.prior_std, self.weight_decay, self.num_data)

    @property
    def is_random(self) -> bool:
        """True unless the rate is 0."""
        return self.rate > 0

    @property
    def converts(self) -> bool:
        """True unless the rate is 0."""
        return self.rate > 0

    @property
    def default_samples(self) -> int:
        """Twenty; five in the paper; one where all are the same."""
        if not self.is_random:
            return 1
        return 5 if self.preset == "paper" else 20

    def prepared(
        self,
        net: nn.Module,
        sites: Sequence[Site],
        *,
        data: Iterable[Any] | None = None,
        likelihood: nn.Module | None = None,
        scores: Mapping[str, Tensor] | None = None,
    ) -> Partial:
        """The method with its mask for this network: scores, then the highest over all tensors."""
        pool = _Pool(net, [site for site in sites if self._takes(site)])
        masks: dict[int, Tensor] = {}
        if self.is_random and pool.size:
            count = self._count(pool.size)
            if scores is None:
                assert self.criterion is not None
                scores = sensitivity(
                    net, data, likelihood, criterion=self.criterion, seed=self.seed
                )
            masks = pool.chosen(scores, count)
        ready = replace(self)
        # No field: masks live in the layers, and neither in JSON nor in what makes methods equal.
        object.__setattr__(ready, "_masks", masks)
        return ready

    def __getstate__(self) -> dict[str, Any]:
        # Masks go by the identity of tensors, which a copy does not share.
        return {name: value for name, value in self.__dict__.items() if name != "_masks"}

    def _takes(self, site: Site) -> bool:
        by_paper = self.preset == "recommended" or site.host.kind in ("linear", "conv")
        return by_paper and self.select(site) and not (self.exclude_stem and site.first)

    def _count(self, size: int) -> int:
        count = round(self.rate * size)
        if count == 0:
            raise ConfigError(
                f"rate={self.rate} of {size} parameters is not one: write rate=1 / {size} or more, "
                "or rate=0 for the network itself"
            )
        return count

    def slots(self, site: Site) -> dict[str, Posterior]:
        """A sparse Gaussian for every tensor with a random entry."""
        masks: dict[int, Tensor] | None = getattr(self, "_masks", None)
        if masks is None:
            raise ConfigError(
                "Partial has not seen the network yet: lb.bayesianize asks `prepared` first"
            )
        return {
            slot: self._posterior(tensor, masks[id(tensor)])
            for slot, tensor in site.tensors.items()
            if id(tensor) in masks
        }

    def restored(self, site: Site, tensors: Mapping[str, Tensor]) -> dict[str, Posterior]:
        """Posteriors with the masks of a checkpoint.

        A tied tensor is stored under one of its names; under the others it is the same posterior
        in the end, so that an empty mask may stand here.
        """
        prefix = ".".join(part for part in ("net", site.name, "slots") if part)
        none = torch.zeros(0, dtype=torch.int64)
        slots: dict[str, Posterior] = {}
        for slot, tensor in site.tensors.items():
            entries = tensors.get(f"{prefix}.{slot}.entries", none)
            if (
                entries.numel()
                and not 0 <= int(entries.min()) <= int(entries.max()) < tensor.numel()
            ):
                raise CheckpointError(
                    f"the checkpoint is for another network: its mask of '{site.name}' reaches "
                    f"entry {int(entries.max())}, the {slot} has {tensor.numel()}"
                )
            slots[slot] = self._posterior(tensor, entries)
        return slots

    def _posterior(self, tensor: Tensor, entries: Tensor) -> SparseGaussian:
        assert self.estimator is not None
        assert self.kl_reduction is not None
        posterior = SparseGaussian(
            tensor,
            entries,
            prior_std=self.resolved_prior_std(),
            init_rho=self.init_rho,
            estimator=self.estimator,
            reduction=self.kl_reduction,
        )
        if self.init_std is not None:
            posterior.set_std(self.init_std)
        return posterior

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:  # noqa: ARG002
        """One draw a batch or a row, as the estimator has it; the network itself at rate 0."""
        if not self.is_random:
            return MEAN
        return Plan(groups=samples, per_row=self.estimator != "shared")

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:
        """One draw a sample; the network itself at rate 0."""
        return super().prediction_plan(samples, noise) if self.is_random else MEAN


class _Pool:
    """All candidates as one vector, in the order of `named_parameters()`."""

    def __init__(self, net: nn.Module, sites: Sequence[Site]) -> None:
        wanted = {id(p) for site in sites for p in site.tensors.values()}
        self.params = {n: p for n, p in net.named_parameters() if id(p) in wanted}
        # The padding row of an embedding never is random, under whatever name it is tied.
        self.fixed = {
            id(site.tensors["weight"]): site.fixed_row
            for site in sites
            if site.fixed_row is not None
        }
        self.size = sum(p.numel() for p in self.params.values()) - sum(
            p[self.fixed[id(p)]].numel() for p in self.params.values() if id(p) in self.fixed
        )

    def chosen(self, scores: Mapping[str, Tensor], count: int) -> dict[int, Tensor]:
        """Flat indices of the `count` highest scores, by the identity of the tensor."""
        flat = torch.cat([self._scores_of(name, scores) for name in self.params])
        picked = highest(flat, count)
        return dict(self._by_tensor(picked))

    def _scores_of(self, name: str, scores: Mapping[str, Tensor]) -> Tensor:
        parameter = self.params[name]
        score = scores.get(name)
        if score is None or score.shape != parameter.shape:
            found = "none" if score is None else f"shape {tuple(score.shape)}"
            raise ConfigError(
                f"scores hold one tensor a parameter, by its name and in its shape: expected "
                f"{tuple(parameter.shape)} for '{name}', found {found}. "
                "scores=lb.sensitivity(net, loader, likelihood) has them"
            )
        if not score.isfinite().all():
            raise ConfigError(f"the scores of '{name}' are not finite: they cannot be ranked")
        score = score.detach().cpu().clone()
        if id(parameter) in self.fixed:
            score = score if score.is_floating_point() else score.double()
            score[self.fixed[id(parameter)]] = -torch.inf
        return score.flatten()

    def _by_tensor(self, picked: Tensor) -> Iterator[tuple[int, Tensor]]:
        start = 0
        for parameter in self.params.values():
            end = start + parameter.numel()
            own = picked[(picked >= start) & (picked < end)] - start
            if len(own):
                yield id(parameter), own
            start = end


def highest(scores: Tensor, count: int) -> Tensor:
    """Indices of the highest scores in rising order; among equal ones the first count.

    Example:
        >>> highest(torch.tensor([1.0, 3.0, 2.0, 2.0, 0.0, 2.0]), 3).tolist()
        [1, 2, 3]
    """
    level = scores.topk(count, sorted=False).values.min()
    above = (scores > level).nonzero().flatten()
    equal = (scores == level).nonzero().flatten()[: count - len(above)]
    return torch.cat([above, equal]).sort().values
