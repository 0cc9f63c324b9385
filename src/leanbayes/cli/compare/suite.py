"""A suite of splits for every run of a comparison: `--suite`, or a table [suite] in the file.

[suite]
splits = "standard"         # as for `leanbayes evaluate --suite`
later = "test"              # of seeds after the first, where a label names none of its own
rows = 2000                 # corrupted, shifted and attacked: the first so many rows; or
                            # { corrupted = 2000, pgd = 1000 }
samples = { corrupted = 5 } # draws of some splits
attack = { samples = 5 }    # of pgd and fgsm: any field of lb.evaluation.Attack
batch_size = 256            # rows of a pass
sweep = true                # also figures by number of samples
examples = true             # also the most and the least certain images
precision = "bf16"          # of the predictions

[suite.ood.tiny]            # foreign data under a name of their own: split ood/tiny
name = "tiny_imagenet"
options = { root = "data/tiny" }
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

import leanbayes as lb
from leanbayes.cli.card import PLACES
from leanbayes.cli.compare.data import Sets
from leanbayes.cli.file_values import Reader
from leanbayes.cli.prepare import Prepared
from leanbayes.cli.settings_file import Named
from leanbayes.cli.smoke import few
from leanbayes.data.dataset import Data
from leanbayes.errors import ConfigError
from leanbayes.evaluation import Attack
from leanbayes.train.fields import listed

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class SuiteAsk:
    """Which splits, and how.

    Attributes:
        splits: Names, as `lb.Suite.of` takes them.
        later: Those of all seeds but the first; the same if None.
        rows: Corrupted, shifted and attacked are the first so many rows; all if None. Or by the
            first words of names.
        samples: Draws of some splits, by the same words.
        attack: Other settings of `pgd` and `fgsm`.
        batch_size: Rows of a pass.
        sweep: Figures by number of samples.
        examples: Most and least certain images.
        precision: Of the predictions.
        ood: Foreign data by name: readers and their options.
    """

    splits: str = "standard"
    later: str | None = None
    rows: int | Mapping[str, int] | None = None
    sweep: bool = False
    examples: bool = False
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    samples: Mapping[str, int] = field(default_factory=dict)
    attack: Attack | None = None
    batch_size: int = 256
    ood: Mapping[str, Named] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, without places of files."""
        kept = {
            key: {k: v for k, v in found.options.items() if k not in PLACES}
            for key, found in self.ood.items()
        }
        ood = {k: {"name": v.name, "options": listed(kept[k])} for k, v in self.ood.items()}
        names = ("splits", "rows", "sweep", "examples", "precision")
        found = {**{name: getattr(self, name) for name in names}, "ood": ood}
        found |= {} if self.later is None else {"later": self.later}
        found |= {"samples": dict(self.samples)} if self.samples else {}
        return found | ({} if self.attack is None else {"attack": self.attack.plain()})

    def of(self, splits: str | None, *, first: bool) -> SuiteAsk:
        """The suite of one run.

        Args:
            splits: Those of its label, where it names some: all of its seeds have them.
            first: Whether its seed is the first one.
        """
        if splits is not None:
            return replace(self, splits=splits, later=None)
        return self if first or self.later is None else replace(self, splits=self.later)

    def evaluated(
        self, model: lb.BayesianModel, ready: Prepared, sets: Sets, part: str, samples: int | None
    ) -> dict[str, Any]:
        """What `lb.evaluate` gives of a model, under the seed of its run."""
        suite = self.suite(ready, sets, part)
        seed, likelihood = ready.settings.fit.seed, ready.likelihood
        options: dict[str, Any] = {"samples": samples, "seed": seed, "likelihood": likelihood}
        options["batch_size"] = self.batch_size
        with self._autocast(next(model.parameters()).device):
            return lb.evaluate(model, suite, progress=False, **options)

    def suite(self, ready: Prepared, sets: Sets, part: str) -> lb.Suite:
        """The suite on the data of a run."""
        found = self.foreign(sets)
        if ready.settings.few:
            found = {name: few(data) for name, data in found.items()}
        return lb.Suite.of(
            ready.data,
            self.splits,
            part=part,
            rows=self.rows,
            samples=self.samples,
            attack=self.attack,
            foreign=found,
            sweep=self.sweep,
            examples=self.examples,
        ).named(self.splits)

    def foreign(self, sets: Sets) -> dict[str, Data]:
        """Foreign data that the splits name."""
        words = {word.strip() for word in self.splits.split(",")}
        every = bool({"ood", "standard", "full"} & words)
        used = {k: v for k, v in self.ood.items() if every or f"ood:{k}" in words}
        return {name: sets.read(named) for name, named in used.items()}

    def _autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(device.type, HALF[self.precision])


def suite_asked(table: Any, given: Mapping[str, Any]) -> SuiteAsk | None:
    """What the file and the flags say of a suite; None where nobody asks for one.

    Args:
        table: [suite] of the file, or None.
        given: The flags; those that say something go before the file.
    """
    flags = {k: given[k] for k in ("rows", "sweep", "examples") if given[k]}
    if given["suite"] is not None:  # for all seeds
        flags |= {"splits": given["suite"], "later": None}
    if table is None and not flags:
        return None
    if table is None and "splits" not in flags:
        raise ConfigError(f"--{next(iter(flags))} goes with --suite")
    reader = Reader()
    written = reader.table(table or {}, "suite")
    ood = _foreign(reader, written.get("ood", {}))
    rest = {k: v for k, v in written.items() if k != "ood"} | flags
    found = reader.build(_plain, rest, "suite")
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    assert isinstance(found, SuiteAsk)
    return replace(found, ood=ood)


def _plain(  # noqa: PLR0913
    splits: str = "standard",
    later: str | None = None,
    rows: int | dict[str, int] | None = None,
    sweep: bool = False,
    examples: bool = False,
    precision: Literal["fp32", "bf16", "fp16"] = "fp32",
    samples: dict[str, int] | None = None,
    attack: Attack | None = None,
    batch_size: int = 256,
) -> SuiteAsk:
    given: dict[str, Any] = {"splits": splits, "rows": rows, "sweep": sweep, "examples": examples}
    given |= {"precision": precision, "attack": attack, "batch_size": batch_size}
    given["later"] = later
    return SuiteAsk(**given, samples=samples or {})


def _foreign(reader: Reader, table: Any) -> dict[str, Named]:
    from leanbayes.cli.readers import DATA

    found = {}
    for key, entry in reader.table(table, "suite.ood").items():
        path = f"suite.ood.{key}"
        known = reader.table(entry, path)
        reader.keys(known, ("name", "options"), path)
        name = reader.named(known, list(DATA), path)
        found[key] = Named(name, reader.table(known.get("options", {}), f"{path}.options"))
    return found
