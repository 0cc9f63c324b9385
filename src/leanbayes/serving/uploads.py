"""From the body of a request to the raw input of the network.

What a body is, its own first bytes say, never its `Content-Type` or a name. An image's size is read
from its header and checked before a pixel is decoded. Nothing is written to disk or read from it.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import threading
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from leanbayes.data.decode import Frame, pixels_of
from leanbayes.data.files import optional
from leanbayes.data.tables import Column, encoded
from leanbayes.errors import DataError
from leanbayes.serving.limits import Limits
from leanbayes.serving.refusal import Refusal
from leanbayes.serving.served import Served

FORMATS: Final = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG"}
KINDS: Final = ("PNG", "JPEG", "WEBP")
KEYS: Final = ("image", "inputs", "columns")
READERS: Final = 2  # at a time: each may hold the pixels of a large image, or many Python objects
WHOLE: Final = 2**53
FLOAT: Final = float(np.finfo(np.float32).max)

_reading = threading.BoundedSemaphore(READERS)


def input_of(body: bytes, served: Served, limits: Limits) -> Tensor:
    """The raw input in a body, of the served shape, without a row: bytes of an image, or numbers.

    Raises:
        Refusal: 400 no JSON, 413 too many pixels, 415 of no known kind, 422 does not fit.
    """
    with _reading:
        if sniffed(body) == "JSON":
            return _from_json(body, served, limits)
        return _from_image(body, served, limits)


def _from_image(body: bytes, served: Served, limits: Limits) -> Tensor:
    kind = sniffed(body)
    if kind in (None, "JSON") or served.frame is None:
        found = "an empty body" if not body else f"a body of {_words(kind)}"
        raise Refusal(415, found, wanted(served))
    assert kind is not None
    return _pixels(body, kind, served.frame, served, limits)


def wanted(served: Served) -> str:
    """What a body may be, in words."""
    numbers = f'JSON {{"inputs": numbers of shape {served.size}}}'
    if served.columns:
        names = ", ".join(column.name for column in served.columns[:4])
        numbers += f' or {{"columns": {{{names}, ...: values}}}}'
    if served.frame is None:
        return numbers
    return f'the bytes of a PNG, JPEG or WebP image, JSON {{"image": base64}}, or {numbers}'


def sniffed(body: bytes) -> str | None:
    """PNG, JPEG, WEBP or JSON by the first bytes; None for all else.

    Example:
        >>> sniffed(b' {"inputs": [1]}'), sniffed(b"GIF89a")
        ('JSON', None)
    """
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "WEBP"
    for start, kind in FORMATS.items():
        if body.startswith(start):
            return kind
    return "JSON" if body[:64].lstrip()[:1] in (b"{", b"[") else None


def _words(kind: str | None) -> str:
    return f"{kind}, but inputs are no images" if kind in KINDS else "no kind that is known here"


def _pixels(body: bytes, kind: str, frame: Frame, served: Served, limits: Limits) -> Tensor:
    pillow = optional("PIL.Image", "Pillow")
    try:
        with pillow.open(io.BytesIO(body), formats=[kind]) as image:
            _check_pixels(image.size, limits)
            return pixels_of(image, frame, served.shape[0])
    except (Refusal, MemoryError):
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise _too_many("", limits) from None
    except Exception as error:  # what a damaged picture raises depends on its format
        words = f"a {kind} image that cannot be decoded ({type(error).__name__})"
        raise Refusal(422, words, "a whole and sound one") from None


def _check_pixels(size: tuple[int, int], limits: Limits) -> None:
    if min(size) < 1 or size[0] * size[1] > limits.pixels:
        raise _too_many(f" of {size[0]}x{size[1]}", limits)


def _too_many(words: str, limits: Limits) -> Refusal:
    return Refusal(413, f"an image{words}", f"at most {limits.pixels:,} pixels")


def _from_json(body: bytes, served: Served, limits: Limits) -> Tensor:
    found = parsed(body)
    keys = sorted(found) if isinstance(found, dict) else None
    if keys is None or len(keys) != 1 or keys[0] not in KEYS:
        shown = f"keys {keys}" if keys is not None else f"a {type(found).__name__}"
        raise Refusal(422, f"JSON with {shown}"[:200], wanted(served))
    key = keys[0]
    if key == "image":
        return _from_base64(found[key], served, limits)
    if key == "columns":
        return _from_columns(found[key], served)
    return _from_numbers(found[key], served)


def parsed(body: bytes) -> Any:
    """A value from JSON; what Python takes beyond the standard, such as NaN, is refused."""
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        words = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refusal(400, f"a body that is no JSON: {words[:120]}", "JSON in UTF-8") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _from_base64(text: Any, served: Served, limits: Limits) -> Tensor:
    if not isinstance(text, str):
        raise Refusal(422, f"an image that is a {type(text).__name__}", "text in base64")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        body = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(422, f"an image that is no base64: {error}", "RFC 4648 base64") from None
    return _from_image(body, served, limits)


def _from_numbers(values: Any, served: Served) -> Tensor:
    """Nested lists in the served shape, or flat ones of as many numbers."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        raise _no_fit("lists of unequal lengths", served) from None
    if array.dtype.kind not in "iuf":
        raise _no_fit(f"inputs with something that is no number ({array.dtype.name})", served)
    if array.shape != served.shape and array.shape != (served.inputs,):
        raise _no_fit(f"inputs of shape {'x'.join(map(str, array.shape)) or 'none'}", served)
    if any(type(value) is bool for value in np.array(values, dtype=object).flat):
        raise _no_fit("inputs with true or false among them", served)
    return _checked(array.reshape(served.shape), served)


