"""`leanbayes predict`: what comes out is what `lb.predict` gives, and every way to fail."""

import csv
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

import leanbayes as lb
from leanbayes.cli.run import run
from leanbayes.cli.settings_file import settings_of
from leanbayes.cli.table_file import write_table

COLUMNS = ["file", "label", "confidence", "total", "aleatoric", "epistemic"]


@pytest.fixture(scope="module")
def data():
    return lb.data.fashion_mini()


@pytest.fixture
def folder(tmp_path, monkeypatch, data):
    """Four images as files, the current folder beside them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    for at, image in enumerate(data.x_test[:4, 0]):
        pixels = (image.numpy() * 255).round().astype("uint8")
        Image.fromarray(pixels).save(tmp_path / "images" / f"{at}.png")
    return tmp_path


def expected(finished, x):
    net = lb.models.create("mlp", inputs=784, hidden=[8], outputs=10)
    return lb.predict(lb.load(net, finished / "model"), x, seed=0)


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_holds_what_lb_predict_gives(leanbayes, finished, folder, data):
    result = leanbayes("predict", finished, "images", "--out", "tables/one.csv")
    assert (result.code, result.err) == (0, "")
    rows = read_csv(folder / "tables" / "one.csv")
    p = expected(finished, data.x_test[:4])
    assert list(rows[0]) == COLUMNS
    assert [row["file"] for row in rows] == [f"images/{at}.png" for at in range(4)]
    assert [row["label"] for row in rows] == [data.classes[i] for i in p.label]
    for name in COLUMNS[2:]:
        found = torch.tensor([float(row[name]) for row in rows])
        torch.testing.assert_close(found.double(), getattr(p, name), rtol=1e-4, atol=1e-6)


def test_an_npz_and_an_image_give_the_same_row(leanbayes, finished, folder, data):
    np.savez(folder / "x.npz", x=(data.x_test[:2].numpy() * 255).round().astype("uint8")[:, 0])
    found = json.loads(leanbayes("predict", finished, "images/1.png", "x.npz", "--json").out)
    assert [row["file"] for row in found["rows"]] == ["x.npz:0", "x.npz:1", "images/1.png"]
    assert found["rows"][1]["total"] == pytest.approx(found["rows"][2]["total"], rel=1e-6)
    assert found["skipped"] == []


def test_an_unreadable_image_is_skipped_and_listed_and_the_exit_code_is_5(
    leanbayes, finished, folder
):
    (folder / "images" / "bad.png").write_bytes(b"no picture")
    result = leanbayes("predict", finished, "images", "--out", "one.json")
    assert result.code == 5
    assert "skipped images/bad.png" in result.err
    found = json.loads((folder / "one.json").read_text())
    assert [row["file"] for row in found["rows"]] == [f"images/{at}.png" for at in range(4)]
    assert [entry["file"] for entry in found["skipped"]] == ["images/bad.png"]


def test_hidden_files_are_no_images_and_a_link_to_nothing_is_told_of(leanbayes, finished, folder):
    (folder / "images" / "._0.png").write_bytes(b"what some systems leave beside a file")
    (folder / "images" / ".thumbnails").mkdir()
    (folder / "images" / ".thumbnails" / "0.png").write_bytes(b"a small copy")
    assert leanbayes("predict", finished, "images").code == 0
    (folder / "images" / "gone.png").symlink_to("nowhere.png")
    result = leanbayes("predict", finished, "images")
    assert (result.code, "skipped images/gone.png" in result.err) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere.png"], 5, "no file or folder at nowhere.png"),
        (["words.txt"], 2, "of no kind that is read"),
        (["empty"], 5, "holds no images"),
        (["nan.npz"], 5, "1 of 2 rows .* row 1"),
        (["wide.npz"], 5, "rows of 1x5x5; the run's inputs are 1x28x28"),
        (["images", "--out", "table.txt"], 2, "--out is a file of .csv, .json, .parquet"),
        (["images", "--out", "words.txt/table.csv"], 2, "cannot be written"),
        (["images", "--device", "cudo"], 2, "--device 'cudo' cannot be used"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    leanbayes, finished, folder, arguments, code, words
):
    (folder / "words.txt").write_text("words")
    (folder / "empty").mkdir()
    broken = np.zeros((2, 1, 28, 28), dtype="float32")
    broken[1, 0, 3, 3] = np.nan
    np.savez(folder / "nan.npz", x=broken)
    np.savez(folder / "wide.npz", x=np.zeros((2, 5, 5), dtype="float32"))
    before = sorted(folder.rglob("*"))
    result = leanbayes("predict", finished, *arguments)
    assert result.code == code, result.err
    assert re.search(words, result.err), result.err
    assert result.out == ""
    assert sorted(folder.rglob("*")) == before


def test_a_full_disk_leaves_the_old_table(leanbayes, finished, folder, monkeypatch):
    import os

    (folder / "table.csv").write_text("old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = leanbayes("predict", finished, "images", "--out", "table.csv")
    assert result.code == 5
    assert "No space left on device" in result.err
    assert (folder / "table.csv").read_text() == "old"
    assert not list(folder.glob(".table*"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_that_are_no_utf8_do_not_cost_the_table(tmp_path, kind):
    import os

    path, row = tmp_path / f"table.{kind}", {"file": os.fsdecode(b"caf\xe9.png"), "total": 0.5}
    if kind == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
    write_table(path, [row], [])
    rows = read_csv(path) if kind == "csv" else parquet.read_table(path).to_pylist()
    assert [(each["file"], float(each["total"])) for each in rows] == [("caf\\udce9.png", 0.5)]


@pytest.mark.usefixtures("folder")
def test_a_folder_that_is_no_run_is_refused(leanbayes):
    result = leanbayes("predict", "images", "images")
    assert (result.code, "has no card.json" in result.err) == (5, True)
    assert leanbayes("predict", "nowhere", "images").code == 5


def test_a_network_from_outside_is_built_only_when_it_is_named(leanbayes, finished, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    card = json.loads((copy / "card.json").read_text())
    card["model"] = {"name": "os:system", "options": {"command": "touch ran"}}
    (copy / "card.json").write_text(json.dumps(card))
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 28, 28), dtype="float32"))
    result = leanbayes("predict", copy, tmp_path / "x.npz")
    assert result.code == 2
    assert "--model os:system if you trust it" in result.err


def test_regression_gives_mean_std_and_an_interval_in_raw_units(leanbayes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    noise = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    np.savez("line.npz", x=x.numpy(), y=(1000 + 50 * x + 5 * noise).numpy())
    tables = {
        "model": {"name": "mlp", "options": {"inputs": 1, "hidden": [], "outputs": 1}},
        "data": {"name": "npz", "options": {"root": "line.npz", "test": 16}},
        "method": {"name": "mean_field"},
        "fit": {"epochs": 40, "batch_size": 16, "lr": 0.02, "folder": "run", "progress": False},
    }
    run(settings_of(tables))
    assert "line.npz" not in (tmp_path / "run" / "card.json").read_text()
    (tmp_path / "new.csv").write_text("x\n-0.5\n0.5\n")
    rows = json.loads(leanbayes("predict", "run", "new.csv", "--json").out)["rows"]
    for row, truth in zip(rows, (975.0, 1025.0), strict=True):
        assert row["mean"] == pytest.approx(truth, abs=5)
        assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * row["std"], rel=0.05)
        assert 2.5 < row["std"] < 10
        assert row["std"] ** 2 == pytest.approx(row["aleatoric"] + row["epistemic"])
    (tmp_path / "new.csv").write_text("x\nnan\n")
    result = leanbayes("predict", "run", "new.csv")
    assert (result.code, "new.csv" in result.err, "Traceback" in result.err) == (5, True, False)
    scored = json.loads(leanbayes("evaluate", "run", "--root", "line.npz", "--json").out)
    assert scored["rmse"] < 10
    assert scored["count"] == 16


def test_files_are_resized_and_cut_as_those_of_the_training_were(leanbayes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for at in range(8):
        place = tmp_path / "own" / ("test" if at > 5 else "train") / "ab"[at % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (24, 30, 3), dtype="uint8")
        Image.fromarray(pixels).save(place / f"{at}.png")
    options = {"root": "own", "size": 8, "resize": 16}
    tables = {
        "model": {"name": "mlp", "options": {"inputs": 192, "hidden": [4], "outputs": 2}},
        "data": {"name": "image_folder", "options": options},
        "method": {"name": "mean_field"},
        "fit": {"steps": 2, "batch_size": 4, "folder": "run", "progress": False},
    }
    run(settings_of(tables))
    result = leanbayes("predict", "run", "own/test/a/6.png", "--json")
    net = lb.models.create("mlp", inputs=192, hidden=[4], outputs=2)
    x, _ = lb.data.read("image_folder", **options).test[0]
    p = lb.predict(lb.load(net, tmp_path / "run" / "model"), x[None], seed=0)
    (row,) = json.loads(result.out)["rows"]
    assert row["confidence"] == pytest.approx(p.confidence.item(), rel=1e-5)


def test_files_named_in_capitals_are_read_too(leanbayes, finished, folder, data):
    np.savez(folder / "x.npz", x=data.x_test[:2].numpy())
    (folder / "x.npz").rename(folder / "X.NPZ")
    found = json.loads(leanbayes("predict", finished, "X.NPZ", "--json").out)
    assert [row["file"] for row in found["rows"]] == ["X.NPZ:0", "X.NPZ:1"]


def test_words_that_training_had_not_are_told_of(leanbayes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{i},{'red' if i % 3 else 'blue'},{2 * i}\n" for i in range(40)]
    (tmp_path / "train.csv").write_text("size,colour,y\n" + "".join(lines))
    data = {"name": "table", "options": {"root": "train.csv", "target": "y"}}
    model = {"name": "mlp", "options": {"inputs": 3, "hidden": [4], "outputs": 1}}
    fit = {"epochs": 1, "progress": False, "folder": "run"}
    run(settings_of({"data": data, "model": model, "method": {"name": "map"}, "fit": fit}))
    (tmp_path / "NEW.CSV").write_text("colour,size\nred,1\ngrey,2\n")
    result = leanbayes("predict", "run", "NEW.CSV", "--json")
    assert [row["file"] for row in json.loads(result.out)["rows"]] == ["NEW.CSV:0", "NEW.CSV:1"]
    assert "column 'colour' holds 1 words that training had not ('grey')" in result.err
    (tmp_path / "gap.csv").write_text("colour,size\nred,1\n,2\n")
    result = leanbayes("predict", "run", "gap.csv")
    assert (result.code, "row 2 of column 'colour' is missing" in result.err) == (5, True)
