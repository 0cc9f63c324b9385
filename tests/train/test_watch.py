"""What is shown and what is written: when, in which words, and the same after a restart."""

import io
import json
import math
from types import SimpleNamespace

import pytest

from leanbayes.errors import CheckpointError
from leanbayes.train.callbacks import Run
from leanbayes.train.config import FitConfig
from leanbayes.train.watch import MetricsFile, Watch, clock_time, short

SIGMA = {"sigma_min": 0.001, "sigma_median": 0.004, "sigma_max": 0.02}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Time:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def a_run(folder=None, rank=0, **settings):
    config = FitConfig(steps=1000, batch_size=50, samples=2, **settings)
    return Run(config, total_steps=1000, steps_per_epoch=100, folder=folder, rank=rank)


def go(callback, run, time, until, every=10, per_step=0.125):
    """Steps from where the run stands, each of which takes so long."""
    while run.step < until:
        run.step += 1
        run.epoch = run.step // run.steps_per_epoch
        time.now += per_step
        if run.step % every == 0:
            callback.on_step(run, {"loss": 2.0 / run.step, "nll": 0.25, "kl": 12345.6, **SIGMA})


def watched(stream, until=500, rank=0, progress=None, result=None):
    time, run = Time(), a_run(rank=rank, progress=progress)
    watch = Watch(stream, clock=time)
    watch.on_start(run)
    go(watch, run, time, until)
    watch.on_evaluate(run, {"nll": 0.31, "accuracy": 0.912})
    watch.on_end(run, result)
    return stream.getvalue()


def test_a_log_file_gets_one_line_every_ten_seconds_with_all_figures():
    lines = watched(io.StringIO()).splitlines()
    steps = [line for line in lines if "samples/s" in line]
    assert [int(line.split()[1].split("/")[0]) for line in steps] == [80, 160, 240, 320, 400, 480]
    assert steps[0] == (
        "step 80/1000 (epoch 0.8): loss 0.025, nll 0.25, kl 1.235e+04, sigma 0.004 (0.001 to 0.02)"
        ", 800 samples/s, 1:55 left"
    )
    assert lines[0] == "training: 1000 steps"
    assert lines[-2] == "step 500/1000 (epoch 5.0): validation nll 0.31, accuracy 0.912"
    assert lines[-1] == "ended at step 500 after 1:02"


def test_a_run_that_ends_early_says_why():
    result = SimpleNamespace(stopped="no better nll in 3 evaluations")
    last = watched(io.StringIO(), until=10, result=result).splitlines()[-1]
    assert last == "ended at step 10 (no better nll in 3 evaluations) after 0:01"


def test_a_terminal_gets_a_bar_with_total_and_figures():
    shown = watched(Terminal())
    assert "500/1000" in shown
    assert "\r" in shown
    assert "training: " in shown
    assert "validation nll 0.31" in shown


def test_a_bar_can_be_asked_for_where_there_is_no_terminal():
    assert "\r" in watched(io.StringIO(), progress=True)


def test_a_bar_goes_on_where_the_run_does():
    stream, run = Terminal(), a_run()
    run.step = 400
    watch = Watch(stream)
    watch.on_start(run)
    run.step = 410
    watch.on_step(run, {"loss": 1.0})
    watch.on_end(run, None)
    assert "400/1000" in stream.getvalue()
    assert "410/1000" in stream.getvalue()


@pytest.mark.parametrize("silent", [{"progress": False}, {"rank": 1}])
def test_silence_is_silence(silent):
    assert watched(Terminal(), **silent) == ""


def test_the_rate_counts_this_call_alone():
    stream, time, run = io.StringIO(), Time(), a_run()
    run.step = 900
    watch = Watch(stream, clock=time)
    watch.on_start(run)
    go(watch, run, time, 920, per_step=1.0)
    assert "going on from step 900" in stream.getvalue()
    assert "100 samples/s, 1:30 left" in stream.getvalue()


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def untimed(folder):
    return [{k: v for k, v in x.items() if k not in ("seconds", "rate")} for x in lines_of(folder)]


def written(folder, start, until, per_step=0.125):
    folder.mkdir(exist_ok=True)
    time, run = Time(), a_run(folder)
    run.step = start
    file = MetricsFile(clock=time)
    file.on_start(run)
    go(file, run, time, until, per_step=per_step)
    file.on_evaluate(run, {"nll": 0.5})
    file.on_save(run, folder)


def test_the_file_has_a_json_object_a_line_with_place_figures_and_timings(tmp_path):
    written(tmp_path, 0, 100)
    lines = lines_of(tmp_path)
    assert len(lines) == 11
    assert lines[4] == {
        "kind": "train",
        "step": 50,
        "epoch": 0,
        "loss": 0.04,
        "nll": 0.25,
        "kl": 12345.6,
        **SIGMA,
        "seconds": 6.25,
        "rate": 800.0,
    }
    assert lines[-1]["kind"] == "validation"
    assert (lines[-1]["step"], lines[-1]["epoch"], lines[-1]["nll"]) == (100, 1, 0.5)


def test_an_interrupted_file_equals_an_uninterrupted_one_but_for_the_timings(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    written(whole, 0, 300)
    written(cut, 0, 180)
    with (cut / "metrics.jsonl").open("a") as file:  # killed in the middle of a line
        file.write('{"kind": "train", "step": 190, "lo')
    written(cut, 140, 300, per_step=0.7)  # the newest checkpoint is of step 140
    assert untimed(cut) == untimed(whole)
    assert lines_of(cut) != lines_of(whole)


def test_a_run_that_begins_starts_a_new_file(tmp_path):
    written(tmp_path, 0, 50)
    written(tmp_path, 0, 20)
    assert [x["step"] for x in lines_of(tmp_path)] == [10, 20, 20]


def test_a_cut_line_without_its_end_is_dropped_even_if_it_parses(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n[1]\n{"step": 2}')
    MetricsFile().on_start(Run(FitConfig(), step=5, folder=tmp_path))
    assert lines_of(tmp_path) == [{"step": 1}]


def test_figures_that_are_not_finite_are_null(tmp_path):
    run = a_run(tmp_path)
    file = MetricsFile()
    file.on_start(run)
    file.on_step(run, {"loss": math.nan, "nll": -math.inf, "kl": 1.0})
    found = lines_of(tmp_path)[0]
    assert (found["loss"], found["nll"], found["kl"]) == (None, None, 1.0)


@pytest.mark.parametrize("where", [{"rank": 1}, {"folder": None}])
def test_only_the_first_process_writes_and_only_into_a_folder(tmp_path, where):
    run = a_run(**{"folder": tmp_path, **where})
    file = MetricsFile()
    file.on_start(run)
    file.on_step(run, {"loss": 1.0})
    file.on_save(run, None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path):
    run = a_run(tmp_path)
    file = MetricsFile()
    file.on_start(run)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"cannot write metrics\.jsonl"):
        file.on_step(run, {"loss": 1.0})


def test_numbers_and_times_are_short():
    assert [short(x) for x in (0.0, 0.123456, 99999.0, -0.5)] == ["0", "0.123", "1e+05", "-0.5"]
    assert [clock_time(x) for x in (0.4, 59.6, 36000)] == ["0:00", "1:00", "10:00:00"]
