"""Quality against price."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Point, scatter
from leanbayes.reporting.markup import joined, tag
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Section, gallery
from leanbayes.reporting.words import TIMES, direction, title

QUALITIES = ("nll", "rmse", "mean_iou", "accuracy", "lpd")  # the first that a file has
PRICES = ("training_ratio", "predict_ratio", "training_seconds", "parameters_added")
CHARTS = 3


def section(results: Sequence[Result]) -> Section | None:
    """Charts of every file with two methods or more."""
    charts = [chart for result in results for chart in _charts(result)]
    if not charts:
        return None
    words = "A method is worth its price where nothing cheaper is as good."
    return Section(
        "Quality against price", joined([tag("p", words, class_="soft"), gallery(charts)]), charts
    )


def _charts(result: Result) -> list[Chart]:
    quality = next((name for name in QUALITIES if name in result.figure_names), None)
    if result.kind == "experiment" or quality is None or len(result.rows) < 2:
        return []
    prices = [name for name in PRICES if name in result.price_names][:CHARTS]
    return [chart for name in prices if (chart := _chart(result, quality, name)) is not None]


def _chart(result: Result, quality: str, price: str) -> Chart | None:
    points = [
        Point(row.label, row.prices[price], found.mean, found.error)
        for row in result.rows
        if price in row.prices
        and (found := row.figures.get(quality)) is not None
        and found.mean is not None
    ]
    if len({point.x for point in points}) < 2:
        return None
    better = {1: "higher is better", -1: "lower is better"}[direction(quality)]
    unit = f"{title(price)}, times {result.rows[0].label}'s" if price in TIMES else title(price)
    labels = Labels(
        f"{result.name} {quality} {price}",
        f"{title(quality)} against {title(price)}, {result.title}",
        unit,
        f"{title(quality)} ({better})",
    )
    return scatter(labels, points, log=all(point.x > 0 for point in points))
