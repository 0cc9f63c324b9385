"""What a comparison says: the best, the cheapest that is as good, who detects what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leanbayes.reporting.able import able
from leanbayes.reporting.evaluation import mean
from leanbayes.reporting.looks import LEADING, baseline
from leanbayes.reporting.results import Figure, Result, Row
from leanbayes.reporting.sections.best import best, mean_of, side_by_side
from leanbayes.reporting.words import TIMES, figure, number, title

PRICES = (
    *("training_ratio", "step_ratio", "training_seconds", "predict_ratio", "parameters_added"),
    "seconds",
)

LITTLE = " for little"
CHEAP = 1.5  # times the price of the plain network, to which all prices are ratios
CHANCE = 0.5  # of an AUROC
NEAR = 0.05  # as good as chance


@dataclass(frozen=True)
class Finding:
    """A heading, who it is about, the number, what it is compared with, and all in a sentence."""

    what: str
    who: str
    much: str
    than: str
    sentence: str


def findings(result: Result) -> list[Finding]:
    """All that can be said of two methods or more."""
    if len([row for row in result.rows if not row.failed]) < 2:
        return []
    lead = next((name for name in LEADING if name in result.figure_names), None)
    made = [
        *((_best(result, lead), _cheapest(result, lead), _bargain(result, lead)) if lead else ()),
        *(_best(result, name) for name in ("ece",) if name != lead),
        *_detectors(result),
        _robust(result),
        _clear(result, lead) if lead else None,
    ]
    found = [each for each in made if each is not None]
    cheapest = {each.who for each in found if each.what.startswith("Cheapest")}
    return [each for each in found if not (each.what.endswith(LITTLE) and each.who in cheapest)]


def _best(result: Result, name: str) -> Finding | None:
    rows = best(result.rows, name)
    if not rows:
        return None
    found, who = rows[0].figures[name], _names(rows)
    much = figure(found.mean, found.error)
    than = _than(result, rows[0], name)
    more = f" ({than})" if than else ""
    has = "have" if len(rows) > 1 else "has"
    return Finding(
        f"Best {title(name)}", who, much, than, f"{who} {has} the best {title(name)}, {much}{more}."
    )


def _than(result: Result, row: Row, name: str) -> str:
    """Against the baseline of the same starts, in percent of its value."""
    base = baseline(result)
    found = None if base is None or base is row else side_by_side(row, base, name)
    if base is None or found is None or not found[1]:
        return ""
    own, other, over = found
    change = (own - other) / abs(other)
    way = "higher" if change > 0 else "lower"
    return f"{abs(change):.1%} {way} than {base.label}'s {number(other)}{_more(over)}"


def _more(over: str) -> str:
    return f", {over}" if over else ""


def _cheapest(result: Result, name: str) -> Finding | None:
    """The lowest price among those within one standard error of the best."""
    top = best(result.rows, name)
    price = next((p for p in PRICES if len(_priced(result, p)) > 1), None)
    if not top or price is None or top[0].figures[name].error is None:
        return None
    near = [row for row in _priced(result, price) if _is_near(row, top[0], name)]
    if not near:
        return None
    row = min(near, key=lambda row: row.prices[price])
    much = _price(row.prices[price], price)
    than = f"{title(name)} {figure(row.figures[name].mean, row.figures[name].error)}"
    sentence = (
        f"Nothing cheaper is within one standard error of that; the price is {much}."
        if row in top
        else f"{row.label} is the cheapest within one standard error of that: {much}."
    )
    return Finding("Cheapest within 1 standard error", row.label, much, than, sentence)


def _bargain(result: Result, name: str) -> Finding | None:
    """The best among the cheap, where the best of all is not."""
    base, top = baseline(result), best(result.rows, name)
    price = next((p for p in PRICES if p in TIMES and len(_priced(result, p)) > 2), None)
    if price is None or base is None or not top or top[0].prices.get(price, 0.0) <= CHEAP:
        return None
    cheap = [row for row in _priced(result, price) if row.prices[price] <= CHEAP]
    found = best(cheap, name)
    if not found or found[0] is base:
        return None
    row = found[0]
    shown, cost = figure(row.figures[name].mean, row.figures[name].error), row.prices[price]
    much = _price(cost, price)
    return Finding(
        f"Best {title(name)}{LITTLE}",
        row.label,
        shown,
        much,
        f"Below {CHEAP:g} times the price of the plain network, {row.label} is best: {shown} at "
        f"{much}.",
    )


def _price(value: float, name: str) -> str:
    if name in TIMES:
        what = title(name).removeprefix("price of ").removeprefix("a ").removeprefix("all ")
        return f"{value:.2f} times the plain network's {what}"
    return f"{number(value, 2)} {title(name)}"


def _priced(result: Result, price: str) -> list[Row]:
    return [row for row in result.rows if price in row.prices and not row.failed]


def _is_near(row: Row, top: Row, name: str) -> bool:
    """Within one standard error of the best, at the same starts."""
    found = side_by_side(row, top, name)
    return found is not None and abs(found[0] - found[1]) <= (top.figures[name].error or 0.0)


def _detectors(result: Result) -> list[Finding]:
    """For every foreign part: who tells it apart best, by whichever uncertainty."""
    names = result.figure_names
    groups: dict[str, list[str]] = {}
    for name in names:
        for part in ("total", "epistemic"):
            if name == f"ood_auroc_{part}":
                groups.setdefault("foreign data", []).append(name)
            elif name.startswith(f"auroc_{part}_"):
                data = name.removeprefix(f"auroc_{part}_").replace("_", " ")
                groups.setdefault(data, []).append(name)
    made = (_detector(result, data, found) for data, found in groups.items())
    return [finding for finding in made if finding is not None][:4]


def _detector(result: Result, data: str, names: Sequence[str]) -> Finding | None:
    scored = [(mean_of(row, name), row, name) for name in names for row in able(result.rows)]
    known = [(value, row, name) for value, row, name in scored if value is not None]
    if len(known) < 2:
        return None
    value, row, name = max(known, key=lambda each: each[0])
    part = "epistemic" if "epistemic" in name else "total"
    much = f"AUROC {figure(row.figures[name].mean, row.figures[name].error)}"
    base = baseline(result)
    total = next((n for n in names if "total" in n), "")
    pair = side_by_side(row, base, name, total) if base else None
    than = f"{base.label} by total: {number(pair[1])}{_more(pair[2])}" if base and pair else ""
    more = f" ({than})" if than and base is not row else ""
    return Finding(
        f"Detects {data}",
        row.label,
        much,
        f"by {part} uncertainty{_by_chance(value)}{'; ' + than if than else ''}",
        f"{row.label} tells {data} from the test data best, by {part} uncertainty: {much}{more}"
        f"{_by_chance(value)}.",
    )


def _by_chance(auroc: float) -> str:
    """Words on a detector that is none."""
    if auroc >= CHANCE + NEAR:
        return ""
    return ", worse than chance" if auroc < CHANCE - NEAR else ", hardly better than chance"


def _robust(result: Result) -> Finding | None:
    names = ("corrupted_nll", "corrupted_accuracy", "corrupted_rmse")
    result = _with_summaries(result, names)
    name = next((name for name in names if name in result.figure_names), None)
    found = _best(result, name) if name is not None else None
    if found is None or name is None:
        return None
    words = title(name.removeprefix("corrupted_"))
    sentence = f"On corrupted data {found.who} has the best {words}, {found.much}."
    return Finding("Most robust", found.who, f"{words} {found.much}", found.than, sentence)


def _with_summaries(result: Result, names: Sequence[str]) -> Result:
    """Rows with figures of their evaluations, where the file does not have them beside others."""
    rows = []
    for row in result.rows:
        means = {n: mean(e.summary.get(n) for e in row.evaluations) for n in names}
        found = {n: Figure(v) for n, v in means.items() if v is not None}
        rows.append(replace(row, figures={**found, **row.figures}))
    return replace(result, rows=tuple(rows))


def _clear(result: Result, name: str) -> Finding | None:
    """How many methods differ from the baseline by more than chance."""
    base = baseline(result)
    found = [row.against[name] for row in result.rows if row is not base and name in row.against]
    told = [each.better for each in found if each.tested]  # one seed says nothing
    if base is None or len(told) < 2:
        return None
    better, worse, count = told.count(True), told.count(False), len(told)
    others = len([row for row in result.rows if row is not base and not row.failed])
    kind = "methods" if count == others else "methods with a test"
    words = f"{better} better, {worse} worse"
    return Finding(
        f"Clearly different from {base.label}",
        f"{better + worse} of {count}",
        words,
        f"in {title(name)}" + ("" if count == others else f"; {others - count} have no test"),
        f"{better or 'None'} of {count} {kind} {'is' if better == 1 else 'are'} clearly better "
        f"than {base.label} in {title(name)}, {worse or 'none'} clearly worse.",
    )


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(row.label for row in rows[:3]) + (" …" if len(rows) > 3 else "")
