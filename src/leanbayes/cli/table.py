"""A table as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def render(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Align columns by width; the first `left` ones to the left, figures to the right.

    Example:
        >>> print(render(["method", "NLL"], [["map", "0.41"], ["mean_field", "0.36"]]))
        method       NLL
        ----------------
        map         0.41
        mean_field  0.36
    """
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
