"""The KL as an edit of the gradients, like weight decay: nothing of it is in the graph."""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

import torch
from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.model import BayesianModel, reshard, unwrap, without_autocast
from leanbayes.objective import checked_num_data
from leanbayes.posteriors.base import Editable, Posterior, gradient_of
from leanbayes.posteriors.shards import local_part

Schedule = Callable[[int], float]
STEPS = "kl_steps"


class KLEdit:
    """The handle of an attached edit.

    Attributes:
        kl_weight: A number, or a function of the number of steps taken; may be set at any time.
        attached: False after `remove()`, and once another optimiser has taken the KL over.
        optimizer: A weak reference to the optimiser whose step is edited.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, model: BayesianModel, num_data: int
    ) -> None:
        self.model = model
        self.num_data = num_data
        self.optimizer = weakref.ref(optimizer)  # which holds this edit by its hook
        self.kl_weight: float | Schedule = 1.0
        self.attached = True
        self._count = _free_name(optimizer)
        # Tensors are looked up at every step (FSDP2 exchanges them), layers stay what they are.
        self._sites = [(host, slot, q) for host, slot, q, _ in model.posteriors()]
        self._hook = optimizer.register_step_pre_hook(self._before_step)

    @property
    def steps(self) -> int:
        """Steps edited so far, without those that a GradScaler left out.

        The optimiser keeps the number, in its first group: with `optimizer.state_dict()` it is
        saved and loaded, and a schedule of the KL goes on where it was.
        """
        optimizer = self.optimizer()
        return 0 if optimizer is None else int(optimizer.param_groups[0].get(self._count, 0))

    @steps.setter
    def steps(self, steps: int) -> None:
        optimizer = self.optimizer()
        if optimizer is not None:
            optimizer.param_groups[0][self._count] = steps

    def weight(self) -> float:
        """The weight of the KL at this step."""
        return self.kl_weight(self.steps) if callable(self.kl_weight) else self.kl_weight

    @property
    def managed(self) -> set[int]:
        """Identities of the parameters that the optimiser holds now."""
        optimizer = self.optimizer()
        return set() if optimizer is None else _held(optimizer)

    def remove(self) -> None:
        """Take the edit off the optimiser; the next one counts from 0."""
        self._hook.remove()
        self.attached = False
        optimizer = self.optimizer()
        if optimizer is not None:
            optimizer.param_groups[0].pop(self._count, None)

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        """Edit now, or behind a closure: it makes the gradients anew, inside the step."""
        if not self.attached:
            raise ConfigError(
                "another optimiser adds the KL of these parameters since lb.attach_kl was called "
                "for it, and this one would step without: attach to this one again, or call "
                "handle.remove() if it shall"
            )
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._edit(optimizer)
            return None

        def edited() -> Any:
            loss = closure()
            self._edit(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": edited}

    def _edit(self, optimizer: torch.optim.Optimizer) -> None:
        _refuse_scaled(optimizer)
        if _is_left_out(optimizer):
            return
        reshard(self.model)
        if self.steps == 0:
            _warn_of_still_spreads(self.model)
            _warn_of_the_mean_network(self.model)
        scale = self.weight() / self.num_data
        managed = _held(optimizer)

        def editable(parameter: Tensor) -> bool:
            return parameter.requires_grad and id(parameter) in managed

        with without_autocast(self.model):
            self._add(scale, editable)
        self.steps += 1

    def _add(self, scale: float, editable: Editable) -> None:
        """The gradients of all posteriors, those of a kind together."""
        by_type: dict[type[Posterior], list[tuple[Posterior, Tensor]]] = defaultdict(list)
        for host, slot, posterior in self._sites:
            by_type[type(posterior)].append((posterior, host.base(slot)))
        for kind, sites in by_type.items():
            if closed := [site for site in sites if site[0].closed_form]:
                kind.add_kl_grads(closed, scale, editable)
        every = [site for sites in by_type.values() for site in sites]
        self._add_by_autograd([s for s in every if not s[0].closed_form], scale, editable)

    def _add_by_autograd(
        self, sites: list[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """The other laws: one small graph over the parameters alone, once a step."""
        tensors = {id(p): p for q, base in sites for p in (base, *q.parameters()) if editable(p)}
        if not tensors:
            return
        targets = list(tensors.values())
        with torch.enable_grad():
            total = self.model.kl_of(sites)
            if not total.requires_grad:  # points without a prior
                return
            grads = torch.autograd.grad(total, targets, allow_unused=True)
        for target, grad in zip(targets, cast("Sequence[Tensor | None]", grads), strict=True):
            if grad is not None:
                gradient_of(target).add_(grad.to(target.dtype), alpha=scale)


def attach_kl(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    *,
    num_data: int | None = None,
    kl_weight: float | Schedule = 1.0,
) -> KLEdit:
    """Add the gradient of `kl_weight * KL / num_data` before every step of the optimiser.

    Your loss is then the negative log-likelihood alone: `lb.objective(..., include_kl=False)`. The
    gradients equal those of `lb.objective` with the KL, at a few element-wise operations a step for
    Gaussians, and nothing of the KL is in the graph. The edit comes once a step, after all-reduce,
    accumulation, unscaling and clipping (and after the closure, if `step` has one). If several
    optimisers share the parameters out (one for weights, one for scales), attach to each: each adds
    the KL of its own parameters, at the values they have when it steps. One that holds parameters
    of another takes the KL over, as the optimiser of a second fit does; if the first one steps
    nevertheless, it raises.

    One that holds another optimiser (SAM, Lookahead, that of accelerate or Lightning) is edited
    where the inner one steps, as its weight decay is.

    Args:
        optimizer: Any torch optimiser that holds (some of) the model's parameters.
        model: The BayesianModel or its wrapper.
        num_data: Size of the training set, `len(train_set)`; not the batch size.
        kl_weight: A number, or a function of the step such as those of `lb.schedule`.

    Returns:
        A handle: `handle.kl_weight` may be set, `handle.remove()` detaches.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> opt = torch.optim.SGD(lb.param_groups(model, lr=1e-3))
        >>> handle = lb.attach_kl(opt, model, num_data=50_000)
    """
    inner = unwrap(model)
    reshard(inner)
    optimizer = _stepping(optimizer)
    count = checked_num_data(num_data)
    _check_managed(optimizer, inner)
    _take_over(optimizer, inner)
    handle = KLEdit(optimizer, inner, count)
    handle.kl_weight = kl_weight
    inner.note_edit(handle)
    return handle


def _stepping(optimizer: Any) -> torch.optim.Optimizer:
    """The optimiser that moves the parameters: the hook of one around it may never be called."""
    parts = getattr(optimizer, "__dict__", {}).values()
    inner = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
    wraps = len(inner) == 1 and hasattr(optimizer, "param_groups")
    # One that holds some of the parameters (those of a process, say) is no stand-in for all.
    if wraps and _held(inner[0]) == _held(optimizer):
        return _stepping(inner[0])
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise ConfigError(
            f"attach_kl takes an optimiser of torch, found {type(optimizer).__name__}, which has "
            "no hook before its step. Write attach_kl of the optimiser (or one by one of the "
            "optimisers) that it was made of"
        )
    own: torch.optim.Optimizer = optimizer
    return own


def _edits_on(optimizer: torch.optim.Optimizer) -> list[KLEdit]:
    hooks: Any = optimizer._optimizer_step_pre_hooks.values()
    edits = [getattr(hook, "__self__", None) for hook in hooks]
    return [edit for edit in edits if isinstance(edit, KLEdit)]


def _free_name(optimizer: torch.optim.Optimizer) -> str:
    """What a count of steps is kept under: edits of several models may be on one optimiser."""
    taken = {edit._count for edit in _edits_on(optimizer)}
    names = (f"{STEPS}_{number}" if number else STEPS for number in count())
    return next(name for name in names if name not in taken)


def _held(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


CURE = "build it after bayesianize: torch.optim.SGD(lb.param_groups(model, lr=...))"


def _check_managed(optimizer: torch.optim.Optimizer, model: BayesianModel) -> None:
    """The optimiser adds to losses, holds random parameters, and has no edit of the model yet."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ConfigError(
            "LBFGS compares losses, in which the KL would lack: keep it in the graph, "
            "lb.objective(..., num_data=len(train_set)), and attach nothing"
        )
    if any(group.get("maximize") for group in optimizer.param_groups):
        raise ConfigError(
            "an optimiser with maximize=True would make the KL grow, for it is added as to a loss: "
            "leave maximize out and write loss = -log-likelihood"
        )
    if any(edit.optimizer() is optimizer for edit in model.edits()):
        raise ConfigError(
            "the KL edit is attached already and would count twice: handle.remove() comes first"
        )
    own = {key for key, p in _random(model).items() if p.requires_grad}  # frozen ones need none
    if own and not own & _held(optimizer):
        raise ConfigError(f"the optimiser holds none of the model's random parameters; {CURE}")


