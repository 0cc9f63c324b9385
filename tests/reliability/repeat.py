"""A run to be done twice: `python repeat.py FOLDER METHOD WORKERS SEED`.

Leaves `weights` (all bytes of the trained model), `predictions` (those of a seeded prediction) and
the run's own files in FOLDER. Examples are augmented at random, in whatever process reads them.
"""

import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

import leanbayes as lb

ROWS, CLASSES = 48, 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


class Augmented(Dataset):
    """Every read takes numbers from the generators of torch and of Python."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(ROWS, 1, 4, 4, generator=generator)
        self.y = torch.randint(0, CLASSES, (ROWS,), generator=generator)

    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        return self.x[i] * random.uniform(0.5, 1.5) + 0.1 * torch.randn(1, 4, 4), self.y[i]


def contents(model):
    """Names and bytes of every tensor."""
    named = sorted(model.state_dict().items())
    return b"".join(n.encode() + v.contiguous().numpy().tobytes() for n, v in named)


def main(folder, method, workers, seed):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, path = Augmented(), Path(folder)
    model = lb.bayesianize(Net(), lb.methods()[method](), example=rows.x[:8])
    config = lb.FitConfig(
        steps=10, batch_size=12, lr=0.05, ema=0.9, folder=folder, seed=int(seed), log_every=1
    )
    loader = torch.utils.data.DataLoader(rows, 12, shuffle=True, num_workers=int(workers))
    lb.fit(model, loader, lb.Categorical(), validation=(rows.x, rows.y), config=config)
    probs = lb.predict(model, rows.x, likelihood=lb.Categorical(), samples=8, seed=11).probs
    (path / "weights").write_bytes(contents(model))
    (path / "predictions").write_bytes(probs.numpy().tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
