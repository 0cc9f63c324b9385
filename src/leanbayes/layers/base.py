"""A host: a stock layer that can hold posteriors in slots.

A layer becomes a host by changing its class in place (`layer.__class__ = BayesianLinear`). The
module object, its Parameters, its hooks, its names and every reference to it stay what they were;
turning back is the same assignment.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from leanbayes.errors import PlanError
from leanbayes.forms import Ask, Form, PerDraw, Shared
from leanbayes.plan import Scope
from leanbayes.posteriors.base import Posterior

PLAIN = Ask()


class Host(nn.Module):
    """Mixin of every convertible layer type; subclasses also inherit the stock class.

    Attributes:
        kind: What selectors call this type of layer.
        stock: The stock class whose arithmetic the host repeats.
        tensor_names: Parameters that can be random, in the order of the stock class.
        overrides: Stock methods that must not be overridden by a subclass to be convertible.
        inherits_stock: The host is a subclass of the stock class, and of a layer's own class.
        integrates: The layer can integrate noise out where it has one row a draw.
        masks_output: A slot `out_mask` multiplies what the layer gives, bias included.
        channel: Which dimension of a row counts the channels that a mask may drop as a whole.
        slots: Posteriors by the name of the tensor they stand for.
        scope: The plan of the pass under way, shared by all hosts of a model.
    """

    kind: ClassVar[str]
    stock: ClassVar[type[nn.Module]]
    tensor_names: ClassVar[tuple[str, ...]] = ("weight", "bias")
    overrides: ClassVar[tuple[str, ...]] = ("forward",)
    inherits_stock: ClassVar[bool] = True
    integrates: ClassVar[bool] = False
    masks_output: ClassVar[bool] = False
    channel: ClassVar[int | None] = -1

    slots: nn.ModuleDict
    scope: Scope

    @classmethod
    def tensors(cls, layer: nn.Module) -> dict[str, nn.Parameter]:
        """The parameters of a stock layer that may become random, by slot name."""
        own = layer._parameters
        if any(name not in own and hasattr(layer, name) for name in cls.tensor_names):
            return {}  # a tensor is computed from others (weight_norm, pruning)
        return {name: p for name in cls.tensor_names if (p := own.get(name)) is not None}

    @classmethod
    def refusal(cls, layer: nn.Module) -> str | None:  # noqa: ARG003
        """Why this layer cannot be converted, or None."""
        return None

    @classmethod
    def fixed_row(cls, layer: nn.Module) -> int | None:  # noqa: ARG003
        """A row of the weight that never is random, or None."""
        return None

    @classmethod
    def input_dim(cls, layer: nn.Module) -> int:  # noqa: ARG003
        """Which dimension of the weight counts the inputs."""
        return 1

    @classmethod
    def input_groups(cls, layer: nn.Module) -> int:  # noqa: ARG003
        """Groups whose rows of the weight count inputs of their own in dim 1."""
        return 1

    def ask(self, slot: str) -> Ask:  # noqa: ARG002
        """What the arithmetic of this layer can do with a draw of the slot, whatever the input."""
        return PLAIN

    def form(self, slot: str, ask: Ask = PLAIN) -> Form | None:
        """The tensor of a slot as the pass under way uses it; None where the layer has none."""
        posterior, scope = self._held.get(slot), self.scope
        if posterior is None:
            tensor: Tensor | None = getattr(self, slot, None)
            return None if tensor is None else Shared(tensor)
        if scope.trace is not None:
            scope.trace.append((self, slot))
        assert isinstance(posterior, Posterior)
        ready = scope.ready(posterior.key, posterior.noise_key)
        return posterior.form(self.base(slot), scope, ask) if ready is None else ready

    def base(self, slot: str) -> Tensor:
        """The tensor that a slot stands for; a factor stands for none and goes by the weight."""
        tensor: Tensor = getattr(self, slot) if self.is_tensor(slot) else self.reference
        return tensor

    def is_tensor(self, slot: str) -> bool:
        """True where the slot stands for a parameter, False where it holds factors."""
        return slot in self.tensor_names

    @property
    def reference(self) -> Tensor:
        """A tensor of the layer that tells type and device."""
        for name in self.tensor_names:
            tensor: Tensor | None = getattr(self, name)
            if tensor is not None:
                return tensor
        raise AttributeError(f"{type(self).__name__} has none of {self.tensor_names}")

    @classmethod
    def widths(cls, layer: nn.Module) -> tuple[int, int] | None:  # noqa: ARG003
        """Input and output channels that factors can scale; None where the type takes none."""
        return None

    @classmethod
    def factor_sizes(cls, layer: nn.Module) -> dict[str, int]:
        """Channels of every factor slot that the layer offers; empty where the type takes none.

        Slots on the input side of a product begin with `in_scale`, the others with `out_scale`; a
        layer of several products has a pair for each.
        """
        widths = cls.widths(layer)
        return {} if widths is None else {"in_scale": widths[0], "out_scale": widths[1]}

    def factor(self, slot: str, x: Tensor) -> Tensor | None:
        """Drawn factors of a factor slot for x: by channel [D, C], or by element.

        None where the layer has no such slot, or a mask in the mean network.
        """
        posterior = self._held.get(slot)
        if posterior is None or (self.scope.plan.mean and self.posterior(slot).by_input):
            return None
        return factor_of(self.form(slot, Ask(shape=tuple(x.shape[1:]))))

    def posterior(self, slot: str) -> Posterior:
        """The posterior in a slot."""
        posterior = self._held[slot]
        assert isinstance(posterior, Posterior)
        return posterior

    @property
    def _held(self) -> dict[str, nn.Module | None]:
        """The slots as a dict: modules look every attribute up in turns, a few times a layer."""
        slots = self._modules["slots"]
        assert slots is not None
        return slots._modules

    def rows_of(self, input: Tensor, single: int) -> Tensor:
        """The input with a batch: one of `single` dimensions has none and can take one draw."""
        if input.dim() != single:
            return input
        if self.scope.draws("row") > 1 and not self.scope.plan.mean:
            raise PlanError(
                f"{type(self).__name__} got an input of {single} dimensions without a batch, which "
                "holds one draw; expected [rows, ...]: write x.unsqueeze(0), or leave the layer "
                "out: select=~lb.select.by_name(...)"
            )
        return input.unsqueeze(0)

    @classmethod
    def reinitialise(cls, layer: nn.Module) -> bool:
        """Give a stock layer the parameters of a new one; False where nobody knows how."""
        own = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
        if own is not None:
            own()
        return own is not None

    def settle(self, member: int | None) -> None:
        """Write what a member has besides its slots into the stock layer, before turning back."""

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Multiply a factor into the stock weight."""
        raise NotImplementedError(f"{type(self).__name__} has no {slot}")

    def after_conversion(self) -> None:
        """Put right what the stock class would have kept up; the class has just changed."""

    @classmethod
    def after_reversal(cls, layer: nn.Module) -> None:
        """Put right what the stock class keeps; the layer has just got its class back."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle and copy by the classes: the joint class of a subclass has no import path."""
        host, layer, inside = type(self).__dict__.get("origin", (type(self), None, False))
        return _blank, (host, layer, inside), self.__dict__.copy()


