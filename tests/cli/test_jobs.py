"""Runs side by side that need what others leave behind."""

import multiprocessing
import time
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from leanbayes.cli.compare.tasks import Work
from leanbayes.cli.jobs import _serve, run_all


def done(folder, beside, name):
    """Leave a file; `first` ends only after one that runs `beside` it, `bad` fails."""
    until = time.monotonic() + 60
    while name == "first" and beside and not (folder / beside).exists():
        if time.monotonic() > until:
            raise TimeoutError(beside)
        time.sleep(0.01)
    if name == "bad":
        raise ValueError(name)
    (folder / name).touch()
    return name


def ready(folder, name):
    """Whether what is asked for is there: `x:first` needs `first`."""
    _, _, needed = name.partition(":")
    return not needed or (folder / needed).exists()


def ends_of(folder, names, jobs, beside=None, more=lambda: True):
    with closing(
        run_all(partial(done, folder, beside), names, jobs, more, partial(ready, folder))
    ) as ends:
        return [names[ended.at] for ended in ends if ended.error is None]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_waits_for_what_it_needs_and_others_take_its_place(tmp_path, jobs):
    names = ["x:first", "first", "y:first", "free"]
    found = ends_of(tmp_path, names, jobs, beside=None if jobs == 1 else "free")
    assert sorted(found) == sorted(names)
    assert found.index("first") < min(found.index("x:first"), found.index("y:first"))
    if jobs == 1:
        assert found == ["first", "x:first", "y:first", "free"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_can_never_begin_is_left_and_nobody_waits_for_it(tmp_path, jobs):
    names = ["bad", "x:bad", "first", "y:first"]
    assert ends_of(tmp_path, names, jobs) == ["first", "y:first"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_when_the_time_is_over_what_waited_does_not_begin(tmp_path, jobs):
    names = ["x:first", "first", "y:first"]
    assert ends_of(tmp_path, names, jobs, more=lambda: False) == ["first"]


def test_a_start_is_trained_once_and_before_the_first_run_that_needs_it():
    needs = {("a", 0): [0], ("b", 0): [0], ("free", 0): [], ("all", 0): [0, 1, 2], ("a", 1): [1]}
    there = {2}
    work = Work(
        SimpleNamespace(untrained=lambda runs: [s for s in needs[runs[0]] if s not in there])
    )
    assert work.tasks(list(needs)) == [0, ("a", 0), ("b", 0), ("free", 0), 1, ("all", 0), ("a", 1)]
    assert [work.ready(task) for task in (0, ("a", 0), ("free", 0))] == [True, False, True]
    there.add(0)
    assert [work.ready(run) for run in needs] == [True, True, True, False, False]


def test_a_process_whose_parent_was_killed_ends_without_a_word():
    ours, theirs = multiprocessing.Pipe()
    ours.send((0, -1))
    ours.close()  # before the answer, and before the next run
    assert _serve(theirs, abs, torch.get_num_threads()) is None
