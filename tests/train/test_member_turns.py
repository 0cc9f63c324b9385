"""Which member an example trains, epoch by epoch."""

from collections import Counter, defaultdict

import pytest
import torch
from fit_cases import settings
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb

ROWS, BATCH, MEMBERS = 32, 8, 4
X = torch.arange(float(ROWS))[:, None]
Y = torch.arange(ROWS) % 3


def counts(method, data, epochs):
    """How often every example has trained every member."""
    found = defaultdict(Counter)
    model = lb.bayesianize(nn.Sequential(nn.Linear(1, 3)), method)

    def note(_layer, inputs, _output):
        plan = model.scope.plan
        if model.training and plan.component is not None:
            members = plan.component.repeat_interleave(len(inputs[0]) // len(plan.component))
            for row, member in zip(inputs[0][:, 0].long().tolist(), members.tolist(), strict=True):
                found[row][member] += 1

    model.net[0].register_forward_hook(note)
    config = settings(steps=None, epochs=epochs, batch_size=BATCH, lr=0.0)
    lb.fit(model, data, lb.Categorical(), config=config)
    return found


@pytest.mark.parametrize(
    "method",
    [
        lb.BatchEnsemble(members=MEMBERS),
        lb.RankOne(members=MEMBERS, assign="interleave"),
        lb.DeepEnsemble(members=MEMBERS, init_std=0.1, assign="turns"),
    ],
)
@pytest.mark.parametrize("rows", [ROWS, ROWS - BATCH])  # as many batches as members, and one less
@pytest.mark.parametrize("kind", ["loader", "list"])
def test_data_in_a_fixed_order_train_all_members_equally(method, rows, kind):
    """With as many batches as members every example trained the same member in all epochs."""
    loader = DataLoader(TensorDataset(X[:rows], Y[:rows]), BATCH)
    found = counts(method, loader if kind == "loader" else list(loader), epochs=2 * MEMBERS)
    assert found == {row: dict.fromkeys(range(MEMBERS), 2) for row in range(rows)}
