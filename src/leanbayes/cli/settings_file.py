"""A run in a file: which model, data, method, training and likelihood.

    [model]                     # lb.models.create(name, **options)
    name = "resnet18"
    options = { width = 16, num_classes = 10, stem = "cifar" }
    weights = "resnet18.th"     # trained weights, or the folder of an earlier run

    [data]                      # `leanbayes data` lists the readers
    name = "fashion_mini"
    options = { images = 1000 }
    augment = "crop+flip"
    ood = { eps = 0.05 }        # of fit.regularizer: noisy images; every second one of other data
                                # with { name = "svhn", options = {}, part = "test" }

    [method]                    # lb.methods()[name](**fields)
    name = "mean_field"
    fields = { prior_std = 0.5 }
    fitting = {}                # of lb.fit_posterior: what SWAG and Laplace do after the training

    [fit]                       # lb.FitConfig(**fit)
    epochs = 12
    lr = 1e-4

    [likelihood]                # left out: what the task of the data asks for
    name = "categorical"

A line `recipe = "pbn-mnist"` above the tables brings method, training, network and data of a paper
along; what the tables say goes before it. `--set fit.lr=0.1` on the command line changes a value.
Whatever is wrong ends in a ConfigError with one line a problem, each with the path of its key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from leanbayes.cli.file_values import WRONG, Reader, joined, short
from leanbayes.cli.recipe_tables import filled
from leanbayes.errors import ConfigError
from leanbayes.likelihood import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
)
from leanbayes.methods.base import Method
from leanbayes.models import MODELS
from leanbayes.recipes import Recipe, recipe, recipes
from leanbayes.train.config import FitConfig
from leanbayes.train.fields import nearest

SECTIONS = ("model", "data", "method", "fit", "likelihood", "recipe")
FITTED = ("inputs", "outputs")  # of a network: by default those that fit the data
EXTRA = {"model": ("weights",), "data": ("augment", "ood")}
LIKELIHOODS: Mapping[str, Callable[..., Likelihood]] = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "heteroscedastic_gaussian": HeteroscedasticGaussian,
}


@dataclass(frozen=True)
class Named:
    """Something by name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Images that `fit.regularizer` is to be unsure of.

    Attributes:
        eps: Half width of the noise on training images, in pixels of [0, 1].
        name: A reader of other images, which are every second one then.
        options: Of that reader.
        part: Of its data.
    """

    eps: float = 0.031
    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    part: str = "train"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a settings file says, checked; models and data are not built yet.

    Attributes:
        model: Of `lb.models.create`.
        data: Reader and its options.
        method: With its fields.
        fit: The training.
        likelihood: Categorical where the file has none; `tables` says whether it has.
        weights: Trained weights: a file, or the folder of a run.
        augment: What is done to training images, such as "crop+flip".
        ood: Images of `fit.regularizer`.
        fitting: Options of what is fitted after the training.
        few: A few rows of the data are enough.
        samples: Draws a prediction of a comparison; the method's own number if None.
        tables: What was written, and what a recipe adds to it.
    """

    model: Named
    data: Named
    method: Method
    fit: FitConfig
    likelihood: Likelihood
    weights: str | None = None
    augment: str | None = None
    ood: Foreign = field(default_factory=Foreign)
    fitting: Mapping[str, Any] = field(default_factory=dict)
    few: bool = False
    samples: int | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)


def read_settings(
    path: Path | str, changes: Iterable[str] = (), *, data_names: Collection[str] = ()
) -> RunSettings:
    """Settings of a TOML file.

    Args:
        path: The file.
        changes: What stands after `--set`: "fit.lr=0.1".
        data_names: Names that [data] may have; any word if empty.
    """
    return settings_of(merged(read_tables(Path(path)), changes), data_names=data_names)


def settings_of(
    tables: Mapping[str, Any], *, data_names: Collection[str] = (), scratch: bool = True
) -> RunSettings:
    """Settings of tables as TOML has them.

    Args:
        tables: By section.
        data_names: Names that [data] may have; any word if empty.
        scratch: A network without weights of its own is trained from scratch: by Adam, unless
            something is said of optimiser or rate. The usual rate is one of fine-tuning.

    Example:
        >>> tables = {
        ...     "model": {"name": "lenet"},
        ...     "data": {"name": "digits"},
        ...     "method": {"name": "mean_field", "fields": {"prior_std": 0.5}},
        ... }
        >>> settings_of(tables).method.prior_std
        0.5
        >>> settings_of({**tables, "fit": {"epochz": 2}})
        Traceback (most recent call last):
        leanbayes.errors.ConfigError: fit.epochz: unknown; did you mean 'epochs'?
    """
    reader = Reader()
    try:
        found = _sections(reader, _with_optimizer(tables) if scratch else tables, data_names)
    except RecursionError:
        raise ConfigError("settings: tables and lists are nested too deep") from None
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    return RunSettings(**found)


