"""The record of a comparison as a page of Markdown: quality, price, claims, and what is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leanbayes.cli.results.claims import POINT, verdicts
from leanbayes.cli.results.starts import by_draws, check, claims, rivals_words, title
from leanbayes.recipes.cifar10_wrn_claims import CLAIMS, NOT_RUN
from leanbayes.recipes.tables import table, tables
from leanbayes.reporting.pairs import gain

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], str]]
NONE = "-"


def page(record: Row, command: str, others: Sequence[Row] = ()) -> str:
    """The whole page.

    Args:
        record: What `leanbayes compare` wrote, of one part of the data.
        command: That writes the page.
        others: Records of the same table whose rows begin at other starts.
    """
    rows = [row for row in record["rows"] if "figures" in row]
    parts = [
        f"# {_title(record)}",
        f"Written by `{command}`, with every figure from {_files(others)}.",
        _origin(record, rows),
        "## Quality\n" + _render(rows, _quality(rows)) + "\n\n" + QUALITY_WORDS,
        "## Shifted, foreign and attacked images\n"
        + _render(rows, STRANGE)
        + "\n\n"
        + _strange_words(rows),
        "## Price\n" + _render(rows, PRICE) + "\n\n" + PRICE_WORDS,
        _claims(record, rows),
        *(_another(record, other) for other in others),
        "## Open\n" + _open(record),
        "## Commands\n" + "\n".join(_commands(rows)),
        _not_run(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _files(others: Sequence[Row]) -> str:
    return "these files" if others else "that file"


def _another(record: Row, other: Row) -> str:
    """The same rows from another start."""
    check(record, other)
    rows = [row for row in other["rows"] if "figures" in row]
    parts = [
        f"## {title(record, other)}",
        _origin(other, rows),
        _render(rows, _quality(rows)),
        by_draws(rows),
        _render(rows, STRANGE),
        rivals_words(),
        "\n".join(f"- {line}" for line in claims(record, other)),
        "\n".join(_commands(rows)),
    ]
    return "\n\n".join(part for part in parts if part)


def _title(record: Row) -> str:
    known = tables().get(str(record.get("table")), f"methods on {record['data']}")
    return f"Results: {known}"


def _origin(record: Row, rows: Sequence[Row]) -> str:
    """Starts by hash, machines, versions and commits."""
    lines = []
    for start in record.get("start", {}).get("seeds", []):
        words = f"{start['steps']:,} steps, {start['seconds']:.0f} s{_beside(start)}"
        lines.append(f"- start of seed {start['seed']}: {words}, weights `{start['hash'][:16]}`")
    found = [row["environment"] for row in rows]
    machines = dict.fromkeys(f"{e['device']}, torch {e['torch']}" for e in found)
    commits = dict.fromkeys(str(row["commit"])[:12] for row in rows)
    lines.append(f"- made on {'; '.join(machines)}; commit {', '.join(commits)}")
    return "\n".join(lines)


def _beside(start: Row) -> str:
    return _in_words(start.get("jobs", 1), start.get("compiled", False))


def _in_words(jobs: int, compiled: bool) -> str:
    """What seconds depend on beside the work."""
    words = [f"{jobs} runs at a time"] if jobs > 1 else []
    words += ["compiled"] if compiled else []
    return f" ({', '.join(words)})" if words else ""


def _mean(row: Row, name: str) -> float | None:
    found = row["figures"].get(name)
    return None if found is None else found["mean"]


def _figure(name: str, digits: int = 4, scale: float = 1.0) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = _mean(row, name)
        if value is None:
            return NONE
        error = row["figures"][name]["standard_error"]
        more = "" if error is None else f" ± {scale * error:.{digits}f}"
        return f"{scale * value:.{digits}f}{more}"

    return cell


def _sure(row: Row) -> str:
    """Mean confidence less accuracy over the test images: an ECE with its sign."""
    found = [_surplus(run) for run in row["runs"]]
    known = [value for value in found if value is not None]
    return f"{sum(known) / len(known):+.4f}" if known else NONE


def _surplus(run: Row) -> float | None:
    """Of one run, from the bins of its reliability diagram; empty ones have no means."""
    test = run.get("evaluation", {}).get("splits", {}).get("test", {})
    bins = test.get("curves", {}).get("reliability")
    if bins is None:
        return None
    full = [
        b for b in zip(bins["count"], bins["confidence"], bins["accuracy"], strict=True) if b[0]
    ]
    return float(sum(n * (sure - right) for n, sure, right in full) / sum(b[0] for b in full))


def _apart(figure: str, split: str) -> Callable[[Row], str]:
    """By the epistemic uncertainty; of a point, which has none, by the total one."""

    def cell(row: Row) -> str:
        names = [f"{figure}_{kind}_{split}" for kind in ("epistemic", "total")]
        return next((_figure(n, 3)(row) for n in names if _mean(row, n) is not None), NONE)

    return cell


def _price(name: str, shown: str = "{:.2f}x") -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row.get("prices", {}).get(name)
        return NONE if value is None else shown.format(value)

    return cell


def _added(row: Row) -> str:
    return f"{row['parameters_added']:,} ({row['parameters_added'] / row['parameters']:.1%})"


def _strange_words(rows: Sequence[Row]) -> str:
    """With the images and draws of the splits, where the rows say them."""
    suites = (row.get("config", {}).get("suite") for row in rows)
    asked: Row = next((suite for suite in suites if suite), {})
    limits, draws = asked.get("rows") or {}, asked.get("samples") or {}
    limits = limits if isinstance(limits, Mapping) else dict.fromkeys(("corrupted", "pgd"), limits)
    words = [
        f"{name} images are the first {limits[split]:,} test images"
        + (f", with {draws[split]} draws" if split in draws else "")
        for name, split in (("Corrupted", "corrupted"), ("attacked", "pgd"))
        if split in limits
    ]
    made = "Corrupted: 15 kinds at 5 severities. "
    return made + ("; ".join(words) + ". " if words else "") + STRANGE_WORDS + _first_alone(rows)


def _first_alone(rows: Sequence[Row]) -> str:
    """A word on figures that later seeds were not asked for."""
    fewer = any("runs" in found for row in rows for found in row["figures"].values())
    words = " Without an error a figure is that of one seed, also in a row with several."
    return words if fewer else ""


def _training(row: Row) -> str:
    """Seconds; runs that shared the device or were compiled first say so."""
    jobs = max(run.get("jobs", 1) for run in row["runs"])
    compiled = bool(row.get("config", {}).get("fit", {}).get("compile"))
    seconds = row["training_seconds"] / len(row["runs"])
    return f"{seconds:.0f}{_in_words(jobs, compiled)}"


QUALITY: Sequence[Column] = (
    ("method", lambda row: row["method"]),
    ("seeds", lambda row: ", ".join(str(run["seed"]) for run in row["runs"])),
    ("accuracy %", _figure("accuracy", 2, 100)),
    ("NLL", _figure("nll")),
    ("ECE", _figure("ece")),
    ("too sure by", _sure),
    ("Brier", _figure("brier")),
    ("accuracy % at 80", _figure("accuracy_at_80", 2, 100)),
    ("at 90", _figure("accuracy_at_90", 2, 100)),
    ("at 95", _figure("accuracy_at_95", 2, 100)),
    ("diversity", _figure("disagreement_normalised", 3)),
)
STRANGE: Sequence[Column] = (
    ("method", lambda row: row["method"]),
    ("corrupted accuracy %", _figure("corrupted_accuracy", 2, 100)),
    ("NLL", _figure("corrupted_nll", 3)),
    ("ECE", _figure("corrupted_ece")),
    ("foreign AUROC", _apart("auroc", "tiny")),
    ("AP", _apart("ap", "tiny")),
    ("PGD accuracy %", _figure("accuracy_pgd", 1, 100)),
    ("AUROC", _apart("auroc", "pgd")),
    ("AP", _apart("ap", "pgd")),
)
PRICE: Sequence[Column] = (
    ("method", lambda row: row["method"]),
    ("parameters added", _added),
    ("training step", _price("step_ratio")),
    ("draws", _price("samples", "{}")),
    ("prediction, a draw", _price("predict_ratio_sample")),
    ("prediction, all draws", _price("predict_ratio")),
    ("peak memory", _price("peak_memory_ratio")),
    ("training, s a seed", _training),
)
QUALITY_WORDS = (
    "Means over the seeds and their standard errors; one seed has none. To its start: the "
    "difference to MAP of the same start. ECE by 15 bins. Too sure by: mean confidence less "
    "accuracy; below 0 a method is not sure enough. Accuracy at 80, 90 and 95: of the most certain "
    "per cent. Diversity: disagreement of two draws (of an ensemble: members) over the error of "
    "one."
)
STRANGE_WORDS = (
    "Foreign images and PGD examples are told from clean ones by the epistemic uncertainty, of a "
    "point by the total one."
)
PRICE_WORDS = (
    "Parameters are added to the network of a row, which may be smaller than that of the table. "
    "Times are those of the deterministic network of the table, measured side by side. Seconds of "
    "training leave the shared start out; those of the ensemble of starts are those starts. Runs "
    "that share the GPU take longer for it; ratios and memory are measured alone."
)


def _quality(rows: Sequence[Row]) -> list[Column]:
    """The columns of quality, some with the differences to the starts of these rows."""
    point = next((row for row in rows if row["method"] == POINT), None)

    def to_start(figure: str, digits: int, scale: float = 1.0) -> Column:
        def cell(row: Row) -> str:
            found = None if row is point else gain(figure, row, point)
            return NONE if found is None else f"{scale * found:+.{digits}f}"

        return "to its start", cell

    differences = {
        "accuracy %": to_start("accuracy", 2, 100),
        "NLL": to_start("nll", 4),
        "ECE": to_start("ece", 4),
    }
    pairs = ([column, differences.get(column[0])] for column in QUALITY)
    return [column for pair in pairs for column in pair if column is not None]


def _render(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    head = [f"| {' | '.join(name for name, _ in columns)} |", "|---" * len(columns) + "|"]
    cells = [[cell(row) for _, cell in columns] for row in rows]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in cells)])


def _claims(record: Row, rows: Sequence[Row]) -> str:
    if record.get("table") != "cifar10-wrn":
        return ""
    lines = verdicts(CLAIMS, {row["method"]: row for row in rows})
    return "## What holds of the papers\n" + "\n".join(f"- {line}" for line in lines)


def _open(record: Row) -> str:
    """Rows of the table that are not there, seeds that are not, and failures."""
    found = {row["method"]: row for row in record["rows"]}
    known = table(record["table"])["methods"] if "table" in record else {}
    lines = [f"- {label}: not run yet" for label in known if label not in found]
    for label, row in found.items():
        wanted = known.get(label, {}).get("seeds", len(record["seeds"]))
        runs = len(row.get("runs", []))
        if "failed" in row:
            lines.append(f"- {label}: failed, {row['failed']}")
        elif runs < wanted:
            lines.append(f"- {label}: {runs} of {wanted} seeds")
        if "figures" in row:
            lines += _unpriced(label, row.get("prices"))
    return "\n".join(lines) if lines else "Nothing: every row is there."


def _unpriced(label: str, prices: Row | None) -> list[str]:
    if prices is None:
        return [f"- {label}: no price yet"]
    return [f"- {label}: no price, {prices['failed']}"] if "failed" in prices else []


def _commands(rows: Sequence[Row]) -> list[str]:
    return [f"- {row['method']}: `{row['command']}`" for row in rows]


def _not_run(record: Row) -> str:
    if record.get("table") != "cifar10-wrn":
        return ""
    lines = [f"- {what}: {why}." for what, why in NOT_RUN.items()]
    return "## Tables of the papers that are not run\n" + "\n".join(lines)
