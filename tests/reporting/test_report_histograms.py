"""Histograms of epistemic uncertainty: drawn bins are those of the file, small values are seen."""

import json
import math
import re
import xml.etree.ElementTree as ET
from itertools import accumulate

import numpy as np
import pytest

import made_files
from leanbayes.reporting import build, read

LEFT, RIGHT, DOWN = 38, 222, 146  # of the stairs
NAMES = ("test", "ood/digits", "pgd")


def compared(**most):
    """Methods whose epistemic uncertainties are all below a bound."""
    data = made_files.compared(tuple(most), seeds=(0,), kinds=())
    for row in data["rows"]:
        splits = row["runs"][0]["evaluation"]["splits"]
        for seed, name in enumerate(NAMES):
            generator = np.random.default_rng(seed)
            values = most[row["method"]] * generator.beta(2, 4, splits[name]["count"])
            splits[name]["curves"]["histogram"] |= fine(values)
    return data


def fine(values):
    edges = math.log(8) * (np.arange(241) / 240) ** 2
    counts = np.histogram(values, edges)[0]
    used = np.flatnonzero(counts)[-1] + 1
    return {"epistemic_edges": edges[: used + 1].tolist(), "epistemic": counts[:used].tolist()}


def histograms(data, label):
    (row,) = [row for row in data["rows"] if row["method"] == label]
    splits = row["runs"][0]["evaluation"]["splits"]
    return [splits[name]["curves"]["histogram"] for name in NAMES]


def charts(tmp_path, data):
    path = tmp_path / "compare.json"
    path.write_text(json.dumps(data))
    (section,) = [s for s in build([read(path)]) if s.title == "Known and foreign data"]
    kinds = [c for c in section.charts if c.title.startswith("Epistemic")]
    return {re.search(r"of (\w+),", c.title)[1]: c for c in kinds}


def stairs(chart):
    """(place of the end, height) of every step of every area."""
    tree = ET.fromstring(chart.file())
    paths = [e.get("d") for e in tree.iter() if "area" in (e.get("class") or "").split()]
    found = [re.findall(r"V([\d.]+) H([\d.]+)", path) for path in paths]
    return [[(float(x), DOWN - float(y)) for y, x in steps] for steps in found]


def reach(histogram, share=0.995):
    """Bins that hold a share of the rows."""
    below = list(accumulate(histogram["epistemic"]))
    return next(at + 1 for at, count in enumerate(below) if count >= share * below[-1])


def rebinned(histogram, bins):
    step = math.ceil(bins / 30)
    starts = list(range(0, bins - step // 2, step))
    counts = np.pad(histogram["epistemic"], (0, 240 - len(histogram["epistemic"])))
    return np.add.reduceat(counts, starts), [*starts[1:], bins]


@pytest.mark.parametrize("bounds", [{"mean_field": 0.05}, {"mean_field": 0.05, "ensemble": 1.2}])
def test_drawn_bins_are_those_of_the_file_added_up(tmp_path, bounds):
    data = compared(**bounds)
    found = charts(tmp_path, data)
    assert list(found) == list(bounds)
    bins = max(reach(one) for label in bounds for one in histograms(data, label))
    for label, chart in found.items():
        areas, files = stairs(chart), histograms(data, label)
        rows = [rebinned(one, bins) for one in files]
        top = max(counts.max() / counts.sum() for counts, _ in rows)
        for steps, (counts, ends), one in zip(areas, rows, files, strict=True):
            assert counts.sum() == sum(one["epistemic"])
            heights = (DOWN - 8) / 1.04 * np.sqrt(counts / counts.sum() / top)
            places = LEFT + (RIGHT - LEFT) * np.array(ends) / bins  # even in square roots
            assert [y for _, y in steps] == pytest.approx(heights.tolist(), abs=0.11)
            assert [x for x, _ in steps] == pytest.approx(places.tolist(), abs=0.11)


def test_small_uncertainties_fill_several_bins_beside_large_ones_too(tmp_path):
    alone = charts(tmp_path, compared(mean_field=0.05))["mean_field"]
    beside = charts(tmp_path, compared(mean_field=0.05, ensemble=1.2))["mean_field"]
    assert all(sum(y > 0.5 for _, y in steps) >= 12 for steps in stairs(alone))
    assert all(sum(y > 0.5 for _, y in steps) >= 4 for steps in stairs(beside))


def test_a_single_far_row_does_not_stretch_the_axis(tmp_path):
    data = compared(mean_field=0.05)
    test = histograms(data, "mean_field")[0]
    test["epistemic_edges"] = (math.log(8) * (np.arange(241) / 240) ** 2).tolist()
    test["epistemic"] += [0] * (239 - len(test["epistemic"])) + [1]
    chart = charts(tmp_path, data)["mean_field"]
    marks = [float(mark) for mark in re.findall(r">([\d.]+)</text>", chart.inside)]
    assert 0.02 < max(marks) <= 0.05
    assert all(sum(y > 0.5 for _, y in steps) >= 12 for steps in stairs(chart))


def test_uncertainties_of_nothing_end_at_a_thousandth(tmp_path):
    (steps, *_) = stairs(charts(tmp_path, compared(mean_field=1e-7))["mean_field"])
    width = math.sqrt(math.log(8) / 240**2 / 0.001)
    assert steps == [
        (pytest.approx(LEFT + width * (RIGHT - LEFT), abs=0.1), pytest.approx(132.7, abs=0.1))
    ]


@pytest.mark.parametrize("old", [NAMES, NAMES[:1]])
def test_files_with_common_edges_alone_are_drawn_with_these(tmp_path, old):
    """Also where a newer version has gone on with an older file."""
    data = compared(mean_field=0.3)
    for name, one in zip(NAMES, histograms(data, "mean_field"), strict=True):
        if name in old:
            del one["epistemic_edges"]
            one["epistemic"] = [300, 100, 50, 10] + [0] * 26
    test = stairs(charts(tmp_path, data)["mean_field"])[0]
    assert len(test) == 4
    assert test[-1][0] == pytest.approx(RIGHT, abs=0.1)
    assert test[1][1] / test[0][1] == pytest.approx(math.sqrt(1 / 3), rel=0.01)
    assert test[0][0] == pytest.approx(LEFT + (RIGHT - LEFT) / 2, abs=0.1)  # a quarter of the end


@pytest.mark.parametrize(
    "change",
    [
        {"epistemic_edges": [0.0, 0.1]},
        {"epistemic_edges": [0.0, 0.2, 0.1], "epistemic": [1, 1]},
        {"epistemic_edges": [-0.1, 0.2, 0.3], "epistemic": [1, 1]},
        {"epistemic_edges": [0.0, 0.2, 1e300], "epistemic": [1, 1]},
        {"epistemic_edges": [0.0, None, 0.1], "epistemic": [1, 1]},
        {"epistemic_edges": [0.0, 0.2, 0.3], "epistemic": [1, -1]},
        {"epistemic_edges": [], "epistemic": []},
    ],
)  # fmt: skip
def test_odd_edges_leave_their_chart_out_and_no_other(tmp_path, change):
    data = compared(mean_field=0.05, ensemble=0.3)
    histograms(data, "mean_field")[1].update(change)
    assert list(charts(tmp_path, data)) == ["ensemble"]
