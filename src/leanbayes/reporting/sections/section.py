"""What a section of a report is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leanbayes.reporting.canvas import Chart, slug
from leanbayes.reporting.markup import Html, tag


@dataclass(frozen=True)
class Section:
    """A title, what is under it, and the charts in it, for files of their own."""

    title: str
    body: Html
    charts: Sequence[Chart] = ()

    @property
    def anchor(self) -> str:
        """For links to it."""
        return slug(self.title)


def gallery(charts: Sequence[Chart]) -> Html:
    """Charts side by side where there is room."""
    return tag("div", *(chart.figure() for chart in charts), class_="charts")
