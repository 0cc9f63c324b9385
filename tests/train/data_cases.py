"""Small training data of every kind, whose examples say which ones they are."""

import torch
from torch.utils.data import Dataset, IterableDataset

from leanbayes.train.data import Batches

N = 23


class Numbers(Dataset):
    """Example i is (i, i mod 5)."""

    def __init__(self, examples=N):
        self.examples = examples

    def __len__(self):
        return self.examples

    def __getitem__(self, index):
        return torch.tensor([float(index)]), index % 5


def tensors(examples=N):
    x = torch.arange(float(examples))[:, None]
    return x, x[:, 0].long() % 5


def ready(sizes=(4, 4, 3)):
    return [(x, x[:, 0].long() % 5) for x in torch.arange(float(sum(sizes)))[:, None].split(sizes)]


def make(train, **options):
    return Batches(train, **({"batch_size": 6, "seed": 1} | options))


class Flow(IterableDataset):
    """Numbers in random order, of which `length` are promised."""

    def __init__(self, length=None, given=N):
        self.length, self.given = length, given

    def __iter__(self):
        return (Numbers()[i] for i in torch.randperm(self.given).tolist())

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length
