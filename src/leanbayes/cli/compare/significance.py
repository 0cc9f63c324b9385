"""Does a method differ from the point estimate? Tested on pairs: seeds, or rows of one seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leanbayes.reporting.words import direction

if TYPE_CHECKING:  # it imports torch
    from leanbayes.cli.compare.runs import Outcome

LEVEL = 0.05
Tests = Mapping[str, Mapping[str, Any]]


def significance(
    own: Sequence[Outcome], base: Sequence[Outcome], part: str
) -> dict[str, dict[str, Any]]:
    """Difference to the baseline by figure that can be better, with `p` and whether it is `better`.

    Several common seeds are the pairs of a t-test. Of one seed the rows are, for figures that are
    means over rows; others have a difference and nothing else.
    """
    others = {outcome.seed: outcome for outcome in base}
    pairs = [(outcome, others[outcome.seed]) for outcome in own if outcome.seed in others]
    if not pairs:
        return {}
    known = [name for name in pairs[0][0].figures[part] if direction(name)]
    names = [name for name in known if all(_has(pair, part, name) for pair in pairs)]
    return {name: _tested(pairs, part, name) for name in names}


def carried(new: Tests, old: Any) -> dict[str, dict[str, Any]]:
    """Tests over rows whose scores are gone, as the file has them.

    The difference has to be that of then, or else they are of other runs.

    Example:
        >>> old = {"nll": {"difference": -0.1, "p": 0.02, "over": "rows", "count": 50}}
        >>> found = carried({"nll": {"difference": -0.1, **NOTHING}}, old)["nll"]
        >>> found["p"], carried({"nll": {"difference": 0.2, **NOTHING}}, old)["nll"]["p"]
        (0.02, None)
    """
    known = old if isinstance(old, Mapping) else {}
    return {
        name: dict(known[name]) if _still_holds(found, known.get(name)) else dict(found)
        for name, found in new.items()
    }


def _still_holds(new: Mapping[str, Any], old: Any) -> bool:
    if new["p"] is not None or not isinstance(old, Mapping) or old.get("over") != "rows":
        return False
    # The mean over rows and the difference of two means are the same but for rounding.
    before = old.get("difference")
    return isinstance(before, float) and math.isclose(
        before, new["difference"], rel_tol=1e-6, abs_tol=1e-6
    )


def _has(pair: tuple[Outcome, Outcome], part: str, name: str) -> bool:
    """True where both have a number."""
    values = (outcome.figures[part].get(name) for outcome in pair)
    return all(value is not None and math.isfinite(value) for value in values)


def _tested(pairs: Sequence[tuple[Outcome, Outcome]], part: str, name: str) -> dict[str, Any]:
    import torch

    from leanbayes.metrics import paired_test

    values = [[outcome.figures[part][name] for outcome in pair] for pair in pairs]
    own, other = torch.tensor(values, dtype=torch.float64).T
    over, rows = "seeds", _rows(pairs, part, name)
    if len(pairs) == 1 and rows is not None:
        over, (own, other) = "rows", rows
    if len(own) < 2:
        return {"difference": float(own[0] - other[0]), **NOTHING}
    found = paired_test(own, other)
    return {
        "difference": found.difference,
        "standard_error": found.standard_error,
        "p": found.p,
        "better": verdict(name, found.difference, found.p),
        "over": over,
        "count": found.count,
    }


NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("standard_error", "p", "better")),
    "over": "seeds",
    "count": 1,
}


def verdict(name: str, difference: float, p: float) -> bool | None:
    """True or False where a difference is clear, None where it is not or nobody can say.

    Example:
        >>> verdict("nll", -0.1, 0.01), verdict("nll", -0.1, 0.2), verdict("seconds", 1.0, 0.01)
        (True, None, None)
    """
    if p >= LEVEL or not direction(name):
        return None
    return direction(name) * difference > 0


def _rows(pairs: Sequence[tuple[Outcome, Outcome]], part: str, name: str) -> Any:
    """Scores of the rows of the one pair, where both have them."""
    import torch

    known = [outcome.rows.get(part, {}).get(name) for outcome in pairs[0]]
    found = [rows for rows in known if rows is not None]
    if len(found) < 2 or len(found[0]) != len(found[1]):
        return None
    return tuple(torch.as_tensor(rows).double() for rows in found)
