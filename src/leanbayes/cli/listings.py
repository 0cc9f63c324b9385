"""`leanbayes models` and `leanbayes data`: networks and readers by name, and what they take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from leanbayes.cli.completion import data_names, model_names
from leanbayes.cli.table import filled, page_width

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def models(
    name: Annotated[
        str | None,
        typer.Argument(help="Print the options of this one.", autocompletion=model_names),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List every network of the zoo; with a name, its options.

    Others go by path: package.module:attribute, timm:NAME, transformers:NAME.

    Example: leanbayes models resnet20
    """
    import leanbayes as lb

    _print(lb.models.MODELS, name, "model", as_json)


def data(
    name: Annotated[
        str | None, typer.Argument(help="Print the options of this one.", autocompletion=data_names)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List every data set that can be read; with a name, its options.

    Example: leanbayes data fashion_mini
    """
    from leanbayes.cli.readers import DATA

    _print(DATA, name, "data set", as_json)


def _print(
    known: Mapping[str, Callable[..., Any]], name: str | None, what: str, as_json: bool
) -> None:
    from leanbayes.cli.words import first_line, options, page
    from leanbayes.errors import ConfigError
    from leanbayes.train.fields import nearest

    if name is not None and name not in known:
        raise ConfigError(f"no {what} is called {name!r}; {nearest(name, sorted(known))}")
    chosen = sorted(known) if name is None else [name]
    if as_json:
        found = [
            {"name": each, "about": first_line(known[each]), "options": options(known[each])}
            for each in chosen
        ]
        typer.echo(json.dumps(found if name is None else found[0], indent=2))
    elif name is not None:
        typer.echo(page(name, known[name], page_width()))
    else:
        wide = max(map(len, chosen)) + 2
        lines = (f"{each:<{wide}}{first_line(known[each])}" for each in chosen)
        typer.echo("\n".join(filled(line, page_width(), hang=wide) for line in lines))
