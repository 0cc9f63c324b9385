"""Tables and paragraphs as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import fill


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


def filled(text: str, width: int, *, indent: int = 0, hang: int = 2) -> str:
    """Break a line at words; its first line is indented, the others hang further in.

    Example:
        >>> print(filled("cost: no parameters, 1 pass", 16, indent=2))
          cost: no
            parameters,
            1 pass
    """
    return fill(
        text,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )


def page_width() -> int:
    """Columns of the terminal, or of COLUMNS, within what reads well; 100 where there is none."""
    return min(max(get_terminal_size((100, 24)).columns, 60), 120)
