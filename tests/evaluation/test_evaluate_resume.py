"""The file of an evaluation: what an interrupted run leaves, and who may go on with it."""

import json
from copy import deepcopy

import pytest
import torch
from evaluation_cases import data, evaluate, timeless, trained

import leanbayes as lb
from leanbayes.evaluation import run

NAMES = "test,corrupted:fog/1,noise:0.2,ood:other,pgd"


def suite(names=NAMES, **more):
    foreign = {"other": torch.rand(20, 1, 9, 9, generator=torch.Generator().manual_seed(8))}
    return lb.Suite.of(data(), names, rows=20, foreign=foreign, sweep=True, examples=2, **more)


@pytest.fixture
def stop_before(monkeypatch):
    """Ctrl-C when the split of this name begins."""
    tally_of = run.tally_of

    def stop(name):
        def work(asked, split, *more):
            if split.name == name:
                raise KeyboardInterrupt
            return tally_of(asked, split, *more)

        monkeypatch.setattr(run, "tally_of", work)
        return lambda: monkeypatch.setattr(run, "tally_of", tally_of)

    return stop


@pytest.mark.parametrize("name", ["corrupted/fog/1", "ood/other", "pgd"])
def test_an_interrupted_run_goes_on_and_equals_an_untouched_one(tmp_path, stop_before, name):
    out = tmp_path / "new" / "found.json"
    untouched = evaluate(trained(), suite())
    go_on = stop_before(name)
    with pytest.raises(KeyboardInterrupt):
        evaluate(trained(), suite(), out=out)
    part = json.loads(out.read_text())
    done = list(part["evaluation"]["splits"])
    assert done == list(untouched["splits"])[: len(done)]
    assert name not in done
    assert part["unfinished"].keys() == {"test"}
    seconds = part["evaluation"]["splits"]["test"]["seconds"]
    go_on()
    found = evaluate(trained(), suite(), out=out)
    assert timeless(found) == timeless(untouched)
    assert found["splits"]["test"]["seconds"] == seconds  # it was not done again
    whole = json.loads(out.read_text())
    assert whole["evaluation"] == found
    assert "unfinished" not in whole


def test_a_file_that_is_finished_is_read_and_nothing_computed(tmp_path, stop_before):
    out = tmp_path / "found.json"
    first = evaluate(trained(), suite("test,noise:0.2"), out=out)
    stop_before("test")
    before = out.read_bytes()
    assert evaluate(trained(), suite("test,noise:0.2"), out=out) == first
    assert out.read_bytes() == before


def test_the_file_says_what_it_is(tmp_path):
    out = tmp_path / "found.json"
    evaluate(trained(), suite("test"), out=out, header={"command": "again", "method": "mine"})
    found = json.loads(out.read_text())
    assert (found["kind"], found["command"], found["method"]) == ("evaluation", "again", "mine")
    assert found["parameters"] == 81 * 12 + 12 + 12 * 3 + 3
    assert found["parameters_added"] == found["parameters"]
    assert {"commit", "environment"} < found.keys()
    assert not list(tmp_path.glob(".*"))


def other_weights(model):
    with torch.no_grad():
        next(model.net.parameters())[0, 0] += 1e-3


def other_temperature(model):
    lb.calibrate(model, data().test, samples=4, seed=5)


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"seed": 6}, None, "seed: 5 there, 6 now"),
        ({"samples": 3}, None, "samples: 4 there, 3 now"),
        ({"batch_size": 8}, None, "batch_size: 16 there, 8 now"),
        ({"likelihood": lb.Categorical(ignore_index=7)}, None, "likelihood.settings.ignore_index"),
        ({}, other_weights, "weights: "),
        ({}, other_temperature, "calibration: None there"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, options, change, words):
    out = tmp_path / "found.json"
    evaluate(trained(), suite("test"), out=out)
    before = out.read_bytes()
    model = deepcopy(trained())
    if change is not None:
        change(model)
    with pytest.raises(lb.ConfigError, match="holds an evaluation with other settings") as error:
        evaluate(model, suite("test"), out=out, **options)
    assert words in str(error.value)
    assert out.read_bytes() == before
    found = evaluate(model, suite("test"), out=out, resume=False, **options)
    assert json.loads(out.read_text())["evaluation"] == found


def test_another_suite_is_refused_by_name(tmp_path):
    out = tmp_path / "found.json"
    evaluate(trained(), suite("test,noise:0.2"), out=out)
    with pytest.raises(lb.ConfigError, match=r"suite\.splits\.noise/0\.3"):
        evaluate(trained(), suite("test,noise:0.3"), out=out)
    x, y = data().test
    other = lb.Suite.of((x + 1e-3, y), "test", sweep=True, examples=2)
    with pytest.raises(lb.ConfigError, match=r"suite\.splits\.test\.data"):
        evaluate(trained(), other, out=out)


@pytest.mark.parametrize("text", ["{", '{"kind": "evaluation"}', "[1]"])
def test_a_damaged_or_foreign_file_is_left_as_it_is(tmp_path, text):
    out = tmp_path / "found.json"
    out.write_text(text)
    with pytest.raises(lb.CheckpointError, match=r"found\.json"):
        evaluate(trained(), suite("test"), out=out)
    assert out.read_text() == text


def test_damaged_rows_of_an_unfinished_file_are_said(tmp_path, stop_before):
    out = tmp_path / "found.json"
    go_on = stop_before("noise/0.2")
    with pytest.raises(KeyboardInterrupt):
        evaluate(trained(), suite("test,noise:0.2"), out=out)
    go_on()
    found = json.loads(out.read_text())
    found["unfinished"]["test"] = found["unfinished"]["test"][:-9]
    out.write_text(json.dumps(found))
    with pytest.raises(lb.CheckpointError, match="damaged"):
        evaluate(trained(), suite("test,noise:0.2"), out=out)


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(lb.CheckpointError, match="cannot"):
        evaluate(trained(), suite("test"), out=tmp_path / "file" / "found.json")
