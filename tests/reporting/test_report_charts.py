"""Charts: places of numbers by the axes, words for those who cannot see, valid XML."""

import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from leanbayes.reporting.axes import Axis, marked, together
from leanbayes.reporting.charts import Labels, Point, Series, bars, lines, scatter
from leanbayes.reporting.charts.lines import Drawn

LABELS = Labels("a chart", "A title", "price", "quality")
SVG = "{http://www.w3.org/2000/svg}"


def parsed(chart):
    return ET.fromstring(chart.file())


def by_class(tree, word):
    return [e for e in tree.iter() if word in (e.get("class") or "").split()]


def test_an_axis_is_linear_or_logarithmic():
    axis = Axis(0.0, 10.0, 100.0, 200.0)
    assert [axis.place(v) for v in (0, 5, 10)] == [100, 150, 200]
    axis = Axis(1.0, 100.0, 0.0, 2.0, log=True)
    assert [axis.place(v) for v in (1, 10, 100)] == pytest.approx([0, 1, 2])
    assert not axis.holds(0.0)
    assert not axis.holds(math.nan)
    assert not axis.holds(None)


@pytest.mark.parametrize(
    "ends", [(0, 1), (-3.2, 7.9), (1e-7, 3e-7), (0.999, 1.0), (-5e9, 1e9), (1e-20, 9e-20)]
)
def test_marks_are_round_and_inside(ends):
    axis = Axis(*ends, 0, 1)
    marks = axis.marks()
    assert 3 <= len(marks) <= 8
    room = 1e-9 * (ends[1] - ends[0])
    assert all(ends[0] - room <= mark <= ends[1] + room for mark in marks)
    steps = [b - a for a, b in pairwise(marks)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)


@pytest.mark.parametrize(
    ("ends", "marks"),
    [
        ((1.5, 150), [2, 5, 10, 20, 50, 100]),
        ((1, 1e6), [10.0**power for power in range(7)]),
        ((0.95, 1.75), [1, 1.2, 1.4, 1.6]),  # prices near that of the network
    ],
)
def test_marks_of_a_logarithmic_axis(ends, marks):
    assert Axis(*ends, 0, 1, log=True).marks() == pytest.approx(marks)


def test_equal_values_and_no_values_have_an_axis_too():
    for values in ([2.0, 2.0], [0.0], [], [math.nan], [-1e308, 1e308]):
        axis = Axis.of(values, 0, 1)
        assert axis.low < axis.high
        assert axis.marks()
    axis = Axis.of([0.0, -1.0, 4.0], 0, 1, log=True)
    assert axis.low < 4 < axis.high


def test_points_lie_where_the_axes_say():
    chart = scatter(LABELS, [Point("a", 1.0, 1.0, 0.5), Point("b", 3.0, 2.0)])
    tree = parsed(chart)
    first, second = by_class(tree, "dot")
    assert float(first.get("cx")) < float(second.get("cx"))
    assert float(first.get("cy")) > float(second.get("cy"))  # up is more
    (bar,) = by_class(tree, "error")
    middle = (float(bar.get("y1")) + float(bar.get("y2"))) / 2
    assert middle == pytest.approx(float(first.get("cy")), abs=0.11)


def test_a_chart_has_words_for_those_who_cannot_see_it():
    tree = parsed(scatter(LABELS, [Point("a", 1.0, 0.25, 0.125), Point("b", 3.0, 2.0)]))
    assert tree.get("role") == "img"
    assert tree.find(f"{SVG}title").text == "A title"
    about = tree.find(f"{SVG}desc").text
    assert "quality against price" in about
    assert "a: 1, 0.2500 ± 0.1250" in about


def _box(name):
    """Where it begins, how high it is, and how long."""
    wide = len(name.text) * 7.7
    before = {"name": 0.0, "name end": 1.0, "name middle": 0.5}[name.get("class")]
    return float(name.get("x")) - before * wide, float(name.get("y")), wide


