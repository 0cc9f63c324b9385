"""`leanbayes evaluate --suite`: a finished run on many splits, into a file for `report`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from leanbayes.cli.card import Card
    from leanbayes.data.dataset import Data
    from leanbayes.model import BayesianModel

ALONE = ("out", "resume", "rows", "sweep", "examples")  # flags that a suite alone understands
OTHERS = ("picture", "beside")  # flags that it does not


def check_flags(given: Mapping[str, Any]) -> None:
    """Refuse flags that belong to the other way of evaluating, before the work."""
    from leanbayes.cli.record_file import check_place
    from leanbayes.errors import ConfigError

    suite = given["suite"] is not None
    wrong = [name for name in (OTHERS if suite else ALONE) if given[name]]
    if wrong:
        words = "does not go with" if suite else "goes with"
        raise ConfigError(f"--{wrong[0]} {words} --suite")
    if suite:
        check_place(given["out"], resume=given["resume"])


def evaluate_suite(
    given: Mapping[str, Any], card: Card, model: BayesianModel, data: Data
) -> dict[str, Any] | None:
    """The main figures, for the terminal; None in all processes but the first.

    Args:
        given: The flags.
        card: Of the run.
        model: Of the run.
        data: To evaluate it on.
    """
    from leanbayes.cli.jobs import obeying_signals
    from leanbayes.cli.record_file import alone
    from leanbayes.cli.run import is_first
    from leanbayes.evaluation import evaluate

    suite = _suite(given, card, data)
    writer = alone(given["out"] if is_first() else None)
    with writer, obeying_signals(), _device(str(given["device"])) as device:
        found = evaluate(
            model.to(device),
            suite,
            samples=given["samples"],
            seed=given["seed"],
            batch_size=given["batch"],
            out=given["out"],
            resume=given["resume"],
            header={"command": _command(given)},
        )
    if not is_first():
        return None
    count = sum(split["count"] for split in found["splits"].values())
    told = {"suite": suite.name, "data": suite.data, "splits": len(suite.splits), "count": count}
    where = {} if given["out"] is None else {"out": str(given["out"])}
    return {**told, **found["summary"], **where}


def _suite(given: Mapping[str, Any], card: Card, data: Data) -> Any:
    from leanbayes.cli.readers import part_of, read_data
    from leanbayes.evaluation import Suite

    names, ood = given["suite"], given["ood"]
    foreign: dict[str, Any] = {}
    if ood is not None:
        names = f"{names},ood:{ood}"
        if ood not in data.extra:
            root = given["ood_root"]
            foreign[ood] = read_data(ood, {} if root is None else {"root": root}, "--ood")
    part_of(data, given["part"])  # says the nearest name
    suite = Suite.of(
        data,
        names,
        part=given["part"],
        rows=given["rows"],
        foreign=foreign,
        normalize=card.normalize,
        sweep=given["sweep"],
        examples=given["examples"],
    )
    _check_shapes(suite, card)
    return suite.named(given["suite"])


def _check_shapes(suite: Any, card: Card) -> None:
    from leanbayes.errors import DataError
    from leanbayes.evaluation.part import rows_at

    for split in suite.splits:
        shape = tuple(rows_at(split.part, [0])[0].shape[1:])
        if shape != card.shape:
            found, wanted = ("x".join(map(str, size)) for size in (shape, card.shape))
            raise DataError(f"{split.name}: inputs are {found}; those of the run were {wanted}")


@contextmanager
def _device(name: str) -> Iterator[torch.device]:
    """The device; processes of a launch meet first, each with a device of its own."""
    from leanbayes.cli.predict import device_of
    from leanbayes.train.processes import Processes
    from leanbayes.train.runtime import Runtime

    if Processes.found().world == 1:
        yield device_of(name)
        return
    with Runtime(device=name) as runtime:
        yield runtime.device


def _command(given: Mapping[str, Any]) -> str:
    """The command that gives these figures again."""
    from leanbayes.cli.run_data import placed
    from leanbayes.records import shown

    words = ["leanbayes", "evaluate", shown(given["run"])]
    names = (
        "suite",
        "data",
        "root",
        "ood",
        "ood_root",
        "samples",
        "rows",
        "seed",
        "batch",
        "model",
    )
    for name in names:
        if given[name] is not None:
            words += [f"--{name.replace('_', '-')}", shown(given[name])]
    words += ["--part", given["part"]]
    for change in given["change"] or ():
        words += ["--set", placed(change)]
    words += [f"--{name}" for name in ("sweep", "examples") if given[name]]
    return shlex.join(words)
