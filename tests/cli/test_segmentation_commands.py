"""Segmentation from end to end: train, evaluate with a picture, predict files of any size."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import leanbayes as lb
from leanbayes.cli.run import run
from leanbayes.cli.segmentation_layout import STREET, class_colours
from leanbayes.cli.segmentation_picture import _Sheet, draw_segmentation, spread
from leanbayes.cli.settings_file import settings_of
from leanbayes.data.segmentation import CAMVID, CITYSCAPES
from leanbayes.errors import ConfigError
from leanbayes.prediction import Classification

SIZE = (16, 24)


def scene(generator, size=(20, 30)):
    """Sky above road, a line between them at a random height."""
    labels = np.zeros(size, np.uint8)
    labels[generator.integers(6, 14) :] = 3
    labels[-1] = 11
    pixels = np.where(labels[..., None] == 3, (90, 60, 60), (120, 160, 240))
    return (pixels + generator.integers(0, 15, (*size, 3))).astype(np.uint8), labels


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("camvid")
    generator = np.random.default_rng(0)
    for part, count in {"train": 6, "val": 2, "test": 5}.items():
        for name in (part, f"{part}annot"):
            (folder / name).mkdir()
        for at in range(count):
            pixels, labels = scene(generator)
            Image.fromarray(pixels).save(folder / part / f"{at}.png")
            Image.fromarray(labels).save(folder / f"{part}annot" / f"{at}.png")
    return folder


@pytest.fixture(scope="module")
def runs(root, tmp_path_factory):
    """Two finished runs on frames that are scaled to 16x24."""
    folder = tmp_path_factory.mktemp("segmented")
    for method in ("map", "mean_field"):
        fit = {"steps": 3, "batch_size": 3, "lr": 0.01, "progress": False}
        tables = {
            "model": {"name": "unet", "options": {"widths": [4, 4]}},
            "data": {"name": "camvid", "options": {"root": str(root), "size": list(SIZE)}},
            "method": {"name": method},
            "fit": {**fit, "folder": str(folder / method)},
        }
        run(settings_of(tables))
    return folder


def loaded(run_folder):
    net = lb.models.create("unet", widths=[4, 4], num_classes=11)
    return lb.load(net, run_folder / "model")


def test_figures_are_those_of_the_labelled_pixels(leanbayes, runs, root):
    result = leanbayes("evaluate", runs / "mean_field", "--root", root, "--batch", 2, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    x, y = lb.data.read("camvid", root=str(root), size=SIZE).test
    p = lb.predict(loaded(runs / "mean_field"), x, seed=0)
    keep = y != 11
    probs = p.probs.movedim(1, -1)[keep]
    for name in ("accuracy", "nll", "ece", "brier"):
        expected = float(getattr(lb.metrics, name)(probs, y[keep]))
        assert found[name] == pytest.approx(expected, rel=1e-4, abs=1e-6), name
    assert found["count"] == 5


def test_a_picture_is_drawn_of_one_run_and_of_several(leanbayes, runs, root, tmp_path):
    options = ["--root", root, "--samples", 2, "--images", 2, "--json"]
    sizes = {}
    for name, beside in {"one": [], "two": ["--beside", runs / "mean_field"]}.items():
        path = tmp_path / "pictures" / f"{name}.png"
        result = leanbayes("evaluate", runs / "map", *options, "--picture", path, *beside)
        assert result.code == 0, result.err
        assert json.loads(result.out)["picture"] == str(path)
        with Image.open(path) as drawn:
            sizes[name] = drawn.size
    assert sizes["two"][0] > 1.5 * sizes["one"][0]
    assert not list((tmp_path / "pictures").glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--picture", "one.gif"], "a picture is a file of .png, .pdf, .svg; found 'one.gif'"),
        (["--beside", "runs/two"], "write --picture FILE.png too"),
    ],
)
def test_a_wrong_picture_is_refused_before_the_work(leanbayes, runs, arguments, words):
    result = leanbayes("evaluate", runs / "map", *arguments)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_images_are_not_augmented_without_their_label_maps(leanbayes, root):
    data = ("--data", "camvid", "--root", root, "--model", "unet", "--method", "map")
    result = leanbayes("train", *data, "--set", "data.augment=flip", "--smoke")
    assert result.code == 2
    assert "not their label maps" in result.err


def test_other_tasks_have_no_picture(leanbayes, finished, runs, root, tmp_path):
    path = tmp_path / "one.png"
    result = leanbayes("evaluate", finished, "--picture", path)
    assert (result.code, path.exists()) == (2, False)
    assert "--picture draws labels by pixel; the run's task is classification" in result.err
    arguments = ["--root", root, "--picture", path, "--beside", finished]
    result = leanbayes("evaluate", runs / "map", *arguments)
    assert (result.code, path.exists()) == (2, False)
    assert "it has other classes than the first run" in result.err


def test_without_matplotlib_the_error_says_what_to_install(leanbayes, runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = leanbayes("evaluate", runs / "map", "--picture", tmp_path / "one.png")
    assert (result.code, "pip install matplotlib" in result.err) == (2, True)


def test_files_of_any_size_are_scaled_whole_as_the_readers_do(leanbayes, runs, root, tmp_path):
    """The row of a file is that of the reader's frame, and no column of it is cut off."""
    x, _ = lb.data.read("camvid", root=str(root), size=SIZE).test
    result = leanbayes("predict", runs / "map", root / "test", "--json")
    p = lb.predict(loaded(runs / "map"), x, seed=0)
    rows = json.loads(result.out)["rows"]
    means = p.confidence.flatten(1).mean(1)
    assert [row["confidence"] for row in rows] == pytest.approx(means.tolist(), rel=1e-5)
    with Image.open(root / "test" / "0.png") as frame:
        wide = frame.resize((96, 16), Image.Resampling.BILINEAR)
    wide.save(tmp_path / "wide.png")
    scaled = torch.from_numpy(np.array(wide.resize(SIZE[::-1], Image.Resampling.BILINEAR)))
    scale = lb.data.read("camvid", root=str(root), size=SIZE).normalize
    p = lb.predict(loaded(runs / "map"), scale(scaled.permute(2, 0, 1)[None]), seed=0)
    (row,) = json.loads(leanbayes("predict", runs / "map", tmp_path / "wide.png", "--json").out)[
        "rows"
    ]
    assert row["confidence"] == pytest.approx(p.confidence.mean().item(), rel=1e-5)


