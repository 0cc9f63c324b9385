"""A network with posteriors in its layers: the object that users train, call and save."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from leanbayes.ahead import (
    Sites,
    drawn_by_key,
    drawn_together,
    in_groups,
    may_join,
    shared_noise,
)
from leanbayes.calibration import Calibration
from leanbayes.devices import device_of
from leanbayes.errors import ConfigError, PlanError
from leanbayes.layers.base import Host
from leanbayes.linearise import linearised
from leanbayes.methods.assignment import in_turn
from leanbayes.methods.base import Method
from leanbayes.plan import MEAN, Plan, Scope, count_rows, tensors_in
from leanbayes.posteriors.base import Posterior
from leanbayes.posteriors.shards import whole
from leanbayes.report import ConversionReport
from leanbayes.surgery import Flag, posteriors


class BayesianModel(nn.Module):
    """Your network, its Parameters and keys, plus posteriors and a sampling plan a call.

    `model(x)` in `train()`: one draw of the method's training plan, as many rows out as in. In
    `eval()`: the mean network, every slot at its location. For mixtures that is neither the
    predictive nor a member: use `lb.predict`. An explicit `plan=` always wins.

    Attributes:
        net: The network, converted in place; `net.state_dict()` has its keys plus `.slots.`.
        method: The method's configuration.
        report: What was converted, what was not and why.
        likelihood: The likelihood that was fitted or loaded with the model, if any.
        calibration: What `lb.calibrate` found, if it was called.
        fingerprint: sha256 of every tensor of the network when it was converted.
        flags: Attributes of the network that conversion changed.
    """

    net: nn.Module
    likelihood: nn.Module | None
    calibration: Calibration | None = None
    # Hugging Face's Trainer asks whether a loss spans the parts of an accumulated batch; where the
    # answer was yes, for the **kwargs of forward, means of parts were summed and not averaged.
    accepts_loss_kwargs: bool = False

    def __init__(
        self,
        net: nn.Module,
        method: Method,
        scope: Scope,
        report: ConversionReport,
        *,
        likelihood: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.net = net
        self.method = method
        self.scope = scope
        self.report = report
        self.likelihood = likelihood
        self.fingerprint: dict[str, str] = {}
        self.flags: list[Flag] = []
        self.shared: list[tuple[Host, str]] = []
        self._edits: list[weakref.ref[Any]] = []
        self._ahead: list[Sites] = []
        self._drawing = [
            (host, slot)
            for host, slot, q, _ in posteriors(net)
            if not (q.by_input or (host.integrates and q.integrates))
        ]
        # True where a host keeps time, not rows, in dim 0: one pass then holds one draw.
        self.sequence_first = any(is_sequence_first(m) for m in net.modules())
        self.training = net.training

    def forward(self, *args: Any, plan: Plan | None = None, **kwargs: Any) -> Any:
        """Run the network under a plan; without one see the class."""
        rows = count_rows(args, kwargs)
        if plan is None:
            plan = self.training_plan(rows) if self.training and rows else MEAN
        if plan.mean or not self.method.linearised:
            output = self._entered(plan, rows, args, kwargs)
        else:
            output = linearised(lambda: self._entered(plan, rows, args, kwargs))
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._recall_in_backward(output)
        self.leave()
        return output

    def _entered(self, plan: Plan, rows: int, args: Any, kwargs: dict[str, Any]) -> Any:
        self.enter(plan, rows)
        return self.net(*args, **kwargs)

    def leave(self) -> None:
        """End a pass: what was drawn for it is free to go with its graph."""
        self.scope.visited, self.scope.ahead = None, {}

    def _recall_in_backward(self, output: Any) -> None:
        """Set the scope of this pass again before its blocks are recomputed, if they are.

        Two passes may precede one backward pass (a regulariser on other inputs, say).
        """
        scope = self.scope
        state = scope.state()

        def recall(_grad: Tensor) -> None:
            scope.recall(state)

        for tensor in tensors_in(output):
            if tensor.grad_fn is not None:
                tensor.register_hook(recall)  # type: ignore[no-untyped-call]

    def enter(self, plan: Plan, rows: int) -> None:
        """Set the scope for one pass; it stays until the next, so that backward can recompute."""
        plan.check(rows)
        if self.sequence_first and not plan.mean and (plan.groups > 1 or plan.per_row):
            raise PlanError(
                "a layer with batch_first=False keeps no rows in dim 0, so one pass holds one "
                f"draw: expected Plan(groups=1), found groups={plan.groups}, "
                f"per_row={plan.per_row}"
            )
        scope = self.scope
        scope.on_host, scope.member = plan.component, _only_member(plan.component)
        scope.device = None if scope.member is None else device_of(self.net)
        scope.plan, scope.rows = self._with_members(plan), rows
        scope.shared, scope.visited, scope.orders, scope.ahead = {}, set(), {}, {}
        scope.traced = torch.compiler.is_compiling()
        self._draw_on_entry()

    def _draw_on_entry(self) -> None:
        """What layers do not draw in their turn: a keyed sample, shared noise, short tensors."""
        scope, plan = self.scope, self.scope.plan
        if self._ahead and plan.noise is not None and plan.groups == 1:
            scope.ahead = drawn_by_key(self._ahead, scope)
        if not plan.mean and plan.noise is None:
            shared = [(host, slot, host.posterior(slot)) for host, slot in self.shared]
            # Every call of a mask is a draw of its own.
            sites = [(q, host.base(s), host.ask(s)) for host, s, q in shared if not q.by_input]
            scope.shared = shared_noise(sites, scope)
        if may_join(scope) and not is_sharded(self):
            scope.graph = torch.is_grad_enabled()
            drawing = [(host.posterior(slot), host.base(slot)) for host, slot in self._drawing]
            scope.ahead = drawn_together(drawing, scope)

    def _with_members(self, plan: Plan) -> Plan:
        """The plan with its members on the device; members in random order where it names none."""
        component, members = plan.component, self.method.index_members
        if plan.mean or not (members or component is not None):
            return plan
        if self.scope.member is not None and plan.noise is not None:
            return plan  # layers know the member: it is copied for those alone that ask
        if component is None:
            fresh = plan.noise is None
            component = (
                in_turn(members, plan.groups) if fresh else torch.arange(plan.groups) % members
            )
        return replace(plan, component=component.to(device_of(self.net)))

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:
        """The method's training plan for so many rows, `samples` repetitions included."""
        if self.sequence_first:
            fixed = not self.method.is_random or self.method.trains_as_point
            return MEAN if fixed else Plan(groups=samples)
        return self.method.training_plan(rows, samples, step)

    @contextmanager
    def sampling(self, plan: Plan) -> Iterator[nn.Module]:
        """Run methods of the network itself (`generate`, say) under a plan without `per_row`.

        Every call draws anew, unless the plan's noise is keyed:
        `model.method.prediction_plan([s], KeyedNoise(seed, [s]))` is sample s of `lb.predict`.

        Example:
            >>> import leanbayes as lb, torch
            >>> from leanbayes.noise import KeyedNoise
            >>> model = lb.bayesianize(torch.nn.Linear(2, 1), lb.MeanField())
            >>> plan, x = model.method.prediction_plan([0], KeyedNoise(0, [0])), torch.zeros(3, 2)
            >>> with model.sampling(plan) as net:
            ...     torch.equal(net(x), net(x))
            True
        """
        if plan.per_row:
            raise PlanError("sampling() cannot know the rows of a call: use groups, not per_row")
        self.enter(plan, 0)
        self.leave()
        try:
            yield self.net
        finally:
            self.scope.plan = MEAN

    @contextmanager
    def under(self, plan: Plan) -> Iterator[None]:
        """Within it layers that are called one by one follow another plan for the same rows."""
        scope = self.scope
        before = scope.plan, scope.ahead
        scope.plan, scope.ahead = plan, {}
        try:
            yield
        finally:
            scope.plan, scope.ahead = before

    @contextmanager
    def drawing_ahead(self) -> Iterator[None]:
        """Within it a pass of one keyed sample draws all of its tensors on entry.

        In one go that is cheaper than in turns with the layers, at the price of a second copy of
        the parameters.
        """
        self._ahead = in_groups([(q, b) for _, _, q, b in self.posteriors() if not q.by_input])
        try:
            yield
        finally:
            self._ahead, self.scope.ahead = [], {}

    def posteriors(self) -> Iterator[tuple[Host, str, Posterior, Tensor]]:
        """Every posterior once: host, slot, posterior, tensor."""
        return posteriors(self.net)

    def kl(self) -> Tensor:
        """The KL of the whole network, summed, never averaged; `kl_kind` says what it is exactly.

        A float64 scalar with a gradient: sums a tensor in float32, the total in float64.
        """
        with without_autocast(self):
            return self.kl_of([(q, base) for _, _, q, base in self.posteriors()])

    def kl_of(self, sites: Sequence[tuple[Posterior, Tensor]]) -> Tensor:
        """The part of the KL that these posteriors contribute.

        Terms of members ([K], or [K, K] for pairwise bounds) are summed over tensors first and
        reduced then: one index for the whole network counts once.
        """
        total = torch.zeros((), dtype=_widest(self.net), device=device_of(self.net))
        by_member: dict[int, Tensor] = {}
        for posterior, base in sites:
            terms = posterior.kl(base)
            terms = whole(terms).to(total.dtype)
            if terms.dim() == 0:
                total = total + terms
            else:
                by_member[posterior.composed] = by_member.get(posterior.composed, 0) + terms
        for part, terms in by_member.items():
            total = total + self.method.reduce_kl(terms, part)
        return total

    @property
    def kl_kind(self) -> str:
        """`exact`, `bound`, `cross_entropy` or `none`."""
        return self.method.kl_kind

    def note_edit(self, handle: Any) -> None:
        """Remember that an optimiser adds the KL gradients (`lb.attach_kl`)."""
        self._edits.append(weakref.ref(handle))

    @property
    def kl_attached(self) -> bool:
        """True while a gradient edit of this very model is attached to a living optimiser."""
        return bool(self.edits())

    def edits(self) -> list[Any]:
        """The attached edits of this very model, one an optimiser."""
        handles = [reference() for reference in self._edits]
        own = [h for h in handles if h is not None and h.attached and h.model is self]
        return [h for h in own if h.optimizer() is not None]

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise ConfigError(
            "nn.DataParallel runs copies of a model in threads, and all of them would follow one "
            "plan: expected one process a GPU with DistributedDataParallel, found DataParallel. "
            "Start the script by torchrun, or show it one GPU (CUDA_VISIBLE_DEVICES=0)"
        )

    def __getstate__(self) -> dict[str, Any]:
        # Weak references neither pickle nor belong to a copy.
        return {**super().__getstate__(), "_edits": []}  # type: ignore[no-untyped-call]


