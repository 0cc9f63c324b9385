"""The plane through the members' weights, against closed forms and the networks themselves."""

import copy
import math

import pytest
import torch
from landscape_cases import CATEGORICAL, bayesian, conv_net, labelled, small_net
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.landscape.plane import Plane

MEMBERS = [
    lb.Implicit(members=3, init_std=0.4),
    lb.RankOne(members=3, init_std=0.4),
    lb.BatchEnsemble(members=3, init_std=0.4),
    lb.SharedEnsemble(members=3, init_std=0.4),
    lb.DeepEnsemble(members=3),
    lb.Patching(members=3, where="all", scope="network", init_std=0.4),
]


@pytest.mark.parametrize("method", MEMBERS, ids=lambda m: m.name)
def test_three_members_lie_in_their_plane_and_the_plane_gives_them_back(method):
    model, (x, y) = bayesian(method), labelled(4)
    found = lb.landscape(model, (x, y), points=3)
    assert [m["label"] for m in found["members"]] == ["member 0", "member 1", "member 2"]
    assert found["of"] == "members"
    assert sum(found["explained"]) == pytest.approx(1, abs=1e-9)
    nets = [lb.collapse(model, k).eval() for k in range(3)]
    plane = Plane.through(nets)
    for net, member in zip(nets, found["members"], strict=True):
        own = F.cross_entropy(net(x), y).item()
        assert member["loss"] == pytest.approx(own, rel=1e-5)
        assert member["error"] == pytest.approx((net(x).argmax(1) != y).float().mean().item())
        assert member["distance"] < 1e-3
        there = plane.at(member["x"], member["y"])
        torch.testing.assert_close(there(x), net(x), rtol=1e-4, atol=1e-5)


def test_the_places_are_those_of_a_singular_value_decomposition():
    model, (x, y) = bayesian(lb.Implicit(members=5, init_std=0.4)), labelled(4)
    found = lb.landscape(model, (x, y), points=2)
    rows = torch.stack(
        [nn.utils.parameters_to_vector(lb.collapse(model, k).parameters()) for k in range(5)]
    ).double()
    u, s, _ = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    scores = (u * s)[:, :2]
    places_found = torch.tensor([[m["x"], m["y"]] for m in found["members"]]).double()
    torch.testing.assert_close(places_found.abs(), scores.abs(), rtol=1e-4, atol=1e-5)
    share = (s.square() / s.square().sum())[:2].tolist()
    assert found["explained"] == pytest.approx(share, rel=1e-6)
    farthest = places_found.abs().argmax(0)
    assert (places_found.gather(0, farthest[None]) > 0).all()


def test_the_middle_of_the_grid_is_the_average_network():
    (x, y), rank_one = labelled(4), bayesian(lb.RankOne(init_std=0.4))
    found = lb.landscape(bayesian(lb.Implicit(init_std=0.4)), (x, y), points=5)
    assert found["x"][2] == found["y"][2] == 0
    mean = lb.collapse(bayesian(lb.Implicit(init_std=0.4))).eval()
    assert found["loss"][2][2] == pytest.approx(F.cross_entropy(mean(x), y).item(), rel=1e-5)
    # The average of r_k s_k^T is not the product of the averages: average of weights it is.
    nets = [lb.collapse(rank_one, k) for k in range(4)]
    average = copy.deepcopy(nets[0])
    with torch.no_grad():
        for p, *every in zip(average.parameters(), *(n.parameters() for n in nets), strict=True):
            p.copy_(torch.stack(every).mean(0))
    found = lb.landscape(rank_one, (x, y), points=3)
    assert found["loss"][1][1] == pytest.approx(F.cross_entropy(average(x), y).item(), rel=1e-5)


def test_a_linear_model_with_squared_loss_has_the_quadratic_of_its_normal_equations():
    torch.manual_seed(1)
    net = nn.Linear(3, 1).double()
    model = lb.bayesianize(net, lb.DeepEnsemble(members=4), likelihood=lb.Gaussian(precision=1.0))
    x, y = torch.randn(40, 3, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)
    found = lb.landscape(model, (x, y), points=5, margin=0.5)
    assert "error" not in found
    rows = torch.stack(
        [nn.utils.parameters_to_vector(lb.collapse(model, k).parameters()) for k in range(4)]
    ).detach()
    centre = rows.mean(0)
    members = torch.tensor([[m["x"], m["y"]] for m in found["members"]], dtype=torch.float64)
    axes = torch.linalg.lstsq(members, rows - centre).solution
    design = torch.cat([x, torch.ones(40, 1, dtype=torch.float64)], 1)
    for j, b in enumerate(found["y"]):
        for i, a in enumerate(found["x"]):
            theta = centre + a * axes[0] + b * axes[1]
            square = (y[:, 0] - design @ theta).square().mean() / 2
            expected = square.item() + math.log(2 * math.pi) / 2
            assert found["loss"][j][i] == pytest.approx(expected, rel=1e-9)


