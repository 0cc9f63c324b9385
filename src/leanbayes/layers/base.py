"""A host: a stock layer that can hold posteriors in slots.

A layer becomes a host by changing its class in place (`layer.__class__ = BayesianLinear`). The
module object, its Parameters, its hooks, its names and every reference to it stay what they were;
turning back is the same assignment.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

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
        slots: Posteriors by the name of the tensor they stand for.
        scope: The plan of the pass under way, shared by all hosts of a model.
    """

    kind: ClassVar[str]
    stock: ClassVar[type[nn.Module]]
    tensor_names: ClassVar[tuple[str, ...]] = ("weight", "bias")
    overrides: ClassVar[tuple[str, ...]] = ("forward",)

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

    def ask(self, slot: str) -> Ask:  # noqa: ARG002
        """What the arithmetic of this layer can do with a draw of the slot, whatever the input."""
        return PLAIN

    def form(self, slot: str, ask: Ask = PLAIN) -> Form | None:
        """The tensor of a slot as the pass under way uses it; None where the layer has none."""
        posterior, scope = self.slots._modules.get(slot), self.scope
        if posterior is None:
            tensor: Tensor | None = getattr(self, slot, None)
            return None if tensor is None else Shared(tensor)
        if scope.ahead and not posterior.by_input:
            return scope.ahead[posterior.key]  # type: ignore[index]
        if scope.trace is not None:
            scope.trace.append((self, slot))
        form: Form = posterior.form(self.base(slot), scope, ask)  # type: ignore[operator]
        return form

    def base(self, slot: str) -> Tensor:
        """The tensor that a slot stands for; a factor stands for none and goes by the weight."""
        tensor: Tensor = getattr(self, slot) if slot in self.tensor_names else self.reference
        return tensor

    @property
    def reference(self) -> Tensor:
        """A tensor of the layer that tells type and device."""
        tensors = (getattr(self, name) for name in self.tensor_names)
        found: Tensor = next(tensor for tensor in tensors if tensor is not None)
        return found

    @classmethod
    def widths(cls, layer: nn.Module) -> tuple[int, int] | None:  # noqa: ARG003
        """Input and output channels that factors can scale; None where the type takes none."""
        return None

    def factor(self, slot: str, x: Tensor) -> Tensor | None:
        """Drawn factors of `in_scale` or `out_scale` for x: by channel [D, C], or by element.

        None where the layer has no such slot.
        """
        form = self.form(slot, Ask(shape=tuple(x.shape[1:]))) if slot in self.slots else None
        match form:
            case None:
                return None
            case Shared(value):
                return value.unsqueeze(0)
            case PerDraw(value):
                return value
            case _:
                raise TypeError(f"a factor cannot take the form {type(form).__name__}")

    def posterior(self, slot: str) -> Posterior:
        """The posterior in a slot."""
        posterior = self.slots[slot]
        assert isinstance(posterior, Posterior)
        return posterior

    def settle(self, member: int | None) -> None:
        """Write the locations (of a member) into the stock parameters, before turning back."""
        for slot in self.slots:
            value = self.posterior(slot).mean(self.base(slot), member)
            if slot in self.tensor_names:
                self.base(slot).copy_(value)
            else:
                self.absorb(slot, value)

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Multiply a factor into the stock weight."""
        raise NotImplementedError(f"{type(self).__name__} has no {slot}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle and copy by the two classes: the joint class of a subclass has no import path."""
        host, layer = type(self).__dict__.get("origin", (type(self), None))
        return _blank, (host, layer), self.__dict__.copy()


def joint_class(host: type[Host], layer: type[nn.Module]) -> type[nn.Module]:
    """The class that a layer of type `layer` takes as a host."""
    if layer is host.stock:
        return host
    for known in host.__subclasses__():  # one class a type, as torch.compile guards on it
        if known.__dict__.get("origin") == (host, layer):
            return known
    name = f"Bayesian{layer.__name__}"
    return type(name, (host, layer), {"origin": (host, layer), "__module__": layer.__module__})


def original_class(host: Host) -> type[nn.Module]:
    """The class that the layer had before conversion."""
    origin = type(host).__dict__.get("origin")
    return type(host).stock if origin is None else origin[1]


def _blank(host: type[Host], layer: type[nn.Module] | None) -> nn.Module:
    cls = host if layer is None else joint_class(host, layer)
    blank: nn.Module = cls.__new__(cls)
    return blank