def _only_member(component: Tensor | None) -> int | None:
    """The component, where there is one and reading it makes nobody wait."""
    if component is None or len(component) != 1 or torch.compiler.is_compiling():
        return None
    return int(component) if component.device.type == "cpu" else None


def unwrap(model: nn.Module) -> BayesianModel:
    """The BayesianModel inside DDP, FSDP2 or torch.compile wrappers."""
    inner: Any = model
    while not isinstance(inner, BayesianModel):
        found = getattr(inner, "module", None)  # compiled modules have a length and no truth
        inner = getattr(inner, "_orig_mod", None) if found is None else found
        if inner is None:
            raise TypeError(
                f"expected a BayesianModel, found {type(model).__name__}; write "
                "model = lb.bayesianize(net, lb.MeanField()) first"
            )
    return inner


def is_sequence_first(module: nn.Module) -> bool:
    """True for a layer that keeps time in dim 0, and with it all layers beside it."""
    return getattr(module, "batch_first", True) is False


def _has_group() -> bool:
    """True where processes work together; without them nothing is sharded."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def reshard(model: nn.Module) -> None:
    """Put FSDP2's parameters back into shards: its root stays gathered after a forward pass.

    An optimiser and an average hold the shards: gathered parameters are strangers to the one, and
    would not show what the other writes.
    """
    if _has_group():
        for module in sharded_modules(model):
            module.reshard()


def is_sharded(model: nn.Module) -> bool:
    """True under FSDP2, where only whole modules may be called."""
    return _has_group() and any(True for _ in sharded_modules(model))


def sharded_modules(model: nn.Module) -> Iterator[Any]:
    """The modules that FSDP2's `fully_shard` was called on."""
    return (m for m in model.modules() if hasattr(type(m), "set_reshard_after_forward"))


def without_autocast(model: BayesianModel) -> AbstractContextManager[Any]:
    """For sums over parameters, of which products of half precision would lose digits."""
    return torch.autocast(device_of(model.net).type, enabled=False)


def _widest(net: nn.Module) -> torch.dtype:
    return torch.float32 if device_of(net).type == "mps" else torch.float64
