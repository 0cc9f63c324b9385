"""`leanbayes methods`: what the registry holds."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from leanbayes.cli.table import render

COLUMNS = ("name", "paper", "cost", "advice")


def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List every method: its paper, what it costs and when to use it."""
    import leanbayes as lb

    found = [
        {"name": name, "paper": method.paper, "cost": method.cost, "advice": method.advice}
        for name, method in sorted(lb.methods().items())
    ]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(render(COLUMNS, [[m[column] for column in COLUMNS] for m in found], left=4))
