"""Lines of equal height in a grid, by marching squares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Piece = tuple[float, float, float, float]
Corner = tuple[float, float, float]  # x, y, height


def contour(
    x: Sequence[float], y: Sequence[float], z: Sequence[Sequence[float | None]], level: float
) -> list[Piece]:
    """Pieces (x1, y1, x2, y2) of the line on which the height is `level`.

    Heights between the corners of a cell are taken as linear along its sides. Where all four sides
    are crossed, the height in the middle tells which two belong together.

    Example:
        >>> contour([0, 1], [0, 1], [[0.0, 1.0], [0.0, 1.0]], 0.25)
        [(0.25, 0.0, 0.25, 1.0)]
    """
    found: list[Piece] = []
    for corners in _squares(x, y, z):
        crossings = [
            _between(a, b, level)
            for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)
            if (a[2] > level) != (b[2] > level)
        ]
        if len(crossings) == 4:
            middle = sum(corner[2] for corner in corners) / 4
            if (corners[0][2] > level) != (middle > level):  # the first corner is cut off
                crossings = [crossings[-1], *crossings[:-1]]
        pairs = zip(crossings[::2], crossings[1::2], strict=True)
        found += [(*start, *end) for start, end in pairs]
    return found


def _squares(
    x: Sequence[float], y: Sequence[float], z: Sequence[Sequence[float | None]]
) -> Iterator[list[Corner]]:
    """Corners of every cell, one after another around it; cells with a gap are left out."""
    for row in range(len(y) - 1):
        for column in range(len(x) - 1):
            around = ((0, 0), (0, 1), (1, 1), (1, 0))
            corners: list[Corner] = []
            for down, right in around:
                height = z[row + down][column + right]
                if height is not None:
                    corners.append((x[column + right], y[row + down], height))
            if len(corners) == 4:
                yield corners


def _between(a: Corner, b: Corner, level: float) -> tuple[float, float]:
    share = (level - a[2]) / (b[2] - a[2])
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])
