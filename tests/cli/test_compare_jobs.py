"""`leanbayes compare`: runs side by side, runs that are kept, several parts, data read once."""

import json
import shlex
import sys
from itertools import chain, repeat

import pytest
import torch

from leanbayes.cli import readers, smoke
from leanbayes.cli.compare.data import Sets
from leanbayes.cli.compare.runs import Bench
from leanbayes.cli.settings_file import Named
from leanbayes.data.dataset import Data

FEW = ["compare", "fashion_mini", "--set", "data.options.images=64", "--smoke"]
TABLE = ["compare", "sklearn_table-diabetes", "--methods", "map,mean_field", "--smoke"]

TIMED = ("step_ratio", "predict_ratio", "predict_ratio_sample", "step_seconds", "predict_seconds")


@pytest.fixture
def compare(leanbayes, tmp_path):
    """Run a comparison of a table: the result, and the record it has left."""
    out = tmp_path / "c.json"

    def run(*words, command=TABLE, code=0):
        result = leanbayes(*command, "--out", out, *words)
        assert result.code == code, result.err
        return result, json.loads(out.read_text())

    run.out = out
    return run


def by_seed(record):
    return {
        (row["method"], run["seed"]): run["figures"]
        for row in record["rows"]
        for run in row.get("runs", [])
    }


def untimed(record):
    text = json.loads(json.dumps(record))
    for row in text["rows"]:
        for place in (row, *row.get("runs", [])):
            place.pop("seconds", None)
            place.pop("training_seconds", None)
            place.pop("jobs", None)
        for name in [name for name in row.get("prices", {}) if name in TIMED]:
            del row["prices"][name]
    return text


def test_runs_side_by_side_leave_the_same_record_but_for_the_seconds(leanbayes, tmp_path):
    """With a method that fails among them."""
    own = ("methods.bad.fit.lr=1e30", "methods.bad.fit.momentum=0.0")
    words = [word for change in own for word in ("--set", change)]
    words += ["--methods", "map,bad=mean_field,mean_field", *FEW[2:]]
    found = []
    for jobs in (1, 3):
        out = tmp_path / f"{jobs}.json"
        result = leanbayes("compare", "fashion_mini", *words, "--out", out, "--jobs", jobs)
        assert result.code == 3
        assert "Traceback" not in result.err
        found.append(untimed(json.loads(out.read_text())))
    assert found[0] == found[1]
    assert [row["method"] for row in found[0]["rows"]] == ["map", "bad", "mean_field"]
    assert found[0]["rows"][1]["failed_seeds"] == [0, 1]
    assert len(by_seed(found[0])) == 4


@pytest.mark.slow
def test_prices_of_runs_side_by_side_are_measured_after_them_and_the_seconds_say_so(
    compare, monkeypatch
):
    """One process has the device then; the runs in others have none."""
    _, alone = compare()
    told, price = [], Bench.price
    monkeypatch.setattr(Bench, "price", lambda b, r, o: (told.append(r), price(b, r, o))[1])
    compare.out.unlink()
    _, record = compare("--jobs", 2)
    assert told == [("map", 0), ("mean_field", 0)]
    assert untimed(record) == untimed(alone)
    assert [run["jobs"] for row in record["rows"] for run in row["runs"]] == [2] * 4
    assert all("jobs" not in run for row in alone["rows"] for run in row["runs"])
    _, again = compare("--resume")
    assert again == record
    assert len(told) == 2


def test_a_comparison_that_is_cut_off_goes_on_with_what_is_missing(compare, monkeypatch):
    _, whole = compare()
    call, count = Bench.__call__, []

    def cut_off(bench, run):
        count.append(run)
        if len(count) == 4:
            raise KeyboardInterrupt
        return call(bench, run)

    monkeypatch.setattr(Bench, "__call__", cut_off)
    compare.out.unlink()
    result, record = compare(code=130)
    assert "stopped with 1 runs left: --resume goes on" in result.err
    assert record["unfinished"] == 1
    assert list(by_seed(record)) == [("map", 0), ("map", 1), ("mean_field", 0)]
    result, again = compare("--resume")
    assert count[4:] == [("mean_field", 1)]
    assert "3 of 4 runs kept from c.json" in result.err
    assert untimed(again) == untimed(whole)
    assert "unfinished" not in again


