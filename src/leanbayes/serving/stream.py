"""The reading end of a connection, with a time by which a whole request must have come."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leanbayes.serving.refusal import busy


class Timed(io.RawIOBase):
    """Bytes of a socket until a deadline: a client that sends a byte now and then runs out of it.

    A timeout of the socket alone begins anew with every byte.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = 0.0

    def allow(self, seconds: float) -> None:
        """Set the deadline, for reading, and the longest wait of a write."""
        self._until = time.monotonic() + seconds
        self._connection.settimeout(seconds)

    def readable(self) -> bool:
        """True: it is all it can do."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What has come, at least a byte unless the other end is closed."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class Budget:
    """Bytes that all bodies together may take."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Within it so many bytes are taken.

        Raises:
            Refusal: 503, where others hold them.
        """
        with self._lock:
            if size > self._left:
                raise busy("too many large uploads at a time")
            self._left -= size
        try:
            yield
        finally:
            with self._lock:
                self._left += size
