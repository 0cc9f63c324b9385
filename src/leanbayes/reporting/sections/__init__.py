"""The sections of a report, in their order: one file each, one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leanbayes.reporting.gather import gathered
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections import (
    calibration,
    corruptions,
    coverage,
    curves,
    decomposition,
    detection,
    draws,
    examples,
    gallery,
    landscape,
    layers,
    methods,
    mistakes,
    origins,
    parts,
    price,
    rejection,
    settings,
    severity,
    shifts,
    summary,
    trajectory,
)
from leanbayes.reporting.sections.section import Section

__all__ = ["SECTIONS", "Section", "build"]

SECTIONS: Sequence[Callable[[Sequence[Result]], Section | None]] = (
    summary.section,
    methods.section,
    price.section,
    calibration.section,
    detection.section,
    severity.section,
    mistakes.section,
    corruptions.section,
    shifts.section,
    decomposition.section,
    rejection.section,
    draws.section,
    coverage.section,
    layers.section,
    landscape.section,
    trajectory.section,
    examples.section,
    gallery.section,
    parts.section,
    curves.section,
    settings.section,
    origins.section,
)


def build(results: Sequence[Result]) -> list[Section]:
    """All sections that have something to say about these results."""
    together = gathered(results)
    found = (make(together) for make in SECTIONS)
    return [section for section in found if section is not None]
