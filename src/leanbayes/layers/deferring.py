"""Subclasses of stock layers whose own forward leaves the arithmetic to that of their stock class.

Such as a scaled embedding, `super().forward(ids) * self.scale`. The host stands between the two
then, and what the subclass does before and after is kept. Told by the code of forward; that it does
call super's whatever the input, an example has to prove.
"""

from __future__ import annotations

import dis
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from types import CodeType
from typing import Any

from torch import nn

from leanbayes.layers.base import Host

# What may be asked of a tensor that has a draw: nothing of it is a value.
FORMAL = frozenset(("dtype", "device", "shape", "size", "dim", "ndim", "is_cuda"))


def defers(layer: type[nn.Module], stock: type[nn.Module], host: type[Host]) -> bool:
    """True where every forward before the stock class reaches the tensors by super's alone.

    Neither it nor a method or property that it names may read them.
    """
    if not (host.inherits_stock and issubclass(host, stock)):
        return False  # super's forward would not be the host's
    own = [vars(cls) for cls in takewhile(lambda cls: cls is not stock, layer.__mro__)]
    forwards = [members["forward"] for members in own if "forward" in members]
    return (
        bool(forwards)
        and all(_calls_super(_code_of(forward)) for forward in forwards)
        and not any(_reads(code, host.tensor_names) for code in _codes(own))
    )


def _calls_super(code: CodeType | None) -> bool:
    return code is not None and "__class__" in code.co_freevars and "forward" in code.co_names


def _code_of(member: Any) -> CodeType | None:
    """The code of a function, or of the getter of a property."""
    return getattr(getattr(member, "fget", member), "__code__", None)


def _codes(own: Sequence[Mapping[str, Any]]) -> Iterator[CodeType]:
    """The code of forward, of all members of the classes that it names, and so on."""
    waiting, seen = ["forward"], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            for code in filter(None, (_code_of(members.get(name)) for members in own)):
                yield code
                waiting += _names(code)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _reads(code: CodeType, names: Collection[str]) -> bool:
    """True where values of an attribute of one of these names may be used."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    instructions = pairwise([*dis.get_instructions(code), None])
    return any(_reads(function, names) for function in inner) or any(
        now is not None
        and now.argval in names
        and now.opname in ("LOAD_ATTR", "LOAD_METHOD")
        and (after is None or after.argval not in FORMAL)
        for now, after in instructions
    )
