"""Signals as a request: the run finishes its step, saves, and ends with the signal's exit code."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Within it SIGTERM and Ctrl-C are noted instead of obeyed; a second one quits at once.

    Handlers belong to the main thread: elsewhere (a notebook's worker, a server) nothing is noted,
    and signals do what they did before. They are set back on exit.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(128 + number)  # asked twice: nobody wants to wait for a save
        self.received = number


def exit_code(number: int) -> int:
    """What a shell expects of a process that a signal ended."""
    return 128 + number
