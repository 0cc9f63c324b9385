"""Find tensors that a network reads itself, beside the layers that draw them.

A draw acts inside its layer. A network that multiplies by `self.embed.weight` as well does so by
the location, without noise: half of such a weight would be random and half would not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from leanbayes.layers.base import Host
from leanbayes.surgery import hosts

# What takes the shape, type or device of a tensor, and none of its values.
SHAPES = frozenset(
    (
        *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
        *("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"),
    )
)
# What does so with its second argument.
LIKE = frozenset(("to", "type_as", "view_as", "expand_as", "reshape_as"))


def reads_beside_layers(net: nn.Module, run: Callable[[], Any]) -> set[str]:
    """Keys of drawn tensors whose values `run` uses outside of every module that owns them."""
    watched = _watched(net)
    mode = _Reads(watched)
    with _inside_owners(net, mode), mode:
        run()
    return mode.found


def _watched(net: nn.Module) -> dict[int, str]:
    """Tensors that layers draw, and matrices that layers multiply drawn factors to, by identity."""
    found: dict[int, str] = {}
    for name, host in hosts(net):
        for slot in host.slots:
            for own in _tensors(host, slot):
                found.setdefault(id(host._parameters[own]), f"{name}.{own}".lstrip("."))
    return found


def _tensors(host: Host, slot: str) -> list[str]:
    if host.posterior(slot).by_input:  # masks of activations leave the weights as they are
        return []
    own = {name: p for name, p in host._parameters.items() if p is not None}
    if host.is_tensor(slot):
        return [slot] if slot in own else []
    return [name for name, p in own.items() if p.dim() > 1]


class _Reads(TorchFunctionMode):
    """Notes operations on watched tensors while no owner of theirs is running."""

    def __init__(self, watched: dict[int, str]) -> None:
        super().__init__()
        self.watched = watched
        self.running: Counter[int] = Counter()  # owners at work, by tensor
        self.found: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do what is asked; where that is a tensor, it may hold values of the arguments."""
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name not in SHAPES and any(isinstance(x, Tensor) for x in pytree.tree_leaves(result)):
            self._note((args[:1] if name in LIKE else args, kwargs))
        return result

    def _note(self, arguments: Any) -> None:
        for x in map(id, pytree.tree_leaves(arguments)):
            if x in self.watched and not self.running[x]:
                self.found.add(self.watched[x])


@contextmanager
def _inside_owners(net: nn.Module, mode: _Reads) -> Iterator[None]:
    """Let modules tell the mode when they run, by the watched tensors that they own."""
    handles = []
    for module, keys in _owners(net, mode.watched).items():

        def enter(*_: Any, keys: list[int] = keys) -> None:
            mode.running.update(keys)

        def leave(*_: Any, keys: list[int] = keys) -> None:
            mode.running.subtract(keys)

        handles.append(module.register_forward_pre_hook(enter, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _owners(net: nn.Module, watched: dict[int, str]) -> dict[nn.Module, list[int]]:
    found: dict[nn.Module, list[int]] = defaultdict(list)
    for module in net.modules():
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) in watched:
                found[module].append(id(parameter))
    return found
