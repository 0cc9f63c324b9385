"""The methods that step_cost.py measures, with the limits that the project has set itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import leanbayes as lb


@dataclass(frozen=True)
class Row:
    """One line of the table; the limits on time are those for the ResNet."""

    label: str
    method: lb.Method
    train: float = math.inf
    predict: float = math.inf
    size: float = math.inf
    kl_in_graph: bool = False
    predicts: bool = True  # False where a row above predicts in the same way


def _partial() -> lb.Method:
    # Which entries are random does not change the price; magnitudes need no data.
    return lb.Partial(rate=0.01, criterion="magnitude")


def _composed() -> lb.Method:
    select = lb.select
    parts = [(select.norms, lb.Patching(where="norm")), (select.output, lb.MeanField())]
    return lb.Compose([*parts, (select.convs, lb.RankOne())])


ROWS = (
    Row("MeanField shared", lb.MeanField(estimator="shared"), 1.08, 1.10, 2.0),
    Row("MeanField auto", lb.MeanField(), 2.3, 1.10, 2.0),
    Row("MeanField exemplar", lb.MeanField(estimator="exemplar"), size=2.0, predicts=False),
    Row(
        "MeanField shared, KL in graph",
        lb.MeanField(estimator="shared"),
        size=2.0,
        kl_in_graph=True,
        predicts=False,
    ),
    Row("RankOne by row", lb.RankOne(), 1.30, 1.10, 1.03),
    Row("RankOne by block", lb.RankOne(granularity="batch"), 1.18, size=1.03, predicts=False),
    Row("Implicit by row", lb.Implicit(), 1.18, 1.10, 1.013),
    Row("Implicit by block", lb.Implicit(granularity="batch"), 1.12, size=1.013, predicts=False),
    Row("Patching norm", lb.Patching(where="norm"), 1.05, 1.05, 1.02),
    Row("Patching norm+output", lb.Patching(), 1.05, 1.05, 1.027),
    Row("Patching cross", lb.Patching(cross=True), predicts=False),
    Row("Partial 1 %", _partial(), 1.08, 1.08, 1.02),
    Row("SharedEnsemble by channel", lb.SharedEnsemble(per_channel=True), 1.27, 1.15),
    Row("SharedEnsemble by position", lb.SharedEnsemble()),
    Row("RankOne Cauchy by row", lb.RankOne(law="cauchy"), predicts=False),
    Row("BatchEnsemble", lb.BatchEnsemble()),
    Row("MCDropout", lb.MCDropout()),
    Row("DropConnect", lb.DropConnect()),
    Row("DeepEnsemble of 4, split", lb.DeepEnsemble(members=4)),
    Row("Compose", _composed()),
    Row("SWAG", lb.SWAG()),
    Row("Laplace", lb.Laplace()),
)
