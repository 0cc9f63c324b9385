"""Charts as PNG: resvg draws the SVG, with the font that comes with matplotlib.

Neither is needed for the page; `pip install matplotlib resvg-py` brings both. The same font on
every machine makes the same picture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

FONTS = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")
ZOOM = 3  # about 300 dots an inch for a chart of a column's width
ADVICE = "pip install matplotlib resvg-py"


def rasteriser() -> Callable[[str], bytes] | str:
    """From SVG to PNG; words where a package is missing."""
    try:
        from matplotlib import get_data_path
        from resvg_py import svg_to_bytes
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("matplotlib", "resvg_py"):
            raise
        return f"no PNG, since {error.name} is missing: {ADVICE}"
    fonts = [str(Path(get_data_path()) / "fonts" / "ttf" / name) for name in FONTS]

    def draw(svg: str) -> bytes:
        return bytes(
            svg_to_bytes(
                svg_string=svg,
                zoom=ZOOM,
                skip_system_fonts=True,
                font_files=fonts,
                font_family="DejaVu Sans",
                sans_serif_family="DejaVu Sans",
            )
        )

    return draw
