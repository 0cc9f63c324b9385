"""Accumulators over two gloo processes give the numbers of all examples in one."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from accumulator_cases import CLASSIFIERS, DETECTORS, ROWS, added, examples, scores

from leanbayes import metrics
from leanbayes.train.runtime import Runtime
from two_processes import process_group, two_processes

pytestmark = pytest.mark.distributed
SPLIT = 53  # an unequal one


def totals(rank):
    """Every accumulator over both processes: by a runtime, the default group and a named one."""
    rows = slice(0, SPLIT) if rank == 0 else slice(SPLIT, ROWS)
    sizes = (20, 33) if rank == 0 else (37,)
    every = {
        name: added(make, [x[rows] for x in examples()], sizes)
        for name, (make, _) in CLASSIFIERS.items()
    }
    for name, metric in DETECTORS.items():
        every[name] = added(partial(metrics.Detection, metric), [x[rows] for x in scores()], sizes)
    every["one sided"] = metrics.ECE()
    if rank == 1:
        every["one sided"].update(*examples())
    with Runtime("ddp", device="cpu") as runtime:
        by_runtime = {name: x.reduce(runtime).value() for name, x in every.items()}
    default = {name: x.reduce().value() for name, x in every.items()}
    named = {name: x.reduce(dist.group.WORLD).value() for name, x in every.items()}
    return by_runtime, default, named


def test_two_processes_give_the_numbers_of_one(tmp_path):
    place = partial(process_group, folder=tmp_path)
    first, second = two_processes(totals, tmp_path, place=place)
    values, out = scores()
    expected = {name: function(*examples()) for name, (_, function) in CLASSIFIERS.items()}
    expected |= {name: metric(values[~out], values[out]) for name, metric in DETECTORS.items()}
    expected["one sided"] = metrics.ece(*examples())
    assert first == second  # the same bits in both, and by whichever way
    for found in first:
        assert found == first[0]
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert isinstance(found[name], torch.Tensor)
            assert found[name].item() == pytest.approx(value.item(), rel=1e-13, abs=1e-15), name
