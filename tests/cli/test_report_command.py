"""`leanbayes report`: files in, one page out; nothing is written where something is wrong."""

import json
import shlex
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PIL import Image

import made_files
from leanbayes.cli.report_command import report

RESULTS = Path(__file__).resolve().parents[2] / "results"


def test_the_example_of_the_help_writes_a_page(leanbayes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fashion_mini", "--methods", "map,mean_field", "--smoke", "--out", "compare.json"]
    assert leanbayes("compare", *words).code == 0
    (tmp_path / "demo").mkdir()
    shutil.copy(RESULTS / "fashion_mini.json", tmp_path / "demo" / "demo.json")
    example = report.__doc__.split("Example: ")[1].strip()
    result = leanbayes(*shlex.split(example)[1:])
    assert result.code == 0, result.err
    assert result.out == "wrote report.html\n"
    text = (tmp_path / "report.html").read_text()
    record = json.loads((tmp_path / "compare.json").read_text())
    nll = record["rows"][1]["figures"]["nll"]
    assert f"{nll['mean']:.4f} ± {nll['standard_error']:.4f}" in text
    assert "from compare.json, demo.json." in text
    assert str(tmp_path) not in text
    assert "Example: leanbayes report" in leanbayes("report", "--help").out


def test_every_chart_becomes_a_file_of_both_kinds(leanbayes, tmp_path):
    files = [made_files.landscape(), made_files.landscape(), made_files.regressed()]
    words = [tmp_path / name / "one.json" for name in ("a", "b", "c")]
    for path, data in zip(words, files, strict=True):
        path.parent.mkdir()
        path.write_text(json.dumps(data))
    place = ["-o", tmp_path / "new" / "r.html", "--figures", tmp_path / "charts"]
    result = leanbayes("report", *words, *place, "--title", "A & B")
    assert result.code == 0, result.err
    vectors = sorted((tmp_path / "charts").glob("*.svg"))
    assert f"and {len(vectors)} charts" in result.out
    assert "SVG and PNG" in result.out
    assert (tmp_path / "charts" / "one-json-loss-2.svg").exists()  # the same name twice
    for file in vectors:
        text = file.read_text()
        size = ET.fromstring(text).get("viewBox").split()[2:]
        assert "var(" not in text  # drawing programs know no variables
        with Image.open(file.with_suffix(".png")) as picture:
            assert picture.size == pytest.approx([3 * float(v) for v in size], abs=2)
            assert picture.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
    assert "<h1>A &amp; B</h1>" in (tmp_path / "new" / "r.html").read_text()


def test_without_the_extra_charts_are_svg_alone(leanbayes, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    place = ["-o", tmp_path / "r.html", "--figures", tmp_path / "charts"]
    result = leanbayes("report", RESULTS / "fashion_mini.json", *place)
    assert result.code == 0, result.err
    assert "no PNG, since resvg_py is missing: pip install matplotlib resvg-py" in result.err
    assert {file.suffix for file in (tmp_path / "charts").iterdir()} == {".svg"}


def test_what_evaluate_prints_can_be_reported(leanbayes, finished, tmp_path):
    printed = leanbayes("evaluate", finished, "--json", "--set", "images=20").out
    (tmp_path / "one.json").write_text(printed)
    result = leanbayes("report", tmp_path / "one.json", "-o", tmp_path / "r.html")
    assert result.code == 0, result.err
    found = json.loads(printed)
    assert f"{found['nll']:.4f}" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("{", "is not JSON"), ('{"a": 1}', "is no result file")],
)
def test_a_bad_file_exits_with_5_and_writes_nothing(leanbayes, tmp_path, content, words):
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    before = sorted(tmp_path.iterdir())
    place = ["-o", tmp_path / "r.html", "--figures", tmp_path / "charts"]
    result = leanbayes("report", RESULTS / "toy.json", bad, *place)
    assert result.code == 5
    assert words in result.err
    assert "bad.json" in result.err
    assert "Traceback" not in result.err
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_that_cannot_be_written_exits_with_5(leanbayes, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "r.html"):
        result = leanbayes("report", RESULTS / "toy.json", "-o", out)
        assert result.code == 5
        assert "Traceback" not in result.err
