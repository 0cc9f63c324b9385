"""Two gloo processes that do the same work: how they meet, are waited for, and hand back results.

Tests of any folder import this by its bare name: pytest puts the folder of `tests/conftest.py` on
`sys.path`, and a spawned process is given the `sys.path` of the one that spawns it.
"""

import gc
import os
import socket
import time
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Seconds that one process may be behind the other at a collective, where a real hang is told of
# with its place; beside many other programs the whole work takes minutes that it takes seconds
# alone. `tests/conftest.py` gives the tests themselves more than both.
WORLD, PATIENCE = 2, 300


def free_port():
    """One that nobody listens on: tests may run side by side, so that none can be agreed on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def launched(rank, port):
    """As torchrun leaves a process: variables alone, since the code under test opens the group."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": WORLD}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in {**own, **meeting}.items()})
    yield


@contextmanager
def process_group(rank, folder):
    """gloo by way of a file: no port to clash on. `lb.fit` uses a group that is open."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=PATIENCE),
    )
    yield
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def _start(rank, place, work, folder, arguments):
    """The work of one process; its result goes by file, since `mp.start_processes` gives none."""
    torch.set_num_threads(1)
    with place(rank):
        found = work(rank, *arguments)
        torch.save(found, f"{folder}/rank{rank}.pt")
        del found  # what holds on to a group must be gone before the group


def _wait(context, patience):
    """Until both have ended; where one failed or both hang, none outlives the test."""
    deadline = time.monotonic() + patience
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < deadline, "the processes hang"
    finally:
        for process in context.processes:
            process.kill()


def two_processes(work, folder, *arguments, place=None, patience=2 * PATIENCE):
    """What `work(rank, *arguments)` gave in both; they end, well or not, before this returns.

    `place(rank)` is the context they work in, `launched` by default; it is pickled, as `work` is.
    """
    place = place or partial(launched, port=free_port())
    handed = place, work, str(folder), arguments
    _wait(mp.start_processes(_start, handed, WORLD, join=False, start_method="spawn"), patience)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(WORLD)]
