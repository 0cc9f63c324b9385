"""Arithmetic of the recurrent hosts: one drawn cell, run along a sequence.

Every draw holds for a whole sequence: what the steps need of it is made once, before the first.
Letters: B rows, T steps, I inputs, H states, G gates times H.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes import ops
from leanbayes.forms import Flipped, Form, LowRank, PerDraw, Selected, Shared

State = tuple[Tensor, ...]  # (h,) or (h, c), each [B, H]
Product = Callable[[Tensor], Tensor]  # [B, I] -> [B, O]
Step = Callable[[Tensor, State], State]  # (gates of the input [B, G], state) -> state


class Matrix(NamedTuple):
    """A drawn matrix between factors: `(W (x * before)) * after`."""

    weight: Form
    before: Tensor | None = None  # [D, I]
    after: Tensor | None = None  # [D, O]

    def value(self) -> Tensor | None:
        """The matrix with its factors multiplied in, where all rows share one."""
        factors = [f for f in (self.before, self.after) if f is not None]
        if not isinstance(self.weight, Shared) or any(len(f) > 1 for f in factors):
            return None
        value = self.weight.value
        if self.before is not None:
            value = value * self.before.to(value.dtype)
        return value if self.after is None else value * self.after.to(value.dtype).T

    def along(self, x: Tensor) -> Tensor:
        """The product with every step of x [B, T, I] at once."""
        y = ops.linear(ops.scaled(x, self.before, -1), self.weight, None)
        return ops.scaled(y, self.after, -1)

    def product(self, rows: int) -> Product:
        """The product with one step [B, I], for many steps."""
        run = _product(self.weight, rows)
        factors = (self.before, self.after)
        before, after = (f if f is None else _to_rows(f, rows) for f in factors)

        def scaled(x: Tensor) -> Tensor:
            y = run(x if before is None else x * before.to(x.dtype))
            return y if after is None else y * after.to(y.dtype)

        return scaled


class Cell(NamedTuple):
    """The drawn tensors of one layer in one direction."""

    ih: Matrix
    hh: Matrix
    bias_ih: Form | None = None
    bias_hh: Form | None = None
    hr: Matrix | None = None

    def values(self) -> list[Tensor] | None:
        """The tensors in the order of the stock kernel, where all rows share them."""
        found = [self.ih.value(), self.hh.value()]
        biases = [b for b in (self.bias_ih, self.bias_hh) if b is not None]
        found += [b.value if isinstance(b, Shared) else None for b in biases]
        found += [] if self.hr is None else [self.hr.value()]
        values = [value for value in found if value is not None]
        return values if len(values) == len(found) else None


def run(
    mode: str, cell: Cell, x: Tensor, state: State, alive: Tensor | None, backwards: bool
) -> tuple[Tensor, State]:
    """Run one cell along x [B, T, I]: states of all steps [B, T, H] and the last state.

    Where `alive` [B, T] is False a sequence has ended: its state stays, and its output is 0.
    """
    gates = ops.added(cell.ih.along(x), cell.bias_ih, -1)
    step = _STEPS[mode](cell, len(x))
    if mode != "GRU":  # a GRU multiplies its second bias by a gate, the others only add it
        gates = ops.added(gates, cell.bias_hh, -1)
    inputs = gates.unbind(1)
    order = range(len(inputs))
    outputs = list(inputs)
    for t in reversed(order) if backwards else order:
        new = step(inputs[t], state)
        if alive is not None:
            kept = alive[:, t, None]
            new = tuple(torch.where(kept, a, b) for a, b in zip(new, state, strict=True))
        state = new
        outputs[t] = state[0]
    output = torch.stack(outputs, 1)
    return output if alive is None else output * alive[..., None], state


def _lstm(cell: Cell, rows: int) -> Step:
    """`c' = f c + i g`, `h' = o tanh(c')`, and a projection of h' where the layer has one."""
    recur = cell.hh.product(rows)
    project = None if cell.hr is None else cell.hr.product(rows)

    def step(gates: Tensor, state: State) -> State:
        h, c = state
        i, f, g, o = (gates + recur(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return (h if project is None else project(h)), c

    return step


def _gru(cell: Cell, rows: int) -> Step:
    """`n = tanh(x_n + r (h_n + b_n))`, `h' = (1 - z) n + z h`."""
    recur, bias = cell.hh.product(rows), cell.bias_hh

    def step(gates: Tensor, state: State) -> State:
        (h,) = state
        x_r, x_z, x_n = gates.chunk(3, 1)
        h_r, h_z, h_n = ops.added(recur(h), bias, -1).chunk(3, 1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        return (n + z * (h - n),)

    return step


def _elman(activation: Callable[[Tensor], Tensor]) -> Callable[[Cell, int], Step]:
    """`h' = activation(x + W h)`."""

    def prepared(cell: Cell, rows: int) -> Step:
        recur = cell.hh.product(rows)
        return lambda gates, state: (activation(gates + recur(state[0])),)

    return prepared


_STEPS: dict[str, Callable[[Cell, int], Step]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": _elman(torch.tanh),
    "RNN_RELU": _elman(torch.relu),
}


def _product(weight: Form, rows: int) -> Product:
    if isinstance(weight, Shared):
        value = weight.value
        return lambda x: F.linear(x, value)
    if isinstance(weight, PerDraw):
        return _by_draw(weight.value)
    if isinstance(weight, Flipped):
        return _flipped(weight.mean, weight.delta, weight.sign0, weight.sign1, rows)
    if isinstance(weight, Selected):
        return _selected(weight.values, _to_rows(weight.component, rows))
    if isinstance(weight, LowRank):
        left, right = (_to_rows(f[weight.component], rows) for f in (weight.left, weight.right))
        return _low_rank(weight.base, left, right)
    raise TypeError("a recurrent layer has no local form: its steps share one draw")


def _by_draw(value: Tensor) -> Product:
    draws, columns = value.shape[0], value.transpose(1, 2)

    def product(x: Tensor) -> Tensor:
        y = torch.bmm(ops.blocks(x, draws), columns.to(x.dtype))
        return ops.rejoined(y, (len(x), y.shape[-1]))

    return product


def _flipped(
    mean: Tensor, delta: Tensor, sign0: Tensor | None, sign1: Tensor, rows: int
) -> Product:
    before, after = _to_rows(sign1, rows), None if sign0 is None else _to_rows(sign0, rows)

    def product(x: Tensor) -> Tensor:
        noise = F.linear(x * before.to(x.dtype), delta)
        return F.linear(x, mean) + (noise if after is None else noise * after.to(noise.dtype))

    return product


def _selected(values: Tensor, index: Tensor) -> Product:
    """Rows of one copy together, sorted once for all steps; a graph runs all copies and picks."""
    if torch.compiler.is_compiling():
        every, row = values.flatten(0, 1), torch.arange(len(index), device=index.device)
        shape = len(index), *values.shape[:2]
        return lambda x: F.linear(x, every).reshape(shape)[row, index]
    order = torch.argsort(index, stable=True)
    back = torch.argsort(order)
    sizes = torch.bincount(index, minlength=len(values)).tolist()

    def product(x: Tensor) -> Tensor:
        parts = zip(torch.split(x[order], sizes), values, strict=True)
        return torch.cat([F.linear(part, value) for part, value in parts if len(part)])[back]

    return product


def _low_rank(base: Tensor, left: Tensor, right: Tensor) -> Product:
    """`sum_j left_j * (W (right_j * x))` with factors of every row."""
    columns = left.transpose(1, 2)

    def product(x: Tensor) -> Tensor:
        y = F.linear(x[:, None] * right.to(x.dtype), base)  # [B, r, O]
        return (y * columns.to(y.dtype)).sum(1)

    return product


def _to_rows(draws: Tensor, rows: int) -> Tensor:
    """What belongs to each draw, for each row: [D, ...] as [D * R, ...]."""
    if len(draws) in (1, rows):
        return draws.expand(rows, *draws.shape[1:])
    if rows % len(draws):
        ops.blocks(draws.new_empty(rows), len(draws))  # raises, and says what to do
    return draws.repeat_interleave(rows // len(draws), 0)