def test_names_never_lie_on_each_other():
    points = [Point(f"method {at}", 1.0 + 0.001 * at, 1.0 + 0.01 * at) for at in range(30)]
    chart = scatter(LABELS, points)
    names = by_class(parsed(chart), "name")
    assert 0 < len(names) < 30
    boxes = [_box(name) for name in names]
    for at, (x, y, wide) in enumerate(boxes):
        for other_x, other_y, other_wide in boxes[:at]:
            apart = x + wide <= other_x + 0.2 or other_x + other_wide <= x + 0.2
            assert apart or abs(y - other_y) >= 11.8


def test_a_line_has_gaps_where_numbers_are_missing_and_a_band():
    series = Series("s", [0, 1, 2, 3, 4], [1.0, 2.0, None, math.nan, 3.0])
    tree = parsed(lines(LABELS, [series]))
    (path,) = by_class(tree, "line")
    assert path.get("d").count("M") == 2
    banded = Series("s", [0, 1], [1.0, 2.0], low=[0.0, 1.0], high=[2.0, 3.0], dots=[(0.5, 1.5)])
    tree = parsed(lines(LABELS, [banded]))
    assert by_class(tree, "band")[0].get("d").count("L") == 3
    assert len(by_class(tree, "dot")) == 1
    page = lines(LABELS, [series, banded]).figure()
    assert page.count("<li>") == 2  # a legend


def test_bars_start_at_zero_and_are_as_long_as_their_value():
    tree = parsed(bars(LABELS, [("a", 1.0, None), ("b", 2.0, 0.1), ("c", None, None)]))
    first, second = by_class(tree, "bar")
    assert first.get("x") == second.get("x")
    assert float(second.get("width")) == pytest.approx(2 * float(first.get("width")), abs=0.11)
    tree = parsed(bars(LABELS, [("a", 10.1, None), ("b", 10.2, 0.1)], zero=False))
    assert not by_class(tree, "bar")
    assert len(by_class(tree, "dot")) == 2


def test_nothing_to_draw_is_no_chart():
    assert scatter(LABELS, [Point("a", math.nan, 1.0)]) is None
    assert lines(LABELS, [Series("s", [], [])]) is None
    assert lines(LABELS, [Series("s", [1.0], [math.nan])]) is None
    assert bars(LABELS, [("a", None, None)]) is None


def test_names_are_escaped_in_svg():
    chart = scatter(LABELS, [Point("<b>&\x00\"'", 1.0, 1.0), Point("b", 2.0, 1.0)])
    assert "<b>" not in chart.file()
    assert "<b>&\"'" in {e.text for e in parsed(chart).iter()}


def test_marks_as_words():
    assert [marked(v) for v in (0.0, 15000.0, 2e6, 3e9, -0.25)] == ["0", "15k", "2M", "3G", "-0.25"]


GOOD = [(f"good {at}", 0.1 + 0.01 * at) for at in range(18)]
FAR = [("low", -40.0)]


def test_a_row_that_is_too_far_off_is_an_arrow_and_the_others_take_all_the_room():
    values = [(name, value, None) for name, value in GOOD + FAR]
    tree = parsed(bars(LABELS, values, zero=False, reference="low"))
    places = [float(dot.get("cx")) for dot in by_class(tree, "dot")]
    assert len(places) == len(GOOD)
    assert max(places) - min(places) > 150
    assert [word.text for word in by_class(tree, "name")] == ["\u2190 -40.0000"]
    assert not by_class(tree, "diagonal")  # it would lie outside
    mirrored = [(name, -value, None) for name, value, _ in values]
    tree = parsed(bars(LABELS, mirrored, zero=False))
    assert [word.text for word in by_class(tree, "name")] == ["40.0000 \u2192"]


