"""HTML and SVG that cannot be broken by what it shows: everything that is no Html is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

EMPTY = ("circle", "line", "path", "polyline", "rect", "meta", "polygon")  # without content


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


def _plain(words: str) -> str:
    """Without characters that neither HTML nor XML can hold."""
    return "".join(c for c in words if c in "\t\n" or (c >= " " and not 0xD800 <= ord(c) <= 0xDFFF))
