"""A convolution between factors in one operation: the same numbers, gradients and less memory."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.ops import Geometry, convolved_between, keeps_once, pays
from leanbayes.price.measure import saved_bytes

F64 = torch.float64
PLAIN = Geometry((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
CASES = {
    "plain": (PLAIN, (4, 3, 3, 3)),
    "strided": (Geometry((2, 1), (0, 2), (1, 2), False, (0, 0), 1), (4, 3, 3, 2)),
    "grouped": (Geometry((1, 1), (1, 1), (1, 1), False, (0, 0), 3), (6, 1, 3, 3)),
    "transposed": (Geometry((2, 2), (1, 1), (1, 1), True, (1, 0), 1), (3, 4, 3, 3)),
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """A CPU takes the three operations, but the one is right there too."""
    monkeypatch.setattr("leanbayes.ops.pays", lambda _x: True)


def tensors(case, draws, rows=6, after=True, dtype=F64):
    geometry, shape = CASES[case]
    generator = torch.Generator().manual_seed(3)

    def made(*size):
        return torch.randn(*size, dtype=dtype, generator=generator).requires_grad_()

    outputs = shape[1] if geometry.transposed else shape[0]
    x, weight = made(rows, 3, 6, 5), made(*shape)
    return geometry, [x, weight, made(draws, 3), made(draws, outputs) if after else None]


def convolve_by(geometry):
    def convolve(x, weight, blocks):
        groups = geometry.groups * blocks
        if geometry.transposed:
            options = (geometry.stride, geometry.padding, geometry.output_padding, groups)
            return F.conv_transpose2d(x, weight, None, *options, geometry.dilation)
        return F.conv2d(
            x, weight, None, geometry.stride, geometry.padding, geometry.dilation, groups
        )

    return convolve


def spread(factor, x):
    return factor.repeat_interleave(len(x) // len(factor), 0)[:, :, None, None]


def three_steps(geometry, x, weight, before, after):
    y = convolve_by(geometry)(x * spread(before, x), weight, 1)
    return y if after is None else y * spread(after, y)


def one_step(geometry, x, weight, before, after):
    return convolved_between(x, weight, before, after, convolve_by(geometry), geometry)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("draws", [1, 2, 6])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_three_operations(case, draws, after):
    geometry, given = tensors(case, draws, after=after)
    wanted = [tensor for tensor in given if tensor is not None]
    found = []
    for run in (one_step, three_steps):
        y = run(geometry, *given)
        weights = torch.linspace(-1, 1, y.numel(), dtype=F64).reshape(y.shape)
        found.append((y, *torch.autograd.grad((y * weights).sum(), wanted)))
    for one, three in zip(*found, strict=True):
        torch.testing.assert_close(one, three, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 2), (1, 2, 3)])
def test_what_needs_no_gradient_gets_none(frozen):
    geometry, given = tensors("plain", 2)
    for at in frozen:
        given[at].requires_grad_(False)
    wanted = [tensor for tensor in given if tensor.requires_grad]
    one, three = (
        torch.autograd.grad(run(geometry, *given).square().sum(), wanted)
        for run in (one_step, three_steps)
    )
    torch.testing.assert_close(one, three, rtol=1e-12, atol=1e-12)


def test_second_derivatives_are_right():
    geometry, given = tensors("plain", 2, rows=2)
    assert torch.autograd.gradgradcheck(lambda *args: one_step(geometry, *args), given)


def test_it_is_one_operation_where_a_gradient_is_kept_and_stock_ones_elsewhere():
    geometry, given = tensors("plain", 2)
    name = type(one_step(geometry, *given).grad_fn).__name__
    assert name == "_ScaledConvolutionBackward"
    with torch.no_grad():
        y = one_step(geometry, *given)
    torch.testing.assert_close(y, three_steps(geometry, *given), rtol=1e-12, atol=1e-12)
    per_sample = torch.func.grad(lambda x: one_step(geometry, x, *given[1:]).square().sum())
    expected = torch.autograd.grad(three_steps(geometry, *given).square().sum(), given[0])[0]
    torch.testing.assert_close(per_sample(given[0]), expected, rtol=1e-12, atol=1e-12)


def test_a_cpu_takes_the_faster_operations(monkeypatch):
    monkeypatch.undo()
    geometry, given = tensors("plain", 2)
    y = one_step(geometry, *given)
    assert type(y.grad_fn).__name__ != "_ScaledConvolutionBackward"
    torch.testing.assert_close(y, three_steps(geometry, *given), rtol=1e-12, atol=1e-12)
    assert pays(torch.empty(1, device="meta"))


def test_an_operation_in_place_behind_it_is_no_harm():
    """VGG's activations write over the convolution's result."""
    geometry, given = tensors("plain", 2)
    one = torch.autograd.grad(F.relu_(one_step(geometry, *given)).sum(), given)
    three = torch.autograd.grad(F.relu(three_steps(geometry, *given)).sum(), given)
    torch.testing.assert_close(one, three, rtol=1e-12, atol=1e-12)


def test_autocast_multiplies_in_half_precision():
    geometry, given = tensors("plain", 2, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        one, three = (run(geometry, *given) for run in (one_step, three_steps))
    assert one.dtype == torch.bfloat16
    torch.testing.assert_close(one.float(), three.float(), rtol=0.05, atol=0.05)
    grads = torch.autograd.grad(one.float().sum(), given)
    exact = torch.autograd.grad(three_steps(geometry, *given).sum(), given)
    for found, expected in zip(grads, exact, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 0.03 * expected.norm()


def block(width=8):
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )


def kept(net, method, x):
    model = net if method is None else lb.bayesianize(net, method)
    model.train()
    apart = [x, *model.parameters(), *model.buffers()]
    return saved_bytes(lambda: model(x), apart)


@pytest.mark.parametrize(
    ("method", "most"),
    [
        (lb.Implicit(), 1.1),  # factors on inputs: what the network keeps, and the factors
        (lb.RankOne(members=2), 1.6),  # on outputs too: the rows before them
        (lb.BatchEnsemble(members=2), 1.6),
        (lb.SharedEnsemble(members=4, per_channel=True), 1.6),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_step_keeps_the_inputs_of_its_convolutions_once(method, most, monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(16, 8, 16, 16, requires_grad=True)
    plain = kept(block(), None, x)
    assert kept(block(), method, x) < most * plain
    monkeypatch.setattr("leanbayes.ops.keeps_once", lambda *_args: False)
    assert kept(block(), method, x) > (most + 0.3) * plain


def test_rows_that_are_no_blocks_are_refused():
    geometry, (x, weight, before, after) = tensors("plain", 2)
    with pytest.raises(lb.PlanError, match="5 rows for 2 draws"):
        one_step(geometry, x[:5], weight, before, after)
    with pytest.raises(lb.PlanError, match="5 rows for 2 draws"):
        one_step(geometry, x[:5], weight, before[:1], after)


def test_the_operation_is_used_for_plain_tensors_alone():
    _, (x, weight, before, after) = tensors("plain", 2)
    assert keeps_once(x, weight, before, after)
    assert not keeps_once(x, weight, before, after[:, :, None, None])
    assert not keeps_once(x.as_subclass(Strange), weight, before, after)
    detached = [tensor.detach() for tensor in (x, weight, before, after)]
    assert not keeps_once(*detached)


class Strange(torch.Tensor):
    """A tensor of another kind (DTensor, say)."""
