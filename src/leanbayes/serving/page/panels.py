"""The two halves of the page: what goes in, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leanbayes.reporting.markup import Html, joined, tag

LONGEST: Final = 336  # of the stage, in pixels of a picture
NOTHING: Final = "Nothing to predict yet"
FIELDS: Final = 40  # inputs that get a field each

Info = Mapping[str, Any]


def input_panel(info: Info) -> Html:
    """An image to drop, choose or draw; or fields for numbers."""
    inside = _stage(info) if info["input"]["image"] else _numbers(info)
    title = tag("h2", "Input", id="input-title")
    return tag("section", title, *inside, class_="panel", aria_labelledby="input-title")


def _stage(info: Info) -> list[Html]:
    channels, height, width = info["input"]["shape"]
    scale = LONGEST / max(height, width)
    size = {"width": round(width * scale), "height": round(height * scale)}
    words = "Draw here with mouse or finger, or drop an image"
    canvas = tag("canvas", **size, id="stage", aria_label=words, role="img")
    stage = tag("div", canvas, tag("p", words, class_="hint", id="hint"), class_="stage", id="drop")
    return [stage, _tools(channels), _seen(height, width)]


def _tools(channels: int) -> Html:
    choose = tag(
        "label",
        "Choose image",
        tag("input", type="file", id="file", accept="image/*"),
        class_="button",
    )
    row = [choose, _button("undo", "Undo"), _button("clear", "Clear")]
    pen = tag("label", "Pen ", tag("input", type="range", id="pen", min=4, max=60, value=26))
    marks = [pen, _check("fill", "Fill shapes"), _check("invert", "Invert")]
    if channels == 3:
        marks.append(
            tag("label", "Colour ", tag("input", type="color", id="colour", value="#ffffff"))
        )
    return joined([tag("div", *row, class_="row"), tag("div", *marks, class_="row small")])


def _seen(height: int, width: int) -> Html:
    words = f"As the network sees it, about: {width}x{height}"
    canvas = tag("canvas", width=width, height=height, id="seen", role="img", aria_label=words)
    return tag("figure", canvas, tag("figcaption", words), class_="seen")


def _numbers(info: Info) -> list[Html]:
    columns = info["input"]["columns"]
    shape = info["input"]["shape"]
    if columns:
        fields = [_field(at, column) for at, column in enumerate(columns)]
    elif len(shape) == 1 and shape[0] <= FIELDS:
        fields = [_field(at, {"name": f"x{at}", "categories": []}) for at in range(shape[0])]
    else:
        return [_area(shape)]
    return [tag("form", *fields, id="fields", class_="fields")]


def _field(at: int, column: Mapping[str, Any]) -> Html:
    name = f"field-{at}"
    if column["categories"]:
        options = [tag("option", each) for each in column["categories"]]
        box = tag("select", *options, id=name, data_name=column["name"])
    else:
        box = tag("input", type="number", step="any", value=0, id=name, data_name=column["name"])
    return tag("label", tag("span", column["name"]), box)


def _area(shape: list[int]) -> Html:
    size = "x".join(map(str, shape))
    words = f"Numbers of shape {size}, as JSON or separated by commas"
    box = tag("textarea", "", id="area", rows=12, spellcheck="false")
    return tag("label", tag("span", words), box, class_="area")


def answer_panel(info: Info) -> Html:
    """Probabilities or numbers with their spread, uncertainty, samples, and what is calibrated."""
    title = tag("h2", "Prediction", id="answer-title")
    said = tag("p", id="said", class_="hidden-words", aria_live="polite", role="status")
    wrong = tag("p", id="wrong", class_="failed", hidden=True, role="alert")
    headline = tag("p", NOTHING, id="headline", class_="headline soft")
    chart = tag("div", id="chart", class_="bars", role="img", aria_label="No prediction yet")
    body = [title, said, wrong, headline, _samples(info), chart, _key(info), _uncertainty(info)]
    calibrated = tag("p", id="calibrated", class_="note", hidden=True)
    figures = tag("p", id="figures", class_="soft small")
    return tag(
        "section",
        *body,
        calibrated,
        figures,
        class_="panel empty",
        id="answer",
        aria_labelledby="answer-title",
    )


def _samples(info: Info) -> Html:
    known = info["samples"]
    ends = {"min": 1, "max": known["most"], "value": known["default"]}
    slider = tag("input", type="range", id="samples", **ends)
    shown = tag("output", known["default"], id="samples-shown", for_="samples")
    # By name: an output takes the label of whatever it stands in.
    words = tag("span", "Samples ", shown)
    label = tag("label", words, slider, class_="slider", for_="samples")
    return tag("div", label, _button("again", "Other draws"), class_="row samples")


def _key(info: Info) -> Html:
    if info["task"] == "numbers":
        parts = [("bar", "interval"), ("tick", "mean"), ("dot", "a draw of the network")]
        parts.append(("range", "5 to 95 % of the draws"))
    else:
        parts = [("bar", "probability"), ("dot", "a draw of the network"), ("range", "5 to 95 %")]
        if info["calibration"] and info["calibration"]["conformal"]:
            parts.append(("held", "in the conformal set"))
    items = [tag("li", tag("i", class_=f"mark {kind}"), words) for kind, words in parts]
    return tag("ul", *items, class_="legend")


def _uncertainty(info: Info) -> Html:
    words = "Uncertainty" if info["task"] == "classes" else "Variance of the first target"
    bar = tag("div", tag("i", class_="aleatoric"), tag("i", class_="epistemic"), class_="stack")
    figures = tag(
        "dl",
        *(
            tag("div", tag("dt", tag("i", class_=f"mark {n}"), n), tag("dd", "-", id=f"is-{n}"))
            for n in ("total", "aleatoric", "epistemic")
        ),
    )
    words_of = tag("p", id="meaning", class_="meaning")
    title = tag("h3", words)
    return tag("div", title, bar, figures, words_of, class_="uncertainty")


def _button(name: str, words: str) -> Html:
    return tag("button", words, type="button", id=name)


def _check(name: str, words: str) -> Html:
    return tag("label", tag("input", type="checkbox", id=name), f" {words}")
