"""Which claims hold in the rows of a comparison: computed, and said in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leanbayes.recipes.cifar10_wrn_claims import PRICES, Check, Claim
from leanbayes.reporting.pairs import paired
from leanbayes.reporting.words import direction

Rows = Mapping[str, Mapping[str, Any]]
POINT = "map"  # the row of the starts themselves


def verdicts(claims: Sequence[Claim], rows: Rows) -> list[str]:
    """A line a claim: holds, does not hold, or open; with the numbers.

    Example:
        >>> rows = {k: {"figures": {"nll": {"mean": v}}} for k, v in {"a": 0.1, "b": 0.2}.items()}
        >>> verdicts([Claim("a beats b in NLL", (Check("nll", "a", "b"),))], rows)
        ['**Holds.** a beats b in NLL: nll 0.1 against 0.2.']
    """
    return [_verdict(claim, rows) for claim in claims]


def _verdict(claim: Claim, rows: Rows) -> str:
    missing = [label for check in claim.checks for label in _labels(check) if label not in rows]
    if missing:
        return f"**Open.** {claim.words}: {', '.join(dict.fromkeys(missing))} not run yet."
    found = [(check, *_values(check, rows)) for check in claim.checks]
    if any(one is None or other is None for _, one, other, _ in found):
        lacking = next(check.figure for check, one, other, _ in found if None in (one, other))
        return f"**Open.** {claim.words}: no {lacking} yet."
    holds = [_is_better(check, one, other) for check, one, other, _ in found]
    told = "; ".join(_told(*values) for values in found)
    words = "Holds" if all(holds) else "In part" if any(holds) else "Does not hold"
    return f"**{words}.** {claim.words}: {told}."


def _labels(check: Check) -> list[str]:
    return [check.one] + ([check.other] if isinstance(check.other, str) else [])


def _values(check: Check, rows: Rows) -> tuple[Any, Any, str]:
    """Both values, and words on how they were made comparable."""
    one = _value(check.figure, rows[check.one])
    if not isinstance(check.other, str):
        return one, check.other, ""
    other = _value(check.figure, rows[check.other])
    if one is None or other is None:
        return one, other, ""
    if check.figure not in PRICES:
        pair = paired(check.figure, rows[check.one], rows[check.other], rows.get(POINT))
        if pair is not None:
            return pair
    return one, check.times * other, ""


def _value(figure: str, row: Mapping[str, Any]) -> float | None:
    if figure == "training_work":
        return _work(row)
    if figure == "added_share":
        return float(row["parameters_added"]) / float(row["parameters"])
    place = row.get("prices", {}) if figure in PRICES else row["figures"]
    found = place.get(figure)
    value = found["mean"] if isinstance(found, Mapping) else found
    return None if value is None else float(value)


def _work(row: Mapping[str, Any]) -> float | None:
    """Epochs of the deterministic network that take as long as the training."""
    step = row.get("prices", {}).get("step_ratio")
    return None if step is None else float(row["config"]["fit"]["epochs"] * step)


def _is_better(check: Check, one: float, other: float) -> bool:
    """Strictly, of two rows; a number is reached where it is met."""
    sign = -1 if check.figure in PRICES else direction(check.figure)
    if isinstance(check.other, str):
        return sign * (one - other) > 0
    return sign * (one - other) >= 0


def _told(check: Check, one: float, other: float, how: str) -> str:
    against = "against" if isinstance(check.other, str) else "wanted"
    share = f" ({check.times:g} times {other / check.times:.4g})" if check.times != 1 else ""
    return f"{check.figure} {one:.4g} {against} {other:.4g}{share}{how}"
