"""Norms over several dimensions with copies of their tensors, of which every row takes one."""

import pytest
import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64
NORMS = {
    "LayerNorm": lambda: nn.LayerNorm((3, 4)),
    "LayerNorm-no_bias": lambda: nn.LayerNorm((3, 4), bias=False),
    "RMSNorm": lambda: nn.RMSNorm((3, 4)),
}
METHODS = {
    "deep_ensemble": lb.DeepEnsemble(members=3, init_std=0.4),
    "patching": lb.Patching(members=3, scope="network", where="all", init_std=0.4),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("build", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize(("groups", "members"), [(1, [2, 0, 1, 1, 0, 2]), (3, [2, 0, 2])])
def test_every_row_is_a_stock_pass_with_the_copy_of_its_member(method, build, groups, members):
    torch.manual_seed(0)
    norm, x = build().to(F64), torch.randn(6, 2, 3, 4, dtype=F64)
    model = lb.bayesianize(norm, method).train()
    component = torch.tensor(members)
    y = model(x, plan=lb.Plan(groups=groups, per_row=groups == 1, component=component))
    alone = [lb.collapse(model, member=k)(x) for k in range(3)]
    assert (alone[0] - alone[1]).abs().max() > 0.1
    rows = component.repeat_interleave(6 // len(component))
    expected = torch.stack([alone[k][row] for row, k in enumerate(rows.tolist())])
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)


def test_samples_of_one_pass_are_those_of_several():
    torch.manual_seed(0)
    net = nn.Sequential(nn.LayerNorm((3, 4)), nn.Flatten(), nn.Linear(12, 3)).to(F64)
    model, x = lb.bayesianize(net, lb.Patching()), torch.randn(5, 3, 4, dtype=F64)
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 1}
    folded, looped = (lb.predict(model, x, chunk=chunk, **options).probs for chunk in (4, 1))
    torch.testing.assert_close(folded, looped, rtol=1e-12, atol=1e-12)
