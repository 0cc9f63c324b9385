"""`leanbayes recipes`: the papers' experiments by name, and the settings of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.completion import recipe_names
from leanbayes.cli.table import filled, page_width

if TYPE_CHECKING:
    from leanbayes.recipes import Recipe


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="Print the settings of this one.", autocompletion=recipe_names),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the papers' experiments by name; with a name, what it is and its settings.

    `leanbayes train --recipe NAME` runs one, with --smoke in seconds and without files.

    Example: leanbayes recipes bayesadapter-cifar10
    """
    import leanbayes as lb

    if name is None:
        _print_all(lb.recipes(), as_json)
        return
    found = lb.recipe(name)
    typer.echo(json.dumps(facts(found), indent=2) if as_json else _page(found))


def facts(found: Recipe) -> dict[str, Any]:
    """A recipe as plain data."""
    return {
        "name": found.name,
        "paper": found.paper,
        "notes": found.notes,
        "starts": "from a trained network" if found.trained else "from scratch",
        **found.tables(),
        "method": found.method.to_json(),
        "fit": found.config.to_json(),
        "fitting": dict(found.fitting),
    }


def _print_all(lines: dict[str, str], as_json: bool) -> None:
    if as_json:
        every = [{"name": name, "about": line} for name, line in sorted(lines.items())]
        typer.echo(json.dumps(every, indent=2))
        return
    for name, line in sorted(lines.items()):
        typer.echo(name)
        typer.echo(filled(line, page_width(), indent=4, hang=0))


def _page(found: Recipe) -> str:
    """A settings file: notes, what can be written, and in comments what the recipe brings."""
    from leanbayes.cli.toml_text import toml_text

    notes = [*found.notes.splitlines(), found.paper, f"Starts {facts(found)['starts']}."]
    wrapped = [filled(line, page_width() - 2, hang=0) for line in notes]
    own = toml_text({"recipe": found.name, **found.tables()})
    brought = toml_text({"method": _method(found), "fit": _fit(found)})
    return "\n\n".join([_comment("\n".join(wrapped)), own, _comment(brought)])


def _comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.splitlines())


def _fit(found: Recipe) -> dict[str, Any]:
    """What differs from the defaults."""
    from leanbayes.train.config import FitConfig

    usual = FitConfig().to_json()
    given = found.config.to_json()
    return {key: value for key, value in given.items() if value != usual[key]}


def _method(found: Recipe) -> dict[str, Any]:
    given = found.method.to_json()
    usual = {} if given["name"] == "compose" else type(found.method)().to_json()["fields"]
    fields = {key: value for key, value in given["fields"].items() if value != usual.get(key)}
    return {"name": given["name"], "fields": fields}
