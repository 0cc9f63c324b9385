"""Subclasses of stock layers whose own forward leaves the arithmetic to that of their stock class.

Such as a scaled embedding, `super().forward(ids) * self.scale`. The host stands between the two
then, and what the subclass does before and after is kept. Told by the code of forward; that it does
call super's whatever the input, an example has to prove.
"""

from __future__ import annotations

import dis
from collections.abc import Collection
from itertools import pairwise, takewhile
from types import CodeType
from typing import Any

from torch import nn

from leanbayes.layers.base import Host

# What may be asked of a tensor that has a draw: nothing of it is a value.
FORMAL = frozenset(("dtype", "device", "shape", "size", "dim", "ndim", "is_cuda"))


def defers(layer: type[nn.Module], stock: type[nn.Module], host: type[Host]) -> bool:
    """True where every forward before the stock class reaches the tensors by super's alone."""
    if not (host.inherits_stock and issubclass(host, stock)):
        return False  # super's forward would not be the host's
    before_stock = takewhile(lambda cls: cls is not stock, layer.__mro__)
    own = [cls.__dict__["forward"] for cls in before_stock if "forward" in cls.__dict__]
    return bool(own) and all(_calls_super(f, host) for f in own)


def _calls_super(forward: Any, host: type[Host]) -> bool:
    code = getattr(forward, "__code__", None)
    if code is None or "__class__" not in code.co_freevars or "forward" not in code.co_names:
        return False
    return not _reads(code, host.tensor_names)


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
