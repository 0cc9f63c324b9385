"""The sections of a report, in their order: one file each, one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leanbayes.reporting.results import Result
from leanbayes.reporting.sections import curves, methods, origins, parts, price, settings, summary
from leanbayes.reporting.sections.section import Section

__all__ = ["SECTIONS", "Section", "build"]

SECTIONS: Sequence[Callable[[Sequence[Result]], Section | None]] = (
    summary.section,
    methods.section,
    price.section,
    parts.section,
    curves.section,
    settings.section,
    origins.section,
)


def build(results: Sequence[Result]) -> list[Section]:
    """All sections that have something to say about these results."""
    found = (make(results) for make in SECTIONS)
    return [section for section in found if section is not None]
