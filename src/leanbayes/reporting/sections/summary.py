"""What the files hold, and what was found, in words."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.best import best
from leanbayes.reporting.sections.findings import Finding, findings
from leanbayes.reporting.sections.parts import one_table
from leanbayes.reporting.sections.section import ALONE, Section
from leanbayes.reporting.words import direction, figure, title

MANY = 12  # figures that are told one by one


def section(results: Sequence[Result]) -> Section | None:
    """A block a file."""
    parts = [_block(result) for result in results if result.kind not in ALONE]
    return Section("Summary", joined(parts)) if parts else None


def _block(result: Result) -> Html:
    count = len(result.rows)
    kind = "part" if result.kind == "experiment" else "method"
    rows = f"{count} {kind}{'' if count == 1 else 's'}" if result.kind != "evaluate" else ""
    facts = ", ".join(filter(None, [rows, *result.facts]))
    failed = [
        tag("p", tag("strong", row.label), f" failed: {row.failed}", class_="failed")
        for row in result.rows
        if row.failed
    ]
    head = tag("h3", result.title)
    about = tag("p", f"{result.name}: {facts}.", class_="soft")
    found = findings(result) if result.kind != "experiment" else []
    told = _told(found) if found else _best(result) if one_table(result) else NOTHING
    return joined([head, about, *failed, told])


def _told(found: Sequence[Finding]) -> Html:
    """Sentences, then a card each."""
    words = tag("p", " ".join(each.sentence for each in found))
    return joined([words, tag("div", *map(_card, found), class_="cards")])


def _card(found: Finding) -> Html:
    lines = {"what": found.what, "who": found.who, "much": found.much, "than": found.than}
    parts = [tag("p", tag("bdi", words), class_=kind) for kind, words in lines.items() if words]
    return tag("div", *parts, class_="card")


def _best(result: Result) -> Html:
    items = []
    for name in [name for name in result.figure_names if direction(name)][:MANY]:
        rows = best(result.rows, name)
        if rows:
            found = rows[0].figures[name]
            labels = ", ".join(row.label for row in rows[:5])
            words = f": {figure(found.mean, found.error)}, {labels}"
            items.append(tag("li", f"best {title(name)}", words))
    return tag("ul", *items, class_="found") if items else NOTHING
