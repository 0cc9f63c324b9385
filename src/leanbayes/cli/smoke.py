"""`--smoke`: a few rows and steps, to see that something runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import Subset

from leanbayes.data.dataset import Data
from leanbayes.methods.base import Method
from leanbayes.train.config import FitConfig

if TYPE_CHECKING:
    from leanbayes.cli.settings_file import RunSettings

ROWS, STEPS, BATCH, SAMPLES = 64, 4, 16, 2


def short(fit: FitConfig, method: Method) -> FitConfig:
    """A training of a few steps; its rates rise as they do at the start of the long one."""
    batch = min(fit.batch_size, max(BATCH, method.index_members))
    steps = 0 if 0 in (fit.epochs, fit.steps) else STEPS
    ood = None if fit.ood_batch_size is None else min(fit.ood_batch_size, batch)
    return replace(fit, epochs=None, steps=steps, batch_size=batch, ood_batch_size=ood)


def smoke_settings(tables: Mapping[str, Any], *, data_names: Mapping[str, Any]) -> RunSettings:
    """Settings of tables for a run of seconds; a recipe without data has made-up ones.

    Its network is then a small one of the same kind, too, unless another is named.
    """
    from leanbayes.cli.recipe_tables import filled
    from leanbayes.cli.settings_file import settings_of
    from leanbayes.recipes import recipe, recipes

    name = tables.get("recipe")
    if isinstance(name, str) and name in recipes():
        small = "name" not in tables.get("data", {})
        tables = filled(tables, recipe(name), small=small)
    found = settings_of(tables, data_names=data_names)
    fit = short(found.fit, found.method)
    least = max(SAMPLES, found.method.index_members)
    draws = least if fit.evaluate_samples is None else min(least, fit.evaluate_samples)
    fit = replace(fit, evaluate_samples=draws, evaluate_every=STEPS)
    return replace(found, fit=fit, few=True)


def few(data: Data) -> Data:
    """The first rows of every part."""
    parts = {name: first(getattr(data, name), ROWS) for name in ("train", "validation", "test")}
    extra = {name: first(part, ROWS) for name, part in data.extra.items()}
    return replace(data, **parts, extra=extra)


def first(part: Any, rows: int) -> Any:
    """The first rows of a part."""
    if part is None:
        return None
    if isinstance(part, Tensor):
        return part[:rows]
    if isinstance(part, tuple | list):
        return tuple(tensor[:rows] for tensor in part)
    return Subset(part, range(min(rows, len(part))))
