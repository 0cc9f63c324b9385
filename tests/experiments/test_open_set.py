"""Open-set verification: its data, its budget, its rows and its picture."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.experiments import OpenSet
from leanbayes.experiments.open_set_data import Budget, OpenSetData
from leanbayes.experiments.verification import FOREIGN, METHODS, Study, setting, thinned

CLASSES, TRAIN, TEST = 10, 12, 9  # images a class


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Images of ten classes whose brightness tells the class, labels mixed."""
    generator = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        y = generator.permutation(np.repeat(np.arange(CLASSES), count))
        noise = generator.integers(0, 20, (len(y), 32, 32, 3))
        arrays |= {f"x_{part}": (noise + 20 * y[:, None, None, None]).astype(np.uint8)}
        arrays |= {f"y_{part}": y}
    path = tmp_path_factory.mktemp("images") / "ten.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture
def data(file):
    return OpenSetData.of(lb.data.read("npz", root=str(file)), (6, 0, 2, 3, 4, 5, 1))


def options(file, **others):
    return {"root": str(file), "reader": "npz", "smoke": True, **others}


def brightness(data, x):
    """Class of a made-up image."""
    return (data.normalize.undo(x).mean((1, 2, 3)) * 255 - 9.5).div(20).round().long()


def test_images_are_cut_by_class_and_known_ones_renumbered(data):
    assert [len(part[1]) for part in (data.train, data.test, data.others)] == [84, 63, 27]
    known = torch.tensor([6, 0, 2, 3, 4, 5, 1])
    for x, y in (data.train, data.test):
        assert torch.equal(brightness(data, x), known[y])
        assert torch.equal(y.bincount(), torch.full((7,), len(y) // 7))
    x, y = data.others
    assert torch.equal(brightness(data, x), y)
    assert set(y.tolist()) == {7, 8, 9}


def test_few_images_keep_every_class(file):
    few = OpenSetData.of(lb.data.read("npz", root=str(file)), range(7), most=2)
    assert few.train[1].bincount().tolist() == [2] * 7
    assert few.others[1].bincount().tolist() == [0] * 7 + [2] * 3


def test_noise_stays_within_eps_and_the_pixels_and_is_the_same_for_every_method(data):
    budget = Budget(eps=0.05, samples=1, seed=3)
    before = torch.random.get_rng_state()
    found = {name: FOREIGN[name](None, data, budget) for name in ("noise", "noise_test")}
    assert torch.equal(torch.random.get_rng_state(), before)
    pixels, clean = (data.normalize.undo(x) for x in (found["noise_test"], data.test[0]))
    change = pixels - clean
    assert change.abs().max() <= 0.05 + 1e-6
    assert change[clean > 0.05].std() == pytest.approx(0.05 / 3**0.5, rel=0.02)
    assert pixels.min() >= -1e-6
    # Of training images, as many as there are test images, each once.
    nearest = torch.cdist(found["noise"].flatten(1), data.train[0].flatten(1)).argmin(1)
    assert len(nearest.unique()) == len(data.test[0])
    assert torch.equal(found["noise"], FOREIGN["noise"](None, data, budget))


def test_noisy_batches_are_augmented_and_new_every_epoch(data):
    loader = data.noisy_batches(0.01, 21, "crop+flip")
    assert len(loader) == 4
    one, two = (torch.cat([x for x, _ in loader]) for _ in range(2))
    assert one.shape == two.shape == data.train[0].shape
    nearest = torch.cdist(one.flatten(1), data.train[0].flatten(1)).min(1).values
    assert nearest.median() > 10  # noise alone would be at most 0.01 * 3072 ** 0.5 / std = 2
    black = data.normalize(torch.zeros(1, 3, 1, 1))
    assert ((one - black).abs() < 0.02 / min(data.normalize.std)).any()  # borders of crops


def test_all_methods_have_the_same_steps_of_the_same_rows():
    chosen = OpenSet(batch_size=64, epochs=3, estimator="exemplar", weight_decay=1e-3)
    found = {name: setting(chosen, name, num_data=1000) for name in METHODS}
    for name, (method, config) in found.items():
        assert config.steps == math.ceil(3 * 1000 / 64)
        noisy = 0 if config.regularizer is None else 64 // 4
        assert config.batch_size + 2 * noisy == 64
        assert (noisy > 0) == name.endswith("_reg")
        assert config.weight_decay == 1e-3
        if method.name in ("mean_field", "shared_ensemble"):
            assert (method.weight_decay, method.num_data) == (1e-3, 1000)
    assert found["mean_field"][0].estimator == "exemplar"
    assert found["mean_field_reg"][0].init_log_std == chosen.log_std
    assert found["mean_field_reg"][1].posterior_lr == chosen.log_std_lr
    assert found["shared_ensemble_reg"][1].posterior_lr == chosen.posterior_lr
    assert found["mc_dropout"][0] == found["mc_dropout_reg"][0] == lb.MCDropout(rate=0.2)


def test_a_thinned_curve_has_its_ends_and_nearly_its_area():
    generator = torch.Generator().manual_seed(0)
    same = torch.rand(2000, generator=generator) < 0.5
    angle = torch.rand(2000, generator=generator, dtype=torch.float64) * (2.0 - same.double())
    first = torch.tensor([[1.0, 0.0]]).repeat(2000, 1).double()
    found = lb.verify(first, torch.stack([angle.cos(), angle.sin()], 1), same)
    curve = thinned(found)
    assert 40 <= len(curve["fpr"]) <= 50
    assert (curve["fpr"][0], curve["tpr"][0]) == (0, 0)
    assert (curve["fpr"][-1], curve["tpr"][-1]) == (1, 1)
    area = np.trapezoid(curve["tpr"], curve["fpr"])
    assert area == pytest.approx(found.auroc, abs=0.01)


def test_figures_of_a_network_that_knows_its_classes(file):
    """One that reads brightness: it tells the known classes, and pairs of the others."""
    study = Study(OpenSet(**options(file, foreign=("noise_test",), eps=0.5)))
    net = torch.nn.Sequential(Brightness(study.data.normalize), torch.nn.Linear(2, 7))
    centres = Brightness.turned(torch.arange(7.0))
    with torch.no_grad():
        net[1].weight.copy_(200 * centres)
        net[1].bias.zero_()
    row = study.figures(lb.bayesianize(net, lb.MAP(), example=study.data.test[0][:2]))
    assert row["accuracy"] == 1
    assert row["verification"] == {"mean": 1, "error": 0}
    assert row["auroc"] == 1
    assert row["ap_noise_test_epistemic"] is None
    assert row["ap_noise_test_total"] > 0.6
    assert row["rows"] == {"pairs": 40, "train": 35, "test": 35, "others": 15}


class Brightness(torch.nn.Module):
    """The class of a made-up image as a direction of the plane."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return self.turned((self.scale.undo(x).mean((1, 2, 3)) * 255 - 9.5) / 20)

    @staticmethod
    def turned(label):
        return torch.stack([(label / 8).cos(), (label / 8).sin()], 1)


def test_the_command_writes_a_row_a_method_and_draws_the_curves(file, tmp_path):
    out, picture = tmp_path / "verification.json", tmp_path / "roc.png"
    words = ["experiment", "verification", "--root", str(file), "--smoke", "--set", "reader=npz"]
    words += ["--out", str(out), "--picture", str(picture)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(out.read_text())
    rows = {row["label"]: row for row in found["rows"]}
    assert list(rows) == ["pretrained", *METHODS]
    for name, row in rows.items():
        assert 0 <= row["verification"]["mean"] <= 1
        assert 0 <= row["auroc"] <= 1
        assert 0 < row["ap_noise_total"] <= 1
        assert 0 < row["ap_pgd_total"] <= 1
        points = name in ("pretrained", "map")
        assert (row["ap_noise_epistemic"] is None) == points
        assert row["steps"] == (3 if name == "pretrained" else 2)
    assert rows["mean_field_reg"]["config"]["regularizer"]["alpha"] == 3.0
    assert rows["map"]["paper"]["comparable"] is False
    assert found["settings"]["samples"] == 4
    assert str(file) not in out.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_trained_network_is_kept_and_read(file, tmp_path):
    chosen = options(file, methods=(), foreign=("noise",), keep=str(tmp_path / "kept" / "net.pt"))
    (trained,) = OpenSet(**chosen).rows()
    before = torch.load(chosen["keep"], weights_only=True)["state"]["conv1.weight"]
    (read,) = OpenSet(**chosen).rows()
    after = torch.load(chosen["keep"], weights_only=True)["state"]["conv1.weight"]
    assert torch.equal(before, after)
    for key in ("verification", "auroc", "roc", "nll", "ap_noise_total", "steps", "config"):
        assert read[key] == trained[key]
    with pytest.raises(lb.ConfigError, match=r"net\.pt holds a network that was trained otherwise"):
        list(OpenSet(**chosen, weight_decay=1e-3).rows())


def test_settings_are_chosen_on_training_images_alone(file):
    whole = Study(OpenSet(**options(file))).data
    cut = Study(OpenSet(**options(file, held_out=0.2))).data
    assert [len(part[1]) for part in (cut.train, cut.test, cut.others)] == [20, 5, 10]
    assert set(cut.train[1].tolist()) == set(range(5))
    assert set(cut.others[1].tolist()) == {5, 6}
    x = torch.cat([cut.train[0], cut.test[0], cut.others[0]]).flatten(1)
    same = (x.unsqueeze(1) == whole.train[0].flatten(1)).all(2)
    assert torch.equal(same.sum(0), torch.ones(35).long())  # every training image once


def test_mobilenet_runs_with_the_regulariser_in_bf16(file):
    chosen = options(file, model="mobilenet_v2", methods=("mean_field_reg",), precision="bf16")
    row = list(OpenSet(**chosen).rows())[-1]
    assert row["config"]["precision"] == "bf16"
    assert math.isfinite(row["nll"])


def test_what_is_not_there_is_named(file):
    with pytest.raises(lb.ConfigError, match="methods: no 'vi'; expected some of map"):
        OpenSet(methods=("vi",))
    with pytest.raises(lb.ConfigError, match="foreign: no 'pdg'"):
        OpenSet(foreign=("pdg",))
    with pytest.raises(lb.ConfigError, match="multiple of 4"):
        OpenSet(batch_size=30)
    data = lb.data.read("npz", root=str(file))
    for known in ((0,), (0, 0), (0, 10), range(9)):
        with pytest.raises(lb.ConfigError, match="different labels from 0 to 9"):
            OpenSetData.of(data, known)
    with pytest.raises(lb.ConfigError, match="no labelled images in memory"):
        OpenSetData.of(lb.data.read("sklearn_table", name="wine"), (0, 1))
