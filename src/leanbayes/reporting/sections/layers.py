"""What is random in a network: shares and spread of the parameters, a layer a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts.layers import Layer, layers
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.looks import Look, looks
from leanbayes.reporting.reader import is_number
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn

INTRO = (
    "Bars: share of a layer's parameters that are random. Ranges: standard deviations of these, "
    "from low to high on a logarithmic scale, with the median as a dot."
)
MOST = 150  # layers in a picture


def section(results: Sequence[Result]) -> Section | None:
    """A map a method that has something random."""
    return blocks("Layers", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    known = looks(result)
    rows = [row for row in result.rows if row.layers and not row.failed]
    rows.sort(key=lambda row: known[row.label].at)
    charts = drawn([_chart(result, row, known[row.label]) for row in rows])
    labels = [chart.look.label for chart in charts if chart.look is not None]
    return Block(charts, "charts", labels) if charts else None


def _chart(result: Result, row: Row, look: Look) -> Chart | None:
    found = [_layer(layer) for layer in row.layers[:MOST]]
    if not any(layer.share > 0 or layer.spread for layer in found):
        return None
    parameters, random = (_sum(row.layers, key) for key in ("parameters", "random"))
    counted = f"{random:,.0f} of {parameters:,.0f} parameters random" if parameters else ""
    cut = f"first {MOST} of {len(row.layers):,} layers" if len(row.layers) > MOST else ""
    words = ", ".join(filter(None, [counted, cut]))
    labels = Labels(
        f"{result.name} layers {row.label}",
        f"Random parameters of {row.label} by layer, {result.title}",
        "standard deviation",
        "layer",
        f"{row.label}: {words}" if words else row.label,
    )
    return layers(labels, found, look)


def _layer(data: Mapping[str, Any]) -> Layer:
    std = data.get("std")
    ends = [std.get(key) for key in ("low", "median", "high")] if isinstance(std, Mapping) else []
    spread = tuple(float(v) for v in ends if is_number(v))
    share = float(data["share"]) if is_number(data.get("share")) else 0.0
    words = [
        str(data.get("kind", "")),
        f"{share:.1%} of {data.get('parameters', '?')} random",
        f"standard deviation {', '.join(f'{v:.3g}' for v in spread)}" if spread else "",
    ]
    relative = data.get("relative")
    words += [f"{relative:.3g} of the weights' size"] if is_number(relative) else []
    whole = (spread[0], spread[1], spread[2]) if len(spread) == 3 else None
    return Layer(str(data.get("name", "")), share, whole, ", ".join(filter(None, words)))


def _sum(found: Sequence[Mapping[str, Any]], key: str) -> float:
    return sum(float(layer[key]) for layer in found if is_number(layer.get(key)))
