"""What a comparison asks of every run, and what a run says of itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import leanbayes as lb
from leanbayes.cli.card import PLACES
from leanbayes.cli.compare.suite import SuiteAsk
from leanbayes.cli.figures import size_of
from leanbayes.cli.prepare import Prepared
from leanbayes.cli.settings_file import Named, RunSettings
from leanbayes.cli.smoke import SAMPLES, first, short
from leanbayes.train.fields import listed

Run = tuple[str, int]  # label and seed
BATCHES = 8  # of what is fitted to be priced alone


@dataclass(frozen=True, kw_only=True)
class Ask:
    """How methods are compared.

    Attributes:
        parts: Of the data that are scored.
        samples: Draws a prediction; the label's own number if None, else the method's.
        splits: Seed s reads split s of the data.
        smoke: A few rows and steps only.
        first: The first seed: its runs are priced.
        price: Measure prices.
        jobs: Runs side by side; with several a price is measured after them, alone.
        by_row: Keep the scores of every row too: what one seed can be judged by.
        suite: Splits that every run is evaluated on; the parts alone if None.
    """

    parts: tuple[str, ...] = ("test",)
    samples: int | None = None
    splits: bool = False
    smoke: bool = False
    first: int = 0
    price: bool = False
    jobs: int = 1
    by_row: bool = False
    suite: SuiteAsk | None = None

    def draws(self, settings: RunSettings) -> int:
        """Draws a prediction; of a smoke run as few as can be."""
        method = settings.method
        own = method.default_samples if settings.samples is None else settings.samples
        if self.samples is None and self.smoke:
            return min(own, max(SAMPLES, method.index_members))
        return own if self.samples is None else self.samples


def seeded(settings: RunSettings, seed: int, ask: Ask) -> RunSettings:
    """The settings of one run."""
    fit = replace(settings.fit, seed=seed, folder=None)
    if "progress" not in settings.tables.get("fit", {}):
        fit = replace(fit, progress=False)
    fit = short(fit, settings.method) if ask.smoke else fit
    data = settings.data
    if ask.splits:
        data = Named(data.name, {**data.options, "split": seed})
    return replace(settings, fit=fit, data=data, few=ask.smoke)


def arguments_of(ready: Prepared) -> dict[str, Any]:
    """Of `lb.adapt`; a validation part costs time, so it is used only where it can end a run.

    The members of a deep ensemble have the whole training each: that is what others are up against.
    """
    found = ready.arguments()
    if isinstance(ready.settings.method, lb.DeepEnsemble):
        found["members"] = "in_turn"
    if ready.settings.fit.patience is None:
        found.pop("validation", None)
    return {**found, "config": ready.settings.fit}


def untrained(ready: Prepared) -> dict[str, Any]:
    """The same without a step of training: for what does not depend on the weights.

    A fit that trains collects as few iterates as it can; what else is fitted or measured on data
    sees a few batches.
    """
    arguments, method = arguments_of(ready), ready.settings.method
    size = ready.settings.fit.batch_size
    found = {**arguments, "config": replace(arguments["config"], epochs=0, steps=None)}
    found["data"] = first(ready.data.train, BATCHES * size)
    if isinstance(method, lb.SWAG):
        steps = -(-size_of(found["data"]) // size)
        few = {"epochs": -(-max(method.rank, 2) // steps), "collect_every": 1, "draw_batches": 1}
        found["fitting"] = {**ready.settings.fitting, **few}
    return found


def config_of(ready: Prepared, ask: Ask) -> dict[str, Any]:
    """All that the figures depend on but the seed, as plain data; places of files are left out."""
    settings, likelihood = ready.settings, ready.likelihood
    fit = {k: v for k, v in settings.fit.to_json().items() if k not in ("seed", "folder")}
    part = ",".join(ask.parts)
    return {
        "model": {**ready.card.model, "weights": settings.weights is not None},
        "data": {"name": settings.data.name, "options": _placeless(settings.data), "part": part},
        "method": settings.method.to_json(),
        "fit": fit,
        "likelihood": {"name": type(likelihood).__name__, "settings": likelihood.settings()},
        "augment": settings.augment,
        "samples": ask.draws(settings),
        "splits": ask.splits,
        "smoke": ask.smoke,
        **({} if ask.suite is None else {"suite": ask.suite.to_json()}),
        **_sometimes(settings),
    }


def _sometimes(settings: RunSettings) -> dict[str, Any]:
    """What most runs do not have."""
    found: dict[str, Any] = {}
    if settings.fitting:
        found["fitting"] = listed(settings.fitting)
    if settings.fit.regularizer is not None:
        ood = settings.ood
        other = Named(ood.name or "", ood.options)
        found["ood"] = {"eps": ood.eps, "name": ood.name, "options": _placeless(other)}
        found["ood"] |= {"part": ood.part}
    return found


def _placeless(data: Named) -> Any:
    return listed({k: v for k, v in data.options.items() if k not in (*PLACES, "split")})


def telling(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that change figures."""
    from leanbayes.train.folder import FREE

    silent = (FREE | {"compile"}) - {"epochs", "steps", "patience"}  # rounding, not the method
    fit = {key: value for key, value in config["fit"].items() if key not in silent}
    found = {**config, "fit": fit}
    if "suite" in config:  # what later seeds are evaluated on is seen in their figures
        found["suite"] = {key: value for key, value in config["suite"].items() if key != "later"}
    return found | ({"start": telling(config["start"])} if "start" in config else {})
