"""The kernels in Triton; imported where one is launched."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def scale(  # noqa: PLR0913
    x: Any,
    factor: Any,
    out: Any,
    pixels: Any,
    channels: Any,
    span: Any,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """`out[p, c] = x[p, c] * factor[p // span, c]`: a tile of pixels and channels a program."""
    pixel = tl.program_id(0) * TALL + tl.arange(0, TALL)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    place = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    draw = (pixel // span)[:, None] * channels + channel[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    times = tl.load(factor + draw, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, (value * times).to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def scale_backward(  # noqa: PLR0913
    x: Any,
    factor: Any,
    grad: Any,
    dx: Any,
    found: Any,
    size: Any,
    channels: Any,
    each: Any,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    INPUTS: tl.constexpr,
) -> None:
    """A program has one row and some channels: it goes through the pixels of the row."""
    row = tl.program_id(0)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    known = channel < channels
    times = tl.load(factor + (row // each) * channels + channel, mask=known, other=0.0)
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
