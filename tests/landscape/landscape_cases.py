"""Small networks and labelled rows."""

import torch
from torch import nn

import leanbayes as lb

CATEGORICAL = lb.Categorical()


def small_net():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def conv_net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )


def labelled(*shape):
    return torch.randn(30, *shape), torch.arange(30) % 3


def bayesian(method, make=small_net):
    """A model of a network that `make` gives under the seed."""
    torch.manual_seed(0)
    return lb.bayesianize(make(), method, likelihood=CATEGORICAL).eval()
