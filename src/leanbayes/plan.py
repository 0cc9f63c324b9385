"""How one forward pass is sampled, and the object that carries it to the layers.

Rows are `[groups, R]`, draw-major, folded into dim 0: `x.reshape(groups, R, ...)`. Contiguous
groups survive everything that splits rows further (windows, patches), which a row index would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from leanbayes.errors import PlanError
from leanbayes.forms import Form, Order, order_of
from leanbayes.noise import FreshNoise, NoiseSource

Granularity = Literal["row", "batch"]


@dataclass(frozen=True, eq=False)
class Plan:
    """How one forward pass is sampled.

    Attributes:
        groups: Equal contiguous blocks of dim 0; each is one sample.
        component: Mixture component of each group (or of each row), for methods with members.
        mean: No noise: every slot at its location.
        per_row: Row-granular slots draw once a row (training) instead of once a group.
        noise: Where the numbers come from; None is the global generator.

    Example:
        >>> import leanbayes as lb
        >>> lb.Plan(groups=4).groups
        4
    """

    groups: int = 1
    component: Tensor | None = None
    mean: bool = False
    per_row: bool = False
    noise: NoiseSource | None = None

    def __post_init__(self) -> None:
        if isinstance(self.groups, bool) or self.groups < 1:
            raise PlanError(f"groups must be a whole number of at least 1, found {self.groups!r}")

    def check(self, rows: int) -> None:
        """Raise unless `rows` can be cut into the plan's groups."""
        if rows % self.groups != 0:
            raise PlanError(
                f"{rows} rows cannot be cut into {self.groups} equal groups. Rows are draw-major "
                f"[groups, R]: repeat a batch of B rows as x.repeat(groups, 1, ...), or write "
                f"Plan(groups=g) with a g that divides {rows}"
            )
        if self.component is not None and len(self.component) not in (self.groups, rows):
            raise PlanError(
                f"component has {len(self.component)} entries; expected one a group "
                f"({self.groups}) or one a row ({rows})"
            )
        if self.component is not None and not self.per_row and len(self.component) != self.groups:
            raise PlanError(
                f"component has {rows} entries, one a row, but slots draw once a group: write "
                "Plan(..., per_row=True)"
            )


Run = Callable[[Plan, int], Any]  # (plan, samples in it) -> outputs of the folded rows

MEAN = Plan(mean=True)
FRESH = FreshNoise()
# Fields of a scope that a recomputation in backward must find as its forward pass did.
READ_BY_LAYERS = ("plan", "rows", "shared", "on_host", "member", "orders", "ahead", "device")


class Drawn(NamedTuple):
    """Raw noise of one tensor: values, and the sign pair of Flipout where it is used."""

    values: Tensor
    sign0: Tensor | None = None
    sign1: Tensor | None = None


@dataclass(eq=False)
class Scope:
    """The plan of the forward pass under way; one a model, shared by all of its hosts.

    Only `BayesianModel` writes it, on entry; recomputation in backward (activation checkpointing)
    therefore still sees the plan of its forward.

    Attributes:
        plan: How the pass is sampled.
        rows: Size of dim 0 of the model's input.
        shared: Noise of tensors that are used more than once in a pass, drawn on entry.
        visited: Tensors drawn so far; None outside a pass.
        trace: Where a list, hosts note every use of a slot in it (the liveness check).
        ahead: Tensors that were drawn on entry, by key.
        graph: Gradients were on then.
        on_host: The plan's components where they were made, before they went to the device.
        member: The one component of all draws of a pass, where it is known beforehand.
        device: Where that component goes if a layer asks for it as a tensor.
        orders: Draws sorted by component, by their number.
        traced: The whole pass is in one compiled graph, not only blocks of it.
    """

    plan: Plan = MEAN
    rows: int = 0
    shared: dict[str, Drawn] = field(default_factory=dict)
    visited: set[str] | None = None
    trace: list[tuple[torch.nn.Module, str]] | None = None
    traced: bool = False
    ahead: dict[str, Form] = field(default_factory=dict)
    graph: bool = False
    on_host: Tensor | None = None
    member: int | None = None
    device: torch.device | None = None
    orders: dict[int, Order] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        # What a pass has drawn hangs in its graph and belongs to no copy.
        return {**self.__dict__, "ahead": {}}

    def draws(self, granularity: Granularity) -> int:
        """How many draws a slot of this granularity takes in this pass."""
        return self.rows if granularity == "row" and self.plan.per_row else self.plan.groups

    def component(self, granularity: Granularity) -> Tensor | None:
        """The mixture component of each draw of such a slot; None where the plan names none."""
        component = self.plan.component
        if component is None:
            return None
        if self.member is not None and component.device != self.device:
            component = component.to(self.device)
            self.plan = replace(self.plan, component=component)
        return _spread(component, self.draws(granularity))

    def order(self, granularity: Granularity) -> Order | None:
        """The draws of such a slot sorted by component: once a pass, whatever the layers."""
        component = self.plan.component
        if component is None or torch.compiler.is_compiling():
            return None
        draws = self.draws(granularity)
        if draws not in self.orders:
            on_host = component if self.on_host is None else self.on_host
            self.orders[draws] = order_of(_spread(on_host, draws), component.device)
        return self.orders[draws]

    def state(self) -> dict[str, Any]:
        """What layers read of the pass under way, to be set again by `recall`."""
        return {name: getattr(self, name) for name in READ_BY_LAYERS}

    def recall(self, state: Mapping[str, Any]) -> None:
        """Go back to a pass, as recomputation in its backward pass does."""
        for name, value in state.items():
            setattr(self, name, value)

    @property
    def source(self) -> NoiseSource:
        """Where this pass takes its random numbers from."""
        return FRESH if self.plan.noise is None else self.plan.noise

    @property
    def estimating(self) -> bool:
        """True where an estimator may replace explicit draws: never in prediction."""
        return self.plan.noise is None

    def taken(self, key: str) -> Drawn | None:
        """The noise of a tensor that this pass uses more than once."""
        # Compiled blocks are alike as long as none looks at its own name.
        return self.shared.get(key) if self.shared else None

    def ready(self, key: str, noise_key: str) -> Form | None:
        """What was drawn on entry; None where the layer has to draw itself."""
        if (torch.compiler.is_compiling() and not self.traced) or not self.ahead:
            return None  # a compiled block must not look at its own name
        form = self.ahead.get(key)
        if form is None or self.plan.noise is not None:
            return form
        if self.graph and not torch.is_grad_enabled():
            # A block that will be computed again in backward (reentrant checkpointing): the graph
            # of a joint draw would be walked twice, so the block draws itself, both times.
            self.ahead = {k: f for k, f in self.ahead.items() if k != key}
            return None
        self.visit(noise_key)
        return form

    def visit(self, key: str) -> None:
        """Note that the slot `key` draws; two fresh draws in one pass would be a wrong law."""
        if torch.compiler.is_compiling() and not self.traced:  # a graph must fit any block
            return
        if self.visited is None or self.plan.noise is not None or key in self.shared:
            return
        if key in self.visited:
            raise PlanError(
                f"the layer of '{key}' ran twice in one forward pass, and two independent draws "
                "would be a wrong law. Convert with an example batch, bayesianize(net, method, "
                "example=x): both calls then use one draw"
            )
        self.visited.add(key)


