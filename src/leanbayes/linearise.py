"""A pass that is linear in the random weights: `f(w*) + J (w - w*)`, by dual numbers.

A weight carries its draw as a tangent, and forward-mode differentiation takes that through the
network beside the outputs at w*: no Jacobian is ever made, whatever the number of weights. A
product of two dual numbers is three products, so that a pass costs about three.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from leanbayes.errors import PlanError

RULES: Final = "torch._decomp.decompositions_for_jvp"
UNKNOWN: Final = ("forward AD", "forward mode AD")  # what torch says of it


def moved(base: Tensor, change: Tensor) -> Tensor:
    """`base + change` in a linearised pass: all that follows is linear in the change.

    Args:
        base: Where the network is linearised.
        change: Of as many dimensions, or of one more, a change a draw.
    """
    found: Tensor = forward_ad.make_dual(base.expand_as(change).contiguous(), change)  # type: ignore[no-untyped-call]
    return found


def linearised(run: Callable[[], Any]) -> Any:
    """What `run` gives, with tangents added to the outputs.

    Example:
        >>> w, change = torch.tensor(3.0), torch.tensor(0.5)
        >>> linearised(lambda: moved(w, change) ** 2)  # 9 + 2 * 3 * 0.5, not 3.5^2
        tensor(12.)
    """
    graph = torch.is_grad_enabled()
    _load_rules()
    try:
        # Inference mode drops tangents without a word; fused attention has no rule for them.
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(graph),
            sdpa_kernel(SDPBackend.MATH),
            forward_ad.dual_level(),
        ):
            return pytree.tree_map(_joined, run())
    except NotImplementedError as error:
        if not any(words in str(error) for words in UNKNOWN):
            raise
        raise PlanError(
            f"an operation of the network cannot be linearised ({error}). Write "
            "Laplace(predictive='sampled'), or leave its layer out by select="
        ) from error
    except RuntimeError as error:
        # Torch's rule for the tangents of a BatchNorm gives them another type there.
        if not any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
            raise
        raise PlanError(
            f"the network cannot be linearised under autocast ({error}). Write "
            "with torch.autocast(device, enabled=False): around lb.predict, or "
            "Laplace(predictive='sampled')"
        ) from error


def _load_rules() -> None:
    """Torch does so on first use, by a call of its own that it has deprecated since."""
    if RULES not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import_module(RULES)


def _joined(output: Any) -> Any:
    """A tensor with its tangent; the tensors of a dataclass, into which pytrees do not look."""
    if isinstance(output, Tensor):
        value, tangent = forward_ad.unpack_dual(output)  # type: ignore[no-untyped-call]
        return value if tangent is None else value + tangent
    if not is_dataclass(output) or isinstance(output, type):
        return output
    found = copy.copy(output)
    for entry in fields(output):
        joined = pytree.tree_map(_joined, getattr(output, entry.name))
        object.__setattr__(found, entry.name, joined)  # it may be frozen
    return found
