"""Pictures that lie beside the files: segmentations with their uncertainty, curves of papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leanbayes.reporting.markup import joined, tag
from leanbayes.reporting.pictures import embedded
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.examples import shown
from leanbayes.reporting.sections.section import Section, evaluated

INTRO = "Pictures that the same commands drew (`--picture`), as they are."


def section(results: Sequence[Result]) -> Section | None:
    """Every picture once; none where the examples of a file are shown already."""
    parts = [
        tag(
            "figure",
            tag("figcaption", f"{result.title}: {path.name}"),
            tag("img", src=embedded(path), alt=f"{path.name}, drawn for {result.title}"),
            class_="shown",
        )
        for path, result in _pictures(results).items()
    ]
    if not parts:
        return None
    return Section("Pictures", joined([tag("p", INTRO, class_="soft"), *parts]))


def _pictures(results: Sequence[Result]) -> dict[Path, Result]:
    found: dict[Path, Result] = {}
    for result in results:
        if not any(shown(row) for row in evaluated(result)):
            for path in result.pictures:
                found.setdefault(path, result)
    return found
