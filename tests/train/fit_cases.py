"""Small problems that the tests of training share."""

import hashlib

import torch
from torch import nn

import leanbayes as lb

CLASSES = 3


class Net(nn.Module):
    """A convolution with BatchNorm and two Linear layers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 16, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(torch.relu(self.hidden(x.flatten(1))))


def problem(rows=48, seed=0):
    """Images whose class is the brightest third."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 1, 4, 4, generator=generator)
    y = torch.stack([x[:, 0, :, k].sum(1) for k in range(CLASSES)], 1).argmax(1)
    return x, y


def model_of(method=None, *, net=None, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return lb.bayesianize(net or Net(), method or lb.MeanField(), example=problem(8)[0])


def settings(**options):
    base = {"steps": 10, "batch_size": 12, "lr": 0.05, "schedule": "constant", "progress": False}
    return lb.FitConfig(**{**base, **options})


def digest(model):
    """sha256 of every tensor of a model."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().contiguous().cpu().numpy().tobytes())
    return found.hexdigest()


class At(lb.Callback):
    """Calls a function once, after a given step."""

    def __init__(self, step, what):
        self.step, self.what, self.done = step, what, False

    def on_step(self, run, _figures):
        if run.step == self.step and not self.done:
            self.done = True
            self.what()
