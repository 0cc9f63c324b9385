import math

import pytest
import torch

from leanbayes.metrics import accuracy, brier, ece, mce, nll, reliability
from leanbayes.metrics.check import as_rows

CLASSIFICATION = [accuracy, brier, nll, reliability, ece, mce]
HALF = torch.full((4, 2), 0.5)
ZEROS = torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize("metric", CLASSIFICATION)
@pytest.mark.parametrize(
    ("probs", "target", "message"),
    [
        (
            HALF[:, 0],
            ZEROS,
            r"^probs has shape \(4,\); expected \[B, C\] or \[B, C, \.\.\.\]\. "
            r"Write: torch\.stack\(\[1 - p, p\], dim=1\) if binary$",
        ),
        (
            HALF[:0],
            ZEROS[:0],
            r"^probs is empty, shape \(0, 2\); expected one element or more\. Write: if len\(probs",
        ),
        (
            HALF,
            ZEROS[:3],
            r"^target has shape \(3,\) and probs \(4, 2\); expected one class a row, "
            r"target of shape \(4,\)\. Write: target\.argmax\(dim=1\)",
        ),
        (HALF, HALF.long(), r"^target has shape \(4, 2\) .* target\.argmax\(dim=1\) if it is one-"),
        (
            torch.full((4, 5, 5, 2), 0.5),
            torch.zeros(4, 5, 5).long(),
            r"^target has shape \(4, 5, 5\) .* probs\.movedim\(-1, 1\) if classes come last$",
        ),
        (
            HALF.long(),
            ZEROS,
            r"^probs has dtype torch\.int64; expected floating point\. "
            r"Write: logits\.softmax\(dim=1\)$",
        ),
        (
            torch.tensor([[math.nan, 1.0], [math.inf, 0.0]]),
            ZEROS[:2],
            r"^probs holds 2 of 4 values that are NaN or infinite; expected finite numbers\. "
            r"Write: assert probs\.isfinite\(\)\.all\(\)",
        ),
        (
            torch.tensor([[2.5, -1.5]]),
            ZEROS[:1],
            r"^probs reaches from -1\.5 to 2\.5; expected probabilities in \[0, 1\], "
            r"never logits\. Write: logits\.softmax\(dim=1\)$",
        ),
        (
            torch.tensor([[0.5, 0.5], [0.5, 0.25]]),
            ZEROS[:2],
            r"^a row of probs sums to 0\.75; expected 1 to within 0\.001, "
            r"summed over classes \(dim 1\)\. Write: logits\.float\(\)\.softmax\(dim=1\)$",
        ),
        (
            HALF,
            torch.zeros(4),
            r"^target has dtype torch\.float32; expected integer class indices\. "
            r"Write: target\.long\(\)$",
        ),
        (HALF, ZEROS.bool(), r"^target has dtype torch\.bool; expected integer class indices"),
        (
            HALF,
            torch.tensor([0, 1, 2, 0]),
            r"^target reaches from 0 to 2; expected classes 0 to 1, since probs has 2\. Write: ",
        ),
        (HALF, torch.tensor([0, -1, 1, 0]), r"^target reaches from -1 to 1; expected classes 0 to"),
    ],
)
def test_refused_by_every_metric_of_classification(metric, probs, target, message):
    with pytest.raises(ValueError, match=message):
        metric(probs, target)


@pytest.mark.parametrize(
    ("dtype", "miss", "is_refused"),
    [
        (torch.float64, 0.0009, False),
        (torch.float64, 0.0011, True),
        (torch.float32, 0.0009, False),
        (torch.float32, 0.0011, True),
        (torch.bfloat16, 0.0039, False),
        (torch.bfloat16, 0.0157, True),
    ],
)
def test_tolerance_of_row_sums(dtype, miss, is_refused):
    probs = torch.tensor([[0.5, 0.5 - miss]], dtype=dtype)
    if is_refused:
        with pytest.raises(ValueError, match=r"^a row of probs sums to 0\.9"):
            as_rows(probs, torch.tensor([0]))
    else:
        rows, _ = as_rows(probs, torch.tensor([0]))
        assert rows.tolist() == probs.double().tolist()


def test_softmax_in_low_precision_is_always_accepted():
    generator = torch.Generator().manual_seed(23)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for classes in (2, 10, 1000):
            logits = 4 * torch.randn(500, classes, generator=generator)
            probs = logits.to(dtype).softmax(dim=1)
            rows, _ = as_rows(probs, torch.zeros(500, dtype=torch.int64))
            assert torch.equal(rows, probs.double())


def test_rounding_outside_the_range_is_clamped():
    probs = torch.tensor([[1.0 + 5e-7, -5e-7]], dtype=torch.float64)
    rows, _ = as_rows(probs, torch.tensor([0]))
    assert rows.tolist() == [[1.0, 0.0]]
    with pytest.raises(ValueError, match="reaches from -2e-06 to 1; expected"):
        as_rows(torch.tensor([[1.0, -2e-6]], dtype=torch.float64), torch.tensor([0]))


def test_dense_rows_keep_their_order():
    probs = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(24)).double()
    probs = probs / probs.sum(dim=1, keepdim=True)
    target = torch.randint(3, (2, 4, 5), generator=torch.Generator().manual_seed(25))
    rows, flat = as_rows(probs, target)
    for row, (b, h, w) in enumerate(
        (b, h, w) for b in range(2) for h in range(4) for w in range(5)
    ):
        assert rows[row].tolist() == probs[b, :, h, w].tolist()
        assert flat[row].item() == target[b, h, w].item()


def test_the_input_is_left_as_it_was():
    probs = torch.tensor([[1.0 + 5e-7, -5e-7]], dtype=torch.float64)
    before = probs.clone()
    brier(probs, torch.tensor([0]))
    assert torch.equal(probs, before)