def test_two_members_span_a_line_and_the_second_axis_is_a_seeded_random_one():
    (x, y), method = labelled(4), lb.BatchEnsemble(members=2, init_std=0.4)
    found = lb.landscape(bayesian(method), (x, y), points=3, margin=0.0)
    assert found["explained"] == [pytest.approx(1.0), 0.0]
    assert "random direction" in found["notes"][0]
    assert [m["y"] for m in found["members"]] == pytest.approx([0, 0], abs=1e-5)
    assert found["y"] == pytest.approx(found["x"])
    # Without a margin the ends of the line are the members themselves.
    ends = sorted([found["loss"][1][0], found["loss"][1][2]])
    assert ends == pytest.approx(sorted(m["loss"] for m in found["members"]), rel=1e-4)
    again, other = (
        lb.landscape(bayesian(method), (x, y), points=3, margin=0.0, seed=s)["loss"] for s in (0, 1)
    )
    assert again == found["loss"]
    assert other[0] != again[0]
    assert other[1] == again[1]


def test_directions_are_orthonormal():
    for members in (2, 4):
        model = bayesian(lb.DeepEnsemble(members=members))
        plane = Plane.through([lb.collapse(model, k) for k in range(members)])
        first, second = (torch.cat([v.flatten() for v in a.values()]).double() for a in plane.axes)
        dots = [float(a @ b) for a, b in ((first, first), (second, second), (first, second))]
        assert dots == pytest.approx([1, 1, 0], abs=1e-5)


@pytest.mark.parametrize("method", [MEMBERS[1], MEMBERS[4], lb.MeanField()], ids=lambda m: m.name)
def test_the_model_stays_as_it_is(method):
    torch.manual_seed(0)
    model, data = bayesian(method, conv_net).train(), labelled(1, 6, 6)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    generator = torch.get_rng_state()
    lb.landscape(model, data, points=3, refresh=True)
    assert torch.equal(torch.get_rng_state(), generator)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_statistics_follow_the_members_or_are_measured_anew():
    torch.manual_seed(0)
    model, (x, y) = bayesian(lb.DeepEnsemble(members=3), conv_net), labelled(1, 6, 6)
    model.train()
    for _ in range(3):  # rows of the members move statistics of their own
        model(3 * x + 1)
    model.eval()
    nets = [lb.collapse(model, k).eval() for k in range(3)]
    plane, kept = Plane.through(nets), lb.landscape(model, (x, y), points=3)
    for net, member in zip(nets, kept["members"], strict=True):
        there = plane.at(member["x"], member["y"])
        torch.testing.assert_close(there(x), net(x), rtol=1e-3, atol=1e-4)
    assert kept["statistics"] == "of the members"
    assert "refresh=True" in kept["notes"][0]
    anew = lb.landscape(model, (x, y), points=3, refresh=True)
    assert (anew["statistics"], anew["notes"]) == ("refreshed", [])
    centre = plane.at(0, 0)
    lb.refresh_batchnorm(centre, [(x, y)])
    assert anew["loss"][1][1] == pytest.approx(F.cross_entropy(centre(x), y).item(), rel=1e-4)
    assert anew["loss"][1][1] != pytest.approx(kept["loss"][1][1], rel=1e-2)
    other = lb.landscape(model, (x, y), points=3, refresh=[(2 * x, y)])
    assert other["loss"][1][1] != pytest.approx(anew["loss"][1][1], rel=1e-6)


def test_statistics_of_two_members_stay_along_the_random_direction():
    model = bayesian(lb.DeepEnsemble(members=2), conv_net).train()
    model(labelled(1, 6, 6)[0])
    nets = [lb.collapse(model, k).eval() for k in range(2)]
    plane = Plane.through(nets)
    average = (nets[0][1].running_mean + nets[1][1].running_mean) / 2
    for y in (0.0, 3.0):
        torch.testing.assert_close(plane.at(0.0, y)[1].running_mean, average)
    # Far out a straight line through two variances falls below 0, on one side or the other.
    far = torch.stack([plane.at(x, 0.0)[1].running_var.clone() for x in (-1e4, 1e4)])
    assert (far >= 0).all()
    assert (far == 0).any()


