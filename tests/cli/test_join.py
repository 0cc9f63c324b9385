"""`leanbayes join`: the record of all pieces is that of one command."""

import json
import re

import pytest

from leanbayes.recipes.tables import table

SMALL = ("compare", "fashion_mini", "--model", "lenet", "--smoke", "--no-price")
BOTH = ("--methods", "map,mean_field")
NAMES = ("step_ratio", "predict_ratio", "predict_ratio_sample")
PRICES = {"parameters_added": 0, "samples": 1, **dict.fromkeys(NAMES, 3.0)}


@pytest.fixture
def piece(leanbayes, tmp_path):
    """Run a part of a comparison; its file."""

    def run(name, *words, begin=SMALL):
        out = tmp_path / f"{name}.json"
        result = leanbayes(*begin, *words, "--out", out)
        assert result.code == 0, result.err
        return out

    return run


@pytest.fixture
def joined(leanbayes, tmp_path):
    def run(*files):
        result = leanbayes("join", *files, "--out", tmp_path / "all.json")
        assert result.code == 0, result.err
        return json.loads((tmp_path / "all.json").read_text())

    return run


def timeless(found):
    """A record without seconds, and without the commands, which differ in their seeds."""
    if isinstance(found, dict):
        left_out = ("seconds", "training_seconds", "command")
        return {k: timeless(v) for k, v in found.items() if k not in left_out}
    return [timeless(value) for value in found] if isinstance(found, list) else found


def test_seeds_apart_are_joined_to_what_one_command_gives(piece, joined):
    whole = json.loads(piece("whole", *BOTH, "--seeds", 2).read_text())
    pieces = [piece(f"seed-{s}", *BOTH, "--seed", s, "--seeds", 1) for s in (0, 1)]
    found = joined(*pieces)
    assert found["seeds"] == [0, 1]
    assert timeless(found) == timeless(whole)
    assert found["rows"][1]["significance"]["nll"]["over"] == "seeds"
    parts = [json.loads(path.read_text())["rows"][0]["seconds"] for path in pieces]
    assert found["rows"][0]["seconds"] == pytest.approx(sum(parts))


def test_rows_of_one_file_alone_stay_as_they_were(piece, joined):
    files = [piece(name, "--methods", name, "--seeds", 1) for name in ("mean_field", "map")]
    found = joined(*files)
    tested = found["rows"][0].pop("significance")
    assert found["rows"] == [json.loads(path.read_text())["rows"][0] for path in files]
    assert "unfinished" not in found
    own, point = (row["runs"][0]["figures"]["nll"] for row in found["rows"])
    assert tested["nll"]["difference"] == pytest.approx(own - point)


def test_rows_of_a_table_are_tested_against_its_point_in_whichever_order_files_come(piece, joined):
    """A file that begins with another point estimate once became the measure of all rows."""
    begin = ("compare", "fashion_mini", "--table", "cifar10-wrn", "--smoke", "--no-price")
    words = ("--suite", "test")
    files = [
        piece("new", "--methods", "vgg_map,emp", "--seed", 1, "--seeds", 1, *words, begin=begin),
        piece("old", "--methods", "map,emp", "--seed", 0, "--seeds", 2, *words, begin=begin),
    ]
    for order in (files, files[::-1]):
        found = {row["method"]: row for row in joined(*order)["rows"]}
        assert "significance" not in found["map"]
        tested = found["emp"]["significance"]["nll"]
        gap = [found[k]["figures"]["nll"]["mean"] for k in ("emp", "map")]
        assert (tested["count"], tested["over"]) == (2, "seeds")
        assert tested["difference"] == pytest.approx(gap[0] - gap[1])


def test_what_two_files_have_the_first_one_has(piece, joined, tmp_path):
    first = piece("first", "--methods", "map", "--seeds", 1)
    other = json.loads(first.read_text())
    other["rows"][0]["runs"][0]["figures"]["nll"] = 7.0
    other["rows"][0]["prices"] = PRICES
    second = tmp_path / "second.json"
    second.write_text(json.dumps(other))
    (row,) = joined(first, second)["rows"]
    assert row == {**json.loads(first.read_text())["rows"][0], "prices": PRICES}
    (row,) = joined(second, first)["rows"]
    assert row["runs"][0]["figures"]["nll"] == 7.0


def test_prices_stay_with_a_row_that_grows(piece, joined, tmp_path):
    files = [piece(f"seed-{s}", "--methods", "map", "--seed", s, "--seeds", 1) for s in (0, 1)]
    priced = json.loads(files[0].read_text())
    priced["rows"][0]["prices"] = PRICES
    third = tmp_path / "third.json"
    third.write_text(json.dumps(priced))
    (row,) = joined(*files, third)["rows"]
    assert row["prices"] == PRICES
    assert [run["seed"] for run in row["runs"]] == [0, 1]


def test_pieces_of_a_table_have_its_order_and_all_starts(piece, joined):
    begin = ("compare", "fashion_mini", "--table", "cifar10-wrn", "--smoke", "--no-price")
    words = ("--suite", "test", "--seeds", 1)
    files = [
        piece("late", "--methods", "emp_norm", *words, begin=begin),
        piece("early", "--methods", "map", "--seed", 1, *words, begin=begin),
    ]
    found = joined(*files)
    assert [row["method"] for row in found["rows"]] == ["map", "emp_norm"]
    starts = [json.loads(path.read_text())["start"]["seeds"][0] for path in files]
    assert found["start"]["seeds"] == starts
    assert [start["compiled"] for start in starts] == [False, False]
    assert found["seeds"] == [0, 1]
    wanted = sum(row.get("seeds", 2) for row in table("cifar10-wrn")["methods"].values())
    assert found["unfinished"] == wanted - 2


def test_what_does_not_belong_together_is_refused_and_nothing_written(piece, leanbayes, tmp_path):
    first = piece("first", "--methods", "map", "--seeds", 1)
    faster = piece("faster", "--methods", "map", "--seed", 1, "--seeds", 1, "--set", "fit.lr=0.5")
    good = json.loads(first.read_text())
    damaged = json.loads(first.read_text())
    del damaged["rows"][0]["runs"][0]["figures"]
    texts = {
        "digits": json.dumps({**good, "data": "digits"}),
        "damaged": json.dumps(damaged),
        "toy": '{"experiment": "toy", "rows": []}',
        "cut": first.read_text()[:-30],
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
    cases = {
        faster: (2, "a row of 'map' with other settings: fit.lr: 0.5 there, .* now"),
        tmp_path / "digits.json": (2, "data is 'fashion_mini' in .* and 'digits' in"),
        tmp_path / "damaged.json": (5, "damaged.json is damaged"),
        tmp_path / "toy.json": (5, "another kind of file: expected seeds, rows"),
        tmp_path / "cut.json": (5, "is damaged: not JSON"),
        tmp_path / "none.json": (5, "cannot read .*none.json"),
    }
    for path, (code, said) in cases.items():
        result = leanbayes("join", first, path, "--out", tmp_path / "all.json")
        assert result.code == code, result.err
        assert re.search(said, result.err), result.err
        assert not (tmp_path / "all.json").exists()
