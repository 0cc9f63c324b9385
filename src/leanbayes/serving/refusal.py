"""A request that is not answered: a status of HTTP, what was found and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(eq=False)  # not frozen: Python notes the way of an exception in it
class Refusal(Exception):  # noqa: N818
    """Raised anywhere on the way to an answer; the client gets it as JSON.

    Attributes:
        status: Of HTTP, 4xx or 503.
        error: What was found.
        expected: What to send instead.
        headers: That go with the status (`Allow`, `Retry-After`).
        close: True where the rest of the connection cannot be trusted.
    """

    status: int
    error: str
    expected: str
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False

    def __str__(self) -> str:
        return f"{self.status}: {self.error}; expected {self.expected}"


def busy(error: str) -> Refusal:
    """Too much at once; the same request may be sent again."""
    words = "the same request again, after a moment"
    return Refusal(503, error, words, {"Retry-After": "1"})
