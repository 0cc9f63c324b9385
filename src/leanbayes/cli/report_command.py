"""`leanbayes report`: result files as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from leanbayes.reporting import Section


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Files of demo, compare, experiment or evaluate --json.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page, HTML.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Of the page.")] = "leanbayes report",
    figures: Annotated[
        Path | None, typer.Option(help="Folder for every chart as a file, SVG.")
    ] = None,
) -> None:
    """Make one HTML page of result files: tables, charts, settings and commands.

    It loads nothing, prints well and follows the system's light or dark colours.

    Example: leanbayes report compare.json demo/demo.json -o report.html
    """
    from leanbayes import __version__
    from leanbayes.reporting import build, page, read

    sections = build([read(path) for path in results])
    text = page(title, sections, f"Written by leanbayes {__version__} from {_names(results)}.")
    charts = {} if figures is None else _charts(sections)
    _write(out, text)
    for name, content in charts.items():
        assert figures is not None
        _write(figures / name, content)
    more = f" and {len(charts)} charts in {figures}" if figures is not None else ""
    typer.echo(f"wrote {out}{more}")


def _names(results: Sequence[Path]) -> str:
    return ", ".join(dict.fromkeys(path.name for path in results))


def _charts(sections: Sequence[Section]) -> dict[str, str]:
    """Files by name; equal names are numbered."""
    from leanbayes.reporting.canvas import slug

    found: dict[str, str] = {}
    for chart in (chart for section in sections for chart in section.charts):
        stem, number = slug(chart.name), 1
        name = f"{stem}.svg"
        while name in found:
            number += 1
            name = f"{stem}-{number}.svg"
        found[name] = chart.file()
    return found


def _write(path: Path, text: str) -> None:
    from leanbayes.train.folder import write_file

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder, expected a file", str(path))
    write_file(path, text.encode())