def test_runs_that_failed_are_run_again_and_others_may_be_added(compare, monkeypatch):
    _, first = compare("--methods", "map", "--seeds", 1)
    first["rows"][0] |= {"failed": "no luck", "commit": "an older one"}
    compare.out.write_text(json.dumps(first))
    count = []
    call = Bench.__call__
    monkeypatch.setattr(Bench, "__call__", lambda b, run: (count.append(run), call(b, run))[1])
    _, record = compare("--methods", "map,mean_field", "--seeds", 2, "--resume")
    assert count == [("mean_field", 0), ("map", 1), ("mean_field", 1)]  # seed by seed
    row = record["rows"][0]
    assert by_seed(record)["map", 0] == by_seed(first)["map", 0]
    assert "failed" not in row
    assert row["commit"] == "an older one"
    assert "commit" not in row["runs"][0]
    assert row["runs"][1]["commit"] == record["rows"][1]["commit"]


def test_what_does_not_fit_is_refused_and_the_file_left_as_it_is(compare, leanbayes):
    compare()
    text = compare.out.read_text()
    record = json.loads(text)
    del record["rows"][0]["runs"][0]["figures"]
    cases = [
        (text, ["--set", "fit.lr=0.5"], 2, "fit.lr: .* there, 0.5 now"),
        (
            text,
            ["--set", "methods.mean_field.fields.prior_std=2.0"],
            2,
            "row of 'mean_field'.*2.0 now",
        ),
        (text, ["--part", "train"], 2, "data.part: 'test' there, 'train' now"),
        (text, ["--samples", "7"], 2, "samples: 1 there, 7 now"),
        (text, ["--methods", "map"], 2, "has a row of 'mean_field': name it in --methods"),
        (text, ["--seeds", "1"], 2, "has seed 1 of map, asked for are 0 to 0"),
        (text[:-30], [], 5, "is damaged: not JSON"),
        (json.dumps(record), [], 5, "is damaged in a row"),
        ('{"experiment": "toy", "rows": []}', [], 5, "another kind of file: expected seeds, rows"),
    ]
    import re

    for content, words, code, said in cases:
        compare.out.write_text(content)
        result = leanbayes(*TABLE, "--out", compare.out, "--resume", *words)
        assert result.code == code, (said, result.err)
        assert re.search(said, result.err), result.err
        assert compare.out.read_text() == content


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_run_begins_when_the_time_is_over_and_prices_are_measured(compare, jobs, monkeypatch):
    """At least one run a job: else nothing would ever be done."""
    _, whole = compare()
    compare.out.unlink()
    clock = chain([0.0, 0.0], repeat(100.0))  # when it begins, before the first runs, after them
    command = sys.modules["leanbayes.cli.compare.command"]
    monkeypatch.setattr(command, "monotonic", lambda: next(clock))
    result, first = compare("--jobs", jobs, "--stop-after", 50)
    assert first["unfinished"] == 4 - len(by_seed(first)) == 4 - jobs
    assert f"stopped with {4 - jobs} runs left: --resume goes on" in result.err
    assert "prices" in first["rows"][0]
    result, second = compare("--resume")
    assert f"{jobs} of 4 runs kept" in result.err
    assert "left" not in result.err
    assert "unfinished" not in second
    assert by_seed(second).keys() == by_seed(whole).keys()
    assert second["command"] == whole["command"]


def test_with_no_time_at_all_nothing_runs(compare):
    result, record = compare("--stop-after", 0)
    assert record["rows"] == []
    assert record["unfinished"] == 4
    assert "stopped with 4 runs left" in result.err


def test_without_a_file_nobody_is_told_to_resume(leanbayes):
    result = leanbayes(*TABLE, "--stop-after", 0)
    assert "stopped with 4 runs left: nothing is kept without --out" in result.err


def test_what_changes_no_figure_may_differ(compare):
    _, first = compare("--set", "fit.progress=false")
    result, second = compare("--resume", "--set", "fit.log_every=7", "--set", "fit.compile=true")
    assert "4 of 4 runs kept" in result.err
    assert by_seed(first) == by_seed(second)


