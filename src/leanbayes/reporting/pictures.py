"""Pictures beside a result file: found by name, never outside its folder, embedded whole."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

LARGEST = 4 * 2**20  # bytes of a picture
START = b"\x89PNG\r\n\x1a\n"


def beside(path: Path, records: Sequence[Mapping[str, Any]]) -> tuple[Path, ...]:
    """PNG files in the folder of a result: those that it names, and NAME.png and NAME_*.png.

    A name counts by its last part alone: no file is read from elsewhere, whatever a result says.
    """
    named = (each.get("picture") for each in records)
    names = [*(Path(name).name for name in named if isinstance(name, str)), f"{path.stem}.png"]
    further = sorted(path.parent.glob(f"{escape(path.stem)}_*.png"))
    # With a file of its own name beside it a picture is another result's.
    names += [each.name for each in further if not each.with_suffix(".json").is_file()]
    found = (path.parent / name for name in dict.fromkeys(names) if name.endswith(".png"))
    return tuple(each for each in found if _is_picture(each))


def _is_picture(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(START)) == START and path.stat().st_size <= LARGEST
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return False


def embedded(path: Path) -> str:
    """The picture as an address that holds it."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
