"""Disagreement of members against quality over the last checkpoints (Rank-1's Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Series, lines
from leanbayes.reporting.charts.lines import Drawn
from leanbayes.reporting.markup import joined, tag
from leanbayes.reporting.reader import is_number
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Section, drawn, gallery
from leanbayes.reporting.words import capital, title

INTRO = (
    "Each dot is a checkpoint, joined in the order of training. Disagreement is normalised by the "
    "error rate: members that differ without being worse lie to the right."
)
ACROSS = {"normalised": "normalised disagreement", "step": "step"}
CHARTS = (("accuracy", "normalised"), ("nll", "normalised"), ("normalised", "step"))


def section(results: Sequence[Result]) -> Section | None:
    """Quality against disagreement, a line a method."""
    found = [result for result in results if result.kind == "trajectory"]
    charts = drawn([_chart(found, up, across) for up, across in CHARTS])
    if not charts:
        return None
    return Section(
        "Disagreement in training",
        joined([tag("p", INTRO, class_="soft"), gallery(charts)]),
        charts,
    )


def _chart(results: Sequence[Result], up: str, across: str) -> Chart | None:
    series = []
    for result in results:
        points = result.rows[0].data.get("points")
        found = [p for p in points if isinstance(p, dict)] if isinstance(points, list) else []
        pairs = [
            (float(p[across]), float(p[up]))
            for p in found
            if is_number(p.get(across)) and is_number(p.get(up))
        ]
        if pairs:
            x, y = zip(*pairs, strict=True)
            series.append(Series(result.rows[0].label, x, y))
    names = [ACROSS.get(name, title(name)) for name in (up, across)]
    words = f"{capital(names[0])} against {names[1]}"
    labels = Labels(
        f"trajectory {up} {across}", f"{words} over checkpoints", names[1], names[0], words
    )
    return lines(labels, series, Drawn(dots=True)) if series else None
