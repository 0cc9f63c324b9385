"""Curves, the sweep over samples, examples as images, and what a user sees meanwhile."""

import io
import json
import math
from base64 import b64decode

import numpy as np
import pytest
import torch
from evaluation_cases import CLASSES, SCALE, data, evaluate, trained
from PIL import Image
from torch import nn

import leanbayes as lb
from leanbayes import metrics
from leanbayes.evaluation.png import data_uri, encoded
from leanbayes.evaluation.progress import Meter
from leanbayes.evaluation.rows import histogram


@pytest.fixture(scope="module")
def found():
    suite = lb.Suite.of(data(), "test", sweep=True, examples=3)
    return evaluate(trained(), suite, samples=6)["splits"]["test"]


def predicted(samples=6):
    return lb.predict(trained(), data().test[0], samples=samples, seed=5)


def test_the_reliability_diagram(found):
    p, y = predicted(), data().test[1]
    expected, curve = metrics.reliability(p.probs, y), found["curves"]["reliability"]
    assert curve["count"] == expected.count.tolist()
    assert len(curve["count"]) == 15
    for name in ("confidence", "accuracy"):
        for own, value in zip(curve[name], getattr(expected, name).tolist(), strict=True):
            assert (own is None) == math.isnan(value)
            assert own is None or own == pytest.approx(value, rel=1e-6)
    assert None in curve["accuracy"]


def test_accuracy_after_rejection(found):
    p, y, curve = predicted(), data().test[1], found["curves"]["rejection"]
    assert curve["coverage"] == [pytest.approx(n / 20) for n in range(1, 21)]
    for share, value in zip(curve["coverage"], curve["accuracy"], strict=True):
        expected = metrics.accuracy_at_coverage(p.probs, y, share, p.total)
        assert value == pytest.approx(float(expected), abs=1e-12)
    assert curve["accuracy"][-1] == found["figures"]["accuracy"]


def test_histograms_have_the_same_edges_for_all_splits(found):
    p, curve = predicted(), found["curves"]["histogram"]
    assert curve["edges"][0] == 0
    assert curve["edges"][-1] == pytest.approx(math.log(3))
    assert len(curve["edges"]) == 31
    values = p.total.clamp(0, math.log(3)).numpy()
    assert curve["total"] == np.histogram(values, curve["edges"])[0].tolist()


def test_epistemic_uncertainty_is_counted_in_bins_that_are_finer_near_0(found):
    p, curve = predicted(), found["curves"]["histogram"]
    edges, counts = curve["epistemic_edges"], curve["epistemic"]
    rule = [math.log(3) * (at / 240) ** 2 for at in range(len(edges))]
    assert edges == pytest.approx(rule, rel=1e-4)
    assert counts == np.histogram(p.epistemic.clamp_min(0).numpy(), edges)[0].tolist()
    assert all(type(count) is int for count in counts)
    assert sum(counts) == len(p.epistemic)
    assert counts[-1] > 0  # no more bins than are needed


def test_epistemic_bins_hold_small_values_apart_and_rounding_at_both_ends():
    values = torch.tensor([-1e-9, 0.0, 0.001, 0.002, 0.04, 0.049, math.log(10) + 1e-9])
    table = values.double()[:, None].expand(-1, 3)
    curve = histogram(table, 10)
    edges, counts = curve["epistemic_edges"], curve["epistemic"]
    assert len(edges) == 241
    assert [at for at, count in enumerate(counts) if count] == [0, 5, 7, 31, 35, 239]
    assert counts[0] == 2
    small = histogram(table[:6], 10)
    assert small["epistemic_edges"] == edges[:37]  # the same grid, as far as it is needed
    assert small["epistemic"] == counts[:36]
    on_edge = torch.tensor([[0, 0, edge] for edge in edges[:-1]], dtype=torch.float64)
    assert histogram(on_edge, 10)["epistemic"] == [1] * 240  # an edge is in the bin above it


def test_the_sweep_is_the_prediction_of_fewer_samples(found):
    y, curve = data().test[1], found["curves"]["samples"]
    assert curve["samples"] == [1, 2, 4, 6]
    for at, count in enumerate(curve["samples"]):
        probs = predicted(count).probs
        for name in ("accuracy", "nll", "ece", "brier"):
            value = float(getattr(metrics, name)(probs, y))
            assert curve[name][at] == pytest.approx(value, rel=1e-6), (name, count)


