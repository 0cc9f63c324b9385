"""The words of `leanbayes compare`: what its flags change in a settings file, and the way back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

SUITE = "suite."  # settings of the suite: suite.rows=100
SWITCHES = ("sweep", "examples", "start", "splits", "smoke")


def word_of(given: Mapping[str, Any], label: str) -> str:
    """What `--methods` says of this label."""
    words: list[str] = [word.strip() for word in given["methods"].split(",")]
    return next(word for word in words if word.partition("=")[0].strip() == label)


def tables_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings file, with what the flags say in its place."""
    tables = _written(given)
    tables.pop("method", None)
    name, options = _reader(given["data"])
    data = dict(tables.get("data", {}))
    if given["table"] is not None:
        data = {**data, "name": name, "options": _known(name, data.get("options", {}))}
    same = data.get("name", name) == name  # a file may leave the name to the command
    data = {**data, "name": name} if same else {"name": name}
    if given["root"] is not None:
        options["root"] = given["root"]
    tables["data"] = {**data, "options": {**data.get("options", {}), **options}}
    model = {} if given["model"] is None else {"name": given["model"]}
    if given["weights"] is not None:
        model["weights"] = str(given["weights"])
    tables["model"] = {**tables.get("model", {}), **model}
    return tables


def _written(given: Mapping[str, Any]) -> dict[str, Any]:
    """The file, or the table of a name, with what --set says of the suite."""
    from leanbayes.cli.settings_file import merged, read_tables
    from leanbayes.errors import ConfigError
    from leanbayes.recipes.tables import table

    path, name = given["config"], given["table"]
    if path is not None and name is not None:
        raise ConfigError("--config and --table both say what is compared: give one of them")
    tables = {} if path is None else read_tables(path)
    if name is not None:
        # Files of one's own are such as the table is for; what needs none is embedded.
        tables = table(name, small=given["smoke"], embedded=given["root"] is None)
    return merged(tables, [c for c in given["change"] or () if c.startswith(SUITE)])


def own_changes(changes: Sequence[str] | None) -> list[str]:
    """What --set says, but for the suite, whose settings stand in the tables already."""
    return [change for change in changes or () if not change.startswith(SUITE)]


def _known(reader: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a table's data that this reader has."""
    from inspect import signature

    from leanbayes.cli.readers import DATA

    taken = signature(DATA[reader]).parameters if reader in DATA else {}
    return {key: value for key, value in options.items() if key in taken}


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
    from leanbayes.cli.run_data import placed
    from leanbayes.records import shown

    words = ["leanbayes", "compare", given["data"], "--methods", methods]
    labels = [word.partition("=")[0].strip() for word in methods.split(",")]
    for name in ("model", "weights", "root", "config", "table", "samples", "suite", "rows"):
        if given[name] is not None:
            words += [f"--{name}", shown(given[name])]
    for change in given["change"] or ():
        if not change.startswith("methods.") or change.split(".")[1] in labels:
            words += ["--set", placed(change)]
    words += ["--seeds", str(given["seeds"]), "--seed", str(given["seed"]), "--part", given["part"]]
    words += [f"--{name}" for name in SWITCHES if given[name]]
    words += [] if given["price"] else ["--no-price"]
    return shlex.join(words)
