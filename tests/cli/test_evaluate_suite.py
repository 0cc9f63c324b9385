"""`leanbayes evaluate --suite`: many splits of a finished run, into a file."""

import json

import numpy as np
import pytest

import leanbayes as lb
from leanbayes.evaluation import run

NAMES = "test,corrupted:fog/2,rotated:45"


@pytest.fixture
def model(finished):
    net = lb.models.create("mlp", inputs=784, hidden=[8], outputs=10)
    return lb.load(net, finished / "model")


def timeless(found):
    if isinstance(found, dict):
        return {k: timeless(v) for k, v in found.items() if k != "seconds"}
    return [timeless(v) for v in found] if isinstance(found, list) else found


def test_the_file_holds_what_the_library_finds(leanbayes, finished, model, tmp_path):
    out = tmp_path / "one.json"
    flags = ["--rows", 30, "--samples", 3, "--ood", "digits", "--sweep", "--examples"]
    result = leanbayes("evaluate", finished, "--suite", NAMES, "--out", out, *flags, "--json")
    assert result.code == 0, result.err
    told, file = json.loads(result.out), json.loads(out.read_text())
    data = lb.data.read("fashion_mini", images=64, held_out=20)
    foreign = {"digits": lb.data.read("digits")}
    names = f"{NAMES},ood:digits"
    suite = lb.Suite.of(data, names, rows=30, foreign=foreign, sweep=True, examples=True)
    expected = lb.evaluate(model, suite.named(NAMES), samples=3, progress=False)
    assert timeless(file["evaluation"]) == timeless(expected)
    assert file["kind"] == "evaluation"
    assert file["method"] == "mean_field"
    assert file["command"].startswith("leanbayes evaluate one --suite test,corrupted:fog/2")
    assert {"commit", "environment", "parameters", "parameters_added"} < file.keys()
    assert told["accuracy"] == expected["summary"]["accuracy"]
    assert told["auroc_total_digits"] == expected["summary"]["auroc_total_digits"]
    assert (told["splits"], told["suite"], told["out"]) == (4, NAMES, str(out))
    assert len(file["evaluation"]["splits"]["test"]["examples"]["certain"]) == 8
    assert "evaluation: rotated/45: 30 rows" in result.err


def test_resume_keeps_the_splits_that_are_there(leanbayes, finished, tmp_path, monkeypatch):
    out = tmp_path / "one.json"
    flags = ["evaluate", finished, "--suite", NAMES, "--rows", 20, "--samples", 2, "--out", out]
    tally_of, seen = run.tally_of, []

    def watched(asked, split, *more):
        seen.append(split.name)
        if len(seen) == 3:
            raise lb.Interrupted(143)
        return tally_of(asked, split, *more)

    monkeypatch.setattr(run, "tally_of", watched)
    assert leanbayes(*flags).code == 143
    assert leanbayes(*flags, "--resume").code == 0
    assert seen == ["test", "corrupted/fog/2", "rotated/45", "rotated/45"]
    result = leanbayes(*flags, "--resume", "--seed", 4)
    assert (result.code, result.out) == (2, "")
    assert "other settings: seed: 0 there, 4 now" in result.err
    assert leanbayes(*flags, "--seed", 4).code == 0  # without --resume it is written anew


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--suite", "tset"], 2, "did you mean 'test'"),
        (["--suite", "test,corrupted:fogg"], 2, "nearest: fog"),
        (["--suite", "test", "--part", "tset"], 2, "did you mean 'test'"),
        (["--suite", "test", "--ood", "digitz"], 2, "did you mean 'digits'"),
        (["--suite", "test", "--picture", "a.png"], 2, "--picture does not go with --suite"),
        (["--suite", "test", "--resume"], 2, "--resume goes on with a file"),
        (["--rows", "3"], 2, "--rows goes with --suite"),
        (["--sweep"], 2, "--sweep goes with --suite"),
        (["--out", "a.json"], 2, "--out goes with --suite"),
    ],
)
def test_wrong_flags_are_said_before_the_work(leanbayes, finished, flags, code, words):
    result = leanbayes("evaluate", finished, *flags)
    assert (result.code, result.out) == (code, "")
    assert words in result.err
    assert "Traceback" not in result.err


def test_foreign_inputs_of_another_size_exit_with_5(leanbayes, finished, tmp_path):
    path = tmp_path / "small.npz"
    rows = np.zeros((6, 14, 14), np.uint8)
    np.savez(path, x_train=rows, y_train=np.arange(6) % 2, x_test=rows, y_test=np.arange(6) % 2)
    flags = ["--suite", "test", "--ood", "npz", "--ood-root", path]
    result = leanbayes("evaluate", finished, *flags)
    assert (result.code, result.out) == (5, "")
    assert "ood/npz: inputs are 1x14x14; those of the run were 1x28x28" in result.err


def test_a_file_of_something_else_exits_with_5(leanbayes, finished, tmp_path):
    out = tmp_path / "other.json"
    out.write_text('{"rows": []}')
    result = leanbayes("evaluate", finished, "--suite", "test", "--out", out, "--resume")
    assert result.code == 5
    assert "no evaluation that can be gone on with" in result.err
    assert out.read_text() == '{"rows": []}'
