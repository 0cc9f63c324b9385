"""Charts as SVG from plain numbers, one file a kind."""

from leanbayes.reporting.charts.bars import bars
from leanbayes.reporting.charts.lines import lines
from leanbayes.reporting.charts.scatter import scatter
from leanbayes.reporting.charts.words import Labels, Point, Series

__all__ = ["Labels", "Point", "Series", "bars", "lines", "scatter"]
