"""Layers with drawn factors, banks or candidates, and what a loop over draws makes of them."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import leanbayes as lb
from leanbayes.noise import KeyedNoise

F64 = torch.float64
ROWS, SEED = 6, 5


def _conv(dims: int, transposed: bool = False, **options: Any) -> nn.Module:
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    layer: nn.Module = kind(4, **{"out_channels": 6, "kernel_size": 3, **options})
    return layer


SIZES = {1: (4, 5), 2: (4, 5, 4), 3: (4, 4, 3, 3)}
LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "linear-no_bias": (lambda: nn.Linear(4, 3, bias=False), (4,)),
    "tokens": (lambda: nn.Linear(4, 3), (5, 4)),
    "grid": (lambda: nn.Linear(4, 1), (2, 3, 4)),
    **{f"conv{d}": (lambda d=d: _conv(d), SIZES[d]) for d in SIZES},
    **{f"conv{d}-groups": (lambda d=d: _conv(d, groups=2, padding=1), SIZES[d]) for d in SIZES},
    "depthwise1": (lambda: _conv(1, groups=4, out_channels=8), SIZES[1]),
    "depthwise2": (lambda: _conv(2, groups=4, out_channels=4, bias=False), SIZES[2]),
    "stride": (lambda: _conv(2, stride=2, padding=1, padding_mode="circular"), SIZES[2]),
    **{f"transposed{d}": (lambda d=d: _conv(d, True), SIZES[d]) for d in SIZES},
    "transposed1-groups": (lambda: _conv(1, True, groups=2, stride=2), SIZES[1]),
    "transposed2-groups": (lambda: _conv(2, True, groups=2, output_padding=1, stride=2), SIZES[2]),
}
each_layer = pytest.mark.parametrize("layer_name", list(LAYERS))
by_row_or_group = pytest.mark.parametrize("per_row", [True, False], ids=["by_row", "by_group"])


def build(layer_name: str, rows: int = ROWS) -> tuple[nn.Module, Tensor]:
    """A layer in float64 and rows for it."""
    torch.manual_seed(7)
    make, shape = LAYERS[layer_name]
    return make().to(F64), torch.randn(rows, *shape, dtype=F64)


def check_loop(
    layer_name: str, method: lb.Method, per_row: bool, rows: int = ROWS
) -> lb.BayesianModel:
    """A pass equals a loop over draws with the written-out weights, and so do its gradients."""
    layer, x = build(layer_name, rows)
    stock = copy.deepcopy(layer)
    model = lb.bayesianize(layer, method)
    draws = rows if per_row else 3
    members = method.index_members
    component = torch.arange(draws).mul(5).remainder(members) if members else None
    noise = KeyedNoise(SEED, range(draws))
    groups = 1 if per_row else draws
    plan = lb.Plan(groups=groups, component=component, per_row=per_row, noise=noise)
    found = model(x, plan=plan)
    weights = written_out(model, draws, component)
    blocks = x.chunk(draws)
    expected = torch.cat(
        [functional_call(stock, w, b) for w, b in zip(weights, blocks, strict=True)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    same_gradients(found, expected, list(model.parameters()))
    return model


def same_gradients(found: Tensor, expected: Tensor, parameters: Sequence[Tensor]) -> None:
    """Equal gradients of both outputs for every parameter."""
    pair = [
        torch.autograd.grad(y.sin().sum(), parameters, retain_graph=True, allow_unused=True)
        for y in (found, expected)
    ]
    for a, b in zip(*pair, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def written_out(model: Any, draws: int, component: Tensor | None) -> list[dict[str, Tensor]]:
    """Weight and bias of every draw, with the factors multiplied into the weight entry by entry."""
    layer = model.net
    drawn = {}
    for slot, q in layer.slots.items():
        base, noise = layer.base(slot), KeyedNoise(SEED, range(draws))
        drawn[slot] = q.draw(base, q.noise(base, draws, noise), component)
    rows, columns = channels(layer)
    transposed = getattr(layer, "transposed", False)
    first, second = ("in_scale", "out_scale") if transposed else ("out_scale", "in_scale")
    result = []
    for d in range(draws):
        weight = drawn["weight"][d] if "weight" in drawn else layer.weight
        for slot, index in ((first, rows), (second, columns)):
            if slot in drawn:
                factor = drawn[slot][d][index]
                weight = weight * factor.reshape(*factor.shape, *(1,) * (weight.dim() - 2))
        values = {"weight": weight}
        if layer.bias is not None:
            values["bias"] = drawn["bias"][d] if "bias" in drawn else layer.bias
        result.append(values)
    return result


def channels(layer: Any) -> tuple[Tensor, Tensor]:
    """The channel that every (row, column) of the weight belongs to: of dim 0, and of dim 1."""
    size, inner = layer.weight.shape[:2]
    row, column = torch.arange(size)[:, None], torch.arange(inner)[None]
    group = row // (size // getattr(layer, "groups", 1))
    return row.expand(size, inner), group * inner + column
