"""HTML and SVG that cannot be broken by what it shows: everything that is no Html is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

# Elements without content.
EMPTY = (
    *("br", "circle", "image", "img", "input", "line", "link"),
    *("meta", "path", "polygon", "polyline", "rect"),
)


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


NOTHING = Html("")


def text(value: object) -> Html:
    """Anything as text of a page.

    Example:
        >>> text("a < b & 'c'")
        'a &lt; b &amp; &#x27;c&#x27;'
    """
    return value if isinstance(value, Html) else Html(escape(_plain(str(value))))


def tag(name: str, /, *children: object, **attributes: Any) -> Html:
    """An element; None leaves an attribute out, `class_` and `x_y` are `class` and `x-y`.

    Example:
        >>> tag("p", "1 < 2", class_="note", hidden=True, title=None)
        '<p class="note" hidden>1 &lt; 2</p>'
    """
    words = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in EMPTY and not children:
        return Html(f"<{name}{words}/>")
    return Html(f"<{name}{words}>{joined(children)}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Pieces one after another, each as text unless it is markup."""
    return Html(between.join(text(part) for part in parts))


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(_plain(str(value)))}"'


# Neither HTML nor XML can hold the first three; the others turn the order of what follows.
_BAD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f]|[\ud800-\udfff]|[\ufffe\uffff]"
    "|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def _plain(words: str) -> str:
    """Without characters that a page cannot hold, or that change the words around them."""
    return _BAD.sub("", words)
