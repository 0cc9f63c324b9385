"""Rows of a table that begin at another start: a section of the page of Markdown each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from leanbayes.cli.compare.ask import telling
from leanbayes.cli.results.claims import verdicts
from leanbayes.errors import ConfigError
from leanbayes.recipes.cifar10_wrn_claims import CLAIMS, Claim

Row = Mapping[str, Any]


def title(record: Row, other: Row) -> str:
    """What the other start has, and in brackets what that of the table has.

    Example:
        >>> starts = ({"start": {"config": {"fit": {"lr": lr}}}} for lr in (0.2, 0.1))
        >>> title(*starts)
        'From another start: lr 0.1 (0.2)'
    """
    mine, theirs = (telling(found["start"]["config"])["fit"] for found in (record, other))
    words = [f"{k} {v} ({mine.get(k)})" for k, v in theirs.items() if v != mine.get(k)]
    return f"From another start: {', '.join(words)}"


def check(record: Row, other: Row) -> None:
    """Refuse what is no part of the same table, or begins at the same start."""
    for key in ("table", "data"):
        if record.get(key) != other.get(key):
            raise ConfigError(
                f"--markdown takes one table, and the same from other starts: {key} is "
                f"{record.get(key)!r} in the first file and {other.get(key)!r} in another"
            )
    if "start" not in record or "start" not in other:
        raise ConfigError("--markdown takes several files only where each has a shared start")
    if telling(record["start"]["config"]) == telling(other["start"]["config"]):
        raise ConfigError(
            "two files of the same start are pieces of one table: write leanbayes join FILES "
            "--out ALL.json first"
        )


def claims(record: Row, other: Row) -> list[str]:
    """Those that speak of rows the other start has, or of ensembles that no start is needed for."""
    rows = {row["method"]: row for row in record["rows"] if "figures" in row}
    own = {
        row["method"]: _priced(row, rows.get(row["method"], {}))
        for row in other["rows"]
        if "figures" in row
    }
    found = [claim for claim in CLAIMS if _is_told(claim, own, rows)]
    return verdicts(found, {label: rows[label] for claim in found for label in claim.rivals} | own)


def _priced(row: Row, known: Row) -> Row:
    """A price does not depend on the start, so that of the table's row will do."""
    return row if "prices" in row or "prices" not in known else {**row, "prices": known["prices"]}


def _is_told(claim: Claim, own: Row, rows: Row) -> bool:
    others = {c.other for c in claim.checks if isinstance(c.other, str)}
    here = {c.one for c in claim.checks} | (others - set(claim.rivals))
    return here <= own.keys() and set(claim.rivals) <= rows.keys()


def by_draws(rows: Sequence[Row]) -> str:
    """NLL and ECE by the number of draws, a line a row that has them; of several seeds the mean."""
    found = {row["method"]: _curve(row) for row in rows}
    counts = sorted({count for curve in found.values() for count in curve})
    lines = [
        [label, *(" / ".join(f"{v:.4f}" for v in curve[k]) if k in curve else "-" for k in counts)]
        for label, curve in found.items()
        if len(curve) > 1
    ]
    if not lines:
        return ""
    head = ["NLL / ECE by draws", *map(str, counts)]
    rule = "|---" * len(head) + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(x)} |" for x in lines)])


def _curve(row: Row) -> dict[int, tuple[float, float]]:
    """Mean NLL and ECE of the runs, by draws for which all of them have both."""
    splits = (run.get("evaluation", {}).get("splits", {}) for run in row["runs"])
    found = [split.get("test", {}).get("curves", {}).get("samples") for split in splits]
    if None in found or not found:
        return {}
    runs = [
        dict(zip(c["samples"], zip(c["nll"], c["ece"], strict=True), strict=True)) for c in found
    ]
    return {
        count: (fmean(run[count][0] for run in runs), fmean(run[count][1] for run in runs))
        for count in runs[0]
        if all(None not in run.get(count, (None,)) for run in runs)
    }


def rivals_words(found: Sequence[Claim] = CLAIMS) -> str:
    """Which rows of the table stand beside those of another start."""
    names = dict.fromkeys(label for claim in found for label in claim.rivals)
    return f"Prices, and the rows {', '.join(names)}, are those of the table."
