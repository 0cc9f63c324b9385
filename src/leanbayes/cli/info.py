"""`leanbayes info`: what a run's folder or a saved model holds, and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from leanbayes.saved import Saved


def info(
    path: Annotated[Path, typer.Argument(help="Folder of a run, or one that lb.save wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say what a run or a saved model is; every hash is checked.

    Example: leanbayes info runs/one
    """
    from leanbayes.cli.card import CARD, MODEL, Card
    from leanbayes.errors import CheckpointError
    from leanbayes.saved import Saved

    if not path.is_dir():
        raise CheckpointError(f"no folder at {path}; expected a run, or what lb.save wrote")
    facts: dict[str, Any] = {"path": str(path)}
    if (path / CARD).is_file():
        facts |= _card(Card.read(path))
    elif (path / "config.json").is_file() and not (path / MODEL).is_dir():
        raise CheckpointError(
            f"{path} is a run without a model: one of `leanbayes train` that has not finished "
            "(start it again to go on), or one of Python (lb.restore reads it; lb.save writes "
            "models)"
        )
    facts |= _model(Saved.read(path / MODEL if (path / MODEL).is_dir() else path))
    facts |= _report(path)
    typer.echo(json.dumps(facts) if as_json else _text(facts))


def _card(card: Any) -> dict[str, Any]:
    data = {key: value for key, value in card.data.items() if value not in (None, [], {})}
    return {"model": dict(card.model), "data": data, "inputs": dict(card.inputs)}


def _model(saved: Saved) -> dict[str, Any]:
    """What the checked files say."""
    own = [t.numel() for key, t in saved.tensors.items() if ".slots." in f".{key}"]
    every = sum(tensor.numel() for tensor in saved.tensors.values())
    likelihood = saved.likelihood()
    kept = None
    if likelihood is not None:
        kept = {"name": type(likelihood).__name__, "settings": likelihood.settings()}
    return {
        "method": saved.method().to_json(),
        "likelihood": kept,
        "layers": len(saved.layers),
        "numbers": {"network": every - sum(own), "posterior": sum(own)},
        "posterior_only": bool(saved.description.get("posterior_only")),
        "leanbayes": saved.description.get("leanbayes"),
        "hashes": "valid",
    }


def _report(path: Path) -> dict[str, Any]:
    from leanbayes.storage import parse_json

    file = path / "report.json"
    if not file.is_file():
        return {}
    found = parse_json(file, file.read_bytes())
    return {"figures": found.get("figures", {})}


def _text(facts: Mapping[str, Any]) -> str:
    wide = max(map(len, facts))
    return "\n".join(f"{name:<{wide}}  {_words(value)}" for name, value in facts.items())


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{key} {_words(item)}" for key, item in value.items() if item is not None)
            or "none"
        )
    if isinstance(value, list | tuple):
        return " ".join(map(_words, value))
    return (
        f"{value:,}"
        if type(value) is int
        else f"{value:.4g}"
        if type(value) is float
        else str(value)
    )
