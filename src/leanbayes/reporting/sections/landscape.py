"""The loss in the plane through the members' weights (iBNN's Fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts.heat import Plane, heat
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.markup import joined, tag
from leanbayes.reporting.reader import is_number
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Section, drawn, gallery

INTRO = (
    "The plane of the two directions in which members differ most. Dots are members, dark is a low "
    "loss: members in separate valleys are different answers, members in one valley are not."
)
WORDS = {"loss": "loss", "error": "error"}


def section(results: Sequence[Result]) -> Section | None:
    """A picture a file, and one of the error where the file has it."""
    found = [result for result in results if result.kind == "landscape"]
    charts = drawn([_chart(result, what) for result in found for what in WORDS])
    if not charts:
        return None
    body = joined([tag("p", INTRO, class_="soft"), gallery(charts)])
    return Section("Loss landscape", body, charts)


def _chart(result: Result, what: str) -> Chart | None:
    row = result.rows[0]
    data = row.data.get("landscape")
    plane = _plane(data, what) if isinstance(data, Mapping) else None
    if plane is None or not isinstance(data, Mapping):
        return None
    first, second = _explained(data.get("explained"))
    rows = data.get("rows")
    on = f", on {rows:,.0f} rows" if is_number(rows) else ""
    labels = Labels(
        f"{result.name} {what}",
        f"{what.capitalize()} around the members of {row.label}{on}",
        f"first direction{first}",
        f"second direction{second}",
    )
    return heat(labels, plane, _members(data), WORDS[what])


def _plane(data: Mapping[str, Any], what: str) -> Plane | None:
    """The grid; None where it is not one."""
    x, y, z = data.get("x"), data.get("y"), data.get(what)
    if not (_is_list(x) and _is_list(y) and isinstance(z, list) and len(z) == len(y)):
        return None
    if not all(isinstance(row, list) and len(row) == len(x) for row in z):
        return None
    return Plane(x, y, [[float(v) if is_number(v) else None for v in row] for row in z])


def _is_list(value: Any) -> TypeGuard[list[float]]:
    return isinstance(value, list) and all(is_number(v) for v in value)


def _members(data: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    found = data.get("members")
    every = [m for m in found if isinstance(m, Mapping)] if isinstance(found, list) else []
    return [
        (str(m.get("label", "")), float(m["x"]), float(m["y"]))
        for m in every
        if is_number(m.get("x")) and is_number(m.get("y"))
    ]


def _explained(found: Any) -> tuple[str, str]:
    shares = found if _is_list(found) and len(found) == 2 else []
    words = [f" ({value:.0%} of the variance)" for value in shares]
    return (words[0], words[1]) if words else ("", "")