def _random(model: BayesianModel) -> dict[int, nn.Parameter]:
    """The parameters that the KL acts on, by identity; a mask has none."""
    random = (p for _, _, q, base in model.posteriors() for p in (base, *q.parameters()))
    return {id(p): p for p in random if isinstance(p, nn.Parameter)}


def _take_over(optimizer: torch.optim.Optimizer, model: BayesianModel) -> None:
    """End what would count twice: edits of optimisers that hold some of the same parameters.

    They are those of a fit that is over, or of a cell of a notebook that runs again, kept alive by
    a trainer or a schedule of rates. One that steps on nevertheless raises.
    """
    for edit in _edits_on(optimizer):
        if edit.model is model:  # it was taken over before
            edit.remove()
    shared = _random(model).keys() & _held(optimizer)
    for edit in model.edits():
        if shared & edit.managed:
            edit.attached = False


def _warn_of_still_spreads(model: BayesianModel) -> None:
    """Optimisers that were built before the conversion know the network's parameters alone.

    Asked at the first step: until then another optimiser may be attached that holds the rest.
    """
    added = {id(p) for _, _, q, _ in model.posteriors() for p in q.parameters() if p.requires_grad}
    if added and not any(added & edit.managed for edit in model.edits()):
        warnings.warn(
            f"the optimiser holds none of the {len(added)} parameters that the conversion added: "
            f"the spread of the posterior stays as it is; {CURE}. If it shall stay, give these "
            "parameters requires_grad_(False)",
            stacklevel=2,
        )


