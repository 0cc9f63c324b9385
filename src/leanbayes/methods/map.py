"""The network as it is: the point estimate that every other method is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from leanbayes.methods.base import Method
from leanbayes.noise import NoiseSource
from leanbayes.plan import MEAN, Plan
from leanbayes.posteriors.base import Posterior
from leanbayes.select import Site


@dataclass(frozen=True, kw_only=True)
class MAP(Method, name="map"):
    """Maximum a posteriori: no layer is converted, every draw is the network itself.

    The prior is the optimiser's weight decay. Epistemic uncertainty is 0 by definition; use the
    predictive entropy (`total`) where a score is needed.

    Cost: none. One pass, whatever `samples` says.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MAP())
        >>> p = lb.predict(model, torch.zeros(2, 4), likelihood=lb.Categorical())
        >>> p.epistemic.tolist()
        [0.0, 0.0]
    """

    paper: ClassVar[str] = "-"
    cost: ClassVar[str] = "nothing added; 1 pass"
    advice: ClassVar[str] = (
        "the baseline: a point estimate, whose only uncertainty is the entropy of its prediction"
    )

    @property
    def default_samples(self) -> int:
        """One: all are the same."""
        return 1

    @property
    def is_random(self) -> bool:
        """Never."""
        return False

    @property
    def converts(self) -> bool:
        """Never."""
        return False

    def slots(self, site: Site) -> dict[str, Posterior]:  # noqa: ARG002
        """None."""
        return {}

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:  # noqa: ARG002
        """The network itself."""
        return MEAN

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:  # noqa: ARG002
        """The network itself."""
        return MEAN
