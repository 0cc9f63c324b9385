"""The tables of a comparison: figures with the best of every column marked, prices, verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leanbayes.cli.table import filled, page_width, render
from leanbayes.reporting.words import direction

Row = Mapping[str, Any]
Lines = Sequence[tuple[Row, str, Mapping[str, Any]]]  # row, part, figures
HIDDEN = ("iou_",)  # in the record alone; of a suite all but these:
SHOWN = (
    *("accuracy", "nll", "ece", "brier", "rmse", "lpd", "coverage_95", "mean_iou"),
    *("corrupted_accuracy", "corrupted_nll", "corrupted_ece", "auroc_"),
)
JUDGED = ("nll", "lpd", "rmse", "accuracy")  # the first of them that is there is told of in words
BOLD = "\033[1m", "\033[0m"


def table_of(rows: Sequence[Row], parts: Sequence[str], *, bold: bool = False) -> str:
    """Methods down, a line a part where there are several; figures across, mean and error.

    Args:
        rows: Of the record.
        parts: Of the data.
        bold: Mark the best by bold letters instead of a star.
    """
    lines = [(row, part, _of_part(row, "figures", part, parts)) for row in rows for part in parts]
    every = dict.fromkeys(name for _, _, figures in lines for name in figures)
    whole = any("evaluation" in run for row in rows for run in row.get("runs", []))
    names = [name for name in every if (is_shown(name) if whole else not name.startswith(HIDDEN))]
    several = len(parts) > 1
    head = ["method", *(["part"] if several else []), *names, *CELLS]
    best = {(part, name): _best(lines, part, name) for part in parts for name in names}
    cells = [
        [row["method"], *([part] if several else []), *_cells(row, part, figures, names, best)]
        for row, part, figures in lines
    ]
    table = render(head, cells, left=1 + several)
    told = [_embolden(table) if bold else table]
    priced = [row for row in rows if "step_ratio" in row.get("prices", {})]
    told += [render(("price", *PRICES), [_prices(row) for row in priced])] if priced else []
    told += ["\n".join(words)] if (words := verdicts(rows, parts)) else []
    failed = [f"{row['method']} failed: {row['failed']}" for row in rows if "failed" in row]
    return "\n\n".join([*told, *(["\n".join(failed)] if failed else [])])


CELLS: Mapping[str, Callable[[Row], str]] = {
    "parameters": lambda row: f"{row['parameters']:,}",
    "added": lambda row: f"{row['parameters_added']:,}",
    "seconds": lambda row: f"{row['seconds']:.0f}",
}
PRICES: Mapping[str, Callable[[Row], str]] = {
    "added": lambda price: f"{price['parameters_added']:,}",
    "step": lambda price: _times(price["step_ratio"]),
    "step FLOPs": lambda price: _times(price.get("flops_step_ratio")),
    "prediction": lambda price: _times(price["predict_ratio"]),
    "draws": lambda price: f"{price['samples']}",
    "a draw": lambda price: _times(price["predict_ratio_sample"]),
    "activations": lambda price: _times(price.get("activation_ratio")),
    "peak memory": lambda price: _times(price.get("peak_memory_ratio")),
}


def is_shown(name: str) -> bool:
    """True for a figure of a suite that is told on the terminal."""
    return any(name == word or (word[-1] == "_" and name.startswith(word)) for word in SHOWN)


def _prices(row: Row) -> list[str]:
    return [row["method"], *(cell(row["prices"]) for cell in PRICES.values())]


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _of_part(row: Row, key: str, part: str, parts: Sequence[str]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = row.get(key, {})
    return found if len(parts) == 1 else found.get(part, {})


def _best(lines: Lines, part: str, name: str) -> float | None:
    """The best mean of a figure; None where nobody can say, or only one is there."""
    means = [found[name]["mean"] for _, own, found in lines if own == part and name in found]
    known: list[float] = [mean for mean in means if mean is not None]
    if len(known) < 2 or not direction(name):
        return None
    return max(known, key=lambda mean: direction(name) * mean)


def _cells(
    row: Row, part: str, figures: Row, names: Sequence[str], best: Mapping[tuple[str, str], Any]
) -> list[str]:
    rest = [cell(row) if "figures" in row else "-" for cell in CELLS.values()]
    return [*(_figure(figures.get(name), best[part, name]) for name in names), *rest]


def _figure(found: Mapping[str, float | None] | None, best: float | None) -> str:
    if found is None or found["mean"] is None:
        return "-"
    error = found["standard_error"]
    shown = f"{found['mean']:.4f}" + ("" if error is None else f" +- {error:.4f}")
    return shown + ("" if best is None else "*" if found["mean"] == best else " ")


def _embolden(table: str) -> str:
    """Stars as bold letters of what stands before them; all columns stay where they are."""
    return re.sub(r"(\S+(?: \+- \S+)?)\*", rf"{BOLD[0]}\1{BOLD[1]} ", table)


def verdicts(rows: Sequence[Row], parts: Sequence[str]) -> list[str]:
    """In words: which methods are clearly better than the point estimate, and which are not."""
    found = []
    for part in parts:
        tested = [(row["method"], _of_part(row, "significance", part, parts)) for row in rows]
        name = next((n for n in JUDGED if any(n in figures for _, figures in tested)), None)
        if name is not None:
            known = {label: figures[name] for label, figures in tested if name in figures}
            found += _told(name, part if len(parts) > 1 else "", known)
    return [filled(line, page_width()) for line in found]


def _told(name: str, part: str, known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    begin = f"{part + ' ' if part else ''}{name} against the point estimate"
    if all(test["p"] is None for test in known.values()):
        return [f"{begin}: one seed and no scores by row, so no test; --seeds 5 gives one."]
    words = {True: "better", False: "worse", None: "no clear difference"}
    lists: dict[bool | None, list[str]] = {answer: [] for answer in words}
    for label, test in known.items():
        p = "no test" if test["p"] is None else f"p {test['p']:.2g}"
        lists[test["better"]].append(f"{label} ({test['difference']:+.4f}, {p})")
    over = {f"{test['count']} {test['over']}" for test in known.values() if test["p"] is not None}
    said = "; ".join(f"{words[k]}: {', '.join(v)}" for k, v in lists.items() if v)
    return [f"{begin}: {said}. Paired t-test over {' or '.join(sorted(over))}."]
