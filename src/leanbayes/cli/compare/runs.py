"""The runs of a comparison: every method on the same data, network, budget and seeds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import torch

import leanbayes as lb
from leanbayes.cli.card import first_inputs
from leanbayes.cli.compare.ask import Ask, Run, arguments_of, config_of, seeded, untrained
from leanbayes.cli.compare.data import Sets
from leanbayes.cli.compare.price import FAILURES, priced, unpriced
from leanbayes.cli.compare.settings import Lineup
from leanbayes.cli.compare.start import Begun, Starts
from leanbayes.cli.compare.suite import SuiteAsk
from leanbayes.cli.figures import Judge, Judged
from leanbayes.cli.prepare import Prepared, prepare, with_weights
from leanbayes.cli.readers import part_of
from leanbayes.records import commit, provenance
from leanbayes.train.members import together
from leanbayes.train.runtime import Runtime

Rows = Mapping[str, Mapping[str, Any]]  # scores of rows, float32, by part and figure


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one run gave.

    Attributes:
        seed: Of the run.
        figures: By part, then by name.
        seconds: Of all of it.
        training_seconds: Until the first prediction.
        parameters: Before.
        parameters_added: By the method.
        config: All that the figures depend on but the seed.
        origin: Commit and environment.
        jobs: Runs that shared the device with it, and itself: its seconds are those of all.
        prices: Of `lb.price`, where they were asked for.
        layers: Of `lb.layer_map`, beside an evaluation.
        start: Hash of the weights that it started from, where they are shared.
        evaluation: Of `lb.evaluate`, where a suite was asked for.
        rows: Scores of every row, where they were asked for.
    """

    seed: int
    figures: Mapping[str, Mapping[str, float | None]]
    seconds: float
    training_seconds: float
    parameters: int
    parameters_added: int
    config: Mapping[str, Any]
    origin: Mapping[str, Any]
    jobs: int = 1
    prices: Mapping[str, Any] | None = None
    layers: list[dict[str, Any]] | None = None
    start: str | None = None
    evaluation: Mapping[str, Any] | None = None
    rows: Rows = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """Runs a label under a seed.

    Attributes:
        lineup: Settings by label.
        ask: The same for all.
        starts: Of the labels that have a shared start.
        sets: The data; read once in every process.
    """

    lineup: Lineup
    ask: Ask
    starts: Starts | None = None
    sets: Sets = field(default_factory=Sets)

    def __call__(self, run: Run) -> Outcome:
        """What the run gives."""
        label, seed = run
        start, made_at = time.perf_counter(), commit()  # before the work: of the code that runs
        with torch.random.fork_rng(devices=[]):
            ready = self._ready(label, seed)
            parts = {name: part_of(ready.data, name) for name in self.ask.parts}
            parameters = sum(p.numel() for p in ready.net.parameters())
            config, arguments = self._config(label, seed, ready), arguments_of(ready)
            model = self._adapted(label, seed, ready, arguments)
        trained = time.perf_counter() - start + self._before(label, seed)
        evaluation = self._evaluation(run, model, ready)
        judged = {
            name: _judged(model, part, ready, self.ask)
            for name, part in parts.items()
            if evaluation is None or self.ask.by_row
        }
        figures: dict[str, Mapping[str, float | None]]
        figures = {name: {**found.figures} for name, found in judged.items()}
        if evaluation is not None:
            figures = {self.ask.parts[0]: evaluation["summary"]}
        return Outcome(
            seed=seed,
            figures=figures,
            seconds=time.perf_counter() - start,
            training_seconds=trained,
            parameters=parameters,
            parameters_added=model.report.added,
            config=config,
            origin=_origin(model, made_at),
            jobs=self.ask.jobs,
            prices=self._prices(model, ready, seed),
            layers=None if self.ask.suite is None else lb.layer_map(model),
            start=self._start(label, seed),
            evaluation=evaluation,
            rows={name: _rows(found) for name, found in judged.items()} if self.ask.by_row else {},
        )

    def price(self, run: Run, origin: Mapping[str, Any]) -> Mapping[str, Any]:
        """The price of a run's network before the training; post-hoc laws are fitted.

        Weights do not matter: where the start is not there any more, the price is that of fresh
        ones. With commit and environment where they are not those of the run (`origin`).
        """
        (label, seed), made_at, fresh = run, commit(), bool(self.untrained([run]))
        with torch.random.fork_rng(devices=[]):
            ready = self._ready(label, seed, ahead=fresh)
            try:
                model = self._adapted(label, seed, ready, untrained(ready), fresh=fresh)
            except FAILURES as error:
                return unpriced(error)
        own = _origin(model, made_at)
        found = priced(model, ready, self.lineup.point, self.ask)
        return found | {key: value for key, value in own.items() if value != origin[key]}

    def config(self, label: str, seed: int) -> dict[str, Any]:
        """What a run would say of itself."""
        with torch.random.fork_rng(devices=[]):
            return self._config(label, seed, self._ready(label, seed, ahead=True))

    def check_suites(self) -> None:
        """Refuse names of splits that are none before anything is trained."""
        asked = {self.lineup.splits.get(label): label for label in self.lineup.settings}
        first = self.ask.first
        for label, seed in (
            (label, seed) for label in asked.values() for seed in (first, first + 1)
        ):
            if (suite := self._suite(label, seed)) is not None:
                with torch.random.fork_rng(devices=[]):
                    ready = self._ready(label, first, ahead=True)
                suite.suite(ready, self.sets, self.ask.parts[0])

    def needs_start(self, run: Run) -> bool:
        """True where it begins at the shared start."""
        return self.starts is not None and run[0] in self.lineup.starts

    def starts_of(self, run: Run) -> list[int]:
        """Seeds of the starts that a run needs."""
        label, seed = run
        method = self.lineup.settings[label].method
        if label in self.lineup.assembled and isinstance(method, lb.DeepEnsemble):
            return list(range(seed, seed + method.members))
        return [seed] if self.needs_start(run) else []

    def begun(self, runs: Sequence[Run]) -> dict[int, Begun]:
        """Starts of some runs that are there, by seed."""
        seeds = dict.fromkeys(seed for run in runs for seed in self.starts_of(run))
        found = {} if self.starts is None else {s: self.starts.found(s) for s in seeds}
        return {seed: start for seed, start in found.items() if start is not None}

    def untrained(self, runs: Sequence[Run]) -> list[int]:
        """Seeds of the starts that some runs need and that are not there."""
        seeds = dict.fromkeys(seed for run in runs for seed in self.starts_of(run))
        return [seed for seed in seeds if seed not in self.begun(runs)]

    def at_hand(self, runs: Sequence[Run]) -> set[Run]:
        """Of some runs those that have a shared start, and it is there."""
        return {run for run in runs if self.starts_of(run) and not self.untrained([run])}

    def _adapted(
        self,
        label: str,
        seed: int,
        ready: Prepared,
        arguments: Mapping[str, Any],
        *,
        fresh: bool = False,
    ) -> lb.BayesianModel:
        if label in self.lineup.assembled and not fresh:
            return self._assembled(ready, seed)
        method, likelihood = ready.settings.method, ready.likelihood
        return lb.adapt(ready.net, method, likelihood=likelihood, **arguments).model

    def _assembled(self, ready: Prepared, seed: int) -> lb.BayesianModel:
        """The ensemble of the starts of several seeds."""
        assert self.starts is not None
        method, fit = ready.settings.method, ready.settings.fit
        assert isinstance(method, lb.DeepEnsemble)
        places = [self.starts.place(s) for s in range(seed, seed + method.members)]
        name = ready.settings.model.name
        nets = [with_weights(deepcopy(ready.net), place, name) for place in places]
        example = first_inputs(ready.data.train, 2)
        with Runtime.of(fit) as runtime:
            model = together(ready.net, nets, method, example)
            model.likelihood = ready.likelihood
            runtime.prepare(model, ready.likelihood)
        return model

    def _before(self, label: str, seed: int) -> float:
        """Seconds that the members of an ensemble were trained for, as starts."""
        if self.starts is None or label not in self.lineup.assembled:
            return 0.0
        found = [self.starts.found(s) for s in self.starts_of((label, seed))]
        return sum(begun.seconds for begun in found if begun is not None)

    def _config(self, label: str, seed: int, ready: Prepared) -> dict[str, Any]:
        found = config_of(ready, replace(self.ask, suite=self._suite(label, self.ask.first)))
        if self.starts is None or not self.starts_of((label, seed)):
            return found
        if label in self.lineup.assembled:
            found["from"] = "starts"
        found["model"]["weights"] = True
        return {**found, "start": self.starts.config(seed)}

    def _ready(self, label: str, seed: int, *, ahead: bool = False) -> Prepared:
        """What the run needs; the start may not be there yet where one looks `ahead`."""
        settings = seeded(self.lineup.settings[label], seed, self.ask)
        if self.starts is not None and self.needs_start((label, seed)):
            place = None if ahead else str(self.starts.place(seed))
            settings = replace(settings, weights=place)
        data = self.sets.read(settings.data)
        torch.manual_seed(seed)
        return prepare(settings, data)

    def _evaluation(
        self, run: Run, model: lb.BayesianModel, ready: Prepared
    ) -> dict[str, Any] | None:
        suite, ask = self._suite(*run), self.ask
        if suite is None:
            return None
        draws = ask.draws(ready.settings)
        return suite.evaluated(model, ready, self.sets, ask.parts[0], draws)

    def _suite(self, label: str, seed: int) -> SuiteAsk | None:
        """The suite of all, with the splits of the label or of the seed where there are some."""
        suite, splits = self.ask.suite, self.lineup.splits.get(label)
        return None if suite is None else suite.of(splits, first=seed == self.ask.first)

    def _prices(
        self, model: lb.BayesianModel, ready: Prepared, seed: int
    ) -> Mapping[str, Any] | None:
        if not self.ask.price or seed != self.ask.first or self.ask.jobs > 1:
            return None
        return priced(model, ready, self.lineup.point, self.ask)

    def _start(self, label: str, seed: int) -> str | None:
        """Of several starts the hash of their hashes."""
        if self.starts is None:
            return None
        found = [self.starts.found(s) for s in self.starts_of((label, seed))]
        hashes = [begun.hash for begun in found if begun is not None]
        if len(hashes) < 2:
            return hashes[0] if hashes else None
        return sha256("".join(hashes).encode()).hexdigest()


def _origin(model: lb.BayesianModel, made_at: str | None) -> dict[str, Any]:
    found = provenance("", next(model.parameters()).device)
    return {"commit": made_at, "environment": found["environment"]}


def _judged(model: lb.BayesianModel, part: Any, ready: Prepared, ask: Ask) -> Judged:
    """Figures of `leanbayes evaluate`."""
    options = {"samples": ask.draws(ready.settings), "seed": ready.settings.fit.seed}
    judge = Judge(ready.card, model, ready.settings.fit.batch_size, options)
    return judge.judged(part, ready.data.normalize, ready.data.ignore_index)


def _rows(found: Judged) -> dict[str, Any]:
    """As arrays: tensors between processes would hold on to files."""
    return {name: values.float().numpy() for name, values in found.rows.items()}
