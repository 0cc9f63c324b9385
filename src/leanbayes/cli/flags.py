"""What `train` and `adapt` take on the command line, and how it changes a settings file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.completion import data_names, method_names, model_names, recipe_names
from leanbayes.cli.methods import print_method

if TYPE_CHECKING:
    from leanbayes.cli.settings_file import RunSettings

ConfigFlag = Annotated[Path | None, typer.Option(help="Settings of the run, a TOML file.")]
SetFlag = Annotated[
    list[str] | None, typer.Option("--set", help="Change a value: fit.lr=0.1. May be repeated.")
]
FolderFlag = Annotated[
    Path | None,
    typer.Option("--folder", "--out", help="Folder of the run; the same folder goes on with it."),
]
DataFlag = Annotated[
    str | None, typer.Option(help="Data by name (leanbayes data).", autocompletion=data_names)
]
RootFlag = Annotated[str | None, typer.Option(help="Folder of the files of the data.")]
ModelFlag = Annotated[
    str | None,
    typer.Option(
        help="Network (leanbayes models), or package.module:name.", autocompletion=model_names
    ),
]
WeightsFlag = Annotated[
    Path | None, typer.Option(help="Trained weights: a file, or the folder of a finished run.")
]
MethodFlag = Annotated[
    str | None, typer.Option(help="Method (leanbayes methods).", autocompletion=method_names)
]
RecipeFlag = Annotated[
    str | None,
    typer.Option(
        help="Method, training, network and data of a paper (leanbayes recipes).",
        autocompletion=recipe_names,
    ),
]
EpochsFlag = Annotated[int | None, typer.Option(help="Passes over the data.")]
SeedFlag = Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")]
ResumeFlag = Annotated[
    bool | None, typer.Option("--resume/--no-resume", help="Go on with the run in the folder.")
]
DeviceFlag = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
PrecisionFlag = Annotated[str | None, typer.Option(help="fp32, bf16 or fp16.")]
DryFlag = Annotated[
    bool, typer.Option("--dry-run", help="Print settings, parameters and memory; write nothing.")
]
SmokeFlag = Annotated[
    bool,
    typer.Option(
        "--smoke",
        help="A trial in seconds; a recipe without --data: made-up data, small network.",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
HelpMethodFlag = Annotated[
    str | None,
    typer.Option(
        "--help-method",
        metavar="NAME",
        help="Print the fields of a method and exit.",
        callback=print_method,
        is_eager=True,
        autocompletion=method_names,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What was written on the command line; None where nothing was."""

    config: Path | None = None
    change: Sequence[str] | None = None
    folder: Path | None = None
    data: str | None = None
    root: str | None = None
    model: str | None = None
    weights: Path | None = None
    method: str | None = None
    recipe: str | None = None
    epochs: int | None = None
    seed: int | None = None
    resume: bool | None = None
    device: str | None = None
    precision: str | None = None
    dry_run: bool = False
    smoke: bool = False
    as_json: bool = False

    @staticmethod
    def of(given: dict[str, Any]) -> Flags:
        """From the arguments of a command."""
        return Flags(**{f.name: given[f.name] for f in fields(Flags)})

    def settings(self) -> RunSettings:
        """The file, what flags say in its place, and then every `--set`."""
        from leanbayes.cli.readers import DATA
        from leanbayes.cli.settings_file import merged, settings_of

        tables = merged(self._with_names(self._file()), self.change or ())
        if self.smoke:
            from leanbayes.cli.smoke import smoke_settings

            return smoke_settings(tables, data_names=DATA)
        return settings_of(tables, data_names=DATA)

    def _file(self) -> dict[str, Any]:
        from leanbayes.cli.settings_file import read_tables
        from leanbayes.errors import ConfigError

        if self.config is not None:
            return read_tables(self.config)
        if self.data is None and self.recipe is None and not self.change:
            raise ConfigError(
                "a run needs data, a network and a method: write --config FILE.toml, or --data "
                "NAME --model NAME --method NAME, or --recipe NAME"
            )
        return {}

    def _with_names(self, tables: dict[str, Any]) -> dict[str, Any]:
        tables = {k: dict(v) if isinstance(v, dict) else v for k, v in tables.items()}
        self._from_run(tables)
        for section in ("data", "model", "method"):
            _rename(tables, section, getattr(self, section))
        if self.recipe is not None:
            tables["recipe"] = self.recipe
        if self.weights is not None:
            _section(tables, "model")["weights"] = str(self.weights)
        if self.root is not None:
            data = _section(tables, "data")
            data["options"] = {**data.get("options", {}), "root": self.root}
        self._training(tables)
        return tables

    def _from_run(self, tables: dict[str, Any]) -> None:
        """The weights of a run bring its network along, where no other is named."""
        from leanbayes.cli.card import CARD, Card

        run = self.weights
        if run is None or self.model is not None or not (run / CARD).is_file():
            return
        if "name" not in _section(tables, "model"):
            card = Card.read(run)
            card.check_trusted()
            tables["model"] |= {"name": card.name, "options": dict(card.model["options"])}

    def _training(self, tables: dict[str, Any]) -> None:
        names = ("folder", "epochs", "seed", "resume", "device", "precision")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if not given:
            return
        fit = _section(tables, "fit")
        if "epochs" in given:
            fit.pop("steps", None)
        fit |= given | ({"folder": str(self.folder)} if self.folder is not None else {})


def _section(tables: dict[str, Any], name: str) -> dict[str, Any]:
    from leanbayes.errors import ConfigError

    section = tables.setdefault(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name}: expected a table, found {section!r}")
    return section


def _rename(tables: dict[str, Any], section: str, name: str | None) -> None:
    """Another name in a section; what the file says about the old one goes."""
    if name is not None and _section(tables, section).get("name") != name:
        tables[section] = {"name": name}
