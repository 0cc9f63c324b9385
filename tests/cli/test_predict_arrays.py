"""`leanbayes predict` on arrays: the numbers that the network saw in training, or words."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import leanbayes as lb
from leanbayes.cli.card import Card
from leanbayes.cli.run import run
from leanbayes.cli.serve import served_run
from leanbayes.cli.settings_file import settings_of

ROWS = np.random.default_rng(0).integers(0, 256, (40, 1, 8, 8), dtype="uint8")
LABELS = (ROWS[:, 0, 0, 0] > 127).astype("int64")
NET = {"inputs": 64, "hidden": [4], "outputs": 2}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train on arrays x; gives the prediction of the first rows as Python makes it."""
    monkeypatch.chdir(tmp_path)

    def train(x, model=("mlp", NET)):
        np.savez("train.npz", x=x, y=LABELS)
        name, options = model
        fit = {"steps": 3, "batch_size": 8, "lr": 0.05, "folder": "run", "progress": False}
        data = {"name": "npz", "options": {"root": "train.npz"}}
        network = {"name": name, "options": options}
        run(settings_of({"data": data, "model": network, "method": {"name": "map"}, "fit": fit}))
        net = lb.load(lb.models.create(name, **options), tmp_path / "run" / "model")
        inputs = lb.data.read("npz", root="train.npz").train[0]
        return lb.predict(net, inputs[:3], seed=0).confidence.tolist()

    return train


def confidences(result):
    return [row["confidence"] for row in json.loads(result.out)["rows"]]


def test_bytes_of_a_table_are_the_numbers_that_training_saw(leanbayes, trained):
    expected = trained(ROWS.reshape(40, 64))
    np.savez("new.npz", x=ROWS[:3].reshape(3, 64))
    result = leanbayes("predict", "run", "new.npz", "--json")
    assert confidences(result) == pytest.approx(expected, rel=1e-5)


def test_ids_of_any_whole_type_are_ids(leanbayes, trained):
    ids = ROWS.reshape(40, 64)[:, :6].astype("int64") * 3 + 200
    expected = trained(ids, ("lstm_classifier", {"events": 1000, "width": 4}))
    for kind in ("uint16", "uint32", "int32", "float64"):
        np.savez("new.npz", x=ids[:3].astype(kind))
        result = leanbayes("predict", "run", "new.npz", "--json")
        assert confidences(result) == pytest.approx(expected, rel=1e-5)
    np.savez("new.npz", x=ids[:3] + 0.5)
    result = leanbayes("predict", "run", "new.npz")
    assert (result.code, "numbers that are not whole" in result.err) == (5, True)


@pytest.mark.parametrize("kind", ["uint16", "int64"])
def test_images_of_wide_whole_numbers_are_refused(leanbayes, trained, kind):
    trained(ROWS)
    np.savez("new.npz", x=ROWS.astype(kind) * 200)
    result = leanbayes("predict", "run", "new.npz")
    assert result.code == 5
    assert kind in result.err
    assert "floating" in result.err


def test_images_on_another_scale_are_refused_or_told_of(leanbayes, trained):
    expected = trained(ROWS.astype("float32"))  # from 0 to 255
    np.savez("numbers.npz", x=ROWS[:3].astype("float32"))
    np.savez("bytes.npz", x=ROWS[:3])
    Image.fromarray(ROWS[0, 0]).save("one.png")
    result = leanbayes("predict", "run", "numbers.npz", "--json")
    assert confidences(result) == pytest.approx(expected, rel=1e-5)
    assert result.err == ""
    for name in ("bytes.npz", "one.png"):
        result = leanbayes("predict", "run", name)
        assert (result.code, result.out) == (5, "")
        assert f"{name} holds bytes, which count as parts of 255" in result.err
    assert serves_images("run") is False


def test_numbers_from_0_to_255_on_a_run_of_bytes_are_told_of(leanbayes, trained):
    expected = trained(ROWS)
    np.savez("new.npz", x=ROWS[:3].astype("float32"))
    assert (
        "divide bytes that are kept as numbers by 255" in leanbayes("predict", "run", "new.npz").err
    )
    np.savez("new.npz", x=ROWS[:3].astype("float64") / 255)
    result = leanbayes("predict", "run", "new.npz", "--json")
    assert (result.err, confidences(result)) == ("", pytest.approx(expected, rel=1e-5))
    assert serves_images("run") is True


def serves_images(folder):
    return served_run(Path(folder), "cpu").frame is not None


def test_a_scale_of_no_spread_takes_bytes():
    assert all(
        Card({}, {"normalize": {"mean": [mean], "std": [std]}}, {}).bytes_fit is fits
        for mean, std, fits in ((0.3, 0.35, True), (0.0, 1.0, True), (0.4, 0.9, False))
    )
