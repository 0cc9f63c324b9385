"""The settings of the ablations: data, kept network, resume, pictures of some of them."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.experiments import EXPERIMENTS, Ablations
from leanbayes.experiments.ablations_bench import Bench
from leanbayes.experiments.ablations_choices import _changed
from leanbayes.experiments.ablations_picture import DRAWINGS
from leanbayes.experiments.ablations_training import method_of, regularised, tuning
from leanbayes.experiments.picture import draw


def run(folder, *words):
    args = ["experiment", "ablations", "--smoke", "--out", str(folder / "out.json"), *words]
    result = CliRunner().invoke(app, args, catch_exceptions=False)
    assert result.exit_code == 0
    return result, json.loads((folder / "out.json").read_text())["rows"]


def timeless(row):
    return {key: value for key, value in row.items() if "seconds" not in key}


def test_rows_that_are_there_are_kept_when_a_run_goes_on(tmp_path):
    words = ("--set", "ablations=['likelihood']")
    _, whole = run(tmp_path, *words)
    assert [row["label"] for row in whole] == [
        "start",
        "likelihood: average",
        "likelihood: mixture",
    ]
    file = tmp_path / "out.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "rows": whole[:2]}))
    result, again = run(tmp_path, *words, "--resume")
    assert "2 of 3 rows kept" in result.stderr
    assert "average" not in result.stdout
    assert again[:2] == whole[:2]
    assert timeless(again[2]) == timeless(whole[2])


def test_the_network_is_kept_and_of_another_training_refused(tmp_path):
    place = {"keep": str(tmp_path / "start.pt"), "smoke": True}
    first, second = (Bench(Ablations(**place)) for _ in range(2))
    assert first.point()["training_seconds"] > 0
    found = second.point()
    assert found["training_seconds"] is None
    assert timeless(found) == timeless(first.point())
    with pytest.raises(lb.ConfigError, match="trained otherwise"):
        Bench(Ablations(**place, seed=1)).point()


@pytest.fixture
def images(tmp_path):
    generator, arrays = np.random.default_rng(0), {}
    for part, count in (("train", 60), ("test", 40)):
        arrays[f"x_{part}"] = generator.integers(0, 256, (count, 32, 32, 3), np.uint8)
        arrays[f"y_{part}"] = (np.arange(count) % 10).astype(np.uint8)
    np.savez(tmp_path / "cifar10.npz", **arrays)
    return tmp_path, arrays


def test_files_are_read_whole_and_corrupted_as_pixels(images):
    root, arrays = images
    bench = Bench(Ablations(root=str(root)))
    assert (bench.num_data, len(bench.data.test[1])) == (60, 40)
    assert bench.net().conv1.in_channels == 3
    assert sum(p.numel() for p in bench.net().parameters()) == 2_748_890  # WRN-16-4
    x = bench.data.test[0][:4]
    pixels = torch.tensor(arrays["x_test"][:4]).permute(0, 3, 1, 2) / 255
    expected = bench.data.normalize(lb.shifts.corrupt(pixels, "fog", 3, seed=0))
    # Cut to 1 / 255: rounding of the scale may move a pixel by one level.
    gap = (_changed(bench, x, "fog") - expected).abs()
    assert gap.max() <= 1.01 / 255 / min(bench.data.normalize.std)
    assert (gap > 1e-4).float().mean() < 0.05
    table = {"x_train": np.zeros((20, 3)), "y_train": np.arange(20) % 2}
    np.savez(root / "table.npz", **table, x_test=table["x_train"], y_test=table["y_train"])
    with pytest.raises(lb.DataError, match="no labelled images"):
        Bench(Ablations(root=str(root / "table.npz"))).data  # noqa: B018


def test_settings_are_those_of_the_table_and_of_the_device():
    plan = Ablations(device="cuda")
    config = tuning(plan, "emp")
    assert (config.lr, config.epochs, config.batch_size, config.weight_decay) == (
        *(1e-2, 12, 256, 1e-3),
    )
    assert (config.precision, config.channels_last, config.resident) == ("bf16", True, True)
    assert tuning(Ablations(), "emp").precision == "fp32"
    assert tuning(plan, "implicit_4").posterior_lr == 1e-2
    assert method_of("mean_field", 123).num_data == 123
    assert method_of("ecmp", 123).scope == "element"
    assert method_of("mc_dropout", 123).where == lb.select.by_name("stage*.conv2")
    assert (plan.depth, plan.width, plan.draws) == (16, 4, (1, 20, 100, 200))


def test_margins_that_never_bind_are_none():
    plan = Ablations()
    found = [regularised(plan, gamma, 1000).regularizer for gamma in (0, 0.69, 0.75, None)]
    assert found[0] is None
    assert [penalty.gamma for penalty in found[1:]] == [0.69, None, None]
    assert {regularised(plan, gamma, 1000).steps for gamma in (0, 0.5)} == {12 * 4}


def test_it_is_known_by_name_and_refuses_what_is_not_there():
    assert EXPERIMENTS["ablations"] is Ablations
    with pytest.raises(lb.ConfigError, match="ablations: no 'depth'"):
        Ablations(ablations=("depth",))
    with pytest.raises(lb.ConfigError, match="batch_size is a multiple of 4"):
        Ablations(batch_size=30)
    with pytest.raises(lb.ConfigError, match="singles are 2 or more"):
        Ablations(draws=(1, 5))


FIGURES = {"accuracy": 0.9, "nll": 0.3, "ece": 0.01}


def made(series, x, **figures):
    return {"ablation": "members", "series": series, "x": x, **FIGURES, **figures}


def test_a_line_of_a_picture_has_the_figures_of_its_rows():
    rows = [made("implicit", 1, nll=0.4), made("implicit", 4), made("rank_one", 4, nll=0.2)]
    start = {"ablation": "start", **FIGURES, "nll": 0.5}
    accuracy, nll, _ = DRAWINGS["members"](rows, start).axes
    found = {line.get_label(): line for line in nll.lines}
    assert list(found) == ["implicit", "rank_one", "trained network"]
    assert found["implicit"].get_xydata().tolist() == [[1, 0.4], [4, 0.3]]
    assert found["rank_one"].get_xydata().tolist() == [[4, 0.2]]
    assert set(found["trained network"].get_ydata()) == {0.5}
    assert (nll.get_xlabel(), nll.get_ylabel()) == ("members K", "NLL, nats")
    assert accuracy.lines[0].get_ydata().tolist() == [90, 90]


def test_no_margin_stands_at_the_ceiling_of_two_draws():
    rows = [
        {**made("mean_field", x), "ablation": "gamma", "ap_pgd_epistemic": 0.6}
        for x in (0.0, 0.5, None)
    ]
    last = DRAWINGS["gamma"](rows, None).axes[2]
    assert last.lines[0].get_xdata().tolist() == pytest.approx([0, 0.5, np.log(2)])
    assert [tick.get_text() for tick in last.get_xticklabels()] == ["0", "0.5", "none"]


def test_marks_of_one_kind_of_images_stand_beside_each_other():
    images = dict.fromkeys(("clean", "fog"), FIGURES)
    rows = [{"ablation": "factors", "x": x, "corrupted": images} for x in ("in", "out", "both")]
    lines = DRAWINGS["factors"](rows, None).axes[1].lines
    places = [place for line in lines for place in line.get_xdata()]
    assert len({round(place, 6) for place in places}) == len(places) == 6
    assert [round(place) for place in places] == [0, 1] * 3  # nearest to their own kind
    assert {line.get_linestyle() for line in lines} == {"None"}  # between kinds there is nothing


def test_epochs_are_whole_and_losses_have_plain_numbers():
    curve = {"epoch": [1, 2, 3], "nll": [1.5, 0.5, 0.2], "accuracy": [0.4, 0.6, 0.9]}
    row = {"ablation": "curve", "series": "vi", "curve": curve, "epochs_before": 0}
    figure = DRAWINGS["curve"]([row], None)
    figure.canvas.draw()
    loss = figure.axes[0]
    assert all(float(tick).is_integer() for tick in loss.get_xticks())
    words = [tick.get_text() for tick in loss.get_yticklabels(which="both")]
    assert {"0.2", "0.5", "1"} <= set(words)


def test_only_ablations_with_rows_are_drawn(tmp_path):
    draw([made("implicit", 1), made("implicit", 2)], tmp_path / "new" / "some.png")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["some_members.png"]
