"""Every form of a draw against a loop over draws with the weight written out."""

import math

import pytest
import torch
from torch.nn import functional as F

from leanbayes import ops
from leanbayes.errors import PlanError
from leanbayes.forms import Flipped, Moments, PerDraw, Selected, Shared, order_of

FORMS = ("shared", "per_draw", "flipped")
LAYOUTS = [(draws, rows) for draws in (1, 2, 3) for rows in (1, 2)]


def make_form(kind, draws, shape, groups=1):
    if kind == "none":
        return None
    if kind == "shared":
        return Shared(torch.randn(shape).double())
    if kind == "per_draw":
        return PerDraw(torch.randn(draws, *shape).double())
    mean, delta = torch.randn(2, *shape).double()
    sign0, sign1 = (
        torch.randn(draws, size).double().sign() for size in (shape[0], shape[1] * groups)
    )
    return Flipped(mean, delta, sign0, sign1)


def written_out(form, draws, groups=1):
    """The values of all draws, [D, *shape]; None where there is no tensor."""
    match form:
        case None:
            return [None] * draws
        case Shared(value):
            return [value] * draws
        case PerDraw(value):
            return list(value)
    sign1 = form.sign1.reshape(draws, groups, 1, -1)
    sign1 = sign1.expand(-1, -1, form.mean.shape[0] // groups, -1).flatten(1, 2)
    outer = sign1 if form.sign0 is None else sign1 * form.sign0[:, :, None]
    outer = outer.reshape(*outer.shape, *(1,) * (form.mean.dim() - 2))
    return list(form.mean + form.delta * outer)


def loop(x, weight, bias, draws, layer, groups=1):
    blocks = x.chunk(draws)
    weights = written_out(weight, draws, groups)
    biases = written_out(bias, draws)
    return torch.cat([layer(*parts) for parts in zip(blocks, weights, biases, strict=True)])


def assert_equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tokens", [(), (3,), (2, 3)], ids=["rows", "tokens", "grid"])
@pytest.mark.parametrize("bias", ["none", "shared", "per_draw"])
@pytest.mark.parametrize("kind", FORMS)
def test_linear_equals_a_loop_over_draws(kind, bias, tokens):
    for draws, rows in LAYOUTS:
        torch.manual_seed(draws * 10 + rows)
        x = torch.randn(draws * rows, *tokens, 4).double()
        weight, shift = make_form(kind, draws, (5, 4)), make_form(bias, draws, (5,))
        assert_equal(ops.linear(x, weight, shift), loop(x, weight, shift, draws, F.linear))


def test_linear_without_signs_on_the_outputs_equals_a_loop_over_draws():
    torch.manual_seed(0)
    x = torch.randn(6, 4).double()
    weight = make_form("flipped", 3, (5, 4))._replace(sign0=None)
    assert_equal(ops.linear(x, weight, None), loop(x, weight, None, 3, F.linear))


def selected(shape):
    """Five draws of four copies; their order is not its own inverse, and a copy is left out."""
    return Selected(torch.randn(4, *shape).double(), torch.tensor([2, 0, 3, 2, 0]))


@pytest.mark.parametrize("bias", ["none", "shared", "per_draw"])
@pytest.mark.parametrize("sorted_before", [False, True])
def test_rows_of_every_copy_come_back_in_their_order(bias, sorted_before):
    torch.manual_seed(0)
    form, x = selected((5, 4)), torch.randn(10, 4).double()
    shift, each = make_form(bias, 5, (5,)), PerDraw(form.values[form.component])
    form = form._replace(order=order_of(form.component) if sorted_before else None)
    assert_equal(ops.linear(x, form, shift), loop(x, each, shift, 5, F.linear))
    images, kernels = torch.randn(10, 4, 3).double(), selected((5, 4, 2))

    def convolve(x, weight, _blocks):
        return F.conv1d(x, weight)

    each = PerDraw(kernels.values[kernels.component])
    found = ops.convolution(images, kernels, shift, convolve)
    assert_equal(found, loop(images, each, shift, 5, F.conv1d))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("bias", ["none", "shared", "per_draw"])
@pytest.mark.parametrize("kind", FORMS)
def test_convolution_equals_a_loop_over_draws(kind, bias, dims, groups):
    function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]

    def convolve(x, weight, blocks):
        return function(x, weight, None, 1, 1, 1, groups * blocks)

    def layer(x, weight, bias):
        return function(x, weight, bias, 1, 1, 1, groups)

    for draws, rows in LAYOUTS:
        torch.manual_seed(draws * 10 + rows)
        x = torch.randn(draws * rows, 4, *(5, 4, 3)[:dims]).double()
        shape = (8, 4 // groups, *(2,) * dims)
        weight, shift = make_form(kind, draws, shape, groups), make_form(bias, draws, (8,))

        found = ops.convolution(x, weight, shift, convolve)
        assert_equal(found, loop(x, weight, shift, draws, layer, groups))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("bias", ["none", "shared", "per_draw"])
@pytest.mark.parametrize("kind", FORMS)
def test_transposed_convolution_equals_a_loop_over_draws(kind, bias, dims, groups):
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]

    def convolve(x, weight, blocks):
        return function(x, weight, None, 2, 0, 1, groups * blocks)

    def layer(x, weight, bias):
        return function(x, weight, bias, 2, 0, 1, groups)

    for draws, rows in LAYOUTS:
        torch.manual_seed(draws * 10 + rows)
        x = torch.randn(draws * rows, 4, *(5, 4, 3)[:dims]).double()
        shape = (4, 8 // groups, *(2,) * dims)
        weight, shift = make_form(kind, draws, shape, groups), make_form(bias, draws, (8,))

        found = ops.convolution(x, weight, shift, convolve, transposed=True)
        assert_equal(found, loop(x, weight, shift, draws, layer, groups))


@pytest.mark.parametrize("weight", ["none", "shared", "per_draw"])
@pytest.mark.parametrize("bias", ["none", "shared", "per_draw"])
@pytest.mark.parametrize(
    ("shape", "parameter", "channel_dim"),
    [((4,), (4,), 1), ((4, 3, 2), (4,), 1), ((5, 4), (4,), 2), ((5, 3, 2), (3, 2), 2)],
    ids=["rows", "channels", "tokens", "two_dims"],
)
def test_affine_equals_a_loop_over_draws(weight, bias, shape, parameter, channel_dim):
    after = (1,) * (len(shape) + 1 - channel_dim - len(parameter))

    def layer(x, weight, bias):
        x = x if weight is None else x * weight.reshape(*parameter, *after)
        return x if bias is None else x + bias.reshape(*parameter, *after)

    for draws, rows in LAYOUTS:
        torch.manual_seed(draws * 10 + rows)
        x = torch.randn(draws * rows, *shape).double()
        scale, shift = make_form(weight, draws, parameter), make_form(bias, draws, parameter)
        assert_equal(ops.affine(x, scale, shift, channel_dim), loop(x, scale, shift, draws, layer))


def test_affine_takes_a_weight_and_a_bias_of_different_numbers_of_draws():
    torch.manual_seed(0)
    x = torch.randn(6, 4, 2).double()
    weight, bias = make_form("per_draw", 2, (4,)), make_form("per_draw", 6, (4,))
    expected = x * weight.value.repeat_interleave(3, 0)[..., None] + bias.value[..., None]
    assert_equal(ops.affine(x, weight, bias, 1), expected)


@pytest.mark.parametrize("tokens", [(), (3,), (2, 3)], ids=["rows", "tokens", "grid"])
@pytest.mark.parametrize("kind", [*FORMS, "flipped_features"])
def test_embedding_equals_a_loop_over_draws(kind, tokens):
    for draws, rows in LAYOUTS:
        torch.manual_seed(draws * 10 + rows)
        ids = torch.randint(0, 7, (draws * rows, *tokens))
        weight = make_form(kind.partition("_features")[0], draws, (7, 4))
        if kind == "flipped_features":
            weight = weight._replace(sign0=None)
        found = ops.embedding(ids, weight, F.embedding)
        assert_equal(found, loop(ids, weight, None, draws, lambda ids, w, _: F.embedding(ids, w)))


@pytest.mark.parametrize("kind", ["per_draw", "flipped"])
def test_rows_that_draws_cannot_share_are_refused_not_mixed(kind):
    weight = make_form(kind, 4, (5, 4))
    tokens = torch.zeros(3, 4, 4).double()  # 12 tokens, but 3 rows for 4 draws
    with pytest.raises(PlanError, match="4 draws"):
        ops.linear(tokens, weight, None)
    with pytest.raises(PlanError, match="4 draws"):
        ops.embedding(torch.zeros(3, 4, dtype=torch.long), weight, F.embedding)


def test_convolution_and_embedding_refuse_moments():
    form = Moments(torch.zeros(2, 2), torch.ones(2, 2))
    with pytest.raises(TypeError, match="no local form"):
        ops.convolution(torch.zeros(1, 2, 3), form, None, lambda *_: None)
    with pytest.raises(TypeError, match="embedding cannot take the form Moments"):
        ops.embedding(torch.zeros(1, dtype=torch.long), form, F.embedding)


@pytest.mark.parametrize("bias", ["none", "shared", "per_draw", "moments"])
def test_moments_give_the_law_of_one_weight_a_row(bias):
    """Mean and covariance of 40,000 draws against the closed form, within 5 standard errors."""
    torch.manual_seed(3)
    draws, rows, inputs, outputs = 40_000, 2, 3, 2
    x = torch.randn(rows, inputs).double()
    mean, variance = torch.randn(outputs, inputs).double(), torch.rand(outputs, inputs).double()
    shift = make_form(bias, rows, (outputs,)) if bias != "moments" else None
    location = x @ mean.T
    spread = x.square() @ variance.T
    if bias == "moments":
        shift = Moments(torch.randn(outputs).double(), torch.rand(outputs).double())
        location, spread = location + shift.mean, spread + shift.variance
    elif shift is not None:
        location = location + shift.value
    if isinstance(shift, PerDraw):
        shift = PerDraw(shift.value.repeat(draws, 1))
    y = ops.linear(x.repeat(draws, 1), Moments(mean, variance), shift).unflatten(0, (draws, rows))
    z = ((y - location) / spread.sqrt()).flatten(1)  # every (row, output) should be N(0, 1)
    limit = 5 / math.sqrt(draws)
    assert z.mean(0).abs().max() < limit
    covariance = z.T @ z / draws
    assert (covariance.diagonal() - 1).abs().max() < math.sqrt(2) * limit
    assert (covariance - covariance.diagonal().diag()).abs().max() < limit
    assert (z.pow(4).mean(0) - 3).abs().max() < math.sqrt(96) * limit  # Gaussian, not just a scale


def test_moments_give_the_gradients_of_location_and_spread():
    torch.manual_seed(4)
    x, mean, variance = (torch.rand(n, 3, dtype=torch.float64) for n in (5, 2, 2))
    bias = Moments(*torch.rand(2, 2, dtype=torch.float64))
    leaves = [leaf.requires_grad_() for leaf in (x, mean, variance)] + [
        leaf.detach().requires_grad_() for leaf in bias
    ]
    y = ops.linear(x, Moments(mean, variance), Moments(*leaves[3:]))
    location = x @ mean.T + leaves[3]
    spread = (x.square() @ variance.T + leaves[4]).sqrt()
    again = location + spread * ((y - location) / spread).detach()
    found, expected = (torch.autograd.grad(out.sin().sum(), leaves) for out in (y, again))
    for a, b in zip(found, expected, strict=True):
        assert_equal(a, b)


def test_moments_without_variance_give_finite_gradients_for_a_row_of_zeros():
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    variance = torch.full((4, 3), 1e-60, dtype=torch.float64, requires_grad=True)
    ops.linear(x, Moments(torch.ones(4, 3).double(), variance), None).sum().backward()
    assert_equal(x.grad, torch.full((2, 3), 4.0).double())
    assert_equal(variance.grad, torch.zeros(4, 3).double())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_moments_in_half_precision_keep_scales_that_would_underflow(dtype):
    torch.manual_seed(0)
    x = torch.ones(4_000, 4, dtype=dtype)
    variance = torch.full((1, 4), 1e-9)  # below the smallest float16
    y = ops.linear(x, Moments(torch.zeros(1, 4, dtype=dtype), variance), None)
    assert y.dtype == dtype
    std = y.float().square().mean().sqrt()
    assert std == pytest.approx(math.sqrt(4e-9), rel=0.05)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sides", [(4, 4), (4, 1), (4, 0), (0, 4), (64, 64), (64, 0)])
def test_factors_give_the_same_in_small_kernels_as_in_rows(sides, transposed):
    torch.manual_seed(0)
    convolve = F.conv_transpose2d if transposed else F.conv2d
    x, weight = torch.randn(64, 2, 16, 16).double(), torch.randn(2, 2, 3, 3).double()
    factors = [torch.randn(n, 2).double() if n else None for n in sides]
    given = [t.requires_grad_() for t in (x, weight, *factors) if t is not None]

    def run(rows, kernel, _blocks):
        return convolve(rows, kernel, groups=_blocks)

    form, *left = ops.with_factors(x, Shared(weight), *factors, first=transposed, groups=1)
    assert isinstance(form, PerDraw)
    assert left == [None, None]
    found = ops.convolution(x, form, None, run, transposed)
    before, after = factors
    y = ops.scaled(convolve(ops.scaled(x, before, 1), weight), after, 1)
    torch.testing.assert_close(found, y, rtol=1e-12, atol=1e-12)
    seed = torch.randn_like(y)
    for got, expected in zip(
        torch.autograd.grad(found, given, seed), torch.autograd.grad(y, given, seed), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def test_factors_stay_with_the_rows_where_kernels_would_be_larger():
    x, weight = torch.randn(8, 16, 4, 4), torch.randn(16, 16, 3, 3)
    factor = torch.randn(8, 16)
    form, before, after = ops.with_factors(x, Shared(weight), factor, factor, first=False, groups=1)
    assert isinstance(form, Shared)
    assert before is factor
    assert after is factor


@pytest.mark.parametrize("draws", [1, 2, 4, 8])
@pytest.mark.parametrize("parts", ["both", "weight", "bias", "scale"])
def test_rows_channels_last_are_scaled_as_others_and_keep_their_layout(draws, parts):
    x = torch.randn(8, 5, 3, 2, dtype=torch.float64)
    weight, bias = torch.randn(2, draws, 5, dtype=torch.float64)
    found = []
    for rows in (x, x.contiguous(memory_format=torch.channels_last)):
        w, b = (leaf.clone().requires_grad_() for leaf in (weight, bias))
        forms = {"both": (w, b), "weight": (w, None), "bias": (None, b)}.get(parts)
        if forms is None:
            y = ops.scaled(rows, w, 1)
        else:
            y = ops.affine(rows, *(None if f is None else PerDraw(f) for f in forms), 1)
        assert ops.is_turned(y) == ops.is_turned(rows)
        assert y._base is None
        y.square().sum().backward()
        found.append([y, *(leaf.grad for leaf in (w, b) if leaf.grad is not None)])
    for plain, turned in zip(*found, strict=True):
        torch.testing.assert_close(turned, plain, rtol=1e-12, atol=1e-12)


def test_channels_in_the_last_dimension_are_scaled_there_whatever_the_layout():
    x = torch.randn(4, 3, 5, 6).contiguous(memory_format=torch.channels_last)
    factor = torch.randn(2, 6)
    expected = x * factor.repeat_interleave(2, 0)[:, None, None, :]
    torch.testing.assert_close(ops.scaled(x, factor, -1), expected)
