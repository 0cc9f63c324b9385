"""The collapsed network equals the mean network, also where layers share a tensor."""

import copy

import pytest
import torch
from torch import nn

import leanbayes as lb


class Language(nn.Module):
    """The weight of the embedding is also that of the layer that scores words."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.words = nn.Linear(6, 7, bias=False)
        self.words.weight = self.embed.weight

    def forward(self, ids):
        return self.words(torch.tanh(self.embed(ids))).mean(1)


class Twins(nn.Module):
    """Two Linear layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


METHODS = [
    lb.SharedEnsemble(members=3, init_std=0.4),
    lb.RankOne(init_std=0.4),
    lb.Implicit(init_std=0.4),
    lb.BatchEnsemble(init_std=0.4),
    lb.Patching(where="all", init_std=0.4),
    lb.MeanField(),
]


def built(kind):
    torch.manual_seed(0)
    if kind is Language:
        return Language().double(), torch.randint(0, 7, (6, 4))
    return Twins().double(), torch.randn(6, 5, dtype=torch.float64)


@pytest.mark.parametrize("kind", [Language, Twins])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_collapsed_network_is_the_mean_network_where_tensors_are_tied(kind, method):
    net, inputs = built(kind)
    model = lb.bayesianize(net, method, example=inputs).eval()
    plain = lb.collapse(model)
    torch.testing.assert_close(plain(inputs), model(inputs), rtol=1e-12, atol=1e-12)
    assert list(plain.state_dict()) == list(built(kind)[0].state_dict())


def test_layers_that_are_equal_after_all_stay_tied():
    net, inputs = built(Language)
    plain = lb.collapse(lb.bayesianize(net, lb.MeanField(), example=inputs))
    assert plain.words.weight is plain.embed.weight
    silent = lb.bayesianize(copy.deepcopy(plain), lb.RankOne(init_std=0), example=inputs)
    again = lb.collapse(silent)
    assert again.words.weight is again.embed.weight


@pytest.mark.parametrize("method", METHODS[:4], ids=lambda m: m.name)
def test_a_collapsed_member_predicts_as_that_member_does(method):
    net, inputs = built(Twins)
    model = lb.bayesianize(net, method, example=inputs).eval()
    for slot in model.net.modules():
        if hasattr(slot, "rho"):  # members at their locations
            nn.init.constant_(slot.rho, -60.0)
    for member in range(method.members):
        plan = lb.Plan(component=torch.tensor([member]))
        torch.testing.assert_close(
            lb.collapse(model, member)(inputs), model(inputs, plan=plan), rtol=1e-12, atol=1e-12
        )
