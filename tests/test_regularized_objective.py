"""Clean and OOD rows together: one forward pass against two, and what the loss is made of."""

import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.plan import Plan
from leanbayes.regularizer import _joined

F64 = torch.float64


def normalised_net(width=5):
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))


def batch_of(rows):
    return torch.randn(rows, 4), torch.arange(rows) % 3


METHODS = [
    lb.MeanField(init_std=0.0),
    lb.MeanField(estimator="shared", init_std=0.0),
    lb.MeanField(estimator="exemplar", groups=2, init_std=0.0),
    lb.SharedEnsemble(init_std=0.0),
    lb.RankOne(init_std=0.0, assign="tile"),
    lb.Patching(init_std=0.0),
    lb.Patching(init_std=0.0, scope="network", where="all"),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}")
def test_one_pass_holds_clean_rows_then_the_draws_of_the_ood_rows(method):
    """Without noise: BatchNorm sees all rows, and the two parts are those of a plain pass."""
    torch.manual_seed(1)
    net = normalised_net().to(F64)
    (x, y), x_ood = batch_of(8), torch.randn(4, 4, dtype=F64)
    x = x.to(F64)
    model = lb.bayesianize(net, method).train()
    repeats = method.repeats
    plain = lb.collapse(model).train()
    output = plain(torch.cat([x.repeat(repeats, 1), x_ood.repeat(2, 1)]))
    reg = lb.OODRegularizer()
    result = reg.objective(model, (x, y), x_ood, lb.Categorical(), num_data=50)
    clean, ood = output[: 8 * repeats], output[8 * repeats :]
    nll = nn.functional.cross_entropy(clean, y.repeat(repeats))
    torch.testing.assert_close(result.nll, nll)
    torch.testing.assert_close(result.penalty, reg.penalty(ood))
    assert result.penalty.item() == pytest.approx(3 * 0.5)  # no noise, no information
    torch.testing.assert_close(result.loss, nll + model.kl() / 50 + result.penalty)
    running = net[1].running_mean
    torch.testing.assert_close(running, plain[1].running_mean)


def test_two_passes_are_the_objective_and_the_penalty():
    model = lb.bayesianize(normalised_net(), lb.MeanField(init_std=0.1)).train()
    batch, x_ood = batch_of(6), torch.randn(3, 4)
    reg = lb.OODRegularizer(passes=2)
    torch.manual_seed(4)
    result = reg.objective(model, batch, x_ood, lb.Categorical(), num_data=9, kl_weight=0.5)
    torch.manual_seed(4)
    clean = lb.objective(model, batch, lb.Categorical(), num_data=9, kl_weight=0.5)
    penalty = reg(model, x_ood)
    torch.testing.assert_close(result.nll, clean.nll)
    torch.testing.assert_close(result.loss, clean.loss + penalty)
    result.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_one_pass_keeps_the_law_of_members_drawn_by_group():
    """Blocks are as small as the gcd, and every draw of an OOD row is a block of its own."""
    plan = _joined(
        Plan(component=torch.tensor([3])), 8, Plan(groups=2, component=torch.tensor([1, 2])), 12
    )
    assert plan.groups == 10
    assert plan.component.tolist() == [3] * 4 + [1] * 3 + [2] * 3
    rows = _joined(Plan(per_row=True), 8, Plan(groups=2, per_row=True), 8)
    assert (rows.groups, rows.per_row, rows.component) == (4, True, None)
    model = lb.bayesianize(
        nn.Linear(4, 2), lb.Patching(members=2, scope="network", where="output", init_std=0.0)
    )
    with torch.no_grad():  # two members, sure of different classes whatever the input
        model.net.weight.zero_()
        model.net.slots["weight"].further.zero_()
        model.net.bias.copy_(torch.tensor([1000.0, 0.0]))
        model.net.slots["bias"].further.copy_(torch.tensor([[0.0, 1000.0]]))
    value = lb.OODRegularizer(alpha=1.0, gamma=None).objective(
        model,
        (torch.randn(4, 4), torch.zeros(4).long()),
        torch.randn(2, 4),
        lb.Categorical(),
        include_kl=False,
    )
    assert value.penalty.item() == pytest.approx(-math.log(2), rel=1e-6)


def test_inputs_may_be_dicts_and_autocast_may_be_on():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, a, b):
            return self.fc(a + b)

    model = lb.bayesianize(Two(), lb.MeanField(init_std=0.3)).train()
    (a, y), ood = batch_of(6), torch.randn(3, 4)
    reg = lb.OODRegularizer()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = reg.objective(
            model, ({"a": a, "b": a}, y), {"a": ood, "b": ood}, lb.Categorical(), num_data=6
        )
        assert result.penalty.dtype == torch.float32
        with pytest.raises(lb.ConfigError, match="differ in structure"):
            reg.objective(model, ({"a": a, "b": a}, y), ood, lb.Categorical(), num_data=6)
    assert result.loss.isfinite()


def test_a_compiled_model_is_run_as_it_is():
    model = lb.bayesianize(normalised_net(), lb.MeanField(init_std=0.0)).train()
    reg, batch, x_ood = lb.OODRegularizer(), batch_of(8), torch.randn(4, 4)
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    values = [
        reg.objective(m, batch, x_ood, lb.Categorical(), num_data=8).loss for m in (compiled, model)
    ]
    torch.testing.assert_close(*values)
    assert graphs


def test_the_kl_is_not_counted_twice_and_stays_lazy():
    model = lb.bayesianize(normalised_net(), lb.MeanField()).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = lb.attach_kl(optimizer, model, num_data=10)
    batch, x_ood, reg = batch_of(4), torch.randn(2, 4), lb.OODRegularizer()
    with pytest.raises(lb.ConfigError, match="include_kl=False"):
        reg.objective(model, batch, x_ood, lb.Categorical(), num_data=10)
    result = reg.objective(model, batch, x_ood, lb.Categorical(), include_kl=False)
    torch.testing.assert_close(result.loss, result.nll + result.penalty)
    assert result._kl is None
    torch.testing.assert_close(result.kl, model.kl())
    handle.remove()
