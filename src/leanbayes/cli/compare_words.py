"""The words of `leanbayes compare`: what its flags change in a settings file, and the way back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

SWITCHES = ("sweep", "examples", "start", "splits", "smoke")


def word_of(given: Mapping[str, Any], label: str) -> str:
    """What `--methods` says of this label."""
    words: list[str] = [word.strip() for word in given["methods"].split(",")]
    return next(word for word in words if word.partition("=")[0].strip() == label)


def tables_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings file, with what the flags say in its place."""
    from leanbayes.cli.settings_file import read_tables

    tables = {} if given["config"] is None else read_tables(given["config"])
    tables.pop("method", None)
    name, options = _reader(given["data"])
    data = dict(tables.get("data", {}))
    data = data if data.get("name") == name else {"name": name}
    if given["root"] is not None:
        options["root"] = given["root"]
    tables["data"] = {**data, "options": {**data.get("options", {}), **options}}
    model = {} if given["model"] is None else {"name": given["model"]}
    if given["weights"] is not None:
        model["weights"] = str(given["weights"])
    tables["model"] = {**tables.get("model", {}), **model}
    return tables


def _reader(data: str) -> tuple[str, dict[str, Any]]:
    """Reader and options of a name; `uci-boston` is `uci` with name = "boston"."""
    from inspect import signature

    from leanbayes.cli.readers import DATA

    first, _, rest = data.partition("-")
    if data not in DATA and rest and first in DATA and "name" in signature(DATA[first]).parameters:
        return first, {"name": rest}
    return data, {}


def command_of(given: Mapping[str, Any], methods: str) -> str:
    """The command that gives these figures again, of some methods."""
    from leanbayes.records import shown

    words = ["leanbayes", "compare", given["data"], "--methods", methods]
    labels = [word.partition("=")[0].strip() for word in methods.split(",")]
    for name in ("model", "weights", "root", "config", "samples", "suite", "rows"):
        if given[name] is not None:
            words += [f"--{name}", shown(given[name])]
    for change in given["change"] or ():
        if not change.startswith("methods.") or change.split(".")[1] in labels:
            words += ["--set", change]
    words += ["--seeds", str(given["seeds"]), "--seed", str(given["seed"]), "--part", given["part"]]
    words += [f"--{name}" for name in SWITCHES if given[name]]
    words += [] if given["price"] else ["--no-price"]
    return shlex.join(words)
