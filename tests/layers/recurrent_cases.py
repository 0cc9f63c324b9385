"""Recurrent layers, their inputs, and passes of the stock layer row by row."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.utils import _pytree as pytree

ROWS, STEPS, WIDTH, HIDDEN = 6, 4, 3, 5

# torch says so once a process where it cannot take its fastest kernel; the numbers are the same.
QUIET = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

KINDS = {
    "RNN": nn.RNN,
    "RNN-relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
}
OPTIONS = {
    "plain": {},
    "no_bias": {"bias": False},
    "bidirectional": {"bidirectional": True},
    "deep": {"num_layers": 2},
    "deep_bidirectional": {"num_layers": 2, "bidirectional": True},
}
CASES = [(kind, options) for kind in KINDS for options in OPTIONS] + [
    ("LSTM", {"proj_size": 2}),
    ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True, "bias": False}),
]
SMALL = [case for case in CASES if case[1] in ("plain", "deep_bidirectional")] + CASES[-2:]


def each(cases):
    """Run a test once a case, named by it."""

    def name(case):
        options = case[1] if isinstance(case[1], str) else f"proj{len(case[1])}"
        return f"{case[0]}-{options}"

    return pytest.mark.parametrize("case", cases, ids=name)


def build(case, **options):
    """A layer in float64 with weights that matter."""
    torch.manual_seed(5)
    given = OPTIONS[case[1]] if isinstance(case[1], str) else case[1]
    layer = KINDS[case[0]](WIDTH, HIDDEN, **{"batch_first": True, **given, **options})
    return layer.double()


def inputs(rows=ROWS, seed=11):
    """Sequences [rows, STEPS, WIDTH]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, STEPS, WIDTH, generator=generator, dtype=torch.float64)


def states(layer, rows=ROWS, seed=12):
    """A state to start from, as the layer takes it."""
    generator = torch.Generator().manual_seed(seed)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or HIDDEN, HIDDEN][: 2 if layer.mode == "LSTM" else 1]
    parts = [torch.randn(count, rows, n, generator=generator).double() for n in sizes]
    return tuple(parts) if layer.mode == "LSTM" else parts[0]


def row_of(state, row):
    """The state of one row."""
    return pytree.tree_map(lambda s: s[:, [row]], state)


def packed(x, lengths=(2, 4, 1, 3, 4, 2), enforce_sorted=False):
    """Sequences of several lengths, unsorted."""
    return pack_padded_sequence(x, torch.tensor(lengths), True, enforce_sorted)


def leaves(result):
    """Output and states as tensors; of a packed output its data and its layout."""
    output, state = result
    parts = list(output) if isinstance(output, PackedSequence) else [output]
    return [x for x in [*parts, *pytree.tree_leaves(state)] if x is not None]


def assert_same(found, expected, tolerance=1e-12):
    """Outputs and states are equal to the tolerance."""
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def joined(results):
    """Results of single rows as the result of a batch."""
    outputs = torch.cat([output for output, _ in results])
    flat = [pytree.tree_leaves(state) for _, state in results]
    parts = [torch.cat(rows, 1) for rows in zip(*flat, strict=True)]
    return outputs, tuple(parts) if len(parts) == 2 else parts[0]


def twin(layer):
    """An untouched copy."""
    return copy.deepcopy(layer)