def factor_of(form: Form | None) -> Tensor:
    """The values of a drawn factor, [D, ...]."""
    if isinstance(form, Shared):
        return form.value.unsqueeze(0)
    if isinstance(form, PerDraw):
        return form.value
    raise TypeError(f"a factor cannot take the form {type(form).__name__}")


def joint_class(host: type[Host], layer: type[nn.Module], inside: bool = False) -> type[nn.Module]:
    """The class that a layer of type `layer` takes as a host.

    Args:
        host: The host.
        layer: The layer's own class.
        inside: The layer's own forward stays, and the host answers where it calls super's.
    """
    if layer is host.stock:
        return host
    origin = (host, layer, inside)
    for known in host.__subclasses__():  # one class a type, as torch.compile guards on it
        if known.__dict__.get("origin") == origin:
            return known
    name = f"Bayesian{layer.__name__}"
    parents = (layer, host) if inside else (host, layer) if host.inherits_stock else (host,)
    return type(name, parents, {"origin": origin, "__module__": layer.__module__})


def original_class(host: Host) -> type[nn.Module]:
    """The class that the layer had before conversion."""
    origin = type(host).__dict__.get("origin")
    return type(host).stock if origin is None else origin[1]


def original_name(layer: nn.Module) -> str:
    """Name of the class that a layer has, or had before conversion."""
    return (original_class(layer) if isinstance(layer, Host) else type(layer)).__name__


def _blank(host: type[Host], layer: type[nn.Module] | None, inside: bool = False) -> nn.Module:
    cls = host if layer is None else joint_class(host, layer, inside)
    blank: nn.Module = cls.__new__(cls)
    return blank
