"""Runs that are cut off and go on: bit for bit, from any step."""

import json
import os
import random
import signal

import numpy as np
import pytest
import torch
from fit_cases import At, digest, model_of, problem, settings
from torch.utils.data import Dataset

import leanbayes as lb


class Crash(Exception):  # noqa: N818
    pass


def crash():
    raise Crash


class Augmented(Dataset):
    """Adds noise of the global generators to every image."""

    def __init__(self):
        self.x, self.y = problem()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(1, 4, 4), self.y[i]


def run(folder, *, data=None, callbacks=(), method=None, **options):
    model = model_of(method)
    config = settings(folder=str(folder), save_every=3, log_every=1, **options)
    data = problem() if data is None else data
    result = lb.fit(
        model, data, lb.Categorical(), validation=problem(), config=config, callbacks=callbacks
    )
    return model, result


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    timings = ("seconds", "rate", "samples_per_second", "time")
    return [{k: v for k, v in json.loads(s).items() if k not in timings} for s in lines]


CASES = {
    "plain": {},
    "average": {"ema": 0.9},
    "adam": {"optimizer": "AdamW", "momentum": 0.0, "schedule": "cosine"},
    "members": {"method": lb.RankOne(members=3)},
    "banks": {"method": lb.Patching(members=3)},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("step", [1, 3, 7])
def test_a_run_that_crashed_ends_as_one_that_did_not(case, step, tmp_path):
    whole, result = run(tmp_path / "whole", **CASES[case])
    with pytest.raises(Crash):
        run(tmp_path / "cut", callbacks=[At(step, crash)], **CASES[case])
    again, resumed = run(tmp_path / "cut", **CASES[case])
    assert digest(again) == digest(whole)
    assert resumed.history == result.history
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


@pytest.mark.parametrize("workers", [0, 2])
def test_random_examples_repeat_in_the_middle_of_an_epoch(workers, tmp_path):
    whole, _ = run(tmp_path / "whole", data=Augmented())
    with pytest.raises(Crash):
        run(tmp_path / "cut", data=Augmented(), workers=workers, callbacks=[At(5, crash)])
    again, _ = run(tmp_path / "cut", data=Augmented(), workers=workers)
    assert digest(again) == digest(whole)


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_an_augmentation_may_draw_from_any_generator(draw, tmp_path):
    """The look at the labels that begins every call augments a row, and took a number for it."""

    def go(folder, callbacks=()):
        model, config = model_of(), settings(folder=str(folder), save_every=1, log_every=1)
        options = {"augment": lambda x: x + float(draw()), "config": config}
        lb.fit(model, problem(), lb.Categorical(), callbacks=callbacks, **options)
        return digest(model)

    whole = go(tmp_path / "whole")
    with pytest.raises(Crash):
        go(tmp_path / "cut", [At(5, crash)])
    assert go(tmp_path / "cut") == whole


def test_a_finished_run_is_left_as_it_is(tmp_path):
    first, result = run(tmp_path / "run")
    second, again = run(tmp_path / "run")
    assert digest(first) == digest(second)
    assert (again.steps, again.history) == (result.steps, result.history)


def test_a_finished_run_that_is_given_more_steps_goes_on(tmp_path):
    """It said that it was done, and the model had the steps of the shorter run."""
    whole, _ = run(tmp_path / "whole", steps=16)
    run(tmp_path / "run", steps=8)
    longer, result = run(tmp_path / "run", steps=16)
    assert result.steps == 16
    assert digest(longer) == digest(whole)
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    _, again = run(tmp_path / "run", steps=8)
    assert again.steps == 16


def test_a_run_that_stopped_goes_on_where_it_is_more_patient(tmp_path):
    options = {"lr": 0.0, "batchnorm": "frozen", "evaluate_every": 1}  # nothing gets better
    assert run(tmp_path / "run", patience=2, **options)[1].steps == 3
    again = run(tmp_path / "run", patience=2, **options)[1]
    assert (again.steps, again.stopped) == (3, "no better nll in 2 evaluations")
    assert run(tmp_path / "run", patience=4, **options)[1].steps == 5
    longer = run(tmp_path / "run", **options)[1]
    assert (longer.steps, longer.stopped) == (10, "")


def test_a_finished_run_of_averages_cannot_go_on(tmp_path):
    run(tmp_path / "run", steps=8, ema=0.9)
    with pytest.raises(lb.ConfigError, match=r"averages .* cannot go on to step 16"):
        run(tmp_path / "run", steps=16, ema=0.9)
    assert run(tmp_path / "run", steps=8, ema=0.9)[1].steps == 8


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_ends_with_its_code(number, code, tmp_path, capsys):
    whole, _ = run(tmp_path / "whole")
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    stop = At(4, lambda: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit) as ended:
        run(tmp_path / "cut", callbacks=[stop])
    assert ended.value.code == code
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    assert "goes on from here" in capsys.readouterr().out
    again, _ = run(tmp_path / "cut")
    assert digest(again) == digest(whole)


class Impatient(lb.Callback):
    """Sends a signal when the first evaluation is through."""

    def on_evaluate(self, run, _figures):
        if run.step == 8:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_to_a_run_that_has_just_stopped_lets_it_end(tmp_path):
    """It said that all was saved, and the steps since the last checkpoint were not."""
    options = {"folder": str(tmp_path / "run"), "evaluate_every": 4, "save_every": 100}
    still = {"lr": 0.0, "batchnorm": "frozen", "patience": 1}
    config = settings(steps=100, **options, **still)
    model, data = model_of(lb.MAP()), problem()
    results = [
        lb.fit(model, data, lb.Categorical(), validation=data, config=config, callbacks=calls)
        for calls in ([Impatient()], [])
    ]
    assert [(r.steps, r.stopped) for r in results] == [(8, "no better nll in 1 evaluations")] * 2


class Signalling(Dataset):
    """Sends a signal to this process when it is read for the given time."""

    def __init__(self, at):
        self.at, self.reads = at, 0
        self.x, self.y = problem()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.reads += 1
        if self.reads == self.at:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.x[i], self.y[i]


@pytest.mark.parametrize("evaluation", [1, 3])  # in the middle, and after the last step
@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_signal_does_not_wait_for_an_evaluation(evaluation, ema, tmp_path):
    def go(folder, validation):
        model = model_of()
        options = {"folder": str(folder), "evaluate_every": 4, "log_every": 1, "ema": ema}
        config = settings(save_every=4, **options)
        result = lb.fit(model, problem(), lb.Categorical(), validation=validation, config=config)
        return model, result

    whole, result = go(tmp_path / "whole", Signalling(at=None))
    rows = len(problem()[0])
    cut = Signalling(at=(evaluation - 1) * rows + 5 + 1)  # a look at a row comes first
    with pytest.raises(SystemExit) as ended:
        go(tmp_path / "cut", cut)
    assert ended.value.code == 143
    assert cut.reads < evaluation * rows  # the rest was not evaluated
    again, resumed = go(tmp_path / "cut", Signalling(at=None))
    assert digest(again) == digest(whole)
    assert resumed.history == result.history
    assert [row["step"] for row in result.history] == [4, 8, 10]
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


def test_without_resume_a_run_is_not_overwritten(tmp_path):
    with pytest.raises(Crash):
        run(tmp_path / "run", callbacks=[At(4, crash)])
    with pytest.raises(lb.ConfigError, match="resume=True"):
        run(tmp_path / "run", resume=False)


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(tmp_path):
    whole, _ = run(tmp_path / "whole")
    with pytest.raises(Crash):
        run(tmp_path / "cut", callbacks=[At(8, crash)])
    newest = max((tmp_path / "cut" / "checkpoints").glob("step-*"))
    victim = max(newest.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match=victim.name):
        again, _ = run(tmp_path / "cut")
    assert digest(again) == digest(whole)


def test_a_folder_of_another_run_is_refused(tmp_path):
    run(tmp_path / "run")
    with pytest.raises(lb.ConfigError, match="lr"):
        run(tmp_path / "run", lr=0.5)
