"""What the figures depend on."""

from __future__ import annotations

import json
from collections.abc import Sequence

from leanbayes.reporting.markup import Html, joined, tag
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Section


def section(results: Sequence[Result]) -> Section | None:
    """The settings of every file, folded."""
    blocks = [_block(result) for result in results if result.settings]
    return Section("Settings", joined(blocks)) if blocks else None


def _block(result: Result) -> Html:
    text = json.dumps(result.settings, indent=1, default=str)
    return tag("details", tag("summary", f"{result.title} ({result.name})"), tag("pre", text))
