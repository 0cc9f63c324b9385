"""`leanbayes methods`: what the registry holds, and what each of them takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from leanbayes.cli.completion import method_names
from leanbayes.cli.table import filled, page_width

if TYPE_CHECKING:
    from leanbayes.methods.base import Method


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Print the fields of this one.", autocompletion=method_names),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every method: its paper, what it costs and when to use it.

    With a name: its fields, for `[method] fields` of a settings file.

    Example: leanbayes methods mean_field
    """
    import leanbayes as lb

    known = lb.methods()
    chosen = known if name is None else {name: method_class(name)}
    found = [_facts(each, chosen[each], name is not None) for each in sorted(chosen)]
    if as_json:
        typer.echo(json.dumps(found if name is None else found[0], indent=2))
        return
    typer.echo("\n\n".join(_block(method, page_width()) for method in found))
    if name is not None:
        typer.echo("\n" + fields_page(name, page_width()))


def method_class(name: str) -> type[Method]:
    """The method of this name, or an error with the nearest ones."""
    import leanbayes as lb
    from leanbayes.train.fields import nearest

    known = lb.methods()
    if name not in known:
        raise lb.ConfigError(f"no method is called {name!r}; {nearest(name, sorted(known))}")
    return known[name]


def fields_page(name: str, width: int) -> str:
    """What a method takes, by the words of its own docstring."""
    from leanbayes.cli.words import page

    return page(name, method_class(name), width)


def print_method(name: str | None) -> None:
    """Answer `--help-method NAME` and exit; an option's callback."""
    if name is not None:
        typer.echo(fields_page(name, page_width()))
        raise typer.Exit


def _facts(name: str, method: type[Method], all_of_it: bool) -> dict[str, object]:
    facts: dict[str, object] = {
        "name": name,
        "paper": method.paper,
        "cost": method.cost,
        "advice": method.advice,
    }
    if all_of_it:
        from leanbayes.cli.words import options

        facts["fields"] = options(method)
    return facts


def _block(method: Mapping[str, object], width: int) -> str:
    """The name, then a line each for the rest, broken where the terminal is narrow."""
    lines = (
        f"paper  {method['paper']}",
        f"cost   {method['cost']}",
        f"use    {method['advice']}",
    )
    block = [filled(line, width, indent=2, hang=7) for line in lines]
    return "\n".join([str(method["name"]), *block])
