"""Uncertainty of known and of foreign data: histograms, and how well they are told apart."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts.densities import Density, densities
from leanbayes.reporting.charts.lines import legend
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.evaluation import Split
from leanbayes.reporting.looks import Look, looks
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn, evaluated

INTRO = (
    "Share of rows by uncertainty (square-root scale up): a model that knows what it does not know "
    "is unsure of foreign data. AUROC: how often a foreign row is the less sure one of a pair; 0.5 "
    "is chance. The epistemic part is what more data would take away. First seed."
)
PARTS = {"total": "total uncertainty, nats", "epistemic": "epistemic uncertainty, nats"}
MOST = 4  # foreign parts in one picture


def section(results: Sequence[Result]) -> Section | None:
    """Two rows of small histograms: total and epistemic."""
    return blocks("Known and foreign data", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    found = {f"By {part} uncertainty": _charts(result, part) for part in PARTS}
    groups = [(words, charts) for words, charts in found.items() if charts]
    if not groups:
        return None
    every = [chart for _, charts in groups for chart in charts]
    labels = [chart.look.label for chart in every if chart.look is not None]
    return Block((), "panels", labels, before=legend(every[0].keys), groups=groups)


def _charts(result: Result, part: str) -> list[Chart]:
    known = looks(result)
    pairs = [(row, known[row.label]) for row in evaluated(result)]
    pairs.sort(key=lambda pair: pair[1].at)
    end = max((_end(row, part) for row, _ in pairs), default=0)
    return drawn([_chart(result, row, look, part, end) for row, look in pairs])


def foreign(row: Row) -> list[Split]:
    """Parts that a model should be unsure of, with histograms."""
    every = row.evaluations[0].of_kind("foreign", "adversarial")
    return [split for split in every if "histogram" in split.curves][:MOST]


def _end(row: Row, part: str) -> int:
    """Bins up to the last that holds a row, so that pictures waste no room."""
    clean = row.evaluations[0].clean
    last = 0
    for split in [*([clean] if clean else []), *foreign(row)]:
        counts = split.curves.get("histogram", {}).get(part, ())
        last = max([last, *(at + 1 for at, count in enumerate(counts) if count)])
    return last


def _chart(result: Result, row: Row, look: Look, part: str, end: int) -> Chart | None:
    clean, others = row.evaluations[0].clean, foreign(row)
    if clean is None or not others or (part == "epistemic" and not _is_random(row)):
        return None
    edges = [v for v in clean.curves.get("histogram", {}).get("edges", ()) if v is not None]
    found = [_density(split, part, end) for split in (clean, *others)]
    if len(edges) <= end or any(len(one.counts) < end for one in found):
        return None
    scores = [(s, s.figures.get(f"auroc_{part}")) for s in others]
    told = ", ".join(f"{v:.3f}" for _, v in scores if v is not None)
    labels = Labels(
        f"{result.name} {part} {row.label}",
        f"{part.capitalize()} uncertainty of {row.label}, {result.title}",
        PARTS[part],
        "share",
        row.label,
    )
    return densities(labels, edges[: end + 1], found, look, f"AUROC {told}" if told else "")


def _is_random(row: Row) -> bool:
    """False for a model whose epistemic part is nothing."""
    return any(
        split.figures.get("auroc_epistemic") is not None or split.figures.get("epistemic", 0) > 0
        for split in foreign(row)
    )


def _density(split: Split, part: str, end: int) -> Density:
    counts = split.curves.get("histogram", {}).get(part, ())
    return Density(named(split), [count or 0.0 for count in counts[:end]])


def named(split: Split) -> str:
    """A split for readers."""
    return split.name.removeprefix("ood/")