def _spread(component: Tensor, draws: int) -> Tensor:
    """Components of groups or rows as components of so many draws."""
    if len(component) == draws:
        return component
    if draws % len(component) == 0:  # components of groups, draws of rows
        return component.repeat_interleave(draws // len(component))
    return component[:: len(component) // draws]


def count_rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Size of dim 0 of the first tensor among the inputs."""
    if any(isinstance(arg, PackedSequence) for arg in (*args, *kwargs.values())):
        raise PlanError(
            "a PackedSequence keeps no rows in dim 0: give padded rows and their lengths to the "
            "network, and pack in its forward"
        )
    if args and isinstance(args[0], Tensor) and args[0].dim() > 0:
        return args[0].shape[0]
    leaves = pytree.tree_leaves(([as_dict(arg) for arg in args], kwargs))
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.dim() > 0:
            return leaf.shape[0]
    found = ", ".join(sorted({type(leaf).__name__ for leaf in leaves}))
    raise PlanError(
        f"no tensor with a batch dimension among the inputs ({found}); expected rows in dim 0. "
        "Write torch.from_numpy(array) for arrays, x[None] for a single number"
    )


def fold(inputs: Any, times: int) -> Any:
    """Repeat every row `times` times, draw-major (row t * B + b is example b of draw t).

    The one layout helper of the library: any pytree of tensors. Leaves whose dim 0 is not the
    number of rows of the first tensor (a mask of positions, say) pass through.
    """
    if times == 1:
        return inputs
    inputs = as_dict(inputs)
    rows = count_rows((inputs,), {})

    def repeated(x: Tensor) -> Tensor:
        has_rows = x.dim() > 0 and x.shape[0] == rows
        return x.repeat(times, *(1,) * (x.dim() - 1)) if has_rows else x

    return pytree.tree_map_only(Tensor, repeated, inputs)


def tensors_in(tree: Any) -> list[Tensor]:
    """All tensors of inputs or outputs; pytrees do not look into a dataclass."""
    found: list[Tensor] = []
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += tensors_in([getattr(leaf, entry.name) for entry in fields(leaf)])
    return found


def unfold(outputs: Any, times: int) -> Any:
    """The inverse view: `[times * B, ...]` becomes `[times, B, ...]`."""
    return pytree.tree_map_only(Tensor, lambda x: x.reshape(times, -1, *x.shape[1:]), outputs)


def as_dict(inputs: Any) -> Any:
    """Keywords in a mapping that is no dict (a tokenizer's `BatchEncoding`) as a dict.

    Pytrees know exactly that class: of another one no tensor would be moved, repeated or cut.
    """
    return dict(inputs) if isinstance(inputs, Mapping) else inputs


def call(module: torch.nn.Module, inputs: Any, **kwargs: Any) -> Any:
    """Call a module with a tensor, a tuple of arguments or a dict of keyword arguments."""
    if isinstance(inputs, Mapping):
        return module(**inputs, **kwargs)
    if isinstance(inputs, (tuple, list)):
        return module(*inputs, **kwargs)
    return module(inputs, **kwargs)