@pytest.mark.parametrize(
    "method", [lb.Patching(members=3), lb.BatchEnsemble(members=3)], ids=lambda m: type(m).__name__
)
@pytest.mark.filterwarnings("ignore:[0-9]+ samples of 3 members")
def test_the_sweep_of_members_weighs_members_alike(method):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(81, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    model = lb.bayesianize(net, method, likelihood=lb.Categorical())
    x, y = data().test
    suite = lb.Suite.of((x, y), "test", sweep=True)
    curve = evaluate(model, suite, samples=7)["splits"]["test"]["curves"]["samples"]
    assert curve["samples"] == [1, 2, 4, 7]
    for at, count in enumerate(curve["samples"]):
        probs = lb.predict(model, x, samples=count, seed=5).probs
        assert curve["nll"][at] == pytest.approx(float(metrics.nll(probs, y)), rel=1e-6)


def test_a_sweep_with_infinite_figures_fits_into_a_file(tmp_path):
    """Single draws may rule a label out where their average does not."""
    net = nn.Linear(3, 2)
    model = lb.bayesianize(net, lb.BatchEnsemble(members=2), likelihood=lb.Categorical())
    with torch.no_grad():
        net.weight.fill_(0.0)
        net.bias.copy_(torch.tensor([2000.0, 0.0]))
        net.slots["bias"].further.zero_()
    suite = lb.Suite.of((torch.randn(4, 3), torch.ones(4).long()), "test", sweep=True)
    found = evaluate(model, suite, samples=2, out=tmp_path / "found.json")
    curve = found["splits"]["test"]["curves"]["samples"]
    assert curve["nll"] == [None, pytest.approx(1.3863, abs=1e-3)]
    assert json.loads((tmp_path / "found.json").read_text())["evaluation"]["splits"]["test"]


def test_examples_are_the_most_and_the_least_certain_images(found):
    p, (x, y) = predicted(), data().test
    order = p.total.argsort(stable=True).tolist()
    chosen = {"certain": order[:3], "uncertain": order[::-1][:3]}
    for name, rows in chosen.items():
        for row, shown in zip(rows, found["examples"][name], strict=True):
            assert shown["label"] == CLASSES[p.label[row]]
            assert shown["target"] == CLASSES[y[row]]
            assert shown["total"] == pytest.approx(float(p.total[row]), rel=1e-5)
            assert shown["epistemic"] == pytest.approx(float(p.epistemic[row]), abs=1e-6)
            assert shown["confidence"] == pytest.approx(float(p.confidence[row]), rel=1e-5)
            image = Image.open(io.BytesIO(b64decode(shown["image"].partition(",")[2])))
            levels = SCALE.undo(x[row, 0]) * 255
            assert (torch.tensor(np.array(image)) - levels).abs().max() <= 0.51
    assert found["examples"]["certain"][0]["image"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 4, 6)])
def test_an_image_survives_the_file(shape):
    levels = torch.randint(256, shape, generator=torch.Generator().manual_seed(1))
    image = Image.open(io.BytesIO(encoded(levels / 255)))
    image.load()
    assert image.mode == ("L" if shape[0] == 1 else "RGB")
    read = torch.tensor(np.array(image)).reshape(*shape[1:], shape[0]).movedim(-1, 0)
    assert torch.equal(read.long(), levels)


def test_a_large_image_is_made_small():
    image = data_uri(torch.rand(3, 300, 150)).partition(",")[2]
    assert Image.open(io.BytesIO(b64decode(image))).size == (48, 96)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ran(meter):
    for name in ("test", "pgd"):
        meter.begin(name)
        for _ in range(2):
            meter.advance(10)
        meter.end({"accuracy": 0.75, "nll": 1.5}, 20)
    meter.close()


def test_lines_in_a_log_say_what_is_left():
    ticks = iter(range(0, 1000, 6))
    stream = io.StringIO()
    ran(Meter(None, 40, 2, stream=stream, clock=lambda: next(ticks)))
    lines = stream.getvalue().splitlines()
    ends = [line for line in lines if " rows" in line]
    assert ends[0].startswith("evaluation: test: 20 rows, accuracy 0.75, nll 1.5 (1/2, ")
    assert " left)" in ends[0]
    assert ends[1] == "evaluation: pgd: 20 rows, accuracy 0.75, nll 1.5 (2/2)"
    assert any("% of all" in line for line in lines)


def test_a_terminal_has_one_bar_and_false_is_silence(capsys):
    stream = Terminal()
    ran(Meter(None, 40, 2, stream=stream))
    assert "pgd" in stream.getvalue()
    assert "100%" in stream.getvalue()
    ran(Meter(False, 40, 2))
    evaluate(trained(), lb.Suite.of(data(), "test"))
    assert capsys.readouterr() == ("", "")
    evaluate(trained(), lb.Suite.of(data(), "test"), progress=None)
    assert capsys.readouterr().err.startswith("evaluation: test: 70 rows, accuracy ")
