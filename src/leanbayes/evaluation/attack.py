"""An attack of a split: BayesAdapter's PGD by default, or FGSM."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor, nn

from leanbayes import attacks
from leanbayes.attacks.ball import Norm
from leanbayes.attacks.victim import Average
from leanbayes.data import Normalize
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Likelihood
from leanbayes.noise import key_seed

GRADIENT = 3  # what a gradient costs, in forward passes


@dataclass(frozen=True)
class Attack:
    """How adversarial inputs are made; the defaults are BayesAdapter's for CIFAR-10.

    Attributes:
        name: "pgd", or "fgsm", which takes one step of length eps from the input itself.
        eps: Radius of the ball, in pixels.
        step_size: Length of a step, in pixels (pgd).
        steps: How many (pgd).
        samples: Draws a step; as many as predictions average if None.
        norm: Of the ball, "inf" or "2".
        average: Attack the mean of the draws' probabilities, or the mean of their losses.
        bounds: Least and largest pixel; None for inputs without any.
    """

    name: Literal["pgd", "fgsm"] = "pgd"
    eps: float = 0.031
    step_size: float = 0.003
    steps: int = 20
    samples: int | None = None
    norm: Norm = "inf"
    average: Average = "probabilities"
    bounds: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.name not in ("pgd", "fgsm"):
            raise ConfigError(f"an attack is 'pgd' or 'fgsm', found {self.name!r}")

    def __call__(  # noqa: PLR0913
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        samples: int,
        seed: int,
        likelihood: Likelihood | None,
        normalize: Normalize | None,
        first: int,
    ) -> Tensor:
        """Changed inputs; a row's random start and draws do not depend on its batch.

        Args:
            model: Under attack.
            x: Inputs as the network takes them.
            y: Their targets.
            samples: Draws a step, where the attack names none.
            seed: Of the evaluation; the draws are others than those of its predictions.
            likelihood: As for `lb.predict`.
            normalize: From pixels to inputs.
            first: Index of the first row.
        """
        options: dict[str, Any] = {
            "eps": self.eps,
            "samples": self.samples or samples,
            "seed": key_seed(seed, self.name, 0) >> 1,
            "likelihood": likelihood,
            "normalize": normalize,
            "norm": self.norm,
            "average": self.average,
            "bounds": self.bounds,
        }
        if self.name == "fgsm":
            return attacks.fgsm(model, x, y, **options)
        options |= {"step_size": self.step_size, "steps": self.steps, "first": first}
        return attacks.pgd(model, x, y, **options)

    @property
    def price(self) -> int:
        """Cost of a row beyond its prediction, in predictions."""
        return GRADIENT * (self.steps if self.name == "pgd" else 1)

    def plain(self) -> dict[str, Any]:
        """As it stands in results."""
        found = asdict(self)
        if self.name == "fgsm":
            del found["steps"], found["step_size"]
        return {**found, "bounds": None if self.bounds is None else list(self.bounds)}