def test_points_and_lines_that_are_too_far_off_are_named_and_not_drawn():
    points = [Point(name, at, value) for at, (name, value) in enumerate(GOOD + FAR, 1)]
    chart = scatter(LABELS, points, way=1)
    assert len(by_class(parsed(chart), "dot")) == len(GOOD)
    assert chart.title == "A title; off the scale: low (-40)"
    series = [Series(name, [1, 2], [value + 1, value]) for name, value in GOOD + FAR]
    chart = lines(LABELS, series, Drawn(dots=True))
    assert len(by_class(parsed(chart), "dot")) == 2 * len(GOOD)
    assert chart.title == "A title; off the scale: low (-40)"
    assert lines(LABELS, series, Drawn(ends=(0.0, 1.0))).title == "A title"


def test_a_line_that_is_far_off_is_named_however_widely_it_is_spread_itself():
    good = [Series(f"good {at}", [1, 2, 4], [0.02, 0.01, 0.01 + 0.001 * at]) for at in range(12)]
    failed = Series("failed", [1, 2, 4], [0.15, 0.25, 0.34])
    tree = parsed(chart := lines(LABELS, [*good, failed], Drawn(dots=True)))
    assert chart.title == "A title; off the scale: failed (0.34)"
    assert len(by_class(tree, "dot")) == 3 * len(good)
    # One that comes down to the others stays, for how it gets there is what a reader looks for.
    learns = Series("learns", [1, 2, 4], [0.34, 0.27, 0.015])
    chart = lines(LABELS, [*good, learns], Drawn(dots=True))
    assert len(by_class(parsed(chart), "dot")) == 3 * (len(good) + 1)
    # One that leaves them goes: all of the others would lie on its first point.
    fails = Series("fails", [1, 2, 4], [0.015, 0.2, 0.34])
    chart = lines(LABELS, [*good, fails], Drawn(dots=True))
    assert chart.title == "A title; off the scale: fails (0.34)"
    assert len(by_class(parsed(chart), "dot")) == 3 * len(good)


def test_a_name_before_the_edge_ends_at_its_point_however_wide_its_letters():
    points = [Point("mean_field", 0.12, 2.0), Point("map", 6.2, 1.0)]
    tree = parsed(scatter(LABELS, points, log=True))
    (name,) = (name for name in by_class(tree, "name") if name.text == "map")
    right = max(float(dot.get("cx")) for dot in by_class(tree, "dot"))
    assert (name.get("class"), float(name.get("x"))) == ("name end", right - 9)


def test_a_failed_method_hides_no_other_that_is_far():
    """Without the worst one the next may press all others flat; a tenth may go in all."""
    near = [0.1 + 0.001 * at for at in range(28)]
    assert together([*near, 0.25, 2.2]) == (near[0], near[-1])
    assert together([*near[:18], 0.25, 2.2]) == (near[0], near[17])
    assert together([*near[:9], 0.25, 2.2]) == (near[0], 0.25)
    assert together([-5.0, *near, 2.2]) == (near[0], near[-1])


def test_a_name_without_room_beside_its_point_has_a_line_that_meets_no_other():
    crowd = [Point(f"name {at}", 1.5 + 0.05 * (at % 5), 1 + 0.08 * (at // 5)) for at in range(25)]
    tree = parsed(scatter(LABELS, [Point("low", 0.0, 0.0), *crowd, Point("high", 3.0, 2.0)]))
    boxes = [_box(name) for name in by_class(tree, "name")]
    leads = by_class(tree, "lead")
    assert leads
    for lead in leads:
        x1, y1, x2, y2 = (float(lead.get(end)) for end in ("x1", "y1", "x2", "y2"))
        assert min(abs(x2 - edge) for x, _, wide in boxes for edge in (x, x + wide)) < 0.2
        for part in (at / 10 for at in range(10)):
            x, y = x1 + part * (x2 - x1), y1 + part * (y2 - y1)
            over = [b for b in boxes if b[0] < x < b[0] + b[2] and b[1] - 10 < y < b[1] + 2]
            assert not over
