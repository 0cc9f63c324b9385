"""BayesAdapter's mean-field Gaussian (MFG): every parameter gets a standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from leanbayes.errors import ConfigError
from leanbayes.methods.assignment import even_blocks
from leanbayes.methods.base import KLKind, Method
from leanbayes.methods.preset import Preset, check_preset
from leanbayes.methods.prior import check_not_negative, check_pairs, resolve_prior_std
from leanbayes.plan import Plan
from leanbayes.posteriors import Gaussian, Posterior
from leanbayes.posteriors.estimators import Estimator
from leanbayes.select import Site

PriorMean = Literal["zero", "weights"]


@dataclass(frozen=True, kw_only=True)
class MeanField(Method, name="mean_field"):
    """An independent Gaussian for every parameter of every selected layer, around your weight.

    `q(w) = N(mu, exp(2 psi))` with mu the trained weight, prior `N(0, prior_std^2)`, or around the
    weight that it was converted with. Training draws
    weights for every row of a batch (exemplar reparameterisation): compared with one draw for the
    batch, the variance of the gradient is divided by the batch size. Prediction draws once for
    every sample, shared by all rows.

    Deng et al., BayesAdapter, 2022. Their eq. (5) prints the gradients of -KL / n; a minimiser adds
    the opposite sign, which `lb.attach_kl` does. Their hundredfold smaller gradient variance is the
    batch size; Flipout reaches it at the price of one draw, and for a Linear on [B, I] integrating
    the noise out (`local`) has the same law and less variance still.

    Cost: 2x the parameters. A training step costs about 2x the network's, 1.1x with
    `estimator="shared"`; a prediction 1.1x for each draw.

    Attributes:
        estimator: How training draws. `auto`: for every row, by `local` for Linear on [B, I] and by
            `flipout` for convolutions and tokens. `shared`: one draw for the batch, the cheapest.
            `exemplar`: explicit draws.
        groups: Draws of a batch with `exemplar` (at most; the largest number that divides the
            rows). None draws once a row.
        prior_std: Standard deviation of the prior, 1 unless `weight_decay` is given.
        weight_decay: The weight decay of pre-training, to be read as a prior with `num_data`.
        num_data: Number of training examples, for `weight_decay`.
        prior_mean: `zero`, or `weights`: the prior stays around the weights at conversion, for
            fine-tuning on few data (3x the parameters, a third of which never learn). Say then how
            far the weights may go: `prior_std=0.1`.
        init_log_std: Bounds of the uniform law from which psi starts; by default the standard
            deviations are 0.0025 to 0.0067.
        init_std: One standard deviation for every entry instead; 0 is the network itself.
        preset: `paper` sets the network's own dropout to 0, as the authors' code does.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField(prior_std=0.5))
        >>> model.report.added
        15
    """

    paper: ClassVar[str] = "Deng et al. 2022, BayesAdapter"
    cost: ClassVar[str] = (
        '2x parameters; training step 2x, 1.1x with estimator="shared"; 1.1x a draw'
    )
    advice: ClassVar[str] = (
        "the first to try: fine-tune a trained network, if memory allows twice its parameters"
    )
    kl_kind: ClassVar[KLKind] = "exact"

    estimator: Estimator = "auto"
    groups: int | None = None
    prior_std: float | None = None
    weight_decay: float | None = None
    num_data: int | None = None
    prior_mean: PriorMean = "zero"
    init_log_std: tuple[float, float] = (-6.0, -5.0)
    init_std: float | None = None
    preset: Preset = "recommended"

    def __post_init__(self) -> None:
        check_preset(self.preset)
        if self.estimator not in get_args(Estimator):
            raise ConfigError(
                f"estimator must be one of {', '.join(get_args(Estimator))}; "
                f"found {self.estimator!r}"
            )
        if self.prior_mean not in get_args(PriorMean):
            raise ConfigError(
                f"prior_mean must be one of {', '.join(get_args(PriorMean))}; "
                f"found {self.prior_mean!r}"
            )
        if self.groups is not None and (self.estimator != "exemplar" or self.groups < 1):
            raise ConfigError(
                "groups counts the draws a batch of estimator='exemplar' and is at least 1; "
                f"found groups={self.groups} with estimator={self.estimator!r}"
            )
        check_pairs(init_log_std=self.init_log_std)
        check_not_negative(init_std=self.init_std)
        self.resolved_prior_std()

    def resolved_prior_std(self) -> float:
        """The standard deviation of the prior, however it was given."""
        return resolve_prior_std(self.prior_std, self.weight_decay, self.num_data)

    @property
    def silences_dropout(self) -> bool:
        """Under the paper's preset."""
        return self.preset == "paper"

    def slots(self, site: Site) -> dict[str, Posterior]:
        """A Gaussian for every tensor."""
        return {slot: self._gaussian(site, slot) for slot in site.tensors}

    def _gaussian(self, site: Site, slot: str) -> Gaussian:
        posterior = Gaussian(
            site.tensors[slot],
            prior_std=self.resolved_prior_std(),
            init_log_std=self.init_log_std,
            estimator=self.estimator,
            fixed_row=site.fixed_row,
            prior_mean=site.tensors[slot] if self.prior_mean == "weights" else None,
        )
        if self.init_std is not None:
            posterior.set_std(self.init_std)
        return posterior

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:  # noqa: ARG002
        """One draw a row; one a batch if shared; `groups` a batch if so asked for."""
        if self.estimator == "shared":
            return Plan(groups=samples)
        if self.groups is None:
            return Plan(groups=samples, per_row=True)
        return Plan(groups=samples * even_blocks(self.groups, rows // samples))