def test_marks_are_the_mean_network_and_the_weights_that_factors_multiply():
    model, (x, y) = bayesian(lb.Implicit(init_std=0.4)), labelled(4)
    mean, shared = lb.landscape(model, (x, y), points=2)["marks"]
    assert (mean["label"], shared["label"]) == ("mean network", "shared weights")
    assert [mean["x"], mean["y"], mean["distance"]] == pytest.approx([0, 0, 0], abs=1e-3)
    torch.manual_seed(0)
    assert shared["loss"] == pytest.approx(F.cross_entropy(small_net()(x), y).item(), rel=1e-5)
    plain = lb.landscape(bayesian(lb.DeepEnsemble(members=3)), (x, y), points=2)
    assert [mark["label"] for mark in plain["marks"]] == ["mean network"]


def test_tied_weights_are_one_tensor_of_the_plane():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    model = lb.bayesianize(net, lb.DeepEnsemble(members=2), likelihood=CATEGORICAL)
    nets = [lb.collapse(model, k).eval() for k in range(2)]
    plane = Plane.through(nets)
    assert sorted(plane.names) == ["0.bias", "0.weight", "2.bias"]
    x = torch.randn(5, 3)
    torch.testing.assert_close(plane.at(*plane.members[1].tolist())(x), nets[1](x))


def test_data_come_in_any_form_and_are_cut_at_the_rows_asked_for():
    model, (x, y) = bayesian(lb.BatchEnsemble(init_std=0.4)), labelled(4)
    pair = lb.landscape(model, (x, y), points=2, rows=17)
    assert pair["rows"] == 17
    rows = torch.utils.data.TensorDataset(x, y)
    for data in (rows, torch.utils.data.DataLoader(rows, 8), [(x[:10], y[:10]), (x[10:], y[10:])]):
        found = lb.landscape(model, data, points=2, rows=17)
        assert found["rows"] == 17
        torch.testing.assert_close(torch.tensor(found["loss"]), torch.tensor(pair["loss"]))


def test_members_can_be_chosen_and_the_grid_goes_beyond_them_by_the_margin():
    model, data = bayesian(lb.DeepEnsemble(members=5)), labelled(4)
    found = lb.landscape(model, data, points=3, members=[4, 1, 2], margin=1.0)
    assert [m["label"] for m in found["members"]] == ["member 4", "member 1", "member 2"]
    shown = [*found["members"], *found["marks"]]
    assert found["x"][-1] == pytest.approx(2 * max(abs(m["x"]) for m in shown))


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (lb.MAP(), {}, "the same network"),
        (lb.BatchEnsemble(init_std=0.0), {}, "one network, so they span no plane"),
        (lb.BatchEnsemble(), {"members": [0, 9]}, "from 0 to 3"),
        (lb.BatchEnsemble(), {"members": [1]}, "at least 2 networks, found 1"),
        (lb.MeanField(), {"members": [0, 1]}, "write draws=8"),
        (lb.MeanField(), {"draws": 0}, "draws must be at least 1"),
        (lb.MeanField(), {"points": 1}, "at least 2 points"),
        (lb.MeanField(), {"margin": -1.0}, "margin"),
    ],
)
def test_what_spans_no_plane_is_refused(method, options, words):
    with pytest.raises(lb.ConfigError, match=words):
        lb.landscape(bayesian(method), labelled(4), **options)


def test_a_likelihood_and_labels_are_needed():
    model = lb.bayesianize(small_net(), lb.BatchEnsemble(init_std=0.3))
    with pytest.raises(lb.ConfigError, match="needs a likelihood"):
        lb.landscape(model, labelled(4))
    with pytest.raises(lb.ConfigError, match="a Dataset or a loader"):
        lb.landscape(model, torch.zeros(3, 4), likelihood=CATEGORICAL)
    with pytest.raises(lb.DataError, match="empty"):
        lb.landscape(model, [], likelihood=CATEGORICAL)
    x, y = torch.randn(5, 4), torch.full((5,), -100)
    with pytest.raises(lb.DataError, match="no labels"):
        lb.landscape(model, (x, y), likelihood=CATEGORICAL)
