"""The ways in which a drawn tensor reaches a layer.

A posterior says *what* the draw is, a layer says *how* its arithmetic runs; a form is the
hand-over between the two, so that neither needs to know the other. D is the number of draws,
`shape` the shape of the parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Shared(NamedTuple):
    """One value for every row."""

    value: Tensor  # [*shape]


class PerDraw(NamedTuple):
    """One value a draw; rows are D equal contiguous blocks."""

    value: Tensor  # [D, *shape]


def by_draw(values: Tensor) -> Shared | PerDraw:
    """Values [D, *shape]; those of a single draw are the same for every row."""
    return Shared(values[0]) if len(values) == 1 else PerDraw(values)


class Flipped(NamedTuple):
    """Draw d is `mean + delta * (sign0[d] outer sign1[d])`: one noise tensor, a sign pair a draw.

    Signs act on the first two dimensions of the parameter, so they are constant over kernel
    positions and the marginal law of every draw is exact (Flipout, Wen et al. 2018).
    """

    mean: Tensor  # [*shape]
    delta: Tensor  # [*shape]
    sign0: Tensor | None  # [D, shape[0]]
    sign1: Tensor  # [D, shape[1] * groups]


class Moments(NamedTuple):
    """Independent Gaussian entries, to be integrated out to the pre-activation."""

    mean: Tensor  # [*shape]
    variance: Tensor  # [*shape]


class Order(NamedTuple):
    """Draws sorted by component, so that each component runs once on all of its rows."""

    sorted: Tensor  # [D], draws in the order of their components
    back: Tensor  # [D], where each draw is in that order
    sizes: list[int]  # draws of every component


def order_of(component: Tensor, device: torch.device | None = None) -> Order:
    """Sort draws by component; from a tensor on the host nothing waits for a GPU."""
    order = torch.argsort(component, stable=True)
    sizes: list[int] = torch.bincount(component).tolist()
    back = torch.argsort(order)
    return Order(order.to(device or component.device), back.to(device or component.device), sizes)


class Selected(NamedTuple):
    """Draw d is `values[component[d]]`: one of K copies of the tensor."""

    values: Tensor  # [K, *shape]
    component: Tensor  # [D]
    order: Order | None = None


class LowRank(NamedTuple):
    """Draw d is `base * (left[k] @ right[k])`, k = component[d]: K candidates of a shared tensor.

    The product is laid out as the tensor seen as a matrix of `shape[0]` rows; a right factor of
    `shape[1]` columns only is constant over kernel positions. `picked` holds the factors of every
    draw where they were read ahead: by rank, [D, shape[0]] and [D, columns].
    """

    base: Tensor  # [*shape]
    left: Tensor  # [K, shape[0], r]
    right: Tensor  # [K, r, columns]
    component: Tensor  # [D]
    order: Order | None = None
    picked: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None


Form = Shared | PerDraw | Flipped | Moments | Selected | LowRank


class Ask(NamedTuple):
    """What a layer can do with a draw of one of its tensors."""

    local: bool = False  # the input is 2-D with exactly one row a draw
    signs: tuple[int | None, int] | None = None  # sizes of the sign vectors; None: no Flipout
    shape: tuple[int, ...] | None = None  # one row of the activations that a factor multiplies
