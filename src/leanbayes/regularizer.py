"""BayesAdapter's uncertainty regularisation: be unsure where the data are not."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.errors import ConfigError
from leanbayes.likelihood import Categorical, tensor_of
from leanbayes.methods.assignment import even_blocks
from leanbayes.methods.preset import Preset
from leanbayes.model import BayesianModel, unwrap
from leanbayes.objective import Objective, objective
from leanbayes.ops import at_least_float32
from leanbayes.plan import Plan, call, count_rows, fold

MARGINS = {"recommended": 0.5, "paper": 0.75}


class RegularizedObjective(Objective):
    """An `lb.Objective` whose loss holds the penalty too.

    Attributes:
        loss: `nll + kl_weight * kl / num_data + penalty`.
        nll: Mean negative log-likelihood of the clean rows.
        penalty: `alpha * mean relu(gamma - MI)` of the OOD rows.
    """

    def __init__(self, clean: Objective, penalty: Tensor) -> None:
        super().__init__(clean.nll, clean._model, None)
        self._kl = clean._kl  # where the loss needed it, it is not computed again
        self.penalty = penalty
        self.loss = clean.loss + penalty.to(clean.loss.dtype)


@dataclass(frozen=True, kw_only=True)
class OODRegularizer:
    """`alpha * mean relu(gamma - MI(x))` over out-of-distribution inputs x, to be added to a loss.

    `MI = H(mean_s p_s) - mean_s H(p_s)` in nats, from `samples` draws of the weights on the same
    row, all in one forward pass. Under a network index the draws of a row are different members
    (without replacement); otherwise they are independent. Only for class probabilities.

    MI of S draws is a Jensen-Shannon divergence and never above ln S, so that a margin of ln S or
    more never binds: the paper's gamma = 0.75 with two draws is the same objective as no margin.
    Here it is an error; with `preset="paper"` a warning.

    Deng et al., BayesAdapter, 2022.

    Cost: the pass of `samples` rows an OOD input. The paper keeps the rows of a step: B/2 clean
    rows, and B/4 OOD inputs with two draws each.

    Attributes:
        alpha: Weight of the penalty.
        gamma: Margin in nats; None has none (`alpha * mean(-MI)`); `auto` is 0.5, and 0.75 with
            `preset="paper"`.
        samples: Draws an OOD row, at least 2: the MI of one draw is 0.
        passes: 1 sends clean and OOD rows through one forward pass in `objective`, where BatchNorm
            sees both (the paper); 2 sends them one after the other.
        preset: `recommended` or `paper`.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField()).train()
        >>> reg, x_ood = lb.OODRegularizer(), torch.randn(4, 4)
        >>> bool(reg(model, x_ood) > 0)
        True
        >>> batch = torch.randn(8, 4), torch.randint(0, 3, (8,))
        >>> result = reg.objective(model, batch, x_ood, lb.Categorical(), num_data=100)
        >>> bool((result.loss - result.nll - result.kl / 100 - result.penalty).abs() < 1e-6)
        True
    """

    alpha: float = 3.0
    gamma: float | Literal["auto"] | None = "auto"
    samples: int = 2
    passes: Literal[1, 2] = 1
    preset: Preset = "recommended"

    def __post_init__(self) -> None:
        if self.preset not in get_args(Preset):
            raise ConfigError(f"preset is 'recommended' or 'paper', found {self.preset!r}")
        if self.gamma == "auto":
            object.__setattr__(self, "gamma", MARGINS[self.preset])
        _check_settings(self.alpha, self.samples, self.passes)
        self._check_margin(self.gamma)

    def _check_margin(self, gamma: Any) -> None:
        if gamma is None:
            return
        if not (isinstance(gamma, int | float) and gamma > 0):
            raise ConfigError(
                f"gamma must be a positive number of nats (or None for no margin), found {gamma!r}"
            )
        ceiling = math.log(self.samples)
        if gamma < ceiling:
            return
        words = (
            f"gamma={gamma} is inert: the MI of {self.samples} draws never exceeds "
            f"ln {self.samples} = {ceiling:.4f}, so every row is below the margin. "
            "Write gamma=None for no margin, a smaller gamma or more samples"
        )
        if self.preset != "paper":
            raise ConfigError(words)
        warnings.warn(words, stacklevel=4)

    def __call__(self, model: nn.Module, x_ood: Any) -> Tensor:
        """The penalty of a batch of OOD inputs, in a forward pass of its own: a scalar.

        Args:
            model: A BayesianModel, or its DDP, FSDP2 or compiled wrapper.
            x_ood: OOD inputs: a tensor, a tuple of arguments or a dict of keywords.
        """
        inner = self._checked(model, x_ood)
        plan = self.plan(inner, count_rows((x_ood,), {}))
        return self.penalty(tensor_of(call(model, fold(x_ood, self.samples), plan=plan)))

    def objective(
        self,
        model: nn.Module,
        batch: tuple[Any, Tensor],
        x_ood: Any,
        likelihood: Categorical,
        **options: Any,
    ) -> RegularizedObjective:
        """`lb.objective` of a clean batch plus the penalty of OOD inputs, in one pass or two.

        In one pass every row has the law it has in a pass of its own. Tensors that are drawn once
        a batch (`granularity="batch"`, `estimator="shared"`) are drawn once a block of
        gcd(clean rows, OOD rows) rows: let the OOD rows divide the clean ones, as in the paper.

        Args:
            model: A BayesianModel, or its DDP, FSDP2 or compiled wrapper.
            batch: Clean inputs and targets.
            x_ood: OOD inputs of the same structure as the clean ones, about half as many.
            likelihood: A Categorical.
            options: Those of `lb.objective`: num_data, kl_weight, include_kl and so on.
        """
        _check_categorical(likelihood)
        self._checked(model, x_ood)
        if self.passes == 2:
            return RegularizedObjective(
                objective(model, batch, likelihood, **options), self(model, x_ood)
            )
        beside = _Beside(model, x_ood, self)
        clean = objective(beside, batch, likelihood, **options)
        assert beside.ood is not None
        return RegularizedObjective(clean, self.penalty(beside.ood))

    def penalty(self, logits: Tensor) -> Tensor:
        """The penalty of class logits [samples * B, C, ...], draw-major."""
        if logits.dim() < 2 or logits.shape[1] < 2:
            raise ConfigError(
                "the regulariser reads class logits in dim 1 (Categorical); found outputs of shape "
                f"{tuple(logits.shape)}"
            )
        information = mutual_information(logits.reshape(self.samples, -1, *logits.shape[1:]))
        gap = -information if self.gamma is None else (self.gamma - information).relu()  # type: ignore[operator]
        return self.alpha * gap.mean()

    def plan(self, model: BayesianModel, rows: int) -> Plan:
        """How `samples` draws of so many rows are sampled, draw-major."""
        members = model.method.index_members
        if members == 0:
            return model.training_plan(rows * self.samples, self.samples)
        # Rows enough for any assignment: only the granularity of the plan is looked at.
        if model.training_plan(self.samples * members, self.samples).per_row:
            chosen = _without_replacement(rows, members, self.samples)
            return Plan(groups=self.samples, per_row=True, component=chosen)
        blocks = self._blocks(model, rows)
        chosen = _without_replacement(blocks, members, self.samples)
        return Plan(groups=self.samples * blocks, component=chosen)

    def _blocks(self, model: BayesianModel, rows: int) -> int:
        """Blocks of OOD rows with draws of their own: as many as the clean rows of a step have.

        One pair of members for all OOD rows would leave a step's gradient to these two alone.
        """
        many = rows * model.method.index_members  # any number of blocks that rows have, these have
        clean = model.training_plan(self.samples * many, self.samples).groups // self.samples
        return even_blocks(clean, rows)

    def _checked(self, model: nn.Module, x_ood: Any) -> BayesianModel:
        inner = unwrap(model)
        if inner.likelihood is not None:
            _check_categorical(inner.likelihood)
        if not inner.method.is_random or inner.method.trains_as_point:
            raise ConfigError(
                f"every training draw of {inner.method.name} is the same network, so its MI is 0 "
                "and has no gradient: the regulariser needs a method that is random in training"
            )
        members = inner.method.index_members
        if 0 < members < self.samples:
            raise ConfigError(
                f"samples={self.samples} different members cannot be drawn from {members}: write "
                f"samples={members} or less, or give the method more members"
            )
        if count_rows((x_ood,), {}) == 0:
            raise ConfigError("the OOD batch has no rows; expected at least one")
        return inner


class _Beside(nn.Module):
    """A model that takes OOD rows along in the pass of the clean ones, and keeps their output."""

    def __init__(self, model: nn.Module, x_ood: Any, regularizer: OODRegularizer) -> None:
        super().__init__()
        self.module, self.whole = unwrap(model), model  # wrappers are looked through by `module`
        self.x_ood, self.regularizer = x_ood, regularizer
        self.ood: Tensor | None = None

    def forward(self, *args: Any, plan: Plan, **kwargs: Any) -> Tensor:
        """The output of the clean rows."""
        rows, ood_rows = count_rows(args, kwargs), count_rows((self.x_ood,), {})
        ood_plan = self.regularizer.plan(self.module, ood_rows)
        times = self.regularizer.samples
        extra = _as_arguments(fold(self.x_ood, times))
        args, kwargs = _beside((args, kwargs), extra, rows, ood_rows * times)
        both = _joined(plan, rows, ood_plan, ood_rows * times)
        output = tensor_of(self.whole(*args, plan=both, **kwargs))
        self.ood = output[rows:]
        return output[:rows]


def mutual_information(logits: Tensor) -> Tensor:
    """`H(mean_s p_s) - mean_s H(p_s)` in nats from logits [S, B, C, ...], in float32 at least.

    Example:
        >>> certain = torch.tensor([[[500.0, 0.0]], [[0.0, 500.0]]])
        >>> round(mutual_information(certain).item(), 4)
        0.6931
    """
    probs = torch.softmax(at_least_float32(logits), 2)
    return _entropy(probs.mean(0), 1) - _entropy(probs, 2).mean(0)


def _entropy(probs: Tensor, dim: int) -> Tensor:
    """Entropy with a finite gradient: that of xlogy(p, p) is 0 / 0 where p has underflown."""
    return -torch.xlogy(probs, probs.clamp_min(torch.finfo(probs.dtype).tiny)).sum(dim)


def _without_replacement(rows: int, members: int, samples: int) -> Tensor:
    """`samples` different members a row, [samples * rows], draw-major."""
    return torch.rand(rows, members).argsort(1)[:, :samples].T.reshape(-1)


def _as_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})


def _beside(clean: Any, ood: Any, rows: int, ood_rows: int) -> Any:
    """Clean rows, then OOD rows; what has no rows is taken from the clean inputs."""
    ours, shape = pytree.tree_flatten(clean)
    theirs, other = pytree.tree_flatten(ood)
    if shape != other:
        raise ConfigError(
            f"clean and OOD inputs differ in structure ({shape} and {other}): they cannot go "
            "through one forward pass; give both alike, or OODRegularizer(passes=2)"
        )

    def has_rows(x: Any, y: Any) -> bool:
        tensors = isinstance(x, Tensor) and isinstance(y, Tensor) and x.dim() > 0 and y.dim() > 0
        return tensors and x.shape[0] == rows and y.shape[0] == ood_rows

    joined = [torch.cat([x, y]) if has_rows(x, y) else x for x, y in zip(ours, theirs, strict=True)]
    return pytree.tree_unflatten(joined, shape)


def _joined(clean: Plan, rows: int, ood: Plan, ood_rows: int) -> Plan:
    """One plan for both: blocks small enough that none holds rows of two draws."""
    size = math.gcd(rows // clean.groups, ood_rows // ood.groups)
    per_row = clean.per_row or ood.per_row
    component = None
    if (clean.component is None) != (ood.component is None):
        raise ConfigError(
            "the method's training plan names no members, so that clean and OOD rows cannot share "
            "a forward pass: write OODRegularizer(passes=2)"
        )
    if clean.component is not None and ood.component is not None:
        parts = ((clean.component, rows), (ood.component, ood_rows))
        by_row = torch.cat([c.repeat_interleave(n // len(c)) for c, n in parts])
        component = by_row if per_row else by_row[::size]
    return Plan(groups=(rows + ood_rows) // size, per_row=per_row, component=component)


def _check_settings(alpha: float, samples: Any, passes: int) -> None:
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ConfigError(f"alpha must be a finite number of at least 0, found {alpha!r}")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise ConfigError(
            "samples must be a whole number of at least 2, since the MI of one draw is 0; found "
            f"{samples!r}"
        )
    if passes not in (1, 2):
        raise ConfigError(f"passes is 1 (clean and OOD rows together) or 2, found {passes!r}")


def _check_categorical(likelihood: Any) -> None:
    if not isinstance(likelihood, Categorical):
        raise ConfigError(
            "the regulariser is defined for class probabilities: expected lb.Categorical(), found "
            f"{type(likelihood).__name__}"
        )