def _from_columns(cells: Any, served: Served) -> Tensor:
    names = [column.name for column in served.columns]
    if not names:
        raise Refusal(422, "columns, which these inputs have none of", wanted(served))
    if not isinstance(cells, dict) or set(cells) != set(names):
        odd = sorted(set(cells) ^ set(names)) if isinstance(cells, dict) else type(cells).__name__
        raise Refusal(422, f"columns that differ in {odd}"[:200], f"a value of each of {names}")
    text = {column.name: [_cell(column, cells[column.name])] for column in served.columns}
    try:
        array = encoded(served.columns, text)[0]
    except DataError as error:
        raise Refusal(422, str(error), f"a value of each of {names}") from None
    return _checked(array, served)


def _cell(column: Column, value: Any) -> str:
    """As in a file: a category by its name, or a number."""
    if column.categories:
        good, wanted = value in column.categories, f"one of {', '.join(column.categories[:20])}"
    else:
        good, wanted = type(value) in (int, float), "a number"
    if not good:
        raise Refusal(422, f"{column.name} is {json.dumps(value)[:60]}", wanted)
    return str(value)


def _checked(array: np.ndarray[Any, Any], served: Served) -> Tensor:
    """Float32, float64 of a table, int64 where inputs are whole; all of them finite."""
    if served.whole:
        if not np.array_equal(array, np.rint(array)) or np.abs(array).max(initial=0) > WHOLE:
            raise _no_fit("inputs that are not whole", served)
        return torch.from_numpy(array.astype(np.int64))
    if not (np.abs(array.astype(np.float64)) <= FLOAT).all():
        raise _no_fit("numbers that are missing, infinite or beyond float32", served)
    # Large numbers of a column lose their digits in float32 before its mean is taken off.
    return torch.from_numpy(array.astype(np.float64 if served.columns else np.float32))


def _no_fit(found: str, served: Served) -> Refusal:
    kind = "whole numbers" if served.whole else "finite numbers"
    scale = ", of images 0 to 1" if served.frame is not None else ""
    return Refusal(422, found, f"{kind} of shape {served.size}{scale}")
