"""The live page: one self-contained HTML text; style and script are in it, known by their hash.

Nothing but the server itself is ever asked, and no script but the page's own can run: the policy
names the two hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from leanbayes.reporting.markup import Html, joined, tag
from leanbayes.reporting.style import STYLE
from leanbayes.serving.page.panels import answer_panel, input_panel
from leanbayes.serving.served import Served

SCRIPTS: Final = ("look.js", "stage.js", "fields.js", "chart.js", "words.js", "live.js")
ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect "
    "width='32' height='32' rx='7' fill='%230072b2'/%3E%3Cpath d='M4 25c7 0 6-17 12-17s5 17 12 17' "
    "fill='none' stroke='white' stroke-width='3'/%3E%3C/svg%3E"
)


def page(served: Served, info: Mapping[str, Any]) -> tuple[str, str]:
    """The policy that goes with the page, and the page.

    Args:
        served: What is served.
        info: What `/info` answers; the script reads it from the page.
    """
    style, script = STYLE + _text("live.css"), "\n".join(_text(name) for name in SCRIPTS)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{served.name} - leanbayes"),
        Html(f'<link rel="icon" href="{ICON}">'),
        tag("style", Html(style)),
    )
    body = tag("body", _top(served, info), _main(info), _end(info), _data(info), _run(script))
    return _policy(style, script), f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _run(script: str) -> Html:
    return tag("script", Html(script))


def _data(info: Mapping[str, Any]) -> Html:
    text = json.dumps({**info, "seed": str(info["seed"])}).replace("<", "\\u003c")
    return tag("script", Html(text), type="application/json", id="info")


def _top(served: Served, info: Mapping[str, Any]) -> Html:
    many = f"{len(info['classes'])} classes" if info["classes"] else "numbers"
    facts = [f"{info['method']['name']} on {served.name}", f"trained on {served.data}", many]
    line = tag("p", joined(facts, " \u00b7 "), class_="soft facts")
    title = tag("div", tag("h1", "What does the network know?"), line)
    button = tag("button", "Light or dark", type="button", class_="theme")
    return tag("header", title, button)


def _main(info: Mapping[str, Any]) -> Html:
    return tag("main", input_panel(info), answer_panel(info), class_="live")


def _end(info: Mapping[str, Any]) -> Html:
    links = [
        tag("a", words, href=path)
        for words, path in (("OpenAPI", "/openapi.json"), ("about", "/info"), ("health", "/health"))
    ]
    program = tag("details", tag("summary", "For programs"), tag("pre", _curl(info)))
    return tag("footer", program, tag("p", joined(links, " \u00b7 "), class_="soft"))


def _curl(info: Mapping[str, Any]) -> str:
    body = "@image.png" if info["input"]["image"] else "'{\"inputs\": [...]}'"
    return f"curl --data-binary {body} 'URL/predict?samples={info['samples']['default']}'"
