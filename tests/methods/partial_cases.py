"""The network that the tests of Partial convert."""

import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64


class SmallNet(nn.Module):
    """A convolution, a norm and two Linears."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = torch.tanh(self.norm(self.conv(x))).mean((2, 3))
        return self.head(torch.tanh(self.fc(x)))


def small(seed=0):
    torch.manual_seed(seed)
    return SmallNet().to(F64)


def batch(rows=8):
    torch.manual_seed(1)
    return torch.randn(rows, 1, 5, 5, dtype=F64), torch.arange(rows) % 3


def size(net):
    return sum(p.numel() for p in net.parameters())


def masks(model):
    return {q.key: q.entries.clone() for _, _, q, _ in model.posteriors()}


def partial(net=None, rate=0.3, criterion="magnitude", **options):
    return lb.bayesianize(net or small(), lb.Partial(rate=rate, criterion=criterion, **options))
