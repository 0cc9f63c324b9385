"""torchrun with two workers, killed again and again: restarts go on, bit for bit."""

import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from processes import HERE, digest_of, finish, has_begun, opened

PATIENCE = 240


def launch(folder, **extra):
    command = [
        *(sys.executable, "-m", "leanbayes", "launch", "--nproc", "2", "--max-restarts", "6"),
        *(str(HERE / "target.py"), str(folder)),
    ]
    return opened(command, **extra)


def workers_of(process):
    """Pids of the two workers: processes below that run the target."""
    children = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            args = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            children.setdefault(parent, []).append((int(entry.name), args))
    below, front = [], [process.pid]
    while front:
        for pid, args in children.get(front.pop(), []):
            front.append(pid)
            below.append((pid, args))
    return [pid for pid, args in below if "cli.worker" in args and "agent()" not in args]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untouched") / "run"
    code, output = finish(launch(folder), PATIENCE)
    assert code == 0, output
    return digest_of(folder)


# In `make test` a worker that was killed is started again by tests of `leanbayes launch`.
@pytest.mark.slow
@pytest.mark.parametrize(("runs", "kills", "seed"), [(4, 3, seed) for seed in range(1, 6)])
def test_two_workers_that_are_killed_end_as_untouched_ones(runs, kills, seed, untouched, tmp_path):
    moments = random.Random(seed)
    for number in range(runs):
        folder, began = tmp_path / f"run-{number}", time.monotonic()
        process = launch(folder)
        assert has_begun(folder)
        for _ in range(kills):
            time.sleep(moments.uniform(0.1, 0.8))
            alive = workers_of(process)
            if alive:
                os.kill(moments.choice(alive), signal.SIGKILL)
        code, output = finish(process, PATIENCE)
        assert code == 0, output
        assert digest_of(folder) == untouched, number
        assert time.monotonic() - began < 60
