"""Experiments run, keep their figures, and their parts are right."""

import json

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.experiments import UCI, Toy
from leanbayes.experiments.picture import _panel
from leanbayes.experiments.toy import panels, points, run_panel
from leanbayes.experiments.uci import PAPER, SETS, scores, together

FEATURES, ROWS, SPLITS = 3, 60, 20


@pytest.fixture
def root(tmp_path):
    """Two made-up sets in the format of the real ones."""
    generator = np.random.default_rng(0)
    for name in ("boston", "yacht"):
        x = generator.normal(size=(ROWS, FEATURES))
        tests = np.stack([generator.choice(ROWS, 6, replace=False) for _ in range(SPLITS)])
        np.savez(tmp_path / f"{name}.npz", X=x, y=x.sum(1), test_idx=np.sort(tests, 1))
    return tmp_path


def test_splits_lie_beside_each_other_each_with_its_own_scale(root):
    (x, y), (x_test, y_test) = together(str(root), "boston", 3)
    assert x.shape == (54, 9)
    assert y_test.shape == (6, 3)
    for split in range(3):
        alone = lb.data.read("uci", root=str(root), name="boston", split=split)
        columns = slice(split * FEATURES, (split + 1) * FEATURES)
        assert torch.equal(x[:, columns], alone.train[0])
        assert torch.equal(x_test[:, columns], alone.test[0])
        assert torch.equal(y[:, split : split + 1], alone.train[1])
    assert not torch.equal(x[:, :3], x[:, 3:6])


def test_scores_of_a_known_predictor():
    """One that is off by a constant: the error is the constant, the density its Gaussian's."""
    net = torch.nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.eye(2))
        net.bias.fill_(0.5)
    model = lb.bayesianize(net, lb.MAP())
    model.likelihood = lb.Gaussian(precision=0.1)
    x = torch.randn(30, 2)
    found = scores(model, (x, x), samples=1, seed=0)
    torch.testing.assert_close(found["rmse"], torch.full((2,), 0.5).double(), rtol=1e-6, atol=0)
    expected = torch.distributions.Normal(0.5, 10**0.5).log_prob(torch.zeros(2)).double()
    torch.testing.assert_close(found["lpd"], expected, rtol=1e-6, atol=0)


def test_every_method_has_a_row_with_the_papers_figures_beside_it(root):
    methods = ("emp", "map", "ensemble")
    rows = list(UCI(root=str(root), sets=("boston",), methods=methods, smoke=True).rows())
    assert [row["label"] for row in rows] == [f"boston {name}" for name in methods]
    assert rows[0]["paper"] == {"rmse": 3.56, "lpd": -2.70, "comparable": True}
    assert rows[1]["paper"] is None
    for row in rows:
        assert row["steps"] == 20
        by_split = torch.tensor(row["rmse"]["by_split"], dtype=torch.float64)
        assert row["rmse"]["mean"] == pytest.approx(float(by_split.mean()))
        assert row["rmse"]["error"] == pytest.approx(float(by_split.std()) / 2**0.5)


def test_the_papers_tables_are_whole():
    assert set(PAPER) == set(SETS)
    assert all(len(row) == 4 for row in PAPER.values())


def test_a_set_or_method_that_is_not_there_is_named():
    with pytest.raises(lb.ConfigError, match="no 'bostn'; expected some of boston"):
        UCI(sets=("bostn",))
    with pytest.raises(lb.ConfigError, match="methods: no 'vi'"):
        UCI(methods=("vi",))


def test_toy_points_are_cubes_with_noise_of_three():
    x, _ = points("ibnn", 0)
    assert x.shape == (30, 1)
    assert x.abs().max() <= 4
    errors = torch.cat([b - a**3 for a, b in (points("pbn", seed) for seed in range(200))])
    assert errors.std().item() == pytest.approx(3.0, rel=0.05)


def test_uncertainty_of_a_one_layer_net_grows_outside_the_data():
    panel = next(p for p in panels() if p.method.name == "implicit" and p.layers == 1)
    assert panel.grows
    assert run_panel(panel, steps=400)["growth"] >= 2


def test_the_command_writes_every_row_with_its_origin(root, tmp_path):
    out = tmp_path / "out" / "uci.json"
    words = ["experiment", "uci", "--root", str(root), "--smoke", "--out", str(out)]
    words += ["--set", "sets=['yacht']", "--set", "methods=['map']"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "yacht map: rmse" in result.stdout
    found = json.loads(out.read_text())
    (row,) = found["rows"]
    assert row["command"].startswith("leanbayes experiment uci")
    assert row["data"] == "yacht"
    assert {"commit", "environment", "seconds", "config"} <= row.keys()
    assert "root" not in found["settings"]
    assert str(root) not in out.read_text()


def test_the_toy_is_drawn(tmp_path):
    picture = tmp_path / "toy.png"
    words = ["experiment", "toy", "--smoke", "--picture", str(picture)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(list(Toy().parts())) == 26


@pytest.mark.parametrize("name", ["toy.txt", "toy", ".", "toy.csv/toy.png"])
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(tmp_path, name):
    (tmp_path / "toy.csv").touch()
    out = tmp_path / "toy.json"
    words = ["experiment", "toy", "--smoke", "--picture", str(tmp_path / name), "--out", str(out)]
    with pytest.raises(lb.ConfigError, match="picture"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not out.exists()


def test_an_unknown_experiment_or_setting_is_refused():
    runner = CliRunner()
    with pytest.raises(lb.ConfigError, match="no experiment is called 'uic'"):
        runner.invoke(app, ["experiment", "uic"], catch_exceptions=False)
    with pytest.raises(lb.ConfigError, match=r"toy\.step"):
        runner.invoke(app, ["experiment", "toy", "--set", "step=3"], catch_exceptions=False)


def test_the_picture_of_the_toy_says_what_its_lines_are():
    row = {"label": "map", "x": [0.0, 1.0], "mean": [0.0, 1.0], "epistemic_std": [1.0, 1.0]}
    axis = Figure().subplots()
    _panel(axis, {**row, "points": [(0.0, 0.0)], "growth": 2.0})
    _, labels = axis.get_legend_handles_labels()
    assert set(labels) == {"3 epistemic std", "mean", "x^3", "training points"}
    assert axis.get_title() == "map (std x 2.0 outside)"
