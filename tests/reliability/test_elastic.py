"""torchrun with two workers, killed again and again: restarts go on, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from processes import HERE, digest_of, environment, finish, has_begun

PATIENCE = 120


def launch(folder, **extra):
    command = [
        *(sys.executable, "-m", "leanbayes", "launch", "--nproc", "2", "--max-restarts", "6"),
        *(str(HERE / "target.py"), str(folder)),
    ]
    return subprocess.Popen(
        command,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def workers_of(process):
    """Pids of the two workers: processes below that run the target."""
    found = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in found.stdout.splitlines()[1:]]
    children = {}
    for pid, parent, args in rows:
        children.setdefault(int(parent), []).append((int(pid), args))
    below, front = [], [process.pid]
    while front:
        for pid, args in children.get(front.pop(), []):
            front.append(pid)
            below.append((pid, args))
    return [pid for pid, args in below if "target.py" in args and "launch" not in args]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untouched") / "run"
    code, output = finish(launch(folder), PATIENCE)
    assert code == 0, output
    return digest_of(folder)


@pytest.mark.parametrize("runs", [pytest.param(1), pytest.param(20, marks=pytest.mark.slow)])
def test_two_workers_with_three_kills_end_as_untouched_ones(runs, untouched, tmp_path):
    moments = random.Random(runs)
    kills = 1 if runs == 1 else 3
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
        assert time.monotonic() - began < (60 if runs > 1 else PATIENCE)
