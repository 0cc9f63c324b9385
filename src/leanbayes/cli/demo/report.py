"""What the demo says: plain data for demo.json, and that data as text."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leanbayes.cli.summary import METRICS, best, better, summarise
from leanbayes.cli.table import filled, render

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.demo.comparison import Comparison
    from leanbayes.cli.demo.setting import Settings

SCORES = ("method", "accuracy", "NLL", "ECE", "Brier", "OOD total", "OOD epist.")
PRICES = ("price", "added", "step", "training", "prediction", "draws", "seconds")
REPORT = "report.html"
READING = """\
How to read it
  * is the best of a column. NLL, ECE and Brier: lower is better. ECE is the gap
    between confidence and accuracy ({bins} bins). OOD: AUROC of telling digits from
    clothes by total or by epistemic uncertainty; 0.5 is chance.
  added: numbers stored on top of the network's {parameters:,}. Times map's price: a
    fine-tuning step; all training, the network's own and fits included; and a
    prediction with all its draws. Seconds, without the network's own training, are
    those of the processor."""


def record(
    settings: Settings,
    runs: Sequence[Comparison],
    *,
    command: str,
    scored_on: str,
    picture: str | None,
    seconds: float,
) -> dict[str, Any]:
    """Figures, settings, versions and seconds as plain data."""
    import torch

    import leanbayes as lb

    return {
        "command": command,
        "versions": {
            "leanbayes": lb.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "settings": {**asdict(settings), "weight_decay": settings.weight_decay},
        "seeds": [run.seed for run in runs],
        "scored_on": scored_on,
        "parameters": runs[0].parameters,
        "methods": [_method(row, runs[0], settings) for row in summarise(runs)],
        "left_out": runs[0].left_out,
        "picture": picture,
        "by_seed": [_by_seed(run) for run in runs],
        "seconds": seconds,
    }


def _method(row: dict[str, Any], first: Comparison, settings: Settings) -> dict[str, Any]:
    """A row with its note, and with the evaluation of the first seed."""
    known = first.evaluations.get(row["label"])
    found = {**row, "note": _note(row["label"], settings)}
    return found if known is None else {**found, "evaluation": known}


def _note(label: str, settings: Settings) -> str:
    """Where an entry leaves the common recipe, in words and numbers."""
    from leanbayes.cli.demo.lineup import ENTRIES

    notes = {entry.label: entry.note for entry in ENTRIES}
    return notes.get(label, "").format(**asdict(settings.choices))


def _by_seed(run: Comparison) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "training_seconds": run.training_seconds,
        "methods": [{**asdict(score), "seconds": score.seconds} for score in run.scores],
    }


def write_report(out: Path) -> None:
    """The page of `leanbayes report` on the folder's demo.json."""
    from leanbayes import __version__
    from leanbayes.reporting import build, page, read
    from leanbayes.train.folder import write_file

    sections = build([read(out / "demo.json")])
    about = f"Written by leanbayes {__version__} from demo.json."
    write_file(out / REPORT, page("leanbayes demo", sections, about).encode())


def text(result: dict[str, Any], out: Path, width: int) -> str:
    """The header, the table, the verdict, where the files are, and how to read it."""
    settings, rows = result["settings"], result["methods"]
    files = [out / name for name in (result["picture"], "demo.json") if name is not None]
    notes = [f"{row['label']}: {row['note']}" for row in rows if row["note"]]
    parts = [
        _header(settings, result),
        render(SCORES, [_scores(row, rows) for row in rows]),
        *(f"left out: {name} ({reason})" for name, reason in result["left_out"].items()),
        "\n".join(filled(line, width) for line in verdict(rows, len(result["seeds"]))),
        render(PRICES, [_prices(row) for row in rows]),
        READING.format(bins=settings["bins"], parameters=result["parameters"]),
        "Beyond the common recipe\n" + "\n".join(filled(n, width, indent=2) for n in notes),
        f"Written in {result['seconds']:.0f} s: {', '.join(map(str, files))}",
        f"Report: {out / REPORT}",
    ]
    return "\n\n".join(parts)


def verdict(rows: Sequence[dict[str, Any]], seeds: int) -> list[str]:
    """Plainly: which methods beat the baseline in NLL and which do not."""
    by_answer: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for row in rows[1:]:
        change = f"{row['label']} ({row['minus_baseline']['nll']['mean']:+.4f})"
        by_answer[better(row)].append(change)
    words = {True: "beats map", False: "worse than map", None: "no clear difference to map"}
    lines = [
        f"NLL, {words[answer]}: {', '.join(labels) or 'none'}."
        for answer, labels in by_answer.items()
        if labels or answer is not None
    ]
    if seeds > 1:
        return [
            *lines,
            f"Clear: the mean difference over {seeds} seeds exceeds two standard errors.",
        ]
    return [*lines, "One seed: a small difference may be chance; --seeds 5 gives standard errors."]


def _header(settings: dict[str, Any], result: dict[str, Any]) -> str:
    seeds = result["seeds"]
    return (
        f"LeNet, {result['parameters']:,} parameters, trained for {_epochs(settings['epochs'])} on "
        f"{settings['train_images']:,} images of Fashion-MNIST.\n"
        "Every method, map too, then fine-tunes a copy of it for "
        f"{_epochs(settings['tuning_epochs'])} by one recipe.\n"
        f"Scores: {result['scored_on']}; OOD: {settings['ood_images']:,} handwritten digits; "
        + (
            f"seed {seeds[0]}."
            if len(seeds) == 1
            else f"{len(seeds)} seeds: mean +- standard error."
        )
    )


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' if count != 1 else ''}"


def _scores(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["label"], *(_figure(row[metric], best(rows, metric)) for metric in METRICS)]


def _figure(found: dict[str, float | None], best_mean: float | None) -> str:
    mean, error = found["mean"], found["standard_error"]
    if mean is None:
        return "- "
    shown = f"{mean:.4f}" if error is None else f"{mean:.4f}\N{PLUS-MINUS SIGN}{error:.4f}"
    return f"{shown}{'*' if mean == best_mean else ' '}"


def _prices(row: dict[str, Any]) -> list[str]:
    return [
        row["label"],
        f"{row['parameters_added']:,}",
        f"{row['step_ratio']:.2f}x",
        f"{row['training_ratio']:.2f}x",
        f"{row['predict_ratio']:.1f}x",
        f"{row['samples']}",
        f"{row['seconds']:.1f}",
    ]
