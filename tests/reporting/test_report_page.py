"""Sections, tables and the page: figures as in the files, nothing from outside, all escaped."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from leanbayes.errors import DataError
from leanbayes.reporting import SECTIONS, Section, build, page, read, sections
from leanbayes.reporting.markup import Html, tag
from leanbayes.reporting.results import Figure, Row
from leanbayes.reporting.sections.best import best
from leanbayes.reporting.sections.methods import table
from leanbayes.reporting.table import Cell, Table

RESULTS = Path(__file__).resolve().parents[2] / "results"
BAD = "<script>alert(1)</script>"


def moments(mean, error=None):
    return {"mean": mean, "standard_error": error}


def compared(label="mean_field", **more):
    rows = [
        {"method": "map", "figures": {"nll": moments(0.5, 0.01), "accuracy": moments(0.9)},
         "parameters_added": 0, "training_seconds": 1.0, "seconds": 2.0, "command": "leanbayes a",
         "commit": "abc", "environment": {"torch": "2"}, "config": {"fit": {"lr": 0.1}}},
        {"method": label, "figures": {"nll": moments(0.4, 0.02), "accuracy": moments(0.8)},
         "parameters_added": 10, "training_seconds": 3.0, "seconds": 4.0},
        {"method": "swag", "failed": "not finite"},
    ]  # fmt: skip
    return {"command": "leanbayes compare x", "data": "x", "seeds": [0, 1], "rows": rows, **more}


@pytest.fixture
def written(tmp_path):
    def write(data, name="result.json"):
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    return write


class Tags(HTMLParser):
    """Counts elements, checks that they are closed, and keeps the text of cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, name, attrs):
        self.seen.append((name, dict(attrs)))
        if name not in ("meta",):
            self.open.append(name)

    def handle_startendtag(self, name, attrs):
        self.seen.append((name, dict(attrs)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


def made(*paths):
    return page("a report", build([read(path) for path in paths]), "about")


def test_a_comparison_has_its_figures_the_best_in_bold_and_failures_in_words(written):
    text = made(written(compared()))
    assert "<strong>0.4000 ± 0.0200</strong>" in text
    assert "<strong>0.9000</strong>" in text
    assert "0.5000 ± 0.0100" in text
    assert "<strong>0.5000" not in text
    assert "failed: not finite" in text
    for words in ("leanbayes compare x", "leanbayes a", "commit abc, torch 2", "2 seeds"):
        assert words in text
    assert "&quot;lr&quot;: 0.1" in text


def test_seeds_are_those_that_were_run(written):
    found = compared(seeds=[0, 1, 2])
    for row in found["rows"][:2]:
        row["runs"] = [{"seed": 4, "figures": {}, "seconds": 1.0}]
    text = made(written(found))
    assert "seed 4" in text
    assert "3 seeds" not in text


@pytest.mark.parametrize(
    ("auroc", "words"),
    [(0.01, ", worse than chance"), (0.5, ", hardly better than chance"), (0.9, "")],
)
def test_a_detector_that_is_none_is_told(written, auroc, words):
    found = compared()
    for row, value in zip(found["rows"], (0.005, auroc), strict=False):
        row["figures"]["auroc_total_pgd"] = moments(value)
    text = made(written(found))
    begin = "mean_field tells pgd from the test data best, by total uncertainty: AUROC "
    sentence = text[text.index(begin) :].split("</p>")[0]
    assert f"(map by total: 0.0050){words}." in sentence
    assert ("chance" in sentence) == bool(words)


def test_the_results_of_this_project_make_a_page():
    text = made(RESULTS / "fashion_mini.json", RESULTS / "toy.json")
    tags = Tags(text)
    assert tags.open == []
    demo = json.loads((RESULTS / "fashion_mini.json").read_text())
    first = demo["methods"][1]["nll"]
    assert f"{first['mean']:.4f} ± {first['standard_error']:.4f}" in text
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles == ["Summary", "Methods", "Quality against price", "Pictures", "Experiments",
                      "Curves", "Settings", "Commands and versions"]  # fmt: skip
    charts = [attrs for name, attrs in tags.seen if name == "svg" and attrs.get("role") == "img"]
    rows = json.loads((RESULTS / "toy.json").read_text())["rows"]
    assert len(charts) == 4 + 3 + len(rows)
    anchors = [attrs["href"] for name, attrs in tags.seen if name == "a"]
    ids = [attrs["id"] for _, attrs in tags.seen if "id" in attrs]
    assert anchors == [f"#{name}" for name in ids]


def test_the_summary_of_the_demo_names_the_best_the_cheap_and_the_detector():
    text = made(RESULTS / "fashion_mini.json")
    rows = {row["label"]: row for row in json.loads((RESULTS / "fashion_mini.json").read_text())[
        "methods"]}  # fmt: skip
    nll = {label: row["nll"]["mean"] for label, row in rows.items()}
    best = min(nll, key=nll.get)
    assert f"{best} has the best NLL, {nll[best]:.4f}" in text
    cheap = min((k for k in rows if rows[k]["training_ratio"] <= 1.5), key=nll.get)
    assert (
        f"Below 1.5 times the price of the plain network, {cheap} is best: {nll[cheap]:.4f}" in text
    )
    scores = {(row[f"ood_auroc_{part}"]["mean"] or 0, label, part)
              for label, row in rows.items() for part in ("total", "epistemic")}  # fmt: skip
    value, label, part = max(scores)
    told = f"{label} tells foreign data from the test data best, by {part} uncertainty: AUROC"
    assert f"{told} {value:.4f}" in text
    clear = [row["minus_baseline"]["nll"] for row in rows.values() if row["label"] != "map"]
    better = sum(gap["mean"] < -2 * gap["standard_error"] for gap in clear)
    assert f"{better} of {len(clear)} methods are clearly better than map in NLL" in text


def test_methods_without_a_test_are_not_counted_as_no_different(written):
    """One seed has no test: that is no word on whether a method is better."""
    data = compared()
    untested = [{**data["rows"][1], "method": f"single_{at}"} for at in range(3)]
    tested = [{**data["rows"][1], "method": f"several_{at}"} for at in range(2)]
    words = {"difference": -0.1, "over": "seeds"}
    for rows, p in ((untested, None), (tested, 0.01)):
        for row in rows:
            better = None if p is None else True
            row["significance"] = {"nll": {**words, "p": p, "better": better}}
    data["rows"] = [data["rows"][0], *untested, *tested]
    text = made(written(data))
    assert "2 of 2 methods with a test are clearly better than map in NLL, none clearly" in text
    assert "in NLL; 3 have no test" in text
    data["rows"] = data["rows"][:4]
    assert "clearly better than map in NLL" not in made(written(data))


def test_seconds_are_those_of_a_seed_since_methods_have_different_numbers_of_them(written):
    data = compared()
    data["rows"][1]["runs"] = [{"seed": seed, "figures": {}} for seed in range(3)]
    result = read(written(data))
    assert [row.prices.get("training_seconds") for row in result.rows] == [1.0, 1.0, None]
    assert [row.prices.get("seconds") for row in result.rows] == [2.0, pytest.approx(4 / 3), None]


def test_a_comparison_by_name_has_it_in_its_title(written):
    assert "Comparison cifar10-wrn on npz" in made(
        written(compared(table="cifar10-wrn", data="npz"))
    )


def test_a_page_loads_nothing(written):
    text = made(RESULTS / "fashion_mini.json", written(compared()))
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "@import" not in text
    assert "url(" not in text
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "default-src &#x27;none&#x27;" in text
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text
    assert 'content="width=device-width' in text


def test_everything_from_a_file_is_escaped(written):
    data = compared(BAD)
    data["data"] = data["command"] = BAD
    data["rows"][0] |= {"command": BAD, "commit": BAD, "config": {BAD: BAD}}
    data["rows"][0]["figures"][BAD] = moments(1.0)
    data["rows"][2]["failed"] = BAD
    toy = json.loads((RESULTS / "toy.json").read_text())
    toy["rows"] = toy["rows"][:2]
    toy["rows"][0]["label"] = BAD
    toy["rows"][0]["rotation"] = {"degrees": [0, 1], BAD: [1.0, 2.0]}
    text = made(written(data, f"{BAD.replace('/', '')}.json"), written(toy, "toy.json"))
    assert text.count("<script") == 1
    assert "alert(1)&lt;/script&gt;" in text
    assert Tags(text).open == []


def test_curves_of_all_rows_share_a_chart_and_figures_are_drawn_by_a_setting(written):
    rows = [
        {"label": f"m {rate}", "method": {"name": "partial"}, "rate": rate, "nll": 0.1 * rate,
         "rotation": {"degrees": [0, 45, 90], "accuracy": [1.0, 0.5, 0.2]}, "seconds": 1.0,
         "config": {"milestones": [0.5, 0.75], "span": [0.5, 0.9]}}
        for rate in (0.1, 0.5)
    ]  # fmt: skip
    data = {"experiment": "mnist-rates", "settings": {}, "rows": rows}
    curves = next(s for s in build([read(written(data))]) if s.title == "Curves")
    titles = [chart.title for chart in curves.charts]
    assert titles == [
        "accuracy, rotation, Experiment mnist-rates",
        "NLL against rate, Experiment mnist-rates",
    ]
    assert "m 0.1: from 1 at 0 to 0.2 at 90" in curves.charts[0].description
    assert "partial: from 0.01 at 0.1 to 0.05 at 0.5" in curves.charts[1].description


def test_an_evaluation_is_one_row(written):
    found = {"data": "digits", "part": "test", "count": 10, "accuracy": 0.5, "nll": 1.25}
    result = read(written(found, "one.json"))
    assert result.rows[0].figures == {"accuracy": Figure(0.5), "nll": Figure(1.25)}
    text = made(written(found, "one.json"))
    assert "part test, 10 examples" in text
    assert "1.2500" in text


def test_csv_has_full_precision_and_errors_in_columns_of_their_own(written):
    shown = table(read(written(compared())))
    rows = list(csv.reader(io.StringIO(shown.csv())))
    assert rows[0][:4] == ["method", "NLL", "NLL (standard error)", "accuracy"]
    assert rows[2][:4] == ["mean_field", "0.4", "0.02", "0.8"]
    assert rows[3][:4] == ["swag", "-", "", "-"]


def test_latex_is_escaped_and_bold():
    cells = [[Cell("a_b & 5%"), Cell("0.1 ± 0.2", 0.1, best=True)]]
    text = Table("c", ["method", "NLL"], cells).latex()
    assert r"a\_b \& 5\% & \textbf{0.1 $\pm$ 0.2} \\" in text
    assert text.startswith(r"\begin{tabular}{lr}")


def test_the_best_follows_the_direction_of_a_figure():
    rows = [Row(label=str(v), figures={"nll": Figure(v), "accuracy": Figure(v), "odd": Figure(v)})
            for v in (1.0, 2.0, float("nan"))]  # fmt: skip
    assert best(rows, "nll") == [rows[0]]
    assert best(rows, "accuracy") == [rows[1]]
    assert best(rows, "odd") == []
    assert best(rows[:1] * 2, "nll") == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "is no result file that is known: found list"),
        ({"a": 1, "b": 2}, "found an object with a, b. Expected demo.json of"),
        ({**compared(), "rows": 3}, "rows should be a list of objects"),
        ({**compared(), "rows": [{"method": 3}]}, r"rows\[0\].method should be a text"),
        ({**compared(), "rows": [{"method": "m", "figures": []}]}, "figures should be an object"),
        (
            {**compared(), "rows": [{"method": "m", "figures": {"nll": {"mean": "x"}}}]},
            r"rows\[0\].figures.nll should be a number, found 'x'",
        ),
        ({"experiment": "toy", "rows": [{"x": 1}]}, r"rows\[0\].label should be a text"),
        (
            {**compared(), "rows": [{"method": "m", "figures": {"nll": {"mean": 10**400}}}]},
            "should be a number",
        ),
        ({"methods": {}, "by_seed": []}, "methods should be a list of objects"),
    ],
)
def test_a_file_of_another_form_is_told_with_the_place(written, content, words):
    with pytest.raises(DataError, match=words):
        read(written(content))


