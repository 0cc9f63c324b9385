"""The average of an FSDP2 model: that of the whole one, in its passes and in its saved state."""

import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard

from leanbayes.train.ema import Average

WORLD = 2


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).eval()


def step(model, average):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    average.update(model)


def work(rank, port):
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=WORLD)
    try:
        compare(net(), net(), torch.randn(4, 5))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def compare(sharded, plain, x):
    fully_shard(sharded[0])
    fully_shard(sharded)
    one, other = Average(sharded, 0.9), Average(plain, 0.9)
    for _ in range(2):
        step(sharded, one)
        step(plain, other)
    before = sharded(x)  # leaves the root's parameters gathered
    with one.applied(sharded), other.applied(plain):
        assert torch.equal(sharded(x), plain(x))
        assert not torch.equal(sharded(x), before)
    assert torch.equal(sharded(x), before)
    same_state(one.state(), other.state())
    fresh = Average(sharded, 0.9)
    fresh.load(other.state())
    same_state(fresh.state(), other.state())


def same_state(left, right):
    for part in ("averaged", "latest"):
        assert left[part].keys() == right[part].keys()
        assert all(torch.equal(left[part][name], right[part][name]) for name in left[part])


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.distributed
@pytest.mark.slow
def test_a_sharded_average_is_that_of_the_whole_model_and_comes_off_again():
    mp.start_processes(work, (free_port(),), nprocs=WORLD, start_method="spawn")
