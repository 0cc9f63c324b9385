"""The kernels in Triton; imported where one is launched.

Triton 3.6 reads annotations of arguments as code, so that only `tl.constexpr` may stand there.
"""
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def scale(  # noqa: PLR0913
    x,
    factor,
    out,
    pixels,
    channels,
    span,
    stride,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """`out[p, c] = x[p, c] * factor[p // span, c]`: a tile of pixels and channels a program."""
    pixel = tl.program_id(0) * TALL + tl.arange(0, TALL)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    place = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    draw = (pixel // span)[:, None] * stride + channel[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    times = tl.load(factor + draw, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, (value * times).to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def scale_backward(  # noqa: PLR0913
    x,
    factor,
    grad,
    dx,
    found,
    size,
    channels,
    each,
    stride,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """A program has one row and some channels: it goes through the pixels of the row."""
    row = tl.program_id(0)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    known = channel < channels
    times = tl.load(factor + (row // each) * stride + channel, mask=known, other=0.0)
    times = times.to(tl.float32)
    total = tl.zeros((TALL, WIDE), dtype=tl.float32)
    first = row.to(tl.int64) * size * channels
    for start in range(0, size, TALL):
        pixel = start + tl.arange(0, TALL)
        inside = (pixel < size)[:, None] & known[None, :]
        place = first + pixel[:, None] * channels + channel[None, :]
        slope = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        total += slope * value
        if INPUTS:
            moved = slope * times[None, :]
            tl.store(dx + place, moved.to(dx.dtype.element_ty), mask=inside)
    tl.store(found + row * channels + channel, tl.sum(total, axis=0), mask=known)
