"""Commands, commit and versions: how the figures came about."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.markup import Html, joined, tag
from leanbayes.reporting.results import Origin, Result
from leanbayes.reporting.sections.section import Section


def section(results: Sequence[Result]) -> Section | None:
    """A block a file that says it."""
    blocks = [_block(result) for result in results if result.origins]
    return Section("Commands and versions", joined(blocks)) if blocks else None


def _block(result: Result) -> Html:
    commands = dict.fromkeys(origin.command for origin in result.origins)
    about = dict.fromkeys(filter(None, map(_about, result.origins)))
    return joined(
        [
            tag("h3", f"{result.title} ({result.name})"),
            tag("pre", "\n".join(commands)),
            *(tag("p", words, class_="soft") for words in about),
        ]
    )


def _about(origin: Origin) -> str:
    commit = [f"commit {origin.commit}"] if origin.commit else []
    return ", ".join([*commit, *(f"{key} {value}" for key, value in origin.versions)])
