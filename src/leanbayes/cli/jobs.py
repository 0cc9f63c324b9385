"""Runs side by side: processes that take one run after the other, and end with this one.

A pool of `concurrent.futures` would give up all runs where one process dies; here that run alone
has failed. Processes are started afresh (spawn), since a GPU does not survive a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from leanbayes.errors import Interrupted, OutOfMemory, TrainingError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 5.0  # seconds that a process has to end by itself


@dataclass(frozen=True)
class Ended:
    """How one run ended: with a value or with an error.

    Attributes:
        at: Its place among the arguments.
        value: What it gave.
        error: What went wrong.
    """

    at: int
    value: Any = None
    error: Exception | None = None


def run_all(
    work: Callable[[Any], Any],
    arguments: Sequence[Any],
    jobs: int = 1,
    more: Callable[[], bool] = lambda: True,
    ready: Callable[[Any], bool] = lambda _argument: True,
) -> Generator[Ended, None, None]:
    """The ends of `work(argument)` as they come; where one fails the others go on.

    Close it (`contextlib.closing`), so that no process is left where the caller stops early.

    Args:
        work: Sent to every process once, so what it remembers is remembered there.
        arguments: One a run, begun in this order as far as they are ready.
        jobs: Runs at a time; with 1 they run in this process.
        more: Asked before every run but the first ones; where it says no, none begins any more.
        ready: Whether a run can begin. One that cannot waits for others to end; where it still
            cannot when all have ended, it does not run.

    Example:
        >>> [ended.value for ended in run_all(abs, [-1, 2])]
        [1, 2]
    """
    size, queue = min(jobs, len(arguments)), Queue(arguments, more, ready)
    if size <= 1:
        for run in iter(queue.next, None):
            queue.begun()
            yield _ended(work, *run)
        return
    team = Team(work, threads_of(jobs))
    try:
        yield from team.run(queue, size)
    finally:
        team.end()


class Queue:
    """Runs that wait.

    Args:
        arguments: One a run.
        more: Whether another one may begin.
        ready: Whether this one can.
    """

    def __init__(
        self, arguments: Sequence[Any], more: Callable[[], bool], ready: Callable[[Any], bool]
    ) -> None:
        self._waiting = dict(enumerate(arguments))
        self._more, self._ready, self._begun = more, ready, False

    def next(self) -> tuple[int, Any] | None:
        """The first run that can begin, and its place; None where there is none."""
        at = next((at for at, given in self._waiting.items() if self._ready(given)), None)
        if at is None or (self._begun and not self._more()):
            return None
        return at, self._waiting.pop(at)

    def begun(self) -> None:
        """The first runs have begun: from now on there may be no time for more."""
        self._begun = True


def threads_of(jobs: int) -> int:
    """Threads of each of several processes: together they take the cores, and no more."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(torch.get_num_threads(), max(1, (cores or 1) // jobs))


@contextmanager
def obeying_signals() -> Iterator[None]:
    """Within it SIGTERM and Ctrl-C raise `Interrupted`, so that everything is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Team:
    """Processes that wait for runs.

    Args:
        work: What a run does with its argument.
        threads: Of each process.
    """

    def __init__(self, work: Callable[[Any], Any], threads: int) -> None:
        self._work, self._threads = work, threads
        self._members: dict[Connection, BaseProcess] = {}

    def run(self, queue: Queue, size: int) -> Iterator[Ended]:
        """The ends of all runs, `size` of them at a time; one that ends makes room at once."""
        busy, ends = dict[Connection, int](), list[Ended]()
        while True:
            while len(busy) < size and (run := queue.next()) is not None:
                busy |= [self._given(self._free(busy), *run)]
            queue.begun()
            yield from ends
            if not busy:
                break
            heard = [pipe for pipe in wait(list(busy)) if isinstance(pipe, Connection)]
            ends = [self._received(pipe, busy.pop(pipe)) for pipe in heard]
        self._dismiss()

    def _free(self, busy: Container[Connection]) -> Connection:
        """A process that waits for a run, or a new one."""
        return next((pipe for pipe in self._members if pipe not in busy), None) or self._hired()

    def _dismiss(self) -> None:
        """Let all go that wait for runs: a process that is killed leaves its semaphores behind."""
        for pipe in self._members:
            with suppress(BrokenPipeError):
                pipe.send(None)
        for member in self._members.values():
            member.join(PATIENCE)

    def end(self) -> None:
        """End all processes; they hold nothing that has to be saved."""
        with _held():
            for member in self._members.values():
                member.kill()
            for pipe, member in self._members.items():
                member.join()
                pipe.close()
            self._members.clear()

    def _hired(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        member = context.Process(target=_serve, args=(theirs, self._work, self._threads))
        resource_tracker.ensure_running()  # it would let go of the signals that are held below
        # A process inherits what is held: a Ctrl-C of the terminal is for this one to answer.
        with _held():
            member.start()
            self._members[ours] = member
        theirs.close()  # else the end of the process would not be the end of the pipe
        return ours

    @staticmethod
    def _given(pipe: Connection, at: int, argument: Any) -> tuple[Connection, int]:
        with suppress(BrokenPipeError):  # it has died: that is seen when it is listened to
            pipe.send((at, argument))
        return pipe, at

    def _received(self, pipe: Connection, at: int) -> Ended:
        try:
            ended: Ended = pipe.recv()
        except (EOFError, ConnectionError):
            member = self._members.pop(pipe)
            member.join()
            pipe.close()
            return Ended(at, error=_death(member.exitcode))
        return ended


def _serve(pipe: Connection, work: Callable[[Any], Any], threads: int) -> None:
    """Take runs until there are none, or this process is ended."""
    import torch

    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    with suppress(EOFError, ConnectionError):  # the parent was killed: nobody is to be told
        while (run := pipe.recv()) is not None:
            at, argument = run
            pipe.send(_ended(work, at, argument, elsewhere=True))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _ended(work: Callable[[Any], Any], at: int, argument: Any, *, elsewhere: bool = False) -> Ended:
    try:
        return Ended(at, work(argument))
    except Exception as error:
        return Ended(at, error=_portable(error) if elsewhere else error)


def _portable(error: Exception) -> Exception:
    """The error as it can be sent, with the place where it came about."""
    text = "".join(traceback.format_exception(error))
    error.add_note(f"in a process of --jobs:\n{text}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # foreign errors may have arguments that cannot travel
        return RuntimeError(text)
    return error


def _death(code: int | None) -> TrainingError:
    if code == -signal.SIGKILL:
        return OutOfMemory(
            "its process was killed, which a system does that is out of memory: write fewer --jobs"
        )
    return TrainingError(f"its process ended with {code}")


@contextmanager
def _held() -> Iterator[None]:
    """Signals wait until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(128 + number)
