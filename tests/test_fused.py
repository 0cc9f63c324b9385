"""Kernels for a GPU against stock operations.

Without a GPU by Triton's interpreter: `TRITON_INTERPRET=1 pytest tests/test_fused.py`.
"""

import importlib.util
import os

import pytest
import torch

from leanbayes import fused, ops
from leanbayes.ops import between_factors, rows

GPU = torch.cuda.is_available()
READY = GPU or os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(
    not READY or importlib.util.find_spec("triton") is None, reason="no GPU, no interpreter"
)
SHAPES = [((4, 3, 5, 5), 4), ((4, 40, 9, 8), 2), ((6, 70, 3, 3), 1), ((2, 160, 16, 16), 2)]


@pytest.fixture
def device():
    return "cuda" if GPU else "cpu"


def images(shape, device, dtype=torch.float32):
    x = torch.randn(shape, device=device).to(dtype)
    return x.contiguous(memory_format=torch.channels_last).requires_grad_()


def stock(x, factor):
    rows = factor.repeat_interleave(len(x) // len(factor), 0)
    return x * rows[:, :, None, None]


@needs_triton
@pytest.mark.parametrize(("shape", "draws"), SHAPES)
def test_values_and_gradients_are_those_of_stock_operations(shape, draws, device):
    torch.manual_seed(0)
    x, factor = images(shape, device), torch.randn(draws, shape[1], device=device)
    factor.requires_grad_()
    slope = torch.randn(shape, device=device)  # not channels last
    found = fused.scale_rows(x, factor)
    assert found.is_contiguous(memory_format=torch.channels_last)
    expected = stock(x, factor)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    for got, wanted in zip(
        torch.autograd.grad(found, (x, factor), slope),
        torch.autograd.grad(expected, (x, factor), slope),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)


@needs_triton
@pytest.mark.parametrize("turned", [False, True])
def test_factors_may_be_part_of_a_wider_table(turned, device):
    torch.manual_seed(4)
    table = torch.randn(50, 4, device=device).T if turned else torch.randn(4, 50, device=device)
    table.requires_grad_()
    x = images((4, 20, 6, 6), device)
    found = fused.scale_rows(x, table[:, 7:27])
    expected = stock(x, table[:, 7:27])
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    (got,) = torch.autograd.grad(found.square().sum(), table)
    (wanted,) = torch.autograd.grad(expected.square().sum(), table)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)


@needs_triton
@pytest.mark.parametrize("wanted", ["x", "factor"])
def test_one_gradient_alone_is_the_same(wanted, device):
    torch.manual_seed(1)
    x, factor = images((4, 20, 6, 6), device), torch.randn(2, 20, device=device)
    x.requires_grad_(wanted == "x")
    factor.requires_grad_(wanted == "factor")
    leaf = x if wanted == "x" else factor
    (got,) = torch.autograd.grad(fused.scale_rows(x, factor).square().sum(), leaf)
    (expected,) = torch.autograd.grad(stock(x, factor).square().sum(), leaf)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


@needs_triton
def test_half_precision_images_meet_float32_factors_in_float32(device):
    torch.manual_seed(2)
    x = images((2, 32, 8, 8), device, torch.bfloat16)
    factor = torch.randn(2, 32, device=device, requires_grad=True)
    found = fused.scale_rows(x, factor)
    assert found.dtype == torch.bfloat16
    exact = stock(x.float(), factor)
    step = 2**-8 if GPU else 2**-7  # the interpreter cuts digits off, a GPU rounds
    torch.testing.assert_close(found.float(), exact, rtol=step, atol=0)
    found.float().sum().backward()
    assert factor.grad.dtype == torch.float32
    torch.testing.assert_close(factor.grad, x.detach().float().sum((2, 3)), rtol=1e-5, atol=1e-5)


@needs_triton
def test_second_derivatives_are_those_of_stock_operations(device):
    torch.manual_seed(3)
    x = images((4, 4, 3, 3), device)
    factor = torch.randn(2, 4, device=device, requires_grad=True)
    found = []
    for scaled in (fused.scale_rows, stock):
        whole = scaled(x, factor).pow(3).sum()
        first = torch.autograd.grad(whole, (x, factor), create_graph=True)
        second = sum(slope.square().sum() for slope in first)
        found.append(torch.autograd.grad(second, (x, factor)))
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


def test_images_of_a_cpu_take_stock_operations():
    x, factor = images((2, 4, 3, 3), "cpu"), torch.randn(2, 4)
    assert not fused.scales(x, factor)
    assert torch.equal(ops.scaled(x, factor, 1), stock(x, factor))


@pytest.mark.skipif(not GPU, reason="no GPU")
def test_a_gpu_takes_the_kernel_for_images_channels_last_alone(device):
    x, factor = images((4, 8, 3, 3), device), torch.randn(2, 8, device=device)
    assert fused.scales(x, factor)
    assert not fused.scales(x.contiguous(), factor)
    assert not fused.scales(x, factor[:, :, None, None])
    torch.testing.assert_close(ops.scaled(x, factor, 1), stock(x, factor))
    whole = ops.plus_scaled(x, x, factor, 1)
    torch.testing.assert_close(whole, x + stock(x, factor))
    mapped = torch.func.vmap(lambda f: ops.scaled(x, f, 1))(torch.stack([factor, 2 * factor]))
    torch.testing.assert_close(mapped[1], 2 * mapped[0])


@needs_triton
@pytest.mark.parametrize("frozen", [(), (0,), (2,), (3,)])
@pytest.mark.parametrize("draws", [1, 2, 6])
def test_a_convolution_between_factors_runs_by_the_kernels(draws, frozen, device, monkeypatch):
    torch.manual_seed(5)
    x, weight = images((6, 5, 7, 6), device), images((8, 5, 3, 3), device)
    before, after = (torch.randn(draws, n, device=device).requires_grad_() for n in (5, 8))
    given = [x, weight, before, after]
    for at in frozen:
        given[at].requires_grad_(False)
    if not GPU:
        monkeypatch.setattr("leanbayes.ops.pays", lambda _x: True)
        for module in (between_factors, rows):
            monkeypatch.setattr(module, "scales", lambda x, _factor: x.dim() == 4)
    geometry = ops.Geometry((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    found = ops.convolved_between(*given, None, geometry)
    expected = stock(torch.nn.functional.conv2d(stock(x, before), weight, padding=1), after)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    slope, wanted = torch.randn_like(found), [t for t in given if t.requires_grad]
    for got, true in zip(
        torch.autograd.grad(found, wanted, slope),
        torch.autograd.grad(expected, wanted, slope),
        strict=True,
    ):
        torch.testing.assert_close(got, true, rtol=1e-3, atol=1e-3)
