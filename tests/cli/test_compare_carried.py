"""Tests over rows stay in the file where their scores are gone and neither row has changed."""

import json

import pytest

TABLE = ("compare", "sklearn_table-wine", "--smoke", "--no-price")


@pytest.fixture
def compare(leanbayes, tmp_path):
    """Run the comparison: its tests by label."""
    out = tmp_path / "c.json"

    def run(methods, *words, seeds=1):
        result = leanbayes(*TABLE, "--methods", methods, "--seeds", seeds, "--out", out, *words)
        assert result.code == 0, result.err
        rows = json.loads(out.read_text())["rows"]
        return {row["method"]: row.get("significance") for row in rows}

    run.out = out
    return run


@pytest.mark.parametrize("part", ["test", "train,test"])
def test_resuming_without_the_scores_keeps_the_tests_of_the_file(compare, part):
    first = compare("map,mean_field", "--part", part)["mean_field"]
    nll = first["nll"] if part == "test" else first["train"]["nll"]
    assert nll["over"] == "rows"
    assert nll["p"] is not None
    assert compare("map,mean_field", "--part", part, "--resume")["mean_field"] == first
    again = compare("map,mean_field,rank_one", "--part", part, "--resume")
    assert again["mean_field"] == first
    new = again["rank_one"]["nll"] if part == "test" else again["rank_one"]["train"]["nll"]
    assert new["p"] is None  # of the point estimate nobody has the scores


def test_seeds_that_are_added_are_tested_instead(compare):
    compare("map,mean_field")
    nll = compare("map,mean_field", "--resume", seeds=2)["mean_field"]["nll"]
    assert (nll["over"], nll["count"]) == ("seeds", 2)


def test_the_test_of_another_difference_is_not_kept(compare):
    compare("map,mean_field")
    record = json.loads(compare.out.read_text())
    record["rows"][1]["significance"]["nll"]["difference"] += 0.01
    compare.out.write_text(json.dumps(record))
    found = compare("map,mean_field", "--resume")["mean_field"]
    assert found["nll"]["p"] is None
    assert found["brier"]["p"] is not None
