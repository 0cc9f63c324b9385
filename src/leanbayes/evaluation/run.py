"""`lb.evaluate`: a model on a suite, split by split, as plain data."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from leanbayes.evaluation.against import against, check_common
from leanbayes.evaluation.asked import Asked
from leanbayes.evaluation.crew import Crew
from leanbayes.evaluation.examples import examples
from leanbayes.evaluation.part import share_of
from leanbayes.evaluation.progress import Meter
from leanbayes.evaluation.record import KIND, Record, header, identity
from leanbayes.evaluation.rows import told_apart
from leanbayes.evaluation.scores import finite
from leanbayes.evaluation.split import Split
from leanbayes.evaluation.suite import Suite
from leanbayes.evaluation.summary import summarised
from leanbayes.evaluation.tally import Tally, tally_of
from leanbayes.likelihood import Likelihood

SHOWS_CURVES = ("clean", "foreign", "adversarial")


def evaluate(  # noqa: PLR0913
    model: nn.Module,
    suite: Suite,
    *,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 256,
    likelihood: Likelihood | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    progress: bool | None = None,
    reference: Mapping[str, Any] | None = None,
    header: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Figures and curves of a model on every split of a suite, as plain data.

    Splits are read in batches; memory holds sums, and for figures that rank rows a few numbers for
    each row. A calibrated model is evaluated with its calibration. In an open process group the
    processes share the batches, and all of them return the result, which is that of one process.

    Args:
        model: A BayesianModel, or its DDP, FSDP2 or compiled wrapper.
        suite: From `lb.Suite.of`.
        samples: Draws an example, as for `lb.predict`.
        seed: Of draws, of the noise of shifts and of attacks.
        batch_size: Rows of a pass, of dense outputs at most.
        likelihood: By default the one kept with the model.
        out: A JSON file, written whole after every split.
        resume: Go on with such a file; False writes it anew.
        progress: A bar on a terminal and lines elsewhere if None; True: a bar; False: nothing.
        reference: The result of another model on the same suite: adds `mce`, `relative_mce` and
            `ce_NAME` to the summary, the errors under corruptions relative to its own.
        header: Further entries of the file, such as the command.

    Returns:
        `suite`, `task`, `classes`, `settings`, `splits` by name (`kind`, `of`, `shift`, `count`,
        `figures`, `curves`, `examples`, `seconds`), `summary` and `seconds`.

    Raises:
        ConfigError: The file was made with other settings, which the message names.

    Example:
        >>> import leanbayes as lb, torch
        >>> x, y = torch.rand(50, 4), torch.arange(50) % 3
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MAP(), likelihood=lb.Categorical())
        >>> found = lb.evaluate(model, lb.Suite.of((x, y), "test"), progress=False)
        >>> found["splits"]["test"]["count"], sorted(found["summary"])[:3]
        (50, ['accuracy', 'accuracy_at_80', 'accuracy_at_90'])
    """
    asked = Asked.of(model, suite, likelihood, samples, seed, batch_size)
    if reference is not None:
        check_common(suite, reference)
    crew = Crew.found(asked.inner)
    work = Work(asked, crew, None if out is None else Path(out), header or {}, reference)
    return work.done(resume, progress)


@dataclass
class Work:
    """An evaluation: what is asked, who works, and where results go."""

    asked: Asked
    crew: Crew
    path: Path | None
    more: Mapping[str, Any]
    reference: Mapping[str, Any] | None
    record: Record = field(default_factory=Record)

    def done(self, resume: bool, progress: bool | None) -> dict[str, Any]:
        """All splits that are not done yet, then the result."""
        alone = self.path is None and self.crew.processes.world == 1
        own = {} if alone else identity(self.asked)  # to hash all weights takes seconds
        self.crew.check_same(own)
        self.record = self._earlier(own, resume)
        left = [split for split in self.asked.suite.splits if split.name not in self.record.splits]
        meter = self._meter(left, progress)
        try:
            for split in left:
                self._one(split, meter)
                self._write(own)
        finally:
            meter.close()
        if self.reference is not None and not left:  # the file may not have been compared with it
            self._write(own)
        return self._result()

    def _earlier(self, own: Mapping[str, Any], resume: bool) -> Record:
        path = self.path
        if path is None or not resume:
            return Record()
        found: Record | None = self.crew.by_first(lambda: Record.read(path, own))
        return found or Record()

    def _write(self, own: Mapping[str, Any]) -> None:
        path = self.path
        if path is None:
            return

        def work() -> None:
            found = {**header(self.asked, self.more), KIND: self._result()}
            self.record.write(path, found, own)

        self.crew.by_first(work)

    def _one(self, split: Split, meter: Meter) -> None:
        """Evaluate a split, and put it into the record."""
        start = time.perf_counter()
        meter.begin(split.name)
        tally: Tally = self.crew.joined(lambda: self._tally(split, meter), split.name)
        found = {**split.head(), "figures": self._figures(split, tally)}
        if split.kind in SHOWS_CURVES:
            found["curves"] = tally.curves()
        if split.kind == "clean":
            table = self.record.clean[split.name] = tally.score.rows.table()
            shown = examples(self.asked.on(split), split, table)
            found |= {} if shown is None else {"examples": shown}
        seconds = time.perf_counter() - start
        self.record.task = self.record.task or tally.task
        self.record.splits[split.name] = {**found, "seconds": seconds}
        self.record.seconds += seconds
        meter.end(found["figures"], split.count)

    def _tally(self, split: Split, meter: Meter) -> Tally | None:
        rank, world = self.crew.rank, self.crew.sharing
        return tally_of(self.asked, split, rank if world > 1 else 0, world, meter.advance)

    def _figures(self, split: Split, tally: Tally) -> dict[str, float | None]:
        found = tally.figures()
        if split.kind in ("foreign", "adversarial"):
            assert split.of is not None
            own, strange = self.record.clean[split.of], tally.score.rows.table()
            # As many clean rows as attacked ones, the same; foreign ones against all of them.
            own = own[: len(strange)] if split.kind == "adversarial" else own
            found |= told_apart(own, strange, self.asked.is_random)
        return {name: finite(value) for name, value in found.items()}

    def _meter(self, left: list[Split], progress: bool | None) -> Meter:
        speaks = progress if self.crew.rank == 0 else False
        shares = (self._share(split) * split.price for split in left)
        done = len(self.record.splits)
        return Meter(speaks if left else False, sum(shares), len(left) + done, done=done)

    def _share(self, split: Split) -> int:
        world = self.crew.sharing
        return len(share_of(split.count, self.asked.batch_size, 0, world))

    def _against(self, splits: Mapping[str, Any]) -> dict[str, float]:
        if self.reference is None or len(splits) < len(self.asked.suite.splits):
            return {}
        return against({"splits": splits}, self.reference)

    def _result(self) -> dict[str, Any]:
        asked, suite = self.asked, self.asked.suite
        splits = {
            s.name: self.record.splits[s.name] for s in suite.splits if s.name in self.record.splits
        }
        settings = {
            "samples": asked.samples,
            "seed": asked.seed,
            "batch_size": asked.batch_size,
            "calibrated": asked.inner.calibration is not None,
        }
        return {
            "suite": {"name": suite.name, "data": suite.data},
            "task": self.record.task,
            **({"classes": list(suite.classes)} if suite.classes else {}),
            "settings": settings,
            "splits": splits,
            "summary": summarised(splits) | self._against(splits),
            "seconds": self.record.seconds,
        }
