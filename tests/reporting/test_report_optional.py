"""Files without some of their parts, hostile ones, and the same page for the same files."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest

import made_files
import made_results
from leanbayes.errors import DataError
from leanbayes.reporting import build, page, read
from leanbayes.reporting.pictures import beside

BAD = "</script><script>alert(1)</script>"
TURN = "\u202eabc"  # turns the order of what follows


@pytest.fixture(scope="module")
def whole():
    kinds = made_results.KINDS[:2]
    return made_files.compared(("map", "ensemble"), seeds=(0,), kinds=kinds)


@pytest.fixture
def shown(tmp_path):
    def show(*files):
        paths = []
        for at, data in enumerate(files):
            paths.append(tmp_path / f"{at}.json")
            paths[-1].write_text(json.dumps(data))
        sections = build([read(path) for path in paths])
        return [s.title for s in sections], page("a report", sections, "about")

    return show


def evaluations(data):
    return [run["evaluation"] for row in data["rows"] for run in row["runs"]]


def without_kinds(*kinds):
    def change(data):
        for found in evaluations(data):
            splits = found["splits"]
            found["splits"] = {k: v for k, v in splits.items() if v["kind"] not in kinds}

    return change


def without_curve(name):
    def change(data):
        for found in evaluations(data):
            for split in found["splits"].values():
                split.get("curves", {}).pop(name, None)

    return change


def without_figure(*names):
    def change(data):
        for found in evaluations(data):
            for split in found["splits"].values():
                for name in names:
                    split["figures"].pop(name, None)

    return change


def without_layers(data):
    for row in data["rows"]:
        del row["layers"]


def without_examples(data):
    for found in evaluations(data):
        del found["splits"]["test"]["examples"]


def without_prices(data):
    for row in data["rows"]:
        del row["prices"], row["parameters_added"], row["training_seconds"], row["seconds"]


def without_runs(data):
    for row in data["rows"]:
        del row["runs"], row["layers"]


OF_EVALUATIONS = {
    *("Reliability", "Known and foreign data", "Corrupted data", "Right and wrong predictions"),
    *("Kinds of corruption", "Other shifts", "Two kinds of uncertainty", "Refusing the uncertain"),
    *("Number of draws", "Layers", "Examples"),
}


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (without_curve("reliability"), {"Reliability"}),
        (without_curve("histogram"), {"Known and foreign data"}),
        (without_curve("rejection"), {"Refusing the uncertain"}),
        (without_curve("samples"), {"Number of draws"}),
        (without_kinds("foreign", "adversarial"), {"Known and foreign data"}),
        (
            without_kinds("corrupted"),
            {"Corrupted data", "Right and wrong predictions", "Kinds of corruption"},
        ),
        (without_kinds("shifted"), {"Other shifts"}),  # the parts are drawn by severity then
        (without_kinds("shifted", "corrupted"), OF_EVALUATIONS - {"Reliability", "Layers",
            "Known and foreign data", "Refusing the uncertain", "Number of draws", "Examples"}),
        (without_figure("total_right", "total_wrong"), {"Right and wrong predictions"}),
        (without_figure("epistemic"), {"Two kinds of uncertainty"}),
        (without_layers, {"Layers"}),
        (without_examples, {"Examples"}),
        (without_prices, {"Quality against price"}),
        (without_runs, OF_EVALUATIONS),
    ],
)  # fmt: skip
def test_a_missing_part_drops_its_section_and_nothing_else(whole, shown, change, gone):
    every, _ = shown(whole)
    data = copy.deepcopy(whole)
    change(data)
    titles, _ = shown(data)
    assert set(every) - set(titles) == gone
    assert titles == [title for title in every if title not in gone]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e.update(splits=3), r"splits should be an object, found '3'"),
        (lambda e: e["splits"]["test"].update(kind=3), r"splits.test.kind should be a text"),
        (lambda e: e["splits"]["test"]["figures"].update(nll="x"), "test.figures.nll should be"),
        (
            lambda e: e["splits"]["test"]["curves"].update(rejection=[]),
            "rejection should be an obj",
        ),
        (
            lambda e: e["splits"]["test"]["curves"]["rejection"].update(coverage=["a"]),
            r"rejection.coverage\[0\] should be a number",
        ),
        (
            lambda e: e["splits"]["test"].update(examples={"certain": [1]}),
            "certain should be a list",
        ),
    ],
)
def test_a_part_of_another_form_is_told_with_its_place(tmp_path, change, words):
    data = made_results.evaluated(kinds=(), examples=False, sweep=False)
    change(data["evaluation"])
    path = tmp_path / "one.json"
    path.write_text(json.dumps(data))
    with pytest.raises(DataError, match=words):
        read(path)


def hostile():
    data = made_files.compared(("map", "ensemble"), seeds=(0,), kinds=made_results.KINDS[:1])
    row = data["rows"][1]
    row["method"] = f"{BAD}{TURN}"
    row["layers"][0] |= {"name": BAD, "kind": BAD, "parameters": BAD}
    row["prices"]["x"] = BAD
    found = row["runs"][0]["evaluation"]
    found["suite"] = {"name": BAD, "data": BAD}
    found["classes"] = [f"{BAD}{at}" for at in range(10_000)]
    found["splits"][f"ood/{BAD}"] = found["splits"].pop("ood/digits")
    fog = found["splits"].pop("corrupted/gaussian_noise/1")
    found["splits"][BAD] = {**fog, "shift": {"name": BAD, "severity": 1}}
    test = found["splits"]["test"]
    test["examples"]["certain"][0] |= {"label": BAD, "target": TURN}
    for image in ("javascript:alert(1)", "data:image/svg+xml;base64,AAAA", f'x" onerror="{BAD}', 3):
        test["examples"]["certain"].append({"image": image, "label": "bad picture"})
    data["rows"][0]["figures"] |= {
        f"iou_{BAD}_{at}": {"mean": 0.5, "standard_error": None} for at in range(10_000)
    }
    return data


def test_hostile_names_are_words_and_many_classes_are_cut(shown):
    plane = made_files.landscape(BAD)
    plane["landscape"]["members"][0]["label"] = BAD
    path = made_files.trajectory(BAD)
    titles, text = shown(hostile(), plane, path)
    assert {"Reliability", "Loss landscape", "Disagreement in training"} <= set(titles)
    assert text.count("<script") == 1
    assert "onerror" not in text
    assert "javascript:" not in text
    assert "image/svg" not in text
    assert "bad picture" not in text
    assert "\u202e" not in text
    assert "more figures, the first 300 of them" in text
    assert len(text) < 3_000_000


def test_odd_numbers_make_a_page_too(shown):
    data = made_results.evaluated("mean_field", kinds=made_results.KINDS[:1])
    test = data["evaluation"]["splits"]["test"]
    test["curves"]["reliability"]["count"] = [0] * 15
    test["curves"]["histogram"]["total"] = [0] * 30
    test["curves"]["rejection"]["accuracy"][:3] = [None, float("nan"), 1e300]
    test["curves"]["samples"]["nll"].pop()
    data["layers"] = [{"name": "a"}, {"name": "b", "share": 7, "std": {"low": -1}}]
    plane = made_files.landscape()
    plane["landscape"]["loss"][0][0] = None
    plane["landscape"]["members"] = [{"x": "a"}]
    flat = made_files.landscape()
    flat["landscape"]["loss"] = [[1.0] * 21] * 21
    broken = made_files.landscape()
    broken["landscape"]["loss"] = [[1.0]]
    titles, _ = shown(data, plane, flat, broken, {**made_files.trajectory(), "points": "none"})
    assert "Reliability" not in titles
    assert "Disagreement in training" not in titles
    assert {"Refusing the uncertain", "Loss landscape", "Number of draws"} <= set(titles)


def test_pictures_beside_a_file_are_shown_and_none_from_elsewhere(tmp_path):
    import base64

    picture = made_results.png(np.zeros((4, 4), np.uint8))
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(picture + b"secret")
    (folder / "maps.png").write_bytes(picture)
    (folder / "one.png").write_bytes(b"no picture")
    data = made_results.evaluated(kinds=(), examples=False) | {"picture": "runs/maps.png"}
    (folder / "one.json").write_text(json.dumps(data))
    (section,) = [s for s in build([read(folder / "one.json")]) if s.title == "Pictures"]
    assert base64.b64encode(picture).decode() in section.body
    assert section.body.count("<img") == 1
    data["picture"] = "../secret.png"
    (folder / "one.json").write_text(json.dumps(data))
    assert "Pictures" not in [s.title for s in build([read(folder / "one.json")])]


def test_the_same_files_give_the_same_bytes_in_another_process(tmp_path, whole, shown):
    _, first = shown(whole, made_files.landscape())
    code = (
        "import sys; from pathlib import Path; from leanbayes.reporting import build, page, read; "
        "s = build([read(Path(p)) for p in sys.argv[1:]]); "
        "sys.stdout.buffer.write(page('a report', s, 'about').encode())"
    )
    names = [tmp_path / "0.json", tmp_path / "1.json"]
    again = subprocess.run(
        [sys.executable, "-c", code, *names],
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    assert again.stdout == first.encode()


def test_seventeen_methods_show_a_few_and_let_a_reader_choose(shown):
    labels = ("map", *(f"method {at}" for at in range(16)))
    data = made_files.demo(labels, kinds=made_results.KINDS[:1], examples=False)
    _, text = shown(data)
    assert len(text) < 2_000_000
    reliability = text.split('id="reliability"')[1].split("</section>")[0]
    assert reliability.count("<figure") == 17
    assert reliability.count('class="chart off"') == 11
    assert reliability.count('type="checkbox"') == 17
    assert reliability.count(" checked") == 6


def test_pictures_of_several_parts_are_found_by_the_name_of_the_result(tmp_path):
    picture = made_results.png(np.zeros((4, 4), np.uint8))
    for name in ("one.png", "one_b.png", "one_a.png", "one_two.png", "onely_c.png", "two.png"):
        (tmp_path / name).write_bytes(picture)
    (tmp_path / "one_two.json").write_text("{}")  # a result of its own
    found = beside(tmp_path / "one.json", [])
    assert [each.name for each in found] == ["one.png", "one_a.png", "one_b.png"]