def _with_optimizer(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    fit, model = tables.get("fit", {}), tables.get("model", {})
    plain = isinstance(fit, Mapping) and not {"optimizer", "lr"} & fit.keys()
    trained = isinstance(model, Mapping) and "weights" in model
    if "recipe" in tables or trained or not plain:
        return tables
    return {**tables, "fit": {"optimizer": "Adam", **fit}}


def _sections(
    reader: Reader, tables: Mapping[str, Any], data_names: Collection[str]
) -> dict[str, Any]:
    reader.keys(tables, SECTIONS, "")
    base = _recipe(reader, tables)
    tables = tables if base is None else filled(tables, base)
    found = {
        "model": _named(reader, tables, "model", MODELS),
        "data": _named(reader, tables, "data", dict.fromkeys(sorted(data_names))),
        "method": _method(reader, tables, base),
        "fit": _fit(reader, tables, base),
        "likelihood": _likelihood(reader, tables),
        "weights": _word(reader, tables, "model", "weights"),
        "augment": _word(reader, tables, "data", "augment"),
        "ood": reader.build(Foreign, _inner(tables, "data", "ood"), "data.ood"),
        "tables": tables,
    }
    own = base is not None and found["method"] == base.method
    fitting = base.fitting if own and base is not None else {}
    written = reader.table(_inner(tables, "method", "fitting"), "method.fitting")
    return {**found, "fitting": {**fitting, **written}}


def _inner(tables: Mapping[str, Any], section: str, key: str) -> Any:
    table = tables.get(section)
    return table.get(key, {}) if isinstance(table, Mapping) else {}


def _recipe(reader: Reader, tables: Mapping[str, Any]) -> Recipe | None:
    """The recipe that the tables start from."""
    name = tables.get("recipe")
    if name is None:
        return None
    if not isinstance(name, str):
        reader.wrong("recipe", f"expected a word, found {short(name)}")
    elif name not in recipes():
        reader.wrong("recipe", f"no such name as {short(name)}; {nearest(name, sorted(recipes()))}")
    else:
        return recipe(name)
    return None


def _named(
    reader: Reader, tables: Mapping[str, Any], section: str, known: Mapping[str, Any]
) -> Any:
    """A name with options, those of a known callable by its arguments."""
    table = reader.table(tables.get(section, {}), section)
    reader.keys(table, ("name", "options", *EXTRA[section]), section)
    name = reader.named(table, () if _is_foreign(section, table) else known, section)
    path, options = joined(section, "options"), table.get("options", {})
    make = known.get(name)
    if make is not None:
        options = reader.arguments(make, options, path, FITTED)
    else:
        options = reader.plain_value(reader.table(options, path), dict[str, Any], path)
    return WRONG if WRONG in (name, options) else Named(name, options)


def _is_foreign(section: str, table: Mapping[str, Any]) -> bool:
    """True for a model by path, `package.module:attribute`, or of another library's."""
    name = table.get("name")
    return section == "model" and isinstance(name, str) and ":" in name


def _word(reader: Reader, tables: Mapping[str, Any], section: str, key: str) -> Any:
    table = tables.get(section)
    value = table.get(key) if isinstance(table, Mapping) else None
    if value is None or (isinstance(value, str) and value):
        return value
    return reader.wrong(joined(section, key), f"expected a word, found {short(value)}")


def _method(reader: Reader, tables: Mapping[str, Any], base: Recipe | None) -> Any:
    table = reader.table(tables.get("method", {}), "method")
    reader.keys(table, ("name", "fields", "fitting"), "method")
    if base is not None and table.get("name", base.method.name) == base.method.name:
        return reader.changed(base.method, table.get("fields", {}), "method.fields")
    return reader.method(table, "method")


def _fit(reader: Reader, tables: Mapping[str, Any], base: Recipe | None) -> Any:
    table = tables.get("fit", {})
    if base is None:
        return reader.build(FitConfig, table, "fit")
    config = base.config
    if isinstance(table, Mapping) and len({"steps", "epochs"} & table.keys()) == 1:
        # One of them says how long a run is; the recipe's word on the other goes.
        steps = "steps" in table
        config = replace(config, epochs=None if steps else 1, steps=1 if steps else None)
    return reader.changed(config, table, "fit")


def _likelihood(reader: Reader, tables: Mapping[str, Any]) -> Any:
    table = reader.table(tables.get("likelihood", {"name": "categorical"}), "likelihood")
    reader.keys(table, ("name", "options"), "likelihood")
    name = reader.named(table, LIKELIHOODS, "likelihood")
    if name is WRONG:
        return WRONG
    return reader.build(LIKELIHOODS[name], table.get("options", {}), "likelihood.options")


def merged(tables: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Tables with some values changed, "a.b=c" each; c is TOML, or else a word.

    TOML has no word for nothing: `a.b=none` takes the value out, so that its default holds.

    Example:
        >>> merged({"fit": {"lr": 0.1}}, ["fit.lr=1e-3", "fit.train=posterior"])
        {'fit': {'lr': 0.001, 'train': 'posterior'}}
    """
    result = dict(tables)
    for change in changes:
        key, equals, text = change.partition("=")
        names = [name.strip() for name in key.split(".")]
        if not equals or not all(names):
            raise ConfigError(f"--set {change}: expected a path and a value, such as fit.lr=0.1")
        _put(result, names, _value(text.strip()), change)
    return result


def _put(table: dict[str, Any], names: list[str], value: Any, change: str) -> None:
    """Set a value in tables that are copied on the way, so that the caller's stay as they are."""
    for depth, name in enumerate(names[:-1], 1):
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            place = ".".join(names[:depth])
            raise ConfigError(f"{place}: --set {change} needs a table here, found {short(inner)}")
        table[name] = dict(inner)
        table = table[name]
    if value is None:
        table.pop(names[-1], None)
    else:
        table[names[-1]] = value


def _value(text: str) -> Any:
    if text == "none":
        return None
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        if text[:1] == "[":
            raise ConfigError(
                f"--set: {short(text)} is no list; expected numbers, or words in quotes: "
                """--set 'data.options.drop=["id", "name"]'"""
            ) from None
        return text
    return found["value"] if found.keys() == {"value"} else text


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, as they stand there."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    except RecursionError:
        raise ConfigError(f"{path}: tables and lists are nested too deep") from None
    except ValueError as error:
        words = " ".join(str(error).split())
        raise ConfigError(f"{path}: is not TOML: {words}") from None
