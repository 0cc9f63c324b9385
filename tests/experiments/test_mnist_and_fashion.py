"""The experiments on grey images: rates of random parameters on MNIST, widths on Fashion-MNIST."""

import json
import lzma
import struct

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.experiments import EXPERIMENTS, FashionWidths, MnistRates
from leanbayes.experiments.fashion_widths import setting, summary
from leanbayes.experiments.grey_images import grey_images
from leanbayes.experiments.mnist_rates import Bench, against, sigma_map
from leanbayes.experiments.mnist_rates_picture import _curves
from leanbayes.experiments.training_flops import count_pass
from leanbayes.prediction import Classification
from leanbayes.shifts import rotate

LINEAR = 784 * 300 + 300 * 100 + 100 * 10  # weights of LeNet 300-100
CANDIDATES = LINEAR + 410  # with biases, without norms
PLACE = {"device": "cpu", "smoke": False}


def arrays(seed):
    generator = np.random.default_rng(seed)
    found = {}
    for part, count in (("train", 120), ("test", 40)):
        found[f"x_{part}"] = generator.integers(0, 256 - 60 * seed, (count, 28, 28), np.uint8)
        found[f"y_{part}"] = (np.arange(count) % 10).astype(np.uint8)
    return found


def write_idx(path, values):
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(head + values.tobytes())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Digits packed as npz.xz, clothes as npz and, in a folder, as idx files."""
    folder = tmp_path_factory.mktemp("images")
    np.savez(folder / "digits.npz", **arrays(0))
    (folder / "digits.npz.xz").write_bytes(lzma.compress((folder / "digits.npz").read_bytes()))
    (folder / "digits.npz").unlink()
    np.savez(folder / "clothes.npz", **arrays(1))
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, key in (("train", "train"), ("t10k", "test")):
        write_idx(raw / f"{part}-images-idx3-ubyte", arrays(1)[f"x_{key}"])
        write_idx(raw / f"{part}-labels-idx1-ubyte", arrays(1)[f"y_{key}"])
    return folder


def run(name, root, folder, *changes):
    words = ["experiment", name, "--root", str(root), "--smoke", "--out", str(folder / "out.json")]
    words += ["--picture", str(folder / "out.png")]
    words += [word for change in changes for word in ("--set", change)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "out.json").read_text()
    assert str(root) not in text
    return json.loads(text)["rows"]


@pytest.fixture(scope="module")
def rates(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rates")
    return run("mnist-rates", root, folder, "images=digits.npz.xz", "foreign=clothes.npz")


def test_quarter_turns_are_exact_and_corners_are_black():
    x = torch.randn(2, 1, 28, 28)
    for quarters in range(3):
        turned = rotate(x, 90 * quarters, background=-0.4)
        torch.testing.assert_close(turned, x.rot90(quarters, (2, 3)), rtol=0, atol=3e-5)
    black = torch.full((1, 1, 28, 28), -0.4)
    torch.testing.assert_close(rotate(black, 45, background=-0.4), black)
    assert rotate(torch.ones(1, 1, 28, 28), 45, -0.4)[0, 0, 0, 0].item() == pytest.approx(-0.4)


def test_operations_of_lenet_are_those_of_its_matrix_products():
    net = lb.models.create("lenet300", norm=True)
    found = count_pass(net, torch.zeros(50, 1, 28, 28))
    assert found.forward == 2 * 50 * LINEAR
    # Weights' gradients as much again, inputs' all but those of the images.
    assert found.backward == 2 * 50 * (LINEAR + LINEAR - 784 * 300)
    assert found.step(5, 1000) == 5 * found.both + 1000 * 36
    assert found.paper_step(5, 0.1) == pytest.approx(1.1 * 7 * found.forward)
    assert found.paper_step(1, 0.0) == 3 * found.forward


def test_idx_and_npz_give_the_same_pixels(root):
    packed = grey_images("fashion_mnist", root=str(root), file="clothes.npz", **PLACE)
    plain = grey_images("fashion_mnist", root=str(root), file="", **PLACE)
    assert len(packed.train[1]) == len(plain.train[1]) == 120
    for part in ("train", "test"):
        pixels = [d.normalize.undo(getattr(d, part)[0]) for d in (packed, plain)]
        torch.testing.assert_close(*pixels, rtol=0, atol=1e-6)
        assert torch.equal(getattr(packed, part)[1], getattr(plain, part)[1])


def test_images_of_another_size_are_refused(tmp_path):
    x, y = np.zeros((6, 8, 8), np.uint8), np.arange(6)
    np.savez(tmp_path / "small.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(lb.DataError, match="expected grey images of 28x28"):
        grey_images("mnist", root=str(tmp_path), file="small.npz", **PLACE)


def test_foreign_images_are_scaled_as_the_training_images_are(root):
    bench = Bench(MnistRates(root=str(root), images="digits.npz.xz", foreign="clothes.npz"))
    raw = torch.tensor(arrays(1)["x_test"]).unsqueeze(1)
    torch.testing.assert_close(bench.foreign, bench.data.normalize(raw), rtol=0, atol=1e-5)


def test_every_rate_has_a_row_of_whole_figures(rates):
    labels = ["map", "partial 5 %", "partial 50 %", "mean_field", "mean_field from scratch"]
    assert [row["label"] for row in rates] == labels
    shares = [0, 0.05, 0.5, 1, 1]
    assert [row["random"] for row in rates] == [round(share * CANDIDATES) for share in shares]
    for row in rates:
        turned = row["rotation"]
        assert turned["degrees"] == [0, 90, 180]
        for key in ("accuracy", "nll", "total", "epistemic"):
            assert turned[key][0] == pytest.approx(row[key], abs=1e-4)
        assert (row["auroc_epistemic"] is None) == (row["label"] == "map")
        assert 0 <= row["auroc_total"] <= 1
        assert (row["sigma"] is None) == (row["label"] == "map")
        assert np.shape(row["sigma"]) == (() if row["sigma"] is None else (28, 28))


def test_operations_add_up_over_both_trainings(rates):
    one = count_pass(lb.models.create("lenet300", norm=True), torch.zeros(50, 1, 28, 28))
    by_label = {row["label"]: row for row in rates}
    point = 10 * one.both
    assert by_label["map"]["flops"] == point
    entries = round(0.05 * CANDIDATES)
    scoring = 3 * one.both  # 120 images, 50 a batch
    expected = point + scoring + 10 * one.step(5, entries)
    assert by_label["partial 5 %"]["flops"] == expected
    assert by_label["mean_field from scratch"]["flops"] == 10 * one.step(5, CANDIDATES)
    paper = 10 * 3 * one.forward + 10 * 1.05 * 7 * one.forward
    assert by_label["partial 5 %"]["paper_flops"] == pytest.approx(paper)


def test_the_map_shows_where_the_first_layer_is_random():
    net = lb.models.create("lenet300", norm=True)
    scores = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    scores["hidden.0.weight"][:150, 30] = 1.0  # half of the units at row 1, column 2
    method = lb.Partial(rate=150 / CANDIDATES, init_std=0.2, preset="paper")
    found = torch.tensor(sigma_map(lb.bayesianize(net, method, scores=scores)))
    assert found[1, 2].item() == pytest.approx(0.1, rel=1e-3)
    assert int((found != 0).sum()) == 1
    assert sigma_map(lb.bayesianize(lb.models.create("lenet300"), lb.MAP())) is None


def test_uncertain_foreign_images_are_told_apart():
    sure = torch.tensor([[1.0, 0.0], [0.9, 0.1]], dtype=torch.float64)
    even = torch.full((2, 2), 0.5, dtype=torch.float64)
    weights = torch.ones(1, dtype=torch.float64)
    inside, outside = (
        Classification(None, weights, probs, torch.zeros(2, dtype=torch.float64))
        for probs in (sure, even)
    )
    found = against(inside, outside, random=True)
    assert found["auroc_total"] == found["auroc_epistemic"] == 1.0
    assert found["foreign_total"] == pytest.approx(np.log(2))
    assert against(inside, outside, random=False)["auroc_epistemic"] is None


def test_widths_have_mean_and_error_over_seeds(root, tmp_path):
    rows = run("fashion-widths", root, tmp_path, "methods=['implicit','map']")
    assert [row["label"] for row in rows] == ["implicit x1", "map x1", "implicit x2", "map x2"]
    assert [row["parameters"] for row in rows] == [41806, 41806, 165202, 165202]
    for row in rows:
        assert row["seeds"] == [0, 1]
        for key in ("test_error", "nll", "ece"):
            assert row[key] == summary(row[key]["by_seed"])
        assert row["nll"]["by_seed"][0] != row["nll"]["by_seed"][1]


def test_summary_is_mean_and_standard_error():
    found = summary([0.1, 0.2, 0.6])
    assert found["mean"] == pytest.approx(0.3)
    assert found["error"] == pytest.approx(np.std([0.1, 0.2, 0.6], ddof=1) / 3**0.5)
    assert summary([0.1])["error"] is None


def test_settings_of_the_widths_are_the_papers():
    method, config = setting("implicit", members=8)
    assert (method.members, method.prior_std, method.init_std, method.kl) == (
        *(8, 0.3, 0.75, "averaged_draw"),
    )
    assert (config.lr, config.posterior_lr, config.samples) == (0.05, 1.6, 2)
    assert config.clip is None
    clipped = [setting(name, members=8, clip=2.0)[1].clip for name in ("implicit", "vi", "map")]
    assert clipped == [2.0, None, None]  # the others have not diverged
    method, config = setting("vi")
    assert np.exp(method.init_log_std) == pytest.approx([0.014, 0.016])
    assert (config.optimizer, config.lr, config.weight_decay) == ("Adam", 1e-3, 0.0)
    assert setting("map")[1].lr == 0.05


def test_both_are_known_by_name_and_refuse_what_is_not_there():
    assert EXPERIMENTS["mnist-rates"] is MnistRates
    assert EXPERIMENTS["fashion-widths"] is FashionWidths
    with pytest.raises(lb.ConfigError, match="rates are above 0"):
        MnistRates(rates=(0.1, 1.5))
    with pytest.raises(lb.ConfigError, match="methods: no 'emp'"):
        FashionWidths(methods=("emp",))


def test_a_row_is_the_same_whether_or_not_others_came_before_it(root):
    """Parts may run in any process, and an experiment may go on after it was cut off."""
    files = {"images": "digits.npz.xz", "foreign": "clothes.npz"}
    plan = MnistRates(root=str(root), smoke=True, **files)
    together = dict(plan.parts())
    together["map"]()
    for label in list(together)[1:3]:
        row = together[label]()
        assert dict(plan.parts())[label]() == row


def test_no_legend_lies_on_the_curves_of_the_uncertainty():
    row = {
        "label": "a",
        "rotation": {"degrees": [0, 90], "accuracy": [1, 0.5], "epistemic": [0, 1]},
    }
    axes = Figure().subplots(1, 2)
    for axis, key in zip(axes, ("accuracy", "epistemic"), strict=True):
        _curves(axis, [row], key, key)
    assert axes[0].get_legend() is not None
    assert axes[1].get_legend() is None
