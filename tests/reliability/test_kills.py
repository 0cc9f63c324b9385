"""kill -9 and SIGTERM at random moments: the end is that of a run that nobody touched."""

import os
import random
import signal
import time
from typing import NamedTuple

import pytest
from processes import digest_of, finish, has_begun, has_ended, start

STOPPED = 143
KILLED = -signal.SIGTERM  # by the system: the run was over, and no longer minds signals


class Untouched(NamedTuple):
    digest: str
    seconds: float  # from the first checkpoint to the end, on this machine


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untouched") / "run"
    process = start(folder)
    assert has_begun(folder)
    begun = time.monotonic()
    assert has_ended(folder)
    seconds = time.monotonic() - begun
    code, output = finish(process)
    assert code == 0, output
    return Untouched(digest_of(folder), seconds)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(("kills", "seed"), [(2, 0), *(slow(10, k) for k in range(1, 6))])
def test_killed_runs_end_with_the_weights_of_an_untouched_one(kills, seed, untouched, tmp_path):
    moments = random.Random(seed)
    for number in range(kills):
        folder = tmp_path / f"run-{number}"
        process = start(folder)
        assert has_begun(folder)
        time.sleep(moments.uniform(0, untouched.seconds))
        os.killpg(process.pid, signal.SIGKILL)
        finish(process)
        code, output = finish(start(folder))
        assert code == 0, output
        assert digest_of(folder) == untouched.digest, number


@pytest.mark.parametrize(("signals", "seed"), [(1, 0), slow(10, 1), slow(10, 2)])
def test_sigterm_saves_and_ends_with_143_within_ten_seconds(signals, seed, untouched, tmp_path):
    moments = random.Random(seed)
    for number in range(signals):
        folder = tmp_path / f"run-{number}"
        process = start(folder, TARGET_STEPS="300")
        assert has_begun(folder)
        time.sleep(moments.uniform(0, untouched.seconds))
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        code, output = finish(process)
        assert time.monotonic() - sent < 10
        over = "ended at step" in output
        assert code == STOPPED or (over and code in (0, KILLED)), output
        code, output = finish(start(folder))
        assert code == 0, output
        assert digest_of(folder) == untouched.digest, number


def test_a_second_signal_quits_at_once(tmp_path):
    process = start(tmp_path / "run", TARGET_STEPS="100000")
    assert has_begun(tmp_path / "run")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == STOPPED


def test_ctrl_c_gives_130_and_says_how_to_go_on(tmp_path):
    process = start(tmp_path / "run", TARGET_STEPS="100000")
    assert has_begun(tmp_path / "run")
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert code == 130
    assert "goes on from here" in output


def test_a_finished_run_is_a_no_op_with_exit_code_0(untouched, tmp_path):
    for _ in range(2):
        code, output = finish(start(tmp_path / "run"))
        assert code == 0, output
        assert digest_of(tmp_path / "run") == untouched.digest
