"""Parts run side by side give the rows of a run one by one; a run that is cut off goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from typer.testing import CliRunner

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.cli.experiment_kept import labels_of
from leanbayes.cli.jobs import _portable
from leanbayes.experiments import EXPERIMENTS
from leanbayes.experiments.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Probe(Experiment):
    """Parts that train a little, fail, die or wait."""

    name: ClassVar[str] = "probe"
    asked: ClassVar[tuple[str, ...]] = ("parts_",)
    keep: str = ""
    parts_: tuple[str, ...] = ("a", "b", "c")
    steps: int = 3

    def parts(self):
        for label in self.parts_:
            yield label, partial(self.row, label)

    def row(self, label):
        if label == "fails" and not Path(self.root, "cured").exists():
            raise lb.DataError("this part\nhas no data")
        if label == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        Path(self.root, f"began-{label}").write_text(str(os.getpid()))
        if label == "waits":
            time.sleep(120)
        torch.manual_seed(self.seed + ord(label[0]))
        x = torch.randn(20, 3)
        config = lb.FitConfig(steps=self.steps, batch_size=5, progress=False)
        done = lb.adapt(
            lb.models.create("mlp", inputs=3, hidden=(4,), outputs=2),
            lb.MeanField(),
            (x, x[:, 0].gt(0).long()),
            config=config,
        )
        figure = float(lb.predict(done.model, x, seed=0).probs[0, 0])
        return {"figure": figure, **({"start": self.keep} if self.keep else {})}


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "probe", Probe)


@pytest.fixture
def probe(tmp_path):
    """Run the experiment: the result, and the record where it has left one."""

    def run(*words, parts="abc", out="probe.json"):
        parts = list(parts)
        args = ["experiment", "probe", "--root", tmp_path, "--out", tmp_path / out]
        result = CliRunner().invoke(app, [*map(str, args), "--set", f"parts_={parts}", *words])
        file = tmp_path / out
        return result, json.loads(file.read_text()) if file.exists() else None

    return run


def figures(record):
    return [(row["label"], row["figure"]) for row in record["rows"]]


def began(folder):
    return sorted(path.name.removeprefix("began-") for path in folder.glob("began-*"))


def test_parts_side_by_side_give_the_same_bits_in_the_same_order(probe, tmp_path):
    first, alone = probe()
    second, together = probe("--jobs", "2", out="jobs.json")
    assert first.exit_code == second.exit_code == 0
    assert figures(alone) == figures(together)
    assert {Path(tmp_path, f"began-{label}").read_text() for label in "abc"}.isdisjoint(
        {str(os.getpid())}
    )
    assert together["rows"][0]["environment"]["threads"] == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_where_a_part_fails_the_others_are_finished_first(probe, tmp_path, jobs):
    result, record = probe("--jobs", jobs, parts=["a", "fails", "b"])
    assert isinstance(result.exception, lb.DataError)
    assert "fails: failed: this part has no data" in result.stderr
    assert [label for label, _ in figures(record)] == ["a", "b"]
    (tmp_path / "cured").touch()
    for label in "ab":
        Path(tmp_path, f"began-{label}").unlink()
    result, record = probe("--resume", "--jobs", jobs, parts=["a", "fails", "b"])
    assert result.exit_code == 0
    assert "2 of 3 rows kept from probe.json" in result.stderr
    assert [label for label, _ in figures(record)] == ["a", "fails", "b"]
    assert began(tmp_path) == ["fails"]


def test_where_a_process_dies_the_others_are_finished_first(probe):
    result, record = probe("--jobs", "2", parts=["dies", "a", "b", "c"])
    assert isinstance(result.exception, lb.OutOfMemory)
    assert [label for label, _ in figures(record)] == ["a", "b", "c"]


def test_rows_of_an_earlier_run_are_kept_bit_by_bit(probe, tmp_path):
    _, whole = probe()
    cut = {**whole, "rows": whole["rows"][:1]}
    (tmp_path / "probe.json").write_text(json.dumps(cut))
    for path in tmp_path.glob("began-*"):
        path.unlink()
    result, record = probe("--resume")
    assert result.exit_code == 0
    assert began(tmp_path) == ["b", "c"]
    assert record["rows"][0] == whole["rows"][0]
    assert figures(record) == figures(whole)


def test_other_settings_or_other_files_are_refused_and_left_as_they_are(probe, tmp_path):
    file = tmp_path / "probe.json"
    probe()
    text = file.read_text()
    result, _ = probe("--resume", "--set", "steps=4")
    assert isinstance(result.exception, lb.ConfigError)
    assert "with other settings: steps: 3 there, 4 now" in str(result.exception)
    assert file.read_text() == text
    for wrong, words in (
        (text[:-20], "is damaged"),
        ("", "is damaged"),
        ('{"rows": []}', "another kind of file"),
        (text.replace('"label": "b"', '"label": "z"'), "has a row 'z'"),
    ):
        file.write_text(wrong)
        with pytest.raises(lb.CheckpointError, match=words):
            raise (
                CliRunner()
                .invoke(
                    app,
                    [
                        "experiment",
                        "probe",
                        "--root",
                        str(tmp_path),
                        "--out",
                        str(file),
                        "--resume",
                    ],
                )
                .exception
            )
        assert file.read_text() == wrong


def test_parts_that_are_not_asked_for_stay_and_others_are_added_in_order(probe, tmp_path):
    _, first = probe(parts=["c", "z"])
    for path in tmp_path.glob("began-*"):
        path.unlink()
    result, both = probe("--resume", "--set", "keep=net", parts=["a", "c"])
    assert result.exit_code == 0, result.output
    assert "1 of 2 rows kept from probe.json; others, not asked for now, stay as they are: 1" in (
        result.stderr
    )
    assert began(tmp_path) == ["a"]
    assert both["settings"]["parts_"] == ["a", "c", "z"]
    assert [row["label"] for row in both["rows"]] == ["a", "c", "z"]
    assert both["rows"][1:] == first["rows"]
    assert probe("--resume", parts=["z"])[1] == both
    result, _ = probe("--resume", "--set", "seed=1", parts=["a"])
    assert isinstance(result.exception, lb.ConfigError)


def test_rows_that_go_on_from_another_network_than_those_of_the_file_say_so(probe):
    first, _ = probe("--set", "keep=one", parts="a")
    same, _ = probe("--resume", "--set", "keep=one", parts="b")
    other, record = probe("--resume", "--set", "keep=two", parts="c")
    assert "another trained network" not in first.stderr + same.stderr
    assert "another trained network than rows of the file: one there, two now" in other.stderr
    assert [row["start"] for row in record["rows"]] == ["one", "one", "two"]


def test_rows_that_do_not_say_where_they_started_are_named(probe):
    probe(parts="a")
    result, _ = probe("--resume", "--set", "keep=two", parts="bc")
    assert result.stderr.count("rows of the file do not say which trained network") == 1
    assert "new ones say two" in result.stderr


@pytest.mark.parametrize(("name", "cls"), EXPERIMENTS.items())
def test_what_is_asked_for_are_lists_of_which_a_part_gives_some_of_the_rows(name, cls):
    whole = cls()
    every = labels_of(whole)
    for asked in cls.asked:
        few = labels_of(replace(whole, **{asked: getattr(whole, asked)[-1:]}))
        assert set(few) < set(every), (name, asked)


def test_a_root_that_is_not_there_is_said_once_unless_nobody_needs_it(probe, tmp_path):
    missing = str(tmp_path / "missing")
    result, record = probe("--root", missing)
    assert isinstance(result.exception, lb.DataError)
    assert str(result.exception).startswith(f"--root {missing} does not exist")
    assert "failed" not in result.stderr
    assert record is None
    _, whole = probe()
    result, record = probe("--resume", "--root", missing)
    assert result.exit_code == 0
    assert record == whole


def test_resume_without_a_file_is_refused_and_a_file_that_is_not_there_is_a_start(probe):
    result = CliRunner().invoke(app, ["experiment", "toy", "--resume"])
    assert isinstance(result.exception, lb.ConfigError)
    result, record = probe("--resume", parts="a")
    assert result.exit_code == 0
    assert len(record["rows"]) == 1


def test_a_device_that_is_not_there_is_said_before_the_parts(probe, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("foo", "meta:x", *(() if torch.cuda.device_count() else ("cuda",))):
        result, _ = probe("--device", device)
        assert isinstance(result.exception, lb.ConfigError), result.exception
        assert f"--device '{device}' cannot be used" in str(result.exception)
    result, record = probe("--device", "auto", parts="a")
    assert (result.exit_code, record["settings"]["device"]) == (0, "cpu")


COMMAND = """
import sys
from test_jobs_and_resume import EXPERIMENTS, Probe
from leanbayes.cli import main
if __name__ == "__main__":
    EXPERIMENTS["probe"] = Probe
    main()
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_signal_ends_the_processes_too_and_the_rows_are_there(tmp_path, number, code):
    script, out = tmp_path / "command.py", tmp_path / "probe.json"
    script.write_text(COMMAND)
    words = ["experiment", "probe", "--root", tmp_path, "--out", out, "--jobs", "2"]
    words += ["--set", "parts_=['waits', 'a', 'b']"]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, script, *words],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _until(lambda: out.exists() and len(json.loads(out.read_text())["rows"]) == 2)
    workers = {int(path.read_text()) for path in tmp_path.glob("began-*")}
    if number == signal.SIGINT:  # as a terminal sends it: to all of them
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == code
    assert "Traceback" not in errors
    _until(lambda: not any(_alive(worker) for worker in workers))
    assert [row["label"] for row in json.loads(out.read_text())["rows"]] == ["a", "b"]


def _until(condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def _alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{number}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


class StrangeError(Exception):
    def __init__(self, first, second):
        super().__init__(f"number {first} of {second}")


def test_an_error_that_cannot_travel_goes_as_its_text_and_others_with_it():
    found = _portable(StrangeError(1, "two"))
    assert type(found) is RuntimeError
    assert "number 1 of two" in str(found)
    found = _portable(lb.NonFinite("a loss"))
    assert (type(found), str(found)) == (lb.NonFinite, "a loss")
    assert "in a process of --jobs" in found.__notes__[0]
