"""A small classifier of striped images, trained once, and what tests of its evaluation share."""

from functools import cache

import torch
from torch import nn

import leanbayes as lb

SCALE = lb.data.Normalize((0.4,), (0.25,))
CLASSES = ("left", "middle", "right")


def images(rows, seed=0):
    """Pixels [rows, 1, 9, 9] with one of three bright stripes, and which."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (rows,), generator=generator)
    x = 0.6 * torch.rand(rows, 1, 9, 9, generator=generator)
    for stripe in range(3):
        x[y == stripe, :, :, 3 * stripe : 3 * stripe + 3] += 0.25
    return x, y


def data(rows=70, **more):
    x, y = images(rows, seed=1)
    own = {"normalize": SCALE, "classes": CLASSES, **more}
    scaled = SCALE(x) if own["normalize"] == SCALE else x
    return lb.data.Data(name="stripes", task="classification", train=None, test=(scaled, y), **own)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(81, 12), nn.Tanh(), nn.Linear(12, 3))


@cache
def trained():
    x, y = images(120)
    config = lb.FitConfig(epochs=6, lr=0.02, batch_size=24, seed=0, progress=False)
    method = lb.MeanField(init_std=0.15)
    part = (SCALE(x), y)
    return lb.adapt(network(), method, part, likelihood=lb.Categorical(), config=config).model


def evaluate(model, suite, **options):
    """Without a word on stderr, and by default in batches that do not divide the rows."""
    given = {"samples": 4, "seed": 5, "batch_size": 16, "progress": False, **options}
    return lb.evaluate(model, suite, **given)


def timeless(found):
    """The same without seconds, which no two runs share."""
    if isinstance(found, dict):
        return {k: timeless(v) for k, v in found.items() if k != "seconds"}
    return [timeless(v) for v in found] if isinstance(found, list) else found