def _warn_of_the_mean_network(model: BayesianModel) -> None:
    """A loss without draws teaches spreads nothing: they follow the KL up to their prior.

    Asked of the pass before the first step, whatever called the layers, and while no edit has made
    gradients of its own. Gradients of 0 are of no loss: distributed checkpoints take such a step to
    make the optimiser's state.
    """
    draws = model.method.is_random and not model.method.trains_as_point
    first = all(edit.steps == 0 for edit in model.edits())
    if draws and first and model.scope.plan.mean and _has_gradient(model.net):
        mode = "train()" if model.training else "eval()"
        warnings.warn(
            "the loss of this step is that of the mean network, without a draw, so that what the "
            f"method added learns from the KL alone (found the model in {mode}). Call the model "
            "that bayesianize returned, not the network inside, and in train(): model.train()",
            stacklevel=2,
        )


def _has_gradient(net: nn.Module) -> bool:
    grads = (local_part(p.grad) for p in net.parameters() if p.grad is not None)
    return any(bool(grad.any()) for grad in grads)


def _refuse_scaled(optimizer: torch.optim.Optimizer) -> None:
    """A fused optimiser unscales inside `step`, where the edit would shrink with the scale."""
    if getattr(optimizer, "grad_scale", None) is not None:
        raise ConfigError(
            "the gradients are still scaled by GradScaler and this fused optimiser unscales them "
            "inside step(), so the KL edit would vanish. Call scaler.unscale_(optimizer) before "
            "scaler.step(optimizer)"
        )


def _is_left_out(optimizer: torch.optim.Optimizer) -> bool:
    """A fused optimiser is called where a GradScaler found infinities, and does nothing then."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
