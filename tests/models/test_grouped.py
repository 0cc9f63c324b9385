"""Networks side by side are the networks alone."""

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.models.grouped import GroupedLinear, GroupedMLP

GROUPS, INPUTS, ROWS = 3, 4, 16


def alone(together, group):
    """The network of one group, by itself."""
    net = GroupedMLP(1, INPUTS, (5, 6), norm_scale=0.2).double()
    for own, joint in zip(net.parameters(), together.parameters(), strict=True):
        part = len(joint) // GROUPS
        own.data.copy_(joint.detach()[group * part : (group + 1) * part])
    return net


def test_a_step_of_the_networks_together_is_a_step_of_each_alone():
    torch.manual_seed(0)
    together = GroupedMLP(GROUPS, INPUTS, (5, 6), norm_scale=0.2).double()
    x, y = torch.randn(ROWS, GROUPS * INPUTS).double(), torch.randn(ROWS, GROUPS).double()
    nets = [alone(together, group) for group in range(GROUPS)]
    likelihood = lb.Gaussian(precision=0.1)
    optimizer = torch.optim.SGD(together.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (-likelihood.log_prob(together(x), y)).mean().backward()
        optimizer.step()
    for group, net in enumerate(nets):
        own_x, own_y = x[:, group * INPUTS : (group + 1) * INPUTS], y[:, group : group + 1]
        own = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            own.zero_grad()
            (-likelihood.log_prob(net(own_x), own_y)).mean().backward()
            own.step()
        net.eval(), together.eval()
        torch.testing.assert_close(together(x)[:, group : group + 1], net(own_x))


def test_scales_begin_where_they_are_told_and_norms_can_be_left_out():
    net = GroupedMLP(2, 3, norm_scale=0.2)
    assert all((m.weight == 0.2).all() for m in net.modules() if isinstance(m, nn.BatchNorm1d))
    bare = GroupedMLP(2, 3, norm=False)
    assert not any(isinstance(m, nn.BatchNorm1d) for m in bare.modules())
    assert sum(p.numel() for p in bare.parameters()) == 2 * (3 * 50 + 50 + 50 + 1)


ESTIMATORS = [lb.MeanField(estimator=name) for name in ("shared", "exemplar", "flipout")]


@pytest.mark.parametrize("method", [*ESTIMATORS, lb.RankOne(members=2)])
def test_products_by_group_are_the_grouped_convolution_in_every_form(method):
    torch.manual_seed(0)
    fast, stock = GroupedLinear(12, 15, groups=3), nn.Conv1d(12, 15, 1, groups=3)
    stock.load_state_dict(fast.state_dict())
    x, likelihood, found = torch.randn(8, 12, 1).double(), lb.Gaussian(), []
    for layer in (fast.double(), stock.double()):
        torch.manual_seed(1)  # scales begin at random
        model = lb.bayesianize(layer, method)
        loss = lb.objective(model, (x, torch.zeros(8, 15, 1).double()), likelihood, num_data=8).loss
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        mean = lb.predict(model, x, samples=4, seed=0, likelihood=likelihood).mean
        found.append([loss.detach(), *grads, mean])
    torch.testing.assert_close(found[0], found[1])
