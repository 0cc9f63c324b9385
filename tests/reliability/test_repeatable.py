"""The same seed gives the same bytes, and a run may go on with another number of processes."""

import json
import subprocess
import sys
import warnings

import pytest
import torch
from processes import HERE, environment, finish
from torch import nn
from worlds import two_processes

import leanbayes as lb

TIMINGS = ("seconds", "rate")


def start(folder, method, workers, seed=3):
    command = [sys.executable, str(HERE / "repeat.py"), str(folder), method, workers, seed]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(
        [str(word) for word in command], env=environment(), start_new_session=True, **pipes
    )


def metrics(folder):
    """Lines of figures with their keys in order; what a clock has measured is left out."""
    lines = [json.loads(s) for s in (folder / "metrics.jsonl").read_text().splitlines()]
    return [[(k, v) for k, v in line.items() if k not in TIMINGS] for line in lines]


def left_by(folder):
    """Bytes of the weights, of the prediction and of every checkpoint, and the figures."""
    files = sorted(path for path in folder.glob("checkpoints/*/*") if path.is_file())
    assert files
    checkpoints = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    plain = {name: (folder / name).read_bytes() for name in ("weights", "predictions")}
    return {**plain, **checkpoints, "metrics": metrics(folder)}


@pytest.mark.parametrize("method", ["mean_field", pytest.param("rank_one", marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(method, tmp_path):
    cells = {"first": (0, 3), "again": (0, 3), "read by two": (2, 3), "another seed": (0, 4)}
    started = [start(tmp_path / name, method, *cell) for name, cell in cells.items()]
    for process in started:
        code, output = finish(process)
        assert code == 0, output
    expected = left_by(tmp_path / "first")
    assert len(expected["metrics"]) == 13  # 10 steps, 3 evaluations
    for name in ("again", "read by two"):
        found = left_by(tmp_path / name)
        differing = [k for k in expected if found.get(k) != expected[k]]
        assert found.keys() == expected.keys()
        assert not differing, name
    other = left_by(tmp_path / "another seed")
    for name in ("weights", "predictions", "metrics"):
        assert other[name] != expected[name], name


class StopError(Exception):
    pass


class StopAt(lb.Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, run, _figures):
        if run.step == self.step:
            raise StopError


def numbered():
    """Rows of inputs whose first entry is the number of the row."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    x[:, 0] = torch.arange(40)
    return x, torch.randint(0, 3, (40,), generator=generator)


def run(folder, strategy="auto", *, stop=None, method=None, batch_size=8):
    """Eight steps, five an epoch, or up to a stop: rows by step, weights, words of warnings.

    Without noise and with frozen statistics two processes do what one does.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
        net = nn.Sequential(*layers).double()
        model = lb.bayesianize(
            net, method or lb.MeanField(init_std=0.0), example=numbered()[0][:, 1:]
        )
    seen = []

    def augment(x):
        if len(x) > 1:  # one row is the question for the number of classes
            seen.append(x[:, 0].long().tolist())
        return x[:, 1:]

    config = lb.FitConfig(
        steps=8,
        batch_size=batch_size,
        lr=0.1,
        batchnorm="frozen",
        strategy=strategy,
        folder=str(folder),
        save_every=3,
        log_every=1,
        device="cpu",
        progress=False,
    )
    callbacks = [] if stop is None else [StopAt(stop)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            lb.fit(
                model,
                numbered(),
                lb.Categorical(),
                config=config,
                callbacks=callbacks,
                augment=augment,
            )
        except StopError:
            return {"rows": seen}
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {"rows": seen, "state": state, "words": [str(w.message) for w in caught]}


def refused(folder):
    """Six rows have room for four members in one process, and not in each of two."""
    try:
        run(folder, method=lb.RankOne(members=4), batch_size=6)
    except lb.ConfigError as error:
        return str(error)
    return ""


def change(_rank, folder):
    """Runs that one process will go on with, and such that one has begun."""
    found = {("begun", s): run(folder / f"two-{s}", s, stop=4) for s in ("auto", "fsdp2")}
    found |= {("ended", s): run(folder / f"one-{s}", s) for s in ("auto", "fsdp2")}
    return found | {"refused": refused(folder / "refused")}


def check_change(found, whole, folder, words):
    """The steps after the checkpoint of step 3 are those of a run that nobody touched."""
    assert found["rows"] == whole["rows"][3:]
    assert any(words in word for word in found["words"]), found["words"]
    for name, value in whole["state"].items():
        torch.testing.assert_close(found["state"][name], value, rtol=1e-6, atol=1e-6, msg=name)
    lines, expected = (metrics(path) for path in (folder, folder.parent / "whole"))
    assert len(lines) == len(expected) == 8
    for line, other in zip(lines, expected, strict=True):
        assert line[:3] == other[:3]  # kind, step, epoch
        assert dict(line[3:]) == pytest.approx(dict(other[3:]), rel=1e-6, abs=1e-9)


def joined(first, second):
    """Rows of the global batches, from those of both processes."""
    return [a + b for a, b in zip(first["rows"], second["rows"], strict=True)]


@pytest.mark.distributed
@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    whole = run(tmp_path / "whole")
    assert [len(rows) for rows in whole["rows"]] == [8] * 8
    for strategy in ("auto", "fsdp2"):
        run(tmp_path / f"one-{strategy}", strategy, stop=4)
    run(tmp_path / "refused", stop=4, method=lb.RankOne(members=4), batch_size=6)
    first, second = two_processes(change, tmp_path, tmp_path)
    assert "batch_size=8" in first["refused"]
    assert first["refused"] == second["refused"]
    for strategy in ("auto", "fsdp2"):
        begun, ended = (joined(first[k, strategy], second[k, strategy]) for k in ("begun", "ended"))
        assert begun == whole["rows"][:4]
        found = {**first["ended", strategy], "rows": ended}
        words = "written by 1 processes and 2 go on"
        check_change(found, whole, tmp_path / f"one-{strategy}", words)
        again = run(tmp_path / f"two-{strategy}", strategy)
        words = "written by 2 processes and 1 go on"
        check_change(again, whole, tmp_path / f"two-{strategy}", words)
