"""What calibration found, as it is kept with a model, saved and applied to predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

from leanbayes.calibration.conformal import Conformal
from leanbayes.calibration.temperature import COLDEST, HOTTEST, tempered
from leanbayes.errors import ConfigError
from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression

Kind = Literal["classes", "binary", "numbers"]
KINDS: Final[dict[type[Prediction], Kind]] = {
    Classification: "classes",
    BinaryClassification: "binary",
    Regression: "numbers",
}
FIELDS: Final = ("kind", "temperature", "conformal", "samples", "seed")
Found = TypeVar("Found", bound=Prediction)


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """What `lb.calibrate` found; kept as `model.calibration` and used by `lb.predict`.

    Attributes:
        kind: Of the predictions: `classes`, `binary` or `numbers`.
        temperature: Of the averaged predictive, None without.
        conformal: Scores for sets or intervals, None without.
        samples: Draws that the predictive was calibrated with. The guarantee of sets and
            intervals is for predictions with as many, and with the same seed.
        seed: Of these draws.
    """

    kind: Kind
    temperature: float | None = None
    conformal: Conformal | None = None
    samples: int
    seed: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS.values():
            raise ConfigError(f"kind is one of {sorted(KINDS.values())}, found {self.kind!r}")
        value = self.temperature
        if value is not None and not (_is_number(value) and COLDEST <= value <= HOTTEST):
            raise ConfigError(
                f"temperature must lie between {COLDEST:g} and {HOTTEST:g}, found {value!r}"
            )
        if value is not None and self.kind == "numbers":
            raise ConfigError("a temperature is for labels; found one for numbers")
        if self.conformal is not None and (self.conformal.score == "scaled") != (
            self.kind == "numbers"
        ):
            raise ConfigError(f"score {self.conformal.score!r} does not go with {self.kind}")
        for name in ("samples", "seed"):
            if not isinstance(getattr(self, name), int) or isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be whole, found {getattr(self, name)!r}")

    def __repr__(self) -> str:
        found: list[str] = [self.kind]
        if self.temperature is not None:
            found.append(f"temperature={self.temperature:.4f}")
        if self.conformal is not None:
            c = self.conformal
            found.append(f"{c.score} of {len(c.scores)} examples, alpha={c.alpha:g}")
        return f"Calibration({', '.join(found)})"

    def applied(self, found: Found) -> Found:
        """A prediction with calibrated probabilities, sets or intervals."""
        if KINDS.get(type(found)) != self.kind:
            raise ConfigError(
                f"the model was calibrated for {self.kind}, and this is a "
                f"{type(found).__name__}: write lb.predict(..., calibrated=False), or "
                "lb.calibrate again"
            )
        changed: Any = found
        if self.temperature is not None:
            changed = tempered(changed, self.temperature)
        result: Found = replace(changed, conformal=self.conformal)
        return result

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        conformal = None if self.conformal is None else self.conformal.to_json()
        return {name: getattr(self, name) for name in FIELDS} | {"conformal": conformal}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Calibration:
        """The object again, or a ConfigError."""
        if not isinstance(data, dict) or set(data) != set(FIELDS):
            shown = sorted(data) if isinstance(data, dict) else data
            raise ConfigError(f"calibration must hold {list(FIELDS)}, found {str(shown)[:80]}")
        conformal = data["conformal"]
        conformal = None if conformal is None else Conformal.from_json(conformal)
        return Calibration(**{**data, "conformal": conformal})


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