def test_resume_needs_a_file_and_begins_where_there_is_none(leanbayes, compare):
    result = leanbayes(*TABLE, "--resume")
    assert result.code == 2
    assert "--resume goes on with a file: write --out FILE.json" in result.err
    result, record = compare("--resume", "--methods", "map")
    assert "kept" not in result.err
    assert len(by_seed(record)) == 2


def test_several_parts_are_scored_by_the_same_model(compare):
    options = ["--set", "data.options.images=64", "--methods", "map", "--seeds", 1]
    singles = {
        part: compare(*options, "--part", part, command=FEW)[1]["rows"][0]
        for part in ("test", "train")
    }
    result, record = compare(*options, "--part", "train, test", command=FEW)
    (row,) = record["rows"]
    assert record["parts"] == ["train", "test"]
    assert row["config"]["data"]["part"] == "train,test"
    for part, single in singles.items():
        assert row["figures"][part] == single["figures"]
        assert row["runs"][0]["figures"][part] == single["runs"][0]["figures"]
    lines = [line.split()[:3] for line in result.out.splitlines()]
    assert [lines[0], lines[2][:2], lines[3][:2]] == [
        ["method", "part", "accuracy"],
        ["map", "train"],
        ["map", "test"],
    ]
    assert "map, seed 0: train accuracy" in result.err
    again, second = compare(*options, "--part", "train,test", "--resume", command=FEW)
    assert "1 of 1 runs kept" in again.err
    assert untimed(second)["rows"][0]["runs"] == untimed(record)["rows"][0]["runs"]
    assert shlex.split(row["command"])[-3:] == ["--part", "train, test", "--smoke"]


def test_one_wrong_part_of_several_is_named(leanbayes):
    result = leanbayes(*FEW, "--part", "test,tset")
    assert result.code == 2
    assert "no part 'tset'; did you mean 'test'?" in result.err
    assert "--part names parts" in leanbayes(*FEW, "--part", ",").err


@pytest.fixture
def counted(monkeypatch):
    """A reader of made-up images that notes how often it is asked, and what it gave."""
    known, found = readers.Readers._found, []

    def images(split: int = 0) -> Data:
        """Read made-up images."""
        g = torch.Generator().manual_seed(split)
        x, y = torch.randn(60, 1, 28, 28, generator=g), torch.arange(60) % 3
        classes = ("a", "b", "c")
        found.append(
            Data(name="i", task="classification", train=(x, y), test=(x, y), classes=classes)
        )
        return found[-1]

    monkeypatch.setattr(readers.Readers, "_found", lambda self: {**known(self), "images": images})
    return found


@pytest.mark.parametrize(("splits", "times"), [([], 1), (["--splits"], 3)])
def test_data_are_read_once_a_command_and_split(leanbayes, counted, splits, times):
    """With --splits also once for the shape of the inputs, as no split is named there."""
    words = ["--methods", "map,mean_field,implicit", "--set", "data.augment='crop+flip+cutout'"]
    result = leanbayes("compare", "images", *words, *splits, "--smoke", "--json")
    assert result.code == 0, result.err
    assert len(counted) == times
    fresh = torch.randn(60, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    assert torch.equal(counted[0].train[0], fresh)
    assert counted[0].train[0]._version == 0
    leanbayes("compare", "images", *words, *splits, "--smoke", "--json")
    assert len(counted) == 2 * times


def test_data_that_a_run_has_written_into_are_read_again(counted):
    sets = Sets()
    first = sets.read(Named("images"))
    assert sets.read(Named("images")) is first
    first.test[0][:2].zero_()  # a view
    assert sets.read(Named("images")) is not first
    assert len(counted) == 2


def test_the_config_of_a_run_is_known_before_it(leanbayes):
    """Where noise is learnt too: the settings are those at the start."""
    result = leanbayes(*TABLE, "--methods", "mean_field", "--seeds", 1, "--json")
    (row,) = json.loads(result.out)["rows"]
    precision = row["config"]["likelihood"]["settings"]["precision"]
    data = readers.read_data("sklearn_table", {"name": "diabetes"})
    assert precision == pytest.approx(data.target_scale.std[0] ** -2)
    assert row["config"]["smoke"] is True
    assert row["config"]["fit"]["steps"] == smoke.STEPS
