"""The test images that a model is most and least certain of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from leanbayes.reporting.canvas import Chart, short, spot
from leanbayes.reporting.looks import Look, chooser, looks
from leanbayes.reporting.markup import Html, joined, tag
from leanbayes.reporting.reader import is_number
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Section, evaluated, several

INTRO = (
    "The clean test images with the lowest and the highest total uncertainty, first seed; under "
    "each the answer, the truth where it is another, and the uncertainty in nats."
)
RANKS = {"certain": "Most certain", "uncertain": "Least certain"}
MOST, SIZE, OPEN = 8, 64.0, 2  # images of a strip, their size, methods that are not folded
# Pictures of other kinds may hold scripts or come from elsewhere.
SAFE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]{1,400000}={0,2}")


def section(results: Sequence[Result]) -> Section | None:
    """Two strips a method."""
    parts: list[Html] = []
    charts: list[Chart] = []
    for result in results:
        known = looks(result)
        rows = sorted(
            (row for row in evaluated(result) if shown(row)), key=lambda r: known[r.label].at
        )
        if rows:
            choose = chooser(result, [row.label for row in rows])
            strips = [_strips(row, known[row.label], at < OPEN) for at, row in enumerate(rows)]
            head = [tag("h3", result.title)] if several(results) else []
            parts += [*head, choose, *strips]
            charts += [_chart(result, row) for row in rows]
    if not parts:
        return None
    return Section("Examples", joined([tag("p", INTRO, class_="soft"), *parts]), charts)


def shown(row: Row) -> dict[str, list[Mapping[str, Any]]]:
    """Examples whose pictures are safe to show, by rank."""
    clean = row.evaluations[0].clean
    found = clean.examples if clean is not None else {}
    safe = {rank: [e for e in found.get(rank, ()) if _is_safe(e)][:MOST] for rank in RANKS}
    return {rank: examples for rank, examples in safe.items() if examples}


def _is_safe(example: Mapping[str, Any]) -> bool:
    image = example.get("image")
    return isinstance(image, str) and SAFE.fullmatch(image) is not None


def _strips(row: Row, look: Look, is_open: bool) -> Html:
    parts = [tag("summary", tag("bdi", row.label))]
    for rank, examples in shown(row).items():
        items = (tag("li", _image(e), *_told(e)) for e in examples)
        parts += [tag("p", RANKS[rank], class_="soft"), tag("ul", *items, class_="strip")]
    off = "" if look.on else " off"
    return tag("details", *parts, class_=f"examples{off}", data_m=look.key, open=is_open)


def _image(example: Mapping[str, Any]) -> Html:
    words = f"Test image, answer {example.get('label')}, truth {example.get('target')}"
    return tag("img", src=example["image"], alt=words)


def lines_of(example: Mapping[str, Any]) -> tuple[str, str, bool]:
    """The answer, what else is to be said, and whether it is right."""
    label, target = str(example.get("label", "")), str(example.get("target", ""))
    total = example.get("total")
    nats = f"{max(float(total), 0.0):.3f} nats" if is_number(total) else ""
    right = label == target
    return label, ", ".join(filter(None, ["" if right else f"truth: {target}", nats])), right


def _told(example: Mapping[str, Any]) -> list[Html]:
    label, rest, right = lines_of(example)
    mark, kind = ("✓", "good") if right else ("✗", "bad")
    return [tag("span", f"{mark} ", tag("bdi", label), class_=kind), tag("br"), text_of(rest)]


def text_of(words: str) -> Html:
    """Small words below a picture."""
    return tag("span", words, class_="soft")


def _chart(result: Result, row: Row) -> Chart:
    """The same for a file of its own."""
    parts: list[Html] = []
    every = shown(row)
    for down, (rank, examples) in enumerate(every.items()):
        top = 20 + down * (SIZE + 62)
        parts.append(tag("text", RANKS[rank], x=6, y=top - 6, class_="label"))
        for at, example in enumerate(examples):
            left = 6 + at * (SIZE + 12)
            label, rest, right = lines_of(example)
            box = {"x": spot(left), "y": spot(top), "width": SIZE, "height": SIZE}
            parts.append(tag("image", href=example["image"], **box))
            mark = "✓" if right else "✗"
            for line, words in enumerate((f"{mark} {label}", *rest.split(", ", 1))):
                under = spot(top + SIZE + 13 + 12 * line)
                words = short(words, 12)
                parts.append(tag("text", words, x=spot(left), y=under, class_="small"))
    title = f"Most and least certain test images of {row.label}, {result.title}"
    height = 20 + len(every) * (SIZE + 62)
    name = f"{result.name} examples {row.label}"
    return Chart(name, title, title, joined(parts), 8 * (SIZE + 12) + 6, height)
