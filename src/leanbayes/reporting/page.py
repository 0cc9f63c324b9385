"""One HTML page without anything from outside: style, script and pictures are in it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from leanbayes.reporting.markup import Html, joined, tag
from leanbayes.reporting.script import SCRIPT
from leanbayes.reporting.sections.section import Section
from leanbayes.reporting.style import STYLE


def _sum(words: str) -> str:
    found = base64.b64encode(hashlib.sha256(words.encode()).digest()).decode("ascii")
    return f"'sha256-{found}'"


# Nothing is loaded, and nothing that a file says can run: this style and this script alone.
POLICY = f"default-src 'none'; style-src {_sum(STYLE)}; script-src {_sum(SCRIPT)}; img-src data:"


def page(title: str, sections: Sequence[Section], about: str) -> str:
    """The whole page.

    Args:
        title: Of the page.
        sections: In their order.
        about: A line at the end: who wrote it.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    body = tag("body", _top(title, sections), _main(sections), _end(about), class_="report")
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _top(title: str, sections: Sequence[Section]) -> Html:
    links = [tag("li", tag("a", s.title, href=f"#{s.anchor}")) for s in sections]
    button = tag("button", "Light / dark", type="button", class_="theme", hidden=True)
    top = tag("header", tag("h1", title), button)
    return joined([top, tag("nav", tag("ul", *links), aria_label="Sections")])


def _main(sections: Sequence[Section]) -> Html:
    return tag(
        "main",
        *(
            tag("section", tag("h2", s.title), s.body, id=s.anchor, aria_label=s.title)
            for s in sections
        ),
    )


def _end(about: str) -> Html:
    return joined([tag("footer", tag("p", about, class_="soft")), tag("script", Html(SCRIPT))])
