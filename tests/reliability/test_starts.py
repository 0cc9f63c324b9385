"""Starts and ends of two processes under DDP: a run that went well ends with exit code 0.

A DDP wrapper that is alive when the interpreter ends aborts one process in six to ten; here the
script keeps its wrapper, model and optimiser as globals on purpose.
"""

import os
import socket
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.distributed

SCRIPT = """
import torch
import leanbayes as lb
from leanbayes.train.runtime import Runtime

torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField(), example=x)
with Runtime(device="cpu", timeout=60) as runtime:
    runtime.seed(1)
    module = runtime.prepare(model, lb.Categorical())
    optimizer = torch.optim.SGD(lb.param_groups(module, lr=0.1))
    handle = lb.attach_kl(optimizer, module, num_data=8)
    for _ in range(3):
        runtime.backward(lb.objective(module, (x, y), lb.Categorical(), include_kl=False).loss)
        runtime.step(optimizer)
        optimizer.zero_grad()
    assert runtime.world == 2
"""
PATIENCE = 240


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def start_and_end(path):
    """Exit codes and last words of both processes."""
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **meeting}
    processes = [
        subprocess.Popen(
            [sys.executable, str(path)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    deadline = time.monotonic() + PATIENCE
    while any(process.poll() is None for process in processes):
        if time.monotonic() > deadline or any(process.poll() for process in processes):
            time.sleep(2)  # the last words of the other
            for process in processes:
                process.kill()
        time.sleep(0.05)
    return [(process.wait(), process.communicate()[1]) for process in processes]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("times", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_every_start_of_two_processes_ends_with_0(times, tmp_path):
    path = tmp_path / "run.py"
    path.write_text(SCRIPT)
    found = [end for _ in range(times) for end in start_and_end(path)]
    assert [end for end in found if end[0] != 0] == []
    assert len(found) == 2 * times
