"""`leanbayes predict`: files in, a table with label and decomposed uncertainty out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from leanbayes.cli.inputs import Inputs

RunArgument = Annotated[Path, typer.Argument(help="Folder of a finished run.", metavar="RUN")]
SamplesFlag = Annotated[
    int | None,
    typer.Option(help="Draws of a prediction; by default the method's own number.", min=1),
]
SeedFlag = Annotated[int, typer.Option(help="Seed of the draws.")]
DeviceFlag = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
TrustFlag = Annotated[
    str | None, typer.Option("--model", help="Allow the run's network from outside leanbayes.")
]
DAMAGED = 5
ROWS = 256  # of a pass


def predict(  # noqa: PLR0913
    run: RunArgument,
    inputs: Annotated[
        list[Path],
        typer.Argument(help="Images, folders of images, .npz, .csv, .parquet.", metavar="INPUT..."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Table to write: .csv, .json or .parquet.")
    ] = None,
    samples: SamplesFlag = None,
    seed: SeedFlag = 0,
    device: DeviceFlag = "auto",
    model: TrustFlag = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Predict files with a finished run: label, confidence and uncertainty of each.

    Pictures that cannot be read are left out and listed, and the exit code is 5; an array or a
    table that cannot be read ends the command.

    Example: leanbayes predict runs/one images --out table.csv
    """
    from leanbayes.cli.card import load_run
    from leanbayes.cli.figures import rows_of_pass
    from leanbayes.cli.inputs import Inputs, check_paths
    from leanbayes.cli.table_file import check_out, write_table

    check_paths(inputs)
    if out is not None:
        check_out(out)
    card, net = load_run(run, model)
    pieces = Inputs(card, inputs, rows_of_pass(card, ROWS))
    rows = _predicted(net.to(device_of(device)), pieces, samples=samples, seed=seed)
    for note in pieces.notes:
        typer.echo(f"leanbayes: {note}", err=True)
    for path, reason in pieces.skipped:
        typer.echo(f"leanbayes: skipped {path}: {' '.join(reason.split())}", err=True)
    if out is not None:
        write_table(out, rows, pieces.skipped)
    _print(rows, pieces, out, as_json)
    if pieces.skipped:
        raise typer.Exit(DAMAGED)


def _predicted(model: Any, pieces: Inputs, **options: Any) -> list[dict[str, Any]]:
    import leanbayes as lb
    from leanbayes.cli.rows import rows_of

    # Quantiles of numbers need the samples; of classes they would only fill memory.
    options["keep_samples"] = pieces.card.data.get("task") == "regression"
    rows = []
    for names, x in pieces:
        rows += rows_of(names, lb.predict(model, x, **options).to("cpu"), pieces.card.classes)
    return rows


def device_of(name: str) -> Any:
    """The device by name; `auto` is a GPU where there is one."""
    import torch

    from leanbayes.errors import ConfigError

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        words = str(error).splitlines()[0]
        raise ConfigError(f"--device {name!r} cannot be used: {words}") from None


def _print(rows: list[dict[str, Any]], pieces: Inputs, out: Path | None, as_json: bool) -> None:
    from leanbayes.cli.table_file import as_json as tabled
    from leanbayes.cli.table_file import csv_text

    if out is None:
        text = json.dumps(tabled(rows, pieces.skipped)) if as_json else csv_text(rows).rstrip("\n")
        typer.echo(text)
        return
    summary = {"out": str(out), "rows": len(rows), "skipped": tabled([], pieces.skipped)["skipped"]}
    words = f"{len(rows)} rows in {out}"
    typer.echo(json.dumps(summary) if as_json else words)