def test_a_file_that_is_missing_or_no_text(tmp_path):
    with pytest.raises(DataError, match=r"none.json: cannot be read: No such file"):
        read(tmp_path / "none.json")
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path)
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not JSON"):
        read(tmp_path / "b.json")


def test_empty_and_odd_values_make_a_page_too(written):
    empty = {"experiment": "toy", "settings": [], "rows": []}
    assert "0 parts" in made(written(empty, "empty.json"))
    odd = compared()
    odd["rows"][0]["figures"]["nll"] = moments(float("nan"), float("inf"))
    odd["rows"][1]["prices"] = None
    odd["seeds"] = "many"
    assert "nan" in made(written(odd))


def test_a_section_is_a_function_in_a_list(written, monkeypatch):
    assert len({make.__module__ for make in SECTIONS}) == len(SECTIONS)
    own = (lambda results: Section("Own", tag("p", results[0].name)), lambda _results: None)
    monkeypatch.setattr(sections, "SECTIONS", own)
    assert "<h2>Own</h2><p>result.json</p>" in made(written(compared()))


def test_markup_escapes_children_and_attributes():
    assert tag("p", "<", title='"') == '<p title="&quot;">&lt;</p>'
    assert tag("p", Html("<b>")) == "<p><b></p>"
    assert tag("p", "a\x00\ud800b") == "<p>ab</p>"