def prediction(labels, classes=3, share=0.8):
    probs = torch.full((len(labels), classes, *labels.shape[1:]), (1 - share) / (classes - 1))
    probs.scatter_(1, labels.unsqueeze(1), share)
    return Classification(None, torch.ones(1), probs, torch.zeros(labels.shape))


def test_panels_show_truth_labels_and_mistakes():
    truth = torch.tensor([[[0, 1, 9], [2, 2, 0]]])
    label = torch.tensor([[[0, 2, 1], [2, 2, 1]]])
    sheet = _Sheet(torch.rand(1, 3, 2, 3), truth, {"one": prediction(label)}, "abc", 9)
    sheet.draw(["first"])
    panels = {axes.get_title(): axes for axes in sheet.figure.axes}
    colours = sheet.colours
    expected = colours[[[0, 1, 3], [2, 2, 0]]]
    np.testing.assert_array_equal(panels["truth"].images[0].get_array(), expected)
    np.testing.assert_array_equal(panels["prediction"].images[0].get_array(), colours[label[0]])
    wrong = panels["wrong pixels"]
    grey, red, white = (wrong.images[0].get_array()[i, j] for i, j in ((0, 0), (0, 1), (0, 2)))
    assert np.array_equal(white, [1, 1, 1])
    assert np.array_equal(wrong.images[0].get_array()[1, 2], red)
    assert not np.array_equal(grey, red)
    assert wrong.texts[0].get_text() == "40.0 %"
    entropy = -0.8 * np.log(0.8) - 0.2 * np.log(0.1)
    total = panels["total uncertainty"].images[0]
    np.testing.assert_allclose(total.get_array(), entropy, rtol=1e-5)
    assert panels["image"].get_ylabel() == "first"


def test_methods_share_the_scales_of_uncertainty():
    labels = torch.zeros(1, 2, 2).long()
    both = {"sure": prediction(labels, share=0.99), "unsure": prediction(labels, share=0.4)}
    sheet = _Sheet(torch.rand(1, 1, 2, 2), labels, both, "abc", 9)
    sheet.draw([])
    tops = [a.images[0].get_clim() for a in sheet.figure.axes if a.get_title().startswith("total")]
    assert tops[0] == tops[1]
    assert tops[0] == pytest.approx((0, both["unsure"].total.max().item()))


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    labels = torch.zeros(1, 2, 2).long()
    images, one = torch.rand(1, 3, 2, 2), {"one": prediction(labels)}
    path = tmp_path / "one.png"
    for arguments, words in (
        ((images[0], labels, one), "expected \\[N, 3, H, W\\]"),
        ((images, labels[:, :1], one), "truth has labels \\(1, 1, 2\\); expected \\(1, 2, 2\\)"),
        ((images, labels, {}), "at least one method"),
    ):
        with pytest.raises(ConfigError, match=words):
            draw_segmentation(*arguments, "abc", path)


def test_every_class_of_the_readers_has_a_colour_of_its_own():
    for classes in (CAMVID, CITYSCAPES.values(), [str(k) for k in range(30)]):
        colours = class_colours(list(classes))
        assert len(set(colours)) == len(list(classes))
    assert set(CITYSCAPES.values()) <= set(STREET)


def test_rows_are_spread_evenly():
    assert spread(233, 3) == [38, 116, 194]
    assert spread(5, 5) == [0, 1, 2, 3, 4]
