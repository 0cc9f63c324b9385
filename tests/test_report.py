"""The conversion report: random dimensions of a draw beside the parameters they cost."""

import pytest
import torch
from torch import nn

import leanbayes as lb


def lenet():
    """iBNN's LeNet: 41,806 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Conv2d(16, 120, 4),
        nn.Flatten(),
        nn.Linear(120, 64),
        nn.Linear(64, 10),
    )


def small():
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3, bias=False))


PARAMETERS = 4 * 5 + 5 + 5 + 5 + 5 * 3


@pytest.mark.parametrize(
    ("method", "dimensions", "members"),
    [
        (lb.MAP(), 0, 0),
        (lb.MeanField(), PARAMETERS, 0),
        (lb.MeanField(select=lb.select.output), 15, 0),
        (lb.BatchEnsemble(), 0, 4),
        (lb.SharedEnsemble(), 0, 20),
        (lb.Implicit(), 4 + 5, 4),
        (lb.RankOne(), (4 + 5) + (5 + 3), 4),
        (lb.RankOne(law="cauchy", stochastic="in"), 4 + 5, 4),
        (lb.Patching(), 2, 0),  # an index for the norm's weight and bias, one for the output
        (lb.Patching(where="all", cross=True), PARAMETERS, 0),
        (lb.Patching(where="all", scope="input"), 4 + 5, 0),
        (lb.Patching(where="all", scope="network"), 0, 5),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_random_dimensions_count_the_numbers_of_one_draw(method, dimensions, members):
    report = lb.bayesianize(small(), method).report
    assert report.random_dimensions == dimensions
    assert report.index_members == members
    first = str(report).splitlines()[0]
    assert f"; {dimensions} random dimensions a draw" in first
    assert ("members" in first) == (members > 0)


def test_ibnn_counts_207_nodes_in_lenet_and_not_the_papers_23():
    report = lb.bayesianize(lenet(), lb.Implicit()).report
    assert (report.base, report.random_dimensions) == (41_806, 1 + 6 + 16 + 120 + 64)
    assert "41,806 parameters + 1,656 (4.0%); 207 random dimensions a draw" in str(report)


def test_tied_tensors_are_one_draw():
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    net[1].weight = net[0].weight
    assert lb.bayesianize(net, lb.MeanField()).report.random_dimensions == 16


def test_counting_draws_nothing():
    torch.manual_seed(0)
    model = lb.bayesianize(small(), lb.RankOne(law="cauchy"))
    before = torch.get_rng_state()
    found = [q.random_dimensions(base) for _, _, q, base in model.posteriors()]
    assert sum(found) == model.report.random_dimensions
    assert torch.equal(before, torch.get_rng_state())
