"""One split of a suite: which rows, and what is done to them before the network sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from leanbayes.data import Normalize
from leanbayes.errors import ConfigError
from leanbayes.evaluation.attack import Attack
from leanbayes.evaluation.part import check_part, size_of
from leanbayes.evaluation.shift import Shift

Kind = Literal["clean", "corrupted", "shifted", "foreign", "adversarial"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Rows to be evaluated.

    Attributes:
        name: In the results: "test", "corrupted/fog/3", "ood/digits", "pgd".
        kind: What it is.
        part: (inputs, targets), a Dataset of such; of foreign data the inputs alone will do.
        of: The clean split that it is made from, or told from.
        scale: How the inputs of the part were scaled; None where they are raw.
        rows: The first so many; all of them if None.
        shift: Of the inputs (corrupted, shifted).
        made: True where the shift is made here, False where the part has it already (files).
        attack: On the inputs (adversarial).
        samples: Draws a prediction; as many as the evaluation has if None.
    """

    name: str
    kind: Kind
    part: Any
    of: str | None = None
    scale: Normalize | None = None
    rows: int | None = None
    shift: Shift | None = None
    made: bool = True
    attack: Attack | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            kinds = ", ".join(get_args(Kind))
            raise ConfigError(f"split {self.name!r}: kind is one of {kinds}; found {self.kind!r}")
        check_part(self.part, self.name)
        for key in ("rows", "samples"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or value != int(value) or value < 1):
                words = f"{key} must be a whole number of at least 1, found {value!r}"
                raise ConfigError(f"split {self.name!r}: {words}")
        needs = {"corrupted": "shift", "shifted": "shift", "adversarial": "attack"}
        missing = needs.get(self.kind)
        if missing is not None and getattr(self, missing) is None:
            raise ConfigError(f"split {self.name!r} is {self.kind}: it needs a {missing}=")
        if (self.of is None) != (self.kind == "clean"):
            raise ConfigError(f"split {self.name!r}: of= names the clean split, of all but that")

    @property
    def count(self) -> int:
        """Rows."""
        size = size_of(self.part)
        return size if self.rows is None else min(self.rows, size)

    @property
    def is_limited(self) -> bool:
        """True where it says how many draws there are, of the prediction or of the attack."""
        attack = self.attack
        return self.samples is not None or (attack is not None and attack.samples is not None)

    @property
    def price(self) -> int:
        """Cost of a row, in predictions."""
        return 1 if self.attack is None else 1 + self.attack.price

    def head(self) -> dict[str, Any]:
        """The words about it that results begin with."""
        found: dict[str, Any] = {"kind": self.kind}
        found |= {} if self.of is None else {"of": self.of}
        found |= {} if self.shift is None else {"shift": self.shift.plain()}
        found |= {} if self.attack is None else {"attack": self.attack.plain()}
        found |= {} if self.samples is None else {"samples": self.samples}
        return {**found, "count": self.count}

    def identity(self, data: str) -> dict[str, Any]:
        """What its figures depend on, as plain data, with the digest of its part."""
        scale = None if self.scale is None else [list(self.scale.mean), list(self.scale.std)]
        return {**self.head(), "scale": scale, "made": self.made, "data": data}
