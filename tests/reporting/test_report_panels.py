"""Panels and planes: shapes lie where their numbers say."""

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from leanbayes.reporting.axes import Axis
from leanbayes.reporting.charts.contours import contour
from leanbayes.reporting.charts.densities import Density, densities
from leanbayes.reporting.charts.heat import Plane, Shades, fine, heat
from leanbayes.reporting.charts.layers import Layer, layers
from leanbayes.reporting.charts.reliability import DOWN, TOP, Bins, reliability
from leanbayes.reporting.charts.scatter import front
from leanbayes.reporting.charts.stack import Parts, stack
from leanbayes.reporting.charts.words import Labels, Point
from leanbayes.reporting.looks import Look

LABELS = Labels("a chart", "A title", "across", "up")
LOOK = Look("k", "m", 0)


def by_class(chart, word):
    tree = ET.fromstring(chart.file())
    return [e for e in tree.iter() if word in (e.get("class") or "").split()]


def numbers(path):
    return [float(v) for v in re.findall(r"-?[\d.]+", path)]


def test_a_bin_is_as_high_as_its_accuracy_and_its_gap_ends_at_the_confidence():
    bins = Bins([0.25, None, 0.9], [0.5, None, 0.8], [10, 0, 30])
    chart = reliability(LABELS, bins, LOOK, "ECE 0.1")

    def place(v):
        return DOWN + v * (TOP - DOWN)

    (caps,) = by_class(chart, "cap")
    heights = [float(h) for h in re.findall(r"M[\d.]+ ([\d.]+)H", caps.get("d"))]
    assert heights == pytest.approx([place(0.5), place(0.8)], abs=0.06)
    (gaps,) = by_class(chart, "gap")
    ends = re.findall(r"M[\d.]+ ([\d.]+) V([\d.]+)", gaps.get("d"))
    assert [tuple(map(float, e)) for e in ends] == [
        pytest.approx((place(0.5), place(0.25)), abs=0.06),
        pytest.approx((place(0.8), place(0.9)), abs=0.06),
    ]
    assert reliability(LABELS, Bins([None], [None], [0]), LOOK, "") is None


def test_a_histogram_is_as_high_as_the_root_of_its_share():
    found = [Density("a", [0, 1, 2], [1, 3]), Density("b", [0, 1, 2], [0, 4])]
    chart = densities(LABELS, found, LOOK, "", end=2)
    first, second = (e.get("d") for e in by_class(chart, "area"))
    up = [146 - float(v) for v in re.findall(r"V([\d.]+)", first)][:2]
    other = [146 - float(v) for v in re.findall(r"V([\d.]+)", second)][:2]
    assert up[0] / up[1] == pytest.approx(math.sqrt(1 / 3), rel=0.01)
    assert other[0] == 0
    assert up[1] / other[1] == pytest.approx(math.sqrt(0.75), rel=0.01)
    assert "a: mean 1.25; b: mean 1.5" in chart.description


def test_fine_bins_are_drawn_as_thirty_and_lose_no_row():
    counts = [at % 7 for at in range(240)]
    fine = Density("a", [(at / 240) ** 2 for at in range(241)], counts)
    whole = fine.drawn(1.0)
    assert whole.counts == [sum(counts[at : at + 8]) for at in range(0, 240, 8)]
    assert list(whole.edges) == list(fine.edges[::8])
    for end in (0.0, 1e-9, 0.003, 0.2, 0.5, 0.77, 9.0):
        part = fine.drawn(end)
        assert len(part.counts) == len(part.edges) - 1 <= 30
        assert sum(part.counts) == sum(counts)  # the last bin takes what is beyond
        assert part.edges[-1] >= min(end, 1)
        inside = zip(part.counts[:-1], part.edges[:-2], part.edges[1:-1], strict=True)
        for count, low, high in inside:
            assert count == sum(
                n for n, at in zip(counts, fine.edges, strict=False) if low <= at < high
            )
        widths = [math.sqrt(b) - math.sqrt(a) for a, b in pairwise(part.edges)]
        assert 0.5 * widths[0] < widths[-1] < 1.6 * widths[0]  # no sliver


def test_the_reach_of_a_share_is_the_edge_above_it():
    one = Density("a", [0, 1, 2, 3], [90, 9, 1])
    assert [one.reach(share) for share in (0.5, 0.9, 0.91, 0.995, 1.0)] == [1, 1, 2, 3, 3]
    assert Density("a", [0, 1, 2], [0, 0]).reach(0.995) == 0


def test_a_root_axis_places_roots_evenly_and_marks_round_numbers():
    axis = Axis(0, 0.64, 0, 80, root=True)
    assert [axis.place(v) for v in (0, 0.01, 0.16, 0.64)] == pytest.approx([0, 10, 40, 80])
    assert axis.marks() == [0, 0.04, 0.2, 0.4, 0.6]
    assert axis.holds(0)
    assert not axis.holds(-0.1)
    found = [Density("a", [0, 0.16, 0.64], [1, 1])]
    (area,) = by_class(densities(LABELS, found, LOOK, "", end=0.64, root=True), "area")
    start, middle, end = (
        numbers(area.get("d"))[0],
        *map(float, re.findall("H([0-9.]+)", area.get("d"))),
    )
    assert middle == pytest.approx((start + end) / 2, abs=0.1)


