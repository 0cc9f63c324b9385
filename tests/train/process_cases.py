"""What the tests of training train, in one process and in two."""

import torch
from torch import nn

import leanbayes as lb

ROWS, CLASSES, NUM_DATA = 8, 3, 50


class Net(nn.Module):
    """Convolution, BatchNorm, a list of blocks, and a head that shares its weight with nobody."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def batch(rank=0):
    generator = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(ROWS, 2, 5, 5, generator=generator)
    return x, torch.randint(0, CLASSES, (ROWS,), generator=generator)


def model_of(method=None, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return lb.bayesianize(Net(), method or lb.MeanField(init_std=0.1), example=batch()[0])


def optimizer_of(name, module, likelihood=None):
    groups = lb.param_groups(module, lr=0.05, likelihood=likelihood)
    options = {"momentum": 0.9} if name == "SGD" else {}
    return getattr(torch.optim, name)(groups, **options)


def train(runtime, module, optimizer, steps):
    """Steps with the KL as an edit; gives the losses."""
    losses = []
    with_edit = lb.attach_kl(optimizer, module, num_data=NUM_DATA)
    for _ in range(steps):
        with runtime.autocast():
            found = lb.objective(module, batch(runtime.rank), lb.Categorical(), include_kl=False)
        runtime.backward(found.loss)
        runtime.step(optimizer)
        optimizer.zero_grad()
        losses.append(found.loss.item())
    with_edit.remove()
    return losses


def assert_same(found, expected):
    """Bitwise, in every tensor and number of two trees."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    else:
        assert found == expected
