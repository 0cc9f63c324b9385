"""Which path answers what; there are no others, and none that touches a file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import torch

from leanbayes.errors import ConfigError
from leanbayes.serving.batching import Batching
from leanbayes.serving.limits import Limits
from leanbayes.serving.openapi import description
from leanbayes.serving.page import page
from leanbayes.serving.refusal import Refusal
from leanbayes.serving.served import Served
from leanbayes.serving.uploads import input_of

PREDICT: Final = "/predict"
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"
SEEDS: Final = 2**63
QUERY: Final = ("samples", "seed", "draws")


@dataclass(frozen=True)
class Reply:
    """What goes back: a status, bytes and what they are."""

    status: int
    body: bytes
    kind: str = JSON
    headers: Mapping[str, str] | None = None

    @staticmethod
    def of(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
        """Plain data as JSON."""
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        # A name from a card may hold half a character; UTF-8 has none.
        return Reply(status, text.encode("utf-8", "replace") + b"\n", headers=headers)

    @staticmethod
    def refused(refusal: Refusal) -> Reply:
        """The body of an error."""
        words = {"error": refusal.error, "expected": refusal.expected}
        return Reply.of(words, refusal.status, refusal.headers)


class Routes:
    """The answers of one server.

    Args:
        served: What is served.
        limits: Of clients.

    Raises:
        ConfigError: The model cannot answer at all.
    """

    def __init__(self, served: Served, limits: Limits) -> None:
        self.served, self.limits = served, limits
        self.batching = Batching(served, limits)
        first = self._first()
        self.info = served.info(first["task"], limits)
        if first["task"] == "classes":
            self.info["classes"] = first["classes"]
        policy, text = page(served, self.info)
        self._fixed = {
            "/": Reply(200, text.encode(), HTML, {"Content-Security-Policy": policy}),
            "/info": Reply.of(self.info),
            "/openapi.json": Reply.of(description(served, self.info, limits)),
        }
        reading: tuple[str, ...] = ("GET", "HEAD")
        self.methods = dict.fromkeys((*self._fixed, "/health"), reading) | {PREDICT: ("POST",)}

    def _first(self) -> dict[str, Any]:
        """An answer to zeros: shows that the model runs, and what it answers."""
        kind = torch.uint8 if self.served.frame is not None else torch.float32
        zeros = torch.zeros(self.served.shape, dtype=torch.int64 if self.served.whole else kind)
        try:
            return self.batching.ask(zeros, 1, 0)
        except Refusal as refusal:
            raise ConfigError(f"the run cannot be served: {refusal.error}") from None

    def check(self, method: str, target: str) -> str:
        """The path of a request that may be made.

        Raises:
            Refusal: 404, 405.
        """
        try:
            path = urlsplit(target).path
        except ValueError:
            raise Refusal(400, f"a target {target[:80]!r}", "a path") from None
        if path not in self.methods:
            known = ", ".join(f"{m[0]} {p}" for p, m in self.methods.items())
            raise Refusal(404, f"no {path[:80]!r} here", known)
        allowed = self.methods[path]
        if method not in allowed:
            words = f"{path} does not know {method[:20]}"
            raise Refusal(405, words, " or ".join(allowed), {"Allow": ", ".join(allowed)})
        return path

    def reply(self, path: str, target: str, body: bytes) -> Reply:
        """The answer to a request that was checked."""
        if path in self._fixed:
            return self._fixed[path]
        return Reply.of(self._health()) if path == "/health" else self._predict(target, body)

    def _health(self) -> dict[str, Any]:
        worker = self.batching
        figures = {"answered": worker.answered, "passes": worker.passes, "waiting": worker.waiting}
        return {"status": "ok", **figures}

    def _predict(self, target: str, body: bytes) -> Reply:
        start = time.perf_counter()
        samples, seed, draws = self._query(urlsplit(target).query)
        x = input_of(body, self.served, self.limits)
        answer = dict(self.batching.ask(x, samples, seed, draws=draws))
        answer["milliseconds"] = round(1e3 * (time.perf_counter() - start), 3)
        return Reply.of(answer)

    def _query(self, text: str) -> tuple[int, int, bool]:
        try:
            pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
        except ValueError:
            raise Refusal(400, f"a query {text[:80]!r}", "samples=20&seed=0") from None
        given = dict(pairs)
        if len(given) != len(pairs) or not set(given) <= set(QUERY):
            raise Refusal(422, f"the query names {sorted(given)}"[:200], f"each once of {QUERY}")
        samples, seed = self.served.draws
        most = self.limits.samples
        samples = _whole(given, "samples", min(samples, most), 1, most)
        draws = _whole(given, "draws", 0, 0, 1)
        return samples, _whole(given, "seed", seed, 0, SEEDS - 1), bool(draws)


def _whole(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name, str(default))
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not least <= number <= most:
        words = f"a whole number from {least} to {most}"
        raise Refusal(422, f"{name} is {text[:40]!r}", words)
    return number
