"""Hosts of `nn.RNN`, `nn.LSTM` and `nn.GRU`: one draw a sequence, used at every step.

Where all rows share one draw the stock kernel runs with the drawn weights. Otherwise the products
with the inputs of all steps are made at once and a loop runs along the sequence. The compiler
refuses every subclass of `nn.RNNBase`, so these hosts inherit none; they carry its settings and the
methods that users call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from leanbayes.errors import PlanError
from leanbayes.forms import Ask
from leanbayes.layers import cells
from leanbayes.layers.base import PLAIN, Host
from leanbayes.layers.cells import Cell, Matrix, State

KERNELS = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}


class Sequences(NamedTuple):
    """The input of a call: steps [B, T, I] or [T, B, I], or the data of a packed sequence."""

    steps: Tensor
    state: State  # each [layers * directions, B, H], in the order of the packed rows
    packed: PackedSequence | None
    batched: bool


class RecurrentHost(Host):
    """What the three hosts share. Tensors have the stock names, `weight_ih_l0` and so on.

    A factor pair scales each product: `in_scale_ih_l0` the inputs, `in_scale_hh_l0` the states,
    `out_scale_ih_l0` and `out_scale_hh_l0` the gates before the biases (the rank-1 LSTM cell of
    Dusenberry et al. 2020). A projection `weight_hr` has none.
    """

    kind: ClassVar[str] = "recurrent"
    tensor_names: ClassVar[tuple[str, ...]] = ()  # as many as the layer has layers
    inherits_stock: ClassVar[bool] = False

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int
    _flat_weights_names: list[str]
    _all_weights: list[list[str]]

    extra_repr: Any = nn.RNNBase.extra_repr
    reset_parameters: Any = nn.RNNBase.reset_parameters
    check_input: Any = nn.RNNBase.check_input
    check_hidden_size: Any = nn.RNNBase.check_hidden_size
    get_expected_hidden_size: Any = nn.RNNBase.get_expected_hidden_size
    check_forward_args: Any = nn.RNNBase.check_forward_args
    permute_hidden: Any = nn.RNNBase.permute_hidden

    @classmethod
    def tensors(cls, layer: nn.Module) -> dict[str, nn.Parameter]:
        """Weights and biases of every layer and direction, by their stock names."""
        assert isinstance(layer, (nn.RNNBase, RecurrentHost))
        own = layer._parameters
        found = {name: own.get(name) for name in layer._flat_weights_names}
        if any(p is None for p in found.values()):
            return {}  # a tensor is computed from others (weight_norm, weight drop)
        return {name: p for name, p in found.items() if p is not None}

    @classmethod
    def refusal(cls, layer: nn.Module) -> str | None:
        """A subclass with methods of its own, which a host that inherits none would lose."""
        for parent in type(layer).__mro__:
            if parent is cls.stock:
                return None
            for name, value in vars(parent).items():
                if not name.startswith("__") or (callable(value) and name != "__init__"):
                    return f"{parent.__name__} defines {name}, which a recurrent host would lose"
        return None

    @classmethod
    def factor_sizes(cls, layer: nn.Module) -> dict[str, int]:
        """Inputs, states and gates of every layer and direction."""
        sizes: dict[str, int] = {}
        for name, weight in cls.tensors(layer).items():
            if name.startswith(("weight_ih", "weight_hh")):
                product = name.removeprefix("weight_")
                gates, width = weight.shape
                sizes |= {f"in_scale_{product}": width, f"out_scale_{product}": gates}
        return sizes

    def after_conversion(self) -> None:
        """Drop the lists of weights that the stock class keeps: they would go stale."""
        for name in ("_flat_weights", "_flat_weight_refs"):
            self.__dict__.pop(name, None)

    @classmethod
    def after_reversal(cls, layer: nn.Module) -> None:
        """Make the lists of weights anew, of the parameters that the layer has now."""
        assert isinstance(layer, nn.RNNBase)
        layer._init_flat_weights()

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters by layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing to do: drawn weights are new tensors."""

    def is_tensor(self, slot: str) -> bool:
        """True where the slot stands for a parameter."""
        return slot in self._flat_weights_names

    @property
    def reference(self) -> Tensor:
        """A tensor of the layer that tells type and device."""
        reference: Tensor = getattr(self, self._flat_weights_names[0])
        return reference

    def ask(self, slot: str) -> Ask:
        """Flipout signs for the matrices; noise is never integrated out, as steps share it."""
        if not slot.startswith("weight"):
            return PLAIN
        shape: torch.Size = getattr(self, slot).shape
        return Ask(signs=(shape[0], shape[1]))

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Scale columns by an input factor, rows by an output factor."""
        side, _, product = slot.partition("_scale_")
        weight: Tensor = getattr(self, f"weight_{product}")
        weight.mul_(factor if side == "in" else factor[:, None])

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """Run the layers; arguments and results are those of the stock layer."""
        sequences = self._sequences(input, hx)
        drawn = [self._cell(suffix) for suffix in self._suffixes()]
        values = [cell.values() for cell in drawn]
        flat = [value for found in values if found is not None for value in found]
        if all(found is not None for found in values):
            output, state = self._fused(sequences, flat)
        else:
            output, state = self._unrolled(sequences, drawn)
        if not sequences.batched:
            output = output.squeeze(0 if self.batch_first else 1)
            state = tuple(s.squeeze(1) for s in state)
        return output, state if self.mode == "LSTM" else state[0]

    def _suffixes(self) -> Iterator[str]:
        for layer in range(self.num_layers):
            yield f"l{layer}"
            if self.bidirectional:
                yield f"l{layer}_reverse"

    def _cell(self, suffix: str) -> Cell:
        bias_ih, bias_hh = self.form(f"bias_ih_{suffix}"), self.form(f"bias_hh_{suffix}")
        hr = self._matrix(f"hr_{suffix}") if self.proj_size else None
        return Cell(
            self._matrix(f"ih_{suffix}"), self._matrix(f"hh_{suffix}"), bias_ih, bias_hh, hr
        )

    def _matrix(self, product: str) -> Matrix:
        name = f"weight_{product}"
        weight = self.form(name, self.ask(name))
        assert weight is not None
        gates, width = getattr(self, name).shape
        before = self._factors(f"in_scale_{product}", width)
        return Matrix(weight, before, self._factors(f"out_scale_{product}", gates))

    def _factors(self, slot: str, size: int) -> Tensor | None:
        # One vector a sequence: a mask by element would differ from step to step.
        return self.factor(slot, self.reference.new_empty(1, size))

    def _sequences(self, input: Tensor | PackedSequence, hx: Any) -> Sequences:
        """The input with a batch and a state, checked as the stock layer checks them."""
        packed = input if isinstance(input, PackedSequence) else None
        steps: Tensor = input if packed is None else packed.data  # type: ignore[assignment]
        sizes = None if packed is None else packed.batch_sizes
        if packed is None and steps.dim() not in (2, 3):
            raise ValueError(f"expected [T, I] or [B, T, I], found {steps.dim()} dimensions")
        batched = packed is not None or steps.dim() == 3
        given = hx if hx is None or isinstance(hx, tuple) else (hx,)
        if not batched:
            steps = steps.unsqueeze(0 if self.batch_first else 1)
            given = given and tuple(s.unsqueeze(1) for s in given)
        state = self._zeros(steps, sizes) if given is None else given
        order = None if packed is None else packed.sorted_indices
        if given is not None and order is not None:
            state = tuple(s.index_select(1, order) for s in state)
        self.check_forward_args(steps, state if self.mode == "LSTM" else state[0], sizes)
        return Sequences(steps, state, packed, batched)

    def _zeros(self, steps: Tensor, sizes: Tensor | None) -> State:
        h = steps.new_zeros(self.get_expected_hidden_size(steps, sizes))
        return (h, h.new_zeros(*h.shape[:2], self.hidden_size)) if self.mode == "LSTM" else (h,)

    def _fused(self, sequences: Sequences, weights: list[Tensor]) -> tuple[Any, State]:
        """The stock kernel, with weights that all rows share."""
        steps, state, packed, _ = sequences
        hx = state if self.mode == "LSTM" else state[0]
        kernel: Any = KERNELS[self.mode]
        settings = self.bias, self.num_layers, self.dropout, self.training, self.bidirectional
        if packed is None:
            output, *last = kernel(steps, hx, weights, *settings, self.batch_first)
            return output, tuple(last)
        data, *last = kernel(steps, packed.batch_sizes, hx, weights, *settings)
        back = packed.unsorted_indices
        if back is not None:
            last = [s.index_select(1, back) for s in last]
        return packed._replace(data=data), tuple(last)

    def _unrolled(self, sequences: Sequences, drawn: list[Cell]) -> tuple[Any, State]:
        """A loop over the steps, with weights of every draw; rows in their original order."""
        steps, state, packed, batched = sequences
        if packed is None and not (batched and self.batch_first):
            raise PlanError(
                f"{self.stock.__name__} with batch_first=False (or without a batch) keeps no rows "
                "in dim 0, so one pass holds one draw: use Plan(groups=1) or batch_first=True"
            )
        if packed is None:
            return self._layers(steps, state, drawn, None)
        x, lengths = pad_packed_sequence(packed, batch_first=True)
        if packed.unsorted_indices is not None:
            state = tuple(s.index_select(1, packed.unsorted_indices) for s in state)
        alive = torch.arange(x.shape[1]) < lengths[:, None]
        output, last = self._layers(x, state, drawn, alive.to(x.device))
        return _packed_like(packed, output), last

    def _layers(
        self, x: Tensor, state: State, drawn: list[Cell], alive: Tensor | None
    ) -> tuple[Tensor, State]:
        ends: list[State] = []
        directions = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            x = F.dropout(x, self.dropout, self.training) if layer else x
            outputs = []
            for direction in range(directions):
                k = len(ends)
                start = tuple(s[k] for s in state)
                y, end = cells.run(self.mode, drawn[k], x, start, alive, direction == 1)
                outputs.append(y)
                ends.append(end)
            x = torch.cat(outputs, -1) if directions == 2 else outputs[0]
        return x, tuple(torch.stack(parts) for parts in zip(*ends, strict=True))


class BayesianRNN(RecurrentHost):
    """`nn.RNN` with drawn weights."""

    stock: ClassVar[type[nn.Module]] = nn.RNN


class BayesianLSTM(RecurrentHost):
    """`nn.LSTM` with drawn weights."""

    stock: ClassVar[type[nn.Module]] = nn.LSTM
    get_expected_cell_size: Any = nn.LSTM.get_expected_cell_size
    check_forward_args: Any = nn.LSTM.check_forward_args
    permute_hidden: Any = nn.LSTM.permute_hidden


class BayesianGRU(RecurrentHost):
    """`nn.GRU` with drawn weights."""

    stock: ClassVar[type[nn.Module]] = nn.GRU


def _packed_like(packed: PackedSequence, padded: Tensor) -> PackedSequence:
    """Rows [B, T, H] in their original order, packed as `packed` is."""
    if packed.sorted_indices is not None:
        padded = padded.index_select(0, packed.sorted_indices)
    sizes = packed.batch_sizes.tolist()
    data = torch.cat([padded[:size, t] for t, size in enumerate(sizes)])
    return packed._replace(data=data)
