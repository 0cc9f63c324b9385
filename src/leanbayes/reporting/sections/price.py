"""Quality against price."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Point, scatter
from leanbayes.reporting.looks import LEADING, looks
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn
from leanbayes.reporting.words import TIMES, direction, title

PRICES = (
    *("training_ratio", "step_ratio", "predict_ratio", "training_seconds", "parameters_added"),
    "seconds",
)
CHARTS = 3
INTRO = (
    "Rings mark the front: nothing is both cheaper and better. A method off the front is not worth "
    "its price by this figure."
)


def section(results: Sequence[Result]) -> Section | None:
    """Charts of every file with two methods or more."""
    return blocks("Quality against price", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    charts = _charts(result)
    return Block(charts, labels=[row.label for row in result.rows]) if charts else None


def _charts(result: Result) -> list[Chart]:
    quality = next((name for name in LEADING if name in result.figure_names), None)
    if result.kind == "experiment" or quality is None or len(result.rows) < 2:
        return []
    prices = [name for name in PRICES if name in result.price_names]
    if "training_ratio" in prices:  # it has the steps in it
        prices = [name for name in prices if name != "step_ratio"]
    return drawn([_chart(result, quality, name) for name in prices])[:CHARTS]


def _chart(result: Result, quality: str, price: str) -> Chart | None:
    known = looks(result)
    points = [
        Point(row.label, row.prices[price], found.mean, found.error, known[row.label])
        for row in result.rows
        if price in row.prices
        and row.label in known
        and (found := row.figures.get(quality)) is not None
        and found.mean is not None
    ]
    if len({point.x for point in points}) < 2:
        return None
    better = {1: "higher is better", -1: "lower is better"}[direction(quality)]
    unit = f"{title(price)} (plain network: 1)" if price in TIMES else title(price)
    labels = Labels(
        f"{result.name} {quality} {price}",
        f"{title(quality)} against {title(price)}, {result.title}",
        unit,
        f"{title(quality)} ({better})",
        f"{title(quality)} against {title(price)}",
    )
    log = all(point.x > 0 for point in points)
    return scatter(labels, points, log=log, way=direction(quality))
