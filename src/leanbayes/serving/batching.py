"""Requests that wait are answered together, by the one thread that owns the model.

Draws are keyed by (seed, tensor, sample) and shared by all rows of a pass, so requests with the
same samples and seed can be rows of one pass, and none of them sees its neighbours: an answer is
the same alone and in company, to rounding. S draws of a batch cost S passes, however many wait.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.predict import predict
from leanbayes.serving.answers import answer_of, rows_of
from leanbayes.serving.limits import Limits
from leanbayes.serving.refusal import Refusal, busy
from leanbayes.serving.served import Served


class Key(NamedTuple):
    """What requests of one pass have in common."""

    samples: int
    seed: int
    kind: torch.dtype


@dataclass(eq=False)
class Job:
    """A request that waits.

    Attributes:
        x: Raw input, without a row.
        key: Of its pass.
        draws: Add every draw to the answer.
        answer: Comes from the worker.
    """

    x: Tensor
    key: Key
    draws: bool
    answer: Future[dict[str, Any]] = field(default_factory=Future)


class Batching:
    """The worker and what waits for it.

    Args:
        served: The model, which belongs to the worker from now on.
        limits: Rows of a pass, requests that may wait, and how long.
    """

    def __init__(self, served: Served, limits: Limits) -> None:
        self.served, self.limits = served, limits
        self.batch = 1 if served.alone else limits.batch
        self.answered = self.passes = 0
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="leanbayes-model", daemon=True)
        self._worker.start()

    @property
    def waiting(self) -> int:
        """Requests that nobody has begun with."""
        return len(self._waiting)

    def ask(self, x: Tensor, samples: int, seed: int, *, draws: bool = False) -> dict[str, Any]:
        """Wait for the answer to one input.

        Raises:
            Refusal: 503 where too many wait or it took too long, 422 where the network fails on it.
        """
        job = Job(x, Key(samples, seed, x.dtype), draws)
        with self._changed:
            if self._closed:
                raise busy("the server is stopping")
            if len(self._waiting) >= self.limits.waiting:
                raise busy(f"{len(self._waiting)} requests wait already")
            self._waiting.append(job)
            self._changed.notify_all()
        try:
            return job.answer.result(self.limits.answer)
        except TimeoutError:
            job.answer.cancel()
            raise busy(f"no answer within {self.limits.answer:g} seconds") from None

    def close(self, patience: float = 5.0) -> bool:
        """Answer what waits, then end; True where the worker has ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.join(patience)
        return not self._worker.is_alive()

    def _work(self) -> None:
        while taken := self._taken():
            jobs = [job for job in taken if job.answer.set_running_or_notify_cancel()]
            if jobs:
                self._answer(jobs)

    def _taken(self) -> list[Job]:
        """The jobs of the next pass: the first that waits, those of its key; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []
            key = self._waiting[0].key
            self._changed.wait_for(lambda: self._full(key) or self._closed, self.limits.linger)
            jobs, others = list[Job](), deque[Job]()
            for job in self._waiting:
                fits = job.key == key and len(jobs) < self.batch
                (jobs if fits else others).append(job)
            self._waiting = others
            return jobs

    def _full(self, key: Key) -> bool:
        if len(self._waiting) < self.batch:
            return False
        return sum(job.key == key for job in self._waiting) >= self.batch

    def _answer(self, jobs: Sequence[Job]) -> None:
        """Answer all; where a pass fails, each alone, so that one bad input spoils no other."""
        try:
            answers = self._answers(jobs)
        except Exception as error:  # a network may fail in its own ways; the server lives on
            if len(jobs) == 1:
                jobs[0].answer.set_exception(_refused(error))
                return
            for job in jobs:
                self._answer([job])
        else:
            self.answered += len(jobs)
            for job, answer in zip(jobs, answers, strict=True):
                job.answer.set_result(answer)

    def _answers(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        self.passes += 1
        key = jobs[0].key
        x = self.served.prepared(torch.stack([job.x for job in jobs]))
        options: dict[str, Any] = {"samples": key.samples, "seed": key.seed, "keep_samples": True}
        with warnings.catch_warnings():
            # Fewer samples than members, or a set that holds everything: the slider may ask for it.
            warnings.simplefilter("ignore", UserWarning)
            found = rows_of(predict(self.served.model, x, **options).to("cpu"))
            return [
                _finite(answer_of(row, self.served, (key.samples, key.seed), job.draws))
                for row, job in zip(found, jobs, strict=True)
            ]


def _finite(answer: dict[str, Any]) -> dict[str, Any]:
    figures = answer["probabilities"] if "probabilities" in answer else answer["mean"]
    if not all(value is not None and math.isfinite(value) for value in figures):
        raise ArithmeticError("its outputs are not finite")
    return answer


def _refused(error: Exception) -> Refusal:
    if isinstance(error, ConfigError):
        return Refusal(422, str(error), "a run with one label or some numbers an input")
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return busy("the model is out of memory")
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
    return Refusal(422, f"the network fails on this input ({words})", "an input it can take")