def test_the_epistemic_part_lies_on_the_aleatoric_one():
    parts = Parts([0.0, 1.0], [1.0, 2.0], [0.5, 1.0])
    chart = stack(LABELS, parts, 3.0)
    under, above = (numbers(e.get("d")) for e in by_class(chart, "area"))
    assert under[1] == above[7]  # the upper edge of the one is the lower edge of the other
    assert under[3] == above[5]
    zero = under[5]
    assert (zero - above[1]) / (zero - under[1]) == pytest.approx(1.5, rel=0.01)
    assert parts.total == [1.5, 3.0]


def test_a_contour_of_a_cone_is_a_circle():
    at = [v / 10 for v in range(-20, 21)]
    cone = [[math.hypot(x, y) for x in at] for y in at]
    pieces = contour(at, at, cone, 1.25)
    assert len(pieces) > 20
    ends = [p for piece in pieces for p in (piece[:2], piece[2:])]
    assert all(math.hypot(*end) == pytest.approx(1.25, abs=0.01) for end in ends)
    length = sum(math.dist(piece[:2], piece[2:]) for piece in pieces)
    assert length == pytest.approx(2 * math.pi * 1.25, rel=0.01)


def test_a_saddle_is_joined_by_the_height_in_its_middle():
    high = contour([0, 1], [0, 1], [[1.0, 0.0], [0.0, 1.0]], 0.4)
    low = contour([0, 1], [0, 1], [[1.0, 0.0], [0.0, 1.0]], 0.6)
    # Middle 0.5: above 0.4 the high corners are joined, so lines cut off the low ones.
    assert {frozenset((p[:2], p[2:])) for p in high} == {
        frozenset({(0.6, 0), (1, 0.4)}),
        frozenset({(0.4, 1), (0, 0.6)}),
    }
    assert {frozenset((p[:2], p[2:])) for p in low} == {
        frozenset({(0.4, 0), (0, 0.4)}),
        frozenset({(0.6, 1), (1, 0.6)}),
    }


def test_heat_has_a_cell_for_every_height_and_a_pin_for_every_member():
    plane = Plane([0, 1, 2], [0, 1], [[0.0, 1.0, 2.0], [1.0, None, 3.0]])
    chart = heat(LABELS, plane, [("one", 1.0, 0.5), ("two", 2.0, 0.0)], "loss")
    pins = by_class(chart, "pin")
    assert float(pins[0].get("cx")) < float(pins[1].get("cx"))
    assert float(pins[0].get("cy")) < float(pins[1].get("cy"))
    assert "loss from 0 to 3" in chart.description
    assert heat(LABELS, Plane([0], [0], [[1.0]]), [], "loss") is None


def test_a_finer_grid_keeps_the_heights_it_had():
    plane = Plane([0.0, 1.0], [0.0, 2.0], [[0.0, 1.0], [2.0, 5.0]])
    finer = fine(plane)
    times = len(finer.x) - 1
    assert times > 1
    corners = [finer.z[a][b] for a in (0, -1) for b in (0, -1)]
    assert corners == [0.0, 1.0, 2.0, 5.0]
    middle = finer.z[times // 2][times // 2]
    assert middle == pytest.approx(2.0)  # bilinear


def test_shades_are_even_in_height_or_in_factor():
    even = Shades.of([0.0, 12.0])
    assert [even.shade(v) for v in (0.0, 0.5, 1.5, 11.5, 12.0)] == [0, 0, 1, 11, 11]
    wide = Shades.of([1.0, 10.0**12])
    assert wide.log
    assert [wide.shade(v) for v in (1.0, 50.0, 1e12)] == [0, 1, 11]
    flat = Shades.of([2.0, 2.0])
    assert (flat.low, flat.high) == (1.0, 3.0)


def test_layers_have_bars_as_long_as_their_share_and_ranges_on_a_log_scale():
    found = [Layer("a", 0.5, (0.01, 0.1, 1.0), "w"), Layer("b", 0.0, None, "none")]
    chart = layers(LABELS, found, LOOK)
    bars, troughs = by_class(chart, "bar"), by_class(chart, "trough")
    assert float(bars[0].get("width")) == pytest.approx(float(troughs[0].get("width")) / 2)
    assert float(bars[1].get("width")) == 0
    (line,) = by_class(chart, "range")
    (dot,) = by_class(chart, "dot")
    middle = (float(line.get("x1")) + float(line.get("x2"))) / 2
    assert float(dot.get("cx")) == pytest.approx(middle, abs=0.1)
    many = layers(LABELS, [Layer(f"layer {at}", 1.0, None, "") for at in range(150)], LOOK)
    assert many.height < 1200
    assert len(by_class(many, "end")) < 100  # names do not lie on each other


def test_the_front_is_what_nothing_beats():
    points = [
        Point("dear", 9, 1.0),
        Point("bad", 2, 3.0),
        Point("cheap", 1, 2.0),
        Point("as", 1, 2),
    ]
    assert [p.label for p in front(points, -1)] == ["cheap", "dear"]
    assert [p.label for p in front(points, 1)] == ["cheap", "bad"]
    assert front(points, 0) == []
