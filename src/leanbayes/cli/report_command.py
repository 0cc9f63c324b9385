"""`leanbayes report`: result files as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from leanbayes.reporting import Section


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Files of demo, compare, experiment, evaluate, landscape and trajectory."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page, HTML.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "leanbayes report",
    figures: Annotated[
        Path | None, typer.Option(help="Folder to write every chart to, as SVG and PNG.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            help="Write a page of Markdown instead, of one file of compare; further ones hold rows "
            "of the same table from other starts."
        ),
    ] = None,
) -> None:
    """Make one HTML page of result files: tables, charts, settings and commands.

    It loads nothing, prints well and follows the system's light or dark colours.

    Example: leanbayes report compare.json demo/demo.json -o report.html
    """
    if markdown is not None:
        _write(markdown, markdown_of(results, markdown).encode())
        typer.echo(f"wrote {markdown}")
        return
    from leanbayes import __version__
    from leanbayes.reporting import build, page, read

    sections = build([read(path) for path in results])
    text = page(title, sections, f"Written by leanbayes {__version__} from {_names(results)}.")
    charts = {} if figures is None else _charts(sections)
    _write(out, text.encode())
    if figures is None:
        typer.echo(f"wrote {out}")
        return
    kinds = _write_charts(figures, charts)
    typer.echo(f"wrote {out} and {len(charts)} charts in {figures}, {kinds}")


def markdown_of(results: Sequence[Path], out: Path) -> str:
    """The page of Markdown of a record of `leanbayes compare`, with the same from other starts."""
    from leanbayes.cli.record_file import COMPARED, record_in
    from leanbayes.cli.results.page import page
    from leanbayes.errors import ConfigError
    from leanbayes.records import shown

    records = [record_in(path, *COMPARED) for path in results]
    if any("parts" in record for record in records):
        raise ConfigError("--markdown takes a record of one part of the data")
    command = f"leanbayes report {' '.join(map(shown, results))} --markdown {shown(out)}"
    return page(records[0], command, records[1:])


def _write_charts(folder: Path, charts: Mapping[str, str]) -> str:
    """Every chart as SVG, and as PNG where that can be drawn; the kinds in words."""
    from leanbayes.reporting.raster import rasteriser

    draw = rasteriser()
    if isinstance(draw, str):
        typer.echo(draw, err=True)
    for name, content in charts.items():
        _write(folder / f"{name}.svg", content.encode())
        if not isinstance(draw, str):
            _write(folder / f"{name}.png", draw(content))
    return "SVG" if isinstance(draw, str) else "SVG and PNG"


def _names(results: Sequence[Path]) -> str:
    return ", ".join(dict.fromkeys(path.name for path in results))


def _charts(sections: Sequence[Section]) -> dict[str, str]:
    """SVG by name; equal names are numbered."""
    from leanbayes.reporting.canvas import slug

    found: dict[str, str] = {}
    for chart in (chart for section in sections for chart in section.charts):
        stem, number = slug(chart.name), 1
        name = stem
        while name in found:
            number += 1
            name = f"{stem}-{number}"
        found[name] = chart.file()
    return found


def _write(path: Path, content: bytes) -> None:
    from leanbayes.train.folder import write_file

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder, expected a file", str(path))
    write_file(path, content)
