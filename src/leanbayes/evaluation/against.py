"""Errors under corruptions relative to those of a reference model: mCE and rmCE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from leanbayes.errors import ConfigError
from leanbayes.evaluation.suite import Suite
from leanbayes.metrics import corruption_errors, relative_corruption_errors

Evaluation = Mapping[str, Any]
NONE = (
    "the two evaluations have no corruption in common: evaluate the reference on the same suite, "
    "with 'corrupted' in it"
)
Table = dict[str, dict[int, float]]  # error by corruption and severity


def against(evaluation: Evaluation, reference: Evaluation) -> dict[str, float]:
    """`mce`, `relative_mce` and `ce_NAME` of every corruption, from two results of `lb.evaluate`.

    CE is `sum_severities error / sum_severities error of the reference`, mCE the mean over
    corruptions (Hendrycks and Dietterich, 2019); 1 is the reference. Corruptions whose severities
    are not in both results, or on which the reference makes no error, are left out.

    Example:
        >>> def found(clean, fog):
        ...     shift = {"name": "fog", "severity": 1}
        ...     return {
        ...         "splits": {
        ...             "test": {"kind": "clean", "figures": {"accuracy": clean}},
        ...             "corrupted/fog/1": {
        ...                 "kind": "corrupted",
        ...                 "shift": shift,
        ...                 "figures": {"accuracy": fog},
        ...             },
        ...         }
        ...     }
        >>> against(found(1.0, 0.75), found(1.0, 0.5))
        {'ce_fog': 0.5, 'mce': 0.5, 'relative_mce': 0.5}
    """
    own, other = _table(evaluation), _table(reference)
    names = [n for n in own if n in other and own[n].keys() == other[n].keys()]
    names = [name for name in names if sum(other[name].values()) > 0]
    if not names:
        raise ConfigError(NONE)
    single = {name: _error(own[name], other[name]) for name in names}
    found = {f"ce_{name}": value for name, value in single.items()}
    found["mce"] = sum(single.values()) / len(single)
    return found | _relative(evaluation, reference, names)


def check_common(suite: Suite, reference: Evaluation) -> None:
    """Before the work: will there be something to compare?"""
    wanted = {split.name for split in suite.splits if split.kind == "corrupted"}
    known = {n for n, s in reference.get("splits", {}).items() if "accuracy" in s["figures"]}
    if not wanted & known:
        raise ConfigError(NONE)


def _relative(one: Evaluation, other: Evaluation, names: list[str]) -> dict[str, float]:
    clean = [_clean(one), _clean(other)]
    tables = [_table(one), _table(other)]
    lost = {n: sum(tables[1][n].values()) - len(tables[1][n]) * clean[1] for n in names}
    values = [
        relative_corruption_errors(
            _tensor(tables[0][name]), clean[0], _tensor(tables[1][name]), clean[1]
        )
        for name in names
        if lost[name] > 0
    ]
    return {"relative_mce": float(torch.cat(values).mean())} if values else {}


def _error(own: dict[int, float], other: dict[int, float]) -> float:
    return float(corruption_errors(_tensor(own), _tensor(other)))


def _tensor(errors: dict[int, float]) -> torch.Tensor:
    return torch.tensor([[errors[level] for level in sorted(errors)]], dtype=torch.float64)


def _table(evaluation: Evaluation) -> Table:
    found: Table = {}
    for split in evaluation["splits"].values():
        if split["kind"] == "corrupted" and "accuracy" in split["figures"]:
            errors = found.setdefault(split["shift"]["name"], {})
            errors[split["shift"]["severity"]] = 1 - split["figures"]["accuracy"]
    return found


def _clean(evaluation: Evaluation) -> float:
    splits = (s for s in evaluation["splits"].values() if s["kind"] == "clean")
    return 1 - float(next(splits)["figures"]["accuracy"])
