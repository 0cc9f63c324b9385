"""The server: threads that read and write, one worker that predicts, a clean end."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from leanbayes.errors import ConfigError
from leanbayes.serving.handler import Handler
from leanbayes.serving.hosts import allowed_hosts
from leanbayes.serving.limits import Limits
from leanbayes.serving.routes import Routes
from leanbayes.serving.served import Served
from leanbayes.serving.stream import Budget

BUSY: Final = b'{"error": "too many connections", "expected": "the same again, after a moment"}\n'
POLL: Final = 0.1  # seconds until a stop is seen
GRACE: Final = 2.0  # seconds for writing the last answers


class Server(ThreadingHTTPServer):
    """A model on HTTP; `start` it, `close` it, or use it in a `with`.

    Args:
        served: What is served.
        host: Address to listen on.
        port: 0 takes a free one.
        limits: Of clients.

    Raises:
        ConfigError: The address cannot be used, or the model cannot answer.
    """

    daemon_threads = True
    block_on_close = False  # a client that holds its connection must not hold the end
    request_queue_size = 1024

    def __init__(
        self,
        served: Served,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.budget = Budget(self.limits.uploads)
        self.hosts = allowed_hosts(host)
        self._free = threading.BoundedSemaphore(self.limits.connections)
        self._thread: threading.Thread | None = None
        self._active, self._ended = 0, threading.Condition()
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot listen on {host} port {port}: {words}") from None
        try:
            self.routes = Routes(served, self.limits)
        except BaseException:
            self.server_close()
            raise

    @property
    def url(self) -> str:
        """Of the page."""
        host, port = self.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{name}:{port}/"

    def start(self) -> Self:
        """Answer from now on, in threads."""
        options = {"poll_interval": POLL}
        self._thread = threading.Thread(target=self.serve_forever, kwargs=options, daemon=True)
        self._thread.start()
        return self

    def close(self) -> bool:
        """Take no more requests, answer those that wait; True where all ended in time."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()
        ended = self.routes.batching.close()
        with self._ended:  # the threads that write the last answers
            return self._ended.wait_for(lambda: not self._active, GRACE) and ended

    @contextmanager
    def active(self) -> Iterator[None]:
        """Around a request, from its first header to the last byte of its answer."""
        with self._ended:
            self._active += 1
        try:
            yield
        finally:
            with self._ended:
                self._active -= 1
                self._ended.notify_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def server_bind(self) -> None:
        """Bind without the look-up of a name, which may ask the network."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, as long as there are not too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        request.settimeout(POLL)
        head = "HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        head += f"Content-Length: {len(BUSY)}\r\nConnection: close\r\n\r\n"
        with suppress(OSError):
            request.sendall(head.encode() + BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The connection's own thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news; anything else is an error of ours, and is shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)
