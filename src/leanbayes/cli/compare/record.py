"""The record of a comparison: a row a method, in the order in which they were asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leanbayes.cli.compare.significance import carried, significance
from leanbayes.cli.record_file import COMPARED, earlier, refuse_others
from leanbayes.cli.summary import moments

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.compare.ask import Run
    from leanbayes.cli.compare.runs import Bench, Outcome, Rows
    from leanbayes.cli.compare.start import Begun

Row = Mapping[str, Any]


@dataclass
class Record:
    """What is known so far.

    Attributes:
        head: Begins the file.
        commands: By label: gives the row again.
        command_of: The same for a label, a number of seeds and the first one.
        seeds: Of every label.
        parts: Of the data; figures of one stand alone, those of several by part.
        most: The most seeds of a label.
        at_hand: Runs whose shared start is there already: they come first.
        baseline: The label of the point estimate, which others are tested against.
        base: Its runs where the file has them, but they are not asked for.
        start: Settings of the shared start, if there is one.
        table: All labels, in order, where more may be in the file than are asked for now.
        others: Rows of those, as they were.
        rows_of: Scores by row of a run that the file has, from where they were kept.
        tests: Of rows that the file has, by label: their scores need not have been kept.
        done: Runs that gave figures.
        failed: Words of those that did not.
        begun: Starts by the hash of their weights: one seed can have been trained twice.
    """

    head: Mapping[str, Any]
    commands: Mapping[str, str]
    seeds: Sequence[int]
    parts: Sequence[str]
    most: Mapping[str, int] = field(default_factory=dict)
    at_hand: Set[Run] = frozenset()
    command_of: Callable[[str, int, int], str] | None = None
    baseline: str | None = None
    base: Sequence[Outcome] = ()
    start: Mapping[str, Any] | None = None
    table: Sequence[str] = ()
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows_of: Callable[[str, int], Rows] = lambda _label, _seed: {}
    tests: dict[str, Any] = field(default_factory=dict)
    done: dict[Run, Outcome] = field(default_factory=dict)
    failed: dict[Run, str] = field(default_factory=dict)
    begun: dict[str, Begun] = field(default_factory=dict)

    def begin(self, starts: Iterable[Begun]) -> None:
        """Take note of starts that are there."""
        self.begun |= {start.hash: start for start in starts}

    def seeds_of(self, label: str) -> Sequence[int]:
        """All seeds; of a label with fewer those it has, those that can start now, the first."""

        def rank(seed: int) -> tuple[bool, bool]:
            run = (label, seed)
            return run not in self.done, run not in self.at_hand

        return sorted(sorted(self.seeds, key=rank)[: self.most.get(label, len(self.seeds))])

    @property
    def missing(self) -> list[Run]:
        """Runs that have not ended: those at hand first, and one seed of all before the next."""
        wanted = {label: self.seeds_of(label) for label in self.commands}
        every = [(k, s) for s in self.seeds for k in self.commands if s in wanted[k]]
        left = [run for run in every if run not in self.done and run not in self.failed]
        return sorted(left, key=lambda run: run not in self.at_hand)

    @property
    def unpriced(self) -> list[Run]:
        """The first runs of labels that have ended, of those without a price."""
        ended = {label: self._done(label) for label in self.commands}
        return [
            (label, runs[0].seed)
            for label, runs in ended.items()
            if runs and all(run.prices is None for run in runs)
        ]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a method with a run that has ended."""
        ended = {label for label, _ in (*self.done, *self.failed)}
        found = {k: self.row(k) for k in self.commands if k in ended} | self.others
        order = dict.fromkeys((*self.table, *self.commands))
        return [found[label] for label in order if label in found]

    def plain(self) -> dict[str, Any]:
        """The file; it says how many runs it still lacks."""
        left = {"unfinished": len(self.missing)} if self.missing else {}
        return {**self.head, **left, **self._started(), "rows": self.rows}

    def _started(self) -> dict[str, Any]:
        """The starts: their settings, and of each the seconds and the hash of its weights."""
        if self.start is None:
            return {}
        starts = sorted(self.begun.values(), key=lambda start: start.seed)
        return {"start": {"config": self.start, "seeds": [asdict(start) for start in starts]}}

    def row(self, label: str) -> dict[str, Any]:
        """Figures over the seeds; words in their place where all have failed."""
        from leanbayes.records import provenance

        done = self._done(label)
        row: dict[str, Any] = {"method": label, **_failures(self.failed, label)}
        if not done:
            return {**row, **provenance(self.commands[label])}
        row |= {"command": self._command(label), **done[0].origin}
        return {**row, **self._summary(done), **self.tested(label, done)}

    def _command(self, label: str) -> str:
        """With the seeds of a label that has others than the first ones."""
        seeds = self.seeds_of(label)
        if self.command_of is None or list(seeds) == list(self.seeds[: len(seeds)]):
            return self.commands[label]
        return self.command_of(label, len(seeds), seeds[0])

    def _done(self, label: str) -> list[Outcome]:
        return [self.done[label, seed] for seed in self.seeds if (label, seed) in self.done]

    def tested(self, label: str, done: Sequence[Outcome]) -> dict[str, Any]:
        """Differences to the point estimate, of all others."""
        known = self._done(str(self.baseline)) or self.base
        base = [] if self.baseline in (None, label) else known
        if not base:
            return {}
        new = {part: significance(done, base, part) for part in self.parts}
        found = {part: carried(new[part], self._test_of(label, part)) for part in self.parts}
        return {"significance": self._shown(found)}

    def _test_of(self, label: str, part: str) -> Any:
        """What the file has of a row."""
        old = self.tests.get(label)
        return old if len(self.parts) == 1 or not isinstance(old, Mapping) else old.get(part)

    def _summary(self, done: Sequence[Outcome]) -> dict[str, Any]:
        """Figures over the seeds, and what each of them gave."""
        figures = {part: _moments([o.figures[part] for o in done]) for part in self.parts}
        more: dict[str, list[Any]]
        more = {"prices": [o.prices for o in done], "layers": [o.layers for o in done]}
        first = {
            key: next((v for v in found if v is not None), None) for key, found in more.items()
        }
        return {
            "config": done[0].config,
            "figures": self._shown(figures),
            "parameters": done[0].parameters,
            "parameters_added": done[0].parameters_added,
            "seconds": sum(o.seconds for o in done),
            "training_seconds": sum(o.training_seconds for o in done),
            **{key: value for key, value in first.items() if value is not None},
            "runs": [self._run(o, done[0].origin) for o in done],
        }

    def _run(self, outcome: Outcome, origin: Row) -> dict[str, Any]:
        """One seed; with where it comes from if that is not what the row says."""
        found = {
            "seed": outcome.seed,
            "seconds": outcome.seconds,
            "training_seconds": outcome.training_seconds,
            "figures": self._shown(outcome.figures),
        }
        more = {
            "start": outcome.start,
            "evaluation": outcome.evaluation,
            "jobs": outcome.jobs if outcome.jobs > 1 else None,
        }
        found |= {key: value for key, value in more.items() if value is not None}
        return found | {k: v for k, v in outcome.origin.items() if v != origin[k]}

    def _shown(self, figures: Mapping[str, Any]) -> Any:
        return figures[self.parts[0]] if len(self.parts) == 1 else dict(figures)

    def keep(self, out: Path | None, bench: Bench) -> None:
        """Take over the runs that the file has, if they are of the same settings."""
        from leanbayes.errors import CheckpointError

        found = earlier(out, *COMPARED)
        if out is None or found is None:
            return
        for row in found["rows"]:
            try:
                runs = self.outcomes(row)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                words = f"--resume: {out} is damaged in a row ({type(error).__name__}: {error})"
                raise CheckpointError(words) from None
            if row["method"] in self.table and row["method"] not in self.commands:
                self.others[row["method"]] = row
                self.base = runs if row["method"] == self.baseline else self.base
                continue
            self._check(out, row, runs, bench)
            self.done |= {(row["method"], run.seed): run for run in runs}
            self.tests[row["method"]] = row.get("significance")
        self._keep_starts(out, found.get("start"))

    def _keep_starts(self, out: Path, found: Any) -> None:
        from leanbayes.cli.compare.start import Begun
        from leanbayes.errors import CheckpointError

        if self.start is None or found is None:
            return
        try:
            self.begin(Begun(**start) for start in found["seeds"])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"--resume: {out} is damaged in 'start' ({error})") from None

    def _check(self, out: Path, row: Row, runs: Sequence[Outcome], bench: Bench) -> None:
        """Refuse what this command would lose or mix with something else."""
        from leanbayes.cli.compare.ask import telling
        from leanbayes.errors import ConfigError

        label, strange = row["method"], [r.seed for r in runs if r.seed not in self.seeds]
        if label not in self.commands:
            raise ConfigError(f"--resume: {out} has a row of {label!r}: name it in --methods too")
        if strange:
            raise ConfigError(
                f"--resume: {out} has seed {strange[0]} of {label}, asked for are "
                f"{self.seeds[0]} to {self.seeds[-1]}: write --seed and --seeds that cover it"
            )
        if runs:
            old, new = runs[0].config, bench.config(label, runs[0].seed)
            refuse_others(out, f"a row of {label!r}", *(telling(dict(c)) for c in (old, new)))

    def outcomes(self, row: Row) -> list[Outcome]:
        """The runs of a row as they were."""
        from leanbayes.cli.compare.runs import Outcome

        runs = row.get("runs", [])
        common = {key: row[key] for key in ("config", "parameters", "parameters_added") if runs}
        names = ("commit", "environment")
        return [
            Outcome(
                seed=int(run["seed"]),
                figures=self._by_part(run["figures"]),
                seconds=float(run["seconds"]),
                # Older files have the sum alone.
                training_seconds=run.get("training_seconds", row["training_seconds"] / len(runs)),
                origin={name: run[name] if name in run else row[name] for name in names},
                jobs=run.get("jobs", 1),
                prices=row.get("prices") if run is runs[0] else None,
                layers=row.get("layers") if run is runs[0] else None,
                start=run.get("start"),
                evaluation=run.get("evaluation"),
                rows=self.rows_of(row["method"], int(run["seed"])),
                **common,
            )
            for run in runs
        ]

    def _by_part(self, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        nested = any(isinstance(value, dict) for value in figures.values())
        return figures if nested else {self.parts[0]: figures}


def _failures(failed: Mapping[Run, str], label: str) -> dict[str, Any]:
    own = {seed: words for (name, seed), words in sorted(failed.items()) if name == label}
    return {"failed": next(iter(own.values())), "failed_seeds": list(own)} if own else {}


def _moments(figures: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """Over the runs that have a figure; with their number where others were not asked for it.

    Example:
        >>> _moments([{"nll": 0.1, "nll_pgd": 3.0}, {"nll": 0.3}])["nll_pgd"]
        {'mean': 3.0, 'standard_error': None, 'runs': 1}
    """
    names = dict.fromkeys(name for found in figures for name in found)
    values = {name: [found[name] for found in figures if name in found] for name in names}
    return {
        name: moments(own) | ({"runs": len(own)} if len(own) < len(figures) else {})
        for name, own in values.items()
    }


def text_of(record: Row) -> str:
    """The text of the file."""
    return json.dumps(record, indent=1, default=str) + "\n"
