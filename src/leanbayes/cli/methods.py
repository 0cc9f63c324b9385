"""`leanbayes methods`: what the registry holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from leanbayes.cli.table import filled, page_width


def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
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
    typer.echo("\n\n".join(_block(method, page_width()) for method in found))


def _block(method: Mapping[str, str], width: int) -> str:
    """The name, then a line each for the rest, broken where the terminal is narrow."""
    lines = (
        f"paper  {method['paper']}",
        f"cost   {method['cost']}",
        f"use    {method['advice']}",
    )
    return "\n".join([method["name"], *(filled(line, width, indent=2, hang=7) for line in lines)])
