"""What tests of two processes rely on: slow ones are waited for, hanging ones are not."""

import multiprocessing
import time

import pytest

from two_processes import PATIENCE, two_processes

pytestmark = pytest.mark.distributed


def hang(rank):
    time.sleep(3600 * rank)


def test_processes_that_hang_fail_the_test_and_end(tmp_path):
    begun = time.monotonic()
    with pytest.raises(AssertionError, match="the processes hang"):
        two_processes(hang, tmp_path, patience=1)
    assert time.monotonic() - begun < PATIENCE
    for process in multiprocessing.active_children():
        process.join(PATIENCE)
    assert not multiprocessing.active_children()


def test_a_hang_is_told_of_before_the_test_itself_runs_out_of_time(request):
    """The limit of the test knows neither process nor place."""
    assert request.node.get_closest_marker("timeout").args[0] > 2 * PATIENCE
