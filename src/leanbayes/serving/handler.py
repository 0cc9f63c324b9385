"""One connection: requests are read within their limits, and answered or refused as JSON."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from leanbayes.serving.hosts import check_host
from leanbayes.serving.refusal import Refusal, busy
from leanbayes.serving.routes import Reply
from leanbayes.serving.stream import Timed
from leanbayes.version import __version__

if TYPE_CHECKING:
    from leanbayes.serving.server import Server

PIECE: Final = 2**16
LINGER: Final = 1.0  # seconds for the rest of a refused body, so that its sender reads the answer
HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
POLICY: Final = "default-src 'none'; frame-ancestors 'none'"


class Handler(BaseHTTPRequestHandler):
    """Of a `Server`."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = f"leanbayes/{__version__}"
    sys_version = ""
    disable_nagle_algorithm = True  # small answers must not wait for more

    def setup(self) -> None:
        """Read by way of a deadline."""
        super().setup()
        self.timed = Timed(self.connection)
        self.rfile = io.BufferedReader(self.timed, PIECE)

    def handle_one_request(self) -> None:
        """Begin the time of a request; connections that break are nobody's error."""
        self._left = 0
        self.timed.allow(self.server.limits.patience)
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _answer(self) -> None:
        with self.server.active():
            try:
                reply = self._reply()
            except Refusal as refusal:
                self.close_connection |= refusal.close or self._left > 0
                reply = Reply.refused(refusal)
            except (ConnectionError, TimeoutError):
                raise
            except Exception as error:
                reply = self._failed(error)
            self._send(reply)
            self._drop_rest()

    def _failed(self, error: Exception) -> Reply:
        self.close_connection = True
        if isinstance(error, MemoryError):
            return Reply.refused(busy("out of memory"))
        self.server.handle_error(self.request, self.client_address)
        return Reply.refused(Refusal(500, "an error of the server", "a report of it, please"))

    def __getattr__(self, name: str) -> Any:
        """`do_GET` and all others: whether a method is known, the path decides."""
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _reply(self) -> Reply:
        self._left = size = self._length()
        check_host(self.headers, self.server.hosts)
        path = self.server.routes.check(self.command, self.path)
        if self.command == "POST" or size:
            self._check_length(size)
        with self.server.budget.holding(size):
            body = self._body(size)
            return self.server.routes.reply(path, self.path, body)

    def handle_expect_100(self) -> bool:
        """Refuse before a large body is sent, where its headers say enough."""
        try:
            self._left = 0
            check_host(self.headers, self.server.hosts)
            self.server.routes.check(self.command, self.path)
            self._check_length(self._length())
        except Refusal as refusal:
            self.close_connection = True
            self._send(Reply.refused(refusal))
            return False
        return super().handle_expect_100()

    def _length(self) -> int:
        """Bytes that follow the headers."""
        given = self.headers.get_all("Content-Length") or []
        if self.headers.get("Transfer-Encoding") is not None:
            words = "Content-Length, and no Transfer-Encoding"
            raise Refusal(411, "a body of unknown length", words, close=True)
        if not given:
            return 0
        text = given[0].strip()
        if len(given) > 1 or not (text.isascii() and text.isdecimal()) or len(text) > 18:
            raise Refusal(400, "a Content-Length that is no number", "one number", close=True)
        return int(text)

    def _check_length(self, size: int) -> None:
        if self.headers.get("Content-Length") is None:
            raise Refusal(411, "no Content-Length", "the number of bytes of the body", close=True)
        if size > self.server.limits.upload:
            most = f"at most {self.server.limits.upload:,} bytes"
            raise Refusal(413, f"a body of {size:,} bytes", most)

    def _body(self, size: int) -> bytes:
        """The body, whatever its header said; no more is read than a body may have."""
        pieces = []
        try:
            while self._left and (piece := self.rfile.read1(min(self._left, PIECE))):
                self._left -= len(piece)
                pieces.append(piece)
        except TimeoutError:
            words = f"all of it within {self.server.limits.patience:g} seconds"
            raise Refusal(408, "a body that did not come", words, close=True) from None
        if self._left:
            words = f"the {size:,} bytes that Content-Length says"
            raise Refusal(400, f"a body of {size - self._left:,} bytes", words, close=True)
        return b"".join(pieces)

    def _drop_rest(self) -> None:
        """Read what a refused client still sends: closing at once would take its answer away."""
        if not self._left or not self.close_connection:
            return
        self.timed.allow(LINGER)
        end = time.monotonic() + LINGER
        with suppress(TimeoutError, ConnectionError):
            while self._left > 0 and time.monotonic() < end:
                piece = self.rfile.read1(min(self._left, PIECE))
                if not piece:
                    return
                self._left -= len(piece)

    def _send(self, reply: Reply) -> None:
        self.timed.allow(self.server.limits.patience)
        self.send_response(reply.status)
        headers = {**HEADERS, "Content-Security-Policy": POLICY, **(reply.headers or {})}
        headers |= {"Content-Type": reply.kind, "Content-Length": str(len(reply.body))}
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What `http.server` itself refuses (a broken request line, endless headers), as JSON."""
        self.close_connection = True
        self.request_version = "HTTP/1.1"  # else a line without a version gets no status
        words = message or explain or HTTPStatus(code).phrase
        self._send(Reply.refused(Refusal(code, words[:200], "a request of HTTP/1.1")))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are counted by `/health`."""
