"""`leanbayes landscape` and `trajectory`: files with the figures of the library."""

import json
import shutil

import pytest
import torch

import leanbayes as lb
from leanbayes.cli.card import load_run
from leanbayes.cli.run import run
from leanbayes.cli.settings_file import settings_of

NET = {"name": "mlp", "options": {"inputs": 784, "hidden": [8], "outputs": 10}}
DATA = {"name": "fashion_mini", "options": {"images": 64, "held_out": 20}}
METHOD = {"name": "rank_one", "fields": {"init_std": 0.4}}


def trained(folder, method=METHOD, **fit):
    fit = {"epochs": 5, "batch_size": 16, "lr": 0.05, "progress": False, **fit}
    fit["folder"] = str(folder)
    run(settings_of({"model": NET, "data": DATA, "method": method, "fit": fit}))
    return folder


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """A run of four members that keeps its last three checkpoints."""
    return trained(tmp_path_factory.mktemp("runs") / "members", keep=3)


def read(path):
    return json.loads(path.read_text())


def test_the_file_of_a_landscape_is_what_the_library_gives(leanbayes, members, tmp_path):
    out = tmp_path / "new" / "landscape.json"
    result = leanbayes("landscape", members, "--points", 3, "--rows", 100, "--out", out)
    assert result.code == 0, result.err
    record = read(out)
    assert (record["kind"], record["method"]) == ("landscape", "rank_one")
    assert record["data"] == {"name": "fashion_mini", "part": "test"}
    assert {"command", "commit", "environment"} <= record.keys()
    assert str(tmp_path) not in out.read_text()
    data = lb.data.fashion_mini()
    _, model = load_run(members)
    expected = lb.landscape(model, (data.x_test, data.y_test), points=3, rows=100)
    assert record["landscape"] == expected
    assert record["landscape"]["rows"] == 100
    assert "4 members on 100 rows" in result.out
    for member in expected["members"]:
        assert f"{member['label']}        loss {member['loss']:.4f}" in result.out
    assert f"wrote {out}" in result.out


def test_draws_and_other_parts_can_be_asked_for(leanbayes, members, finished, tmp_path):
    out = tmp_path / "landscape.json"
    options = ["--points", 2, "--part", "validation", "--set", "held_out=30"]
    assert leanbayes("landscape", finished, *options, "--out", out).code == 0
    found = read(out)["landscape"]
    assert (found["rows"], found["of"], len(found["members"])) == (30, "draws", 8)
    result = leanbayes("landscape", members, *options, "--draws", 2, "--out", out)
    assert result.code == 0, result.err
    labels = [member["label"] for member in read(out)["landscape"]["members"]]
    assert labels[:3] == ["member 0, draw 0", "member 0, draw 1", "member 1, draw 0"]
    assert "--set held_out=30" in read(out)["command"]
    assert "--draws 2" in read(out)["command"]


def test_the_points_of_a_trajectory_are_those_of_the_checkpoints(leanbayes, members, tmp_path):
    out = tmp_path / "trajectory.json"
    result = leanbayes("trajectory", members, "--rows", 300, "--out", out)
    assert result.code == 0, result.err
    record = read(out)
    assert (record["kind"], record["method"]) == ("trajectory", "rank_one")
    steps = [int(path.name[5:]) for path in sorted((members / "checkpoints").glob("step-*"))]
    assert [point["step"] for point in record["points"]] == steps
    assert len(steps) >= 3
    data = lb.data.fashion_mini()
    x, y = data.x_test[:300], data.y_test[:300]
    _, model = load_run(members)
    for point in record["points"]:
        lb.restore(model, members, point["step"])
        kept = lb.predict(model, x, seed=0, keep_samples=True)
        # Draw t is one of member t mod 4: what is compared are members, not their draws.
        members_of = kept.samples.unflatten(0, (-1, 4)).mean(0)
        figures = {
            "accuracy": lb.metrics.accuracy(kept.probs, y),
            "nll": lb.metrics.nll(kept.probs, y),
            "disagreement": lb.metrics.disagreement(members_of),
            "normalised": lb.metrics.normalised_disagreement(members_of, y),
        }
        for name, value in figures.items():
            assert point[name] == pytest.approx(float(value), rel=1e-5), name
    assert len({point["nll"] for point in record["points"]}) == len(steps)
    assert f"{record['points'][-1]['nll']:.4f}" in result.out
    assert f"holds {len(steps)} checkpoints of the 10 asked for" in result.err
    assert "--set fit.keep=10" in result.err


def test_the_newest_checkpoints_can_be_asked_for_alone(leanbayes, members, tmp_path):
    out = tmp_path / "trajectory.json"
    result = leanbayes("trajectory", members, "--rows", 20, "--last", 2, "--out", out)
    assert (result.code, "fit.keep" in result.err) == (0, False)
    assert len(read(out)["points"]) == 2
    command = read(out)["command"]
    assert command.startswith("leanbayes trajectory members ")
    assert "--last 2" in command


def test_a_damaged_checkpoint_is_named_and_passed_over(leanbayes, members, tmp_path):
    copied = tmp_path / "run"
    shutil.copytree(members, copied)
    first, *others = sorted((copied / "checkpoints").glob("step-*"))
    (first / "state.json").write_text("{")
    out = tmp_path / "trajectory.json"
    result = leanbayes("trajectory", copied, "--rows", 20, "--out", out)
    assert result.code == 0
    assert f"checkpoint {int(first.name[5:])} is passed over" in result.err
    assert len(read(out)["points"]) == len(others)
    for path in others:
        (path / "state.json").write_text("{")
    result = leanbayes("trajectory", copied, "--rows", 20, "--out", tmp_path / "none.json")
    assert (result.code, (tmp_path / "none.json").exists()) == (5, False)
    shutil.rmtree(copied / "checkpoints")
    result = leanbayes("trajectory", copied, "--rows", 20, "--out", out)
    assert result.code == 5
    assert "fit.keep" in result.err


@pytest.mark.parametrize("command", ["landscape", "trajectory"])
def test_what_cannot_be_shown_is_refused(leanbayes, finished, tmp_path, command):
    out = tmp_path / "found.json"
    assert leanbayes(command, tmp_path / "nowhere", "--out", out).code == 5
    result = leanbayes(command, finished, "--part", "tset", "--out", out)
    assert (result.code, "did you mean 'test'" in result.err) == (2, True)
    assert leanbayes(command, finished, "--out", tmp_path).code == 2
    single = trained(tmp_path / "single", {"name": "map"}, epochs=1)
    result = leanbayes(command, single, "--out", out)
    assert (result.code, "same network" in result.err) == (2, True)
    assert not out.exists()


def test_methods_that_are_fitted_after_training_have_no_trajectory(leanbayes, tmp_path):
    fitted = trained(
        tmp_path / "fitted", {"name": "laplace", "fields": {"prior_std": 0.05}}, epochs=1
    )
    result = leanbayes("trajectory", fitted, "--out", tmp_path / "found.json")
    assert (result.code, "fitted after training" in result.err) == (2, True)
    out = tmp_path / "landscape.json"
    assert leanbayes("landscape", fitted, "--points", 2, "--rows", 50, "--out", out).code == 0
    assert torch.tensor(read(out)["landscape"]["loss"]).isfinite().all()
