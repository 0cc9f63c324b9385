"""Total uncertainty in its two parts against a level of noise, two methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leanbayes.reporting.able import able
from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts.lines import legend
from leanbayes.reporting.charts.stack import Parts, stack
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.evaluation import mean
from leanbayes.reporting.looks import baseline, plain
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, evaluated
from leanbayes.reporting.sections.severity import values
from leanbayes.reporting.sections.shifts import CALLED, along, names

INTRO = (
    "Total uncertainty is the sum of two parts: aleatoric, which lies in the data, and epistemic, "
    "which more data would take away. Side by side: the baseline and the method whose epistemic "
    "share differs most from its (iBNN, Fig. 8), on one scale; the others, folded, have theirs."
)
NOISE = ("mix_noise", "gaussian_mix", "noise", "salt_and_pepper")  # the first that a file has


def section(results: Sequence[Result]) -> Section | None:
    """Two charts on one scale; the other methods are folded."""
    return blocks("Two kinds of uncertainty", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    rows = evaluated(result)
    words, found = _found(rows)
    if not found:
        return None
    pair = _pair(result, found)
    others = [label for label in found if label not in pair]
    shown, rest = (_charts(result, {k: found[k] for k in some}, words) for some in (pair, others))
    before = legend(plain(["aleatoric", "epistemic"]))
    return Block(shown, "pair", before=before, folded=rest)


def _charts(result: Result, found: Mapping[str, Parts], words: str) -> list[Chart]:
    """On one scale."""
    top = max((v for parts in found.values() for v in parts.total), default=0.0)
    return [_chart(result, label, parts, top, words) for label, parts in found.items()]


def _found(rows: Sequence[Row]) -> tuple[str, dict[str, Parts]]:
    """Parts of every method against the first shift of noise; else against severity."""
    shifts = names(rows)
    shift = next((name for name in NOISE if name in shifts), shifts[0] if shifts else "")
    if shift:
        found = {row.label: _along(row, shift) for row in rows}
        words = f"level of {CALLED.get(shift, shift.replace('_', ' '))}"
    else:
        found = {row.label: _severity(row) for row in rows}
        words = "severity of corruption"
    return words, {label: parts for label, parts in found.items() if parts is not None}


def _along(row: Row, shift: str) -> Parts | None:
    return _parts(along(row, shift, "aleatoric"), along(row, shift, "epistemic"))


def _severity(row: Row) -> Parts | None:
    both = ({level: mean(found) or 0.0 for level, found in values(row, name).items()}
            for name in ("aleatoric", "epistemic"))  # fmt: skip
    return _parts(*both)


def _parts(aleatoric: Mapping[float, float], epistemic: Mapping[float, float]) -> Parts | None:
    levels = sorted(level for level in aleatoric if level in epistemic)
    if len(levels) < 2:
        return None
    return Parts(levels, [aleatoric[at] for at in levels], [epistemic[at] for at in levels])


def share(parts: Parts) -> float:
    """The epistemic part of all uncertainty."""
    return sum(parts.epistemic) / (sum(parts.total) or 1.0)


def _pair(result: Result, found: Mapping[str, Parts]) -> list[str]:
    """The baseline and the method that differs most from it in its epistemic share.

    One that cannot do the task is no such method.
    """
    base = baseline(result)
    first = base.label if base is not None and base.label in found else next(iter(found))
    others = [row.label for row in able(result.rows) if row.label in found and row.label != first]
    if not others:
        return [first]
    return [first, max(others, key=lambda label: abs(share(found[label]) - share(found[first])))]


def _chart(result: Result, label: str, parts: Parts, top: float, words: str) -> Chart:
    labels = Labels(
        f"{result.name} parts {label}",
        f"Aleatoric and epistemic uncertainty of {label}, {result.title}",
        words,
        "uncertainty, nats",
        f"{label}: {share(parts):z.0%} epistemic",  # z: rounding may leave less than nothing
    )
    return stack(labels, parts, top)
