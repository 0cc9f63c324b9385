import json
import math
from statistics import fmean, stdev

import pytest

from leanbayes.cli.demo.report import verdict
from leanbayes.cli.summary import METRICS, best, better, moments


def test_the_standard_error_is_that_of_the_mean():
    values = [0.3, 0.5, 0.4, 0.8, 0.1]
    found = moments(values)
    assert found["mean"] == pytest.approx(0.42)
    variance = sum((v - 0.42) ** 2 for v in values) / 4
    assert found["standard_error"] == pytest.approx((variance / 5) ** 0.5)


def test_one_seed_has_no_standard_error_and_a_missing_value_no_mean():
    assert moments([0.25]) == {"mean": 0.25, "standard_error": None}
    assert moments([0.25, None]) == {"mean": None, "standard_error": None}


@pytest.mark.parametrize("values", [[0.5, math.inf], [math.inf, math.inf], [-math.inf, 1.0, 2.0]])
def test_an_infinite_score_of_one_seed_leaves_the_mean_infinite_and_without_an_error(values):
    least = -math.inf if -math.inf in values else math.inf
    assert moments(values) == {"mean": least, "standard_error": None}


def row(label="x", *, mean, error, metric="nll"):
    nothing = {"mean": None, "standard_error": None}
    changes = dict.fromkeys(METRICS, nothing)
    changes[metric] = {"mean": mean, "standard_error": error}
    return {"label": label, "minus_baseline": changes}


@pytest.mark.parametrize(
    ("metric", "mean", "error", "answer"),
    [
        ("nll", -0.01, 0.004, True),
        ("nll", -0.01, 0.006, None),
        ("nll", 0.01, 0.004, False),
        ("accuracy", 0.01, 0.004, True),
        ("accuracy", -0.01, 0.004, False),
        ("nll", -0.0001, None, True),
        ("nll", 0.0, None, False),
        ("ood_auroc_epistemic", None, None, None),
    ],
)
def test_a_difference_counts_beyond_two_standard_errors(metric, mean, error, answer):
    assert better(row(mean=mean, error=error, metric=metric), metric) is answer


def test_the_verdict_sorts_methods_by_what_the_seeds_show():
    rows = [
        row("map", mean=0.0, error=0.0),
        row("good", mean=-0.02, error=0.001),
        row("bad", mean=0.02, error=0.001),
        row("alike", mean=-0.001, error=0.001),
    ]
    assert verdict(rows, seeds=5) == [
        "NLL, beats map: good (-0.0200).",
        "NLL, worse than map: bad (+0.0200).",
        "NLL, no clear difference to map: alike (-0.0010).",
        "Clear: the mean difference over 5 seeds exceeds two standard errors.",
    ]


def test_the_verdict_says_so_where_no_method_is_worse():
    rows = [row("map", mean=0.0, error=None), row("good", mean=-0.02, error=None)]
    assert verdict(rows, seeds=1)[:2] == [
        "NLL, beats map: good (-0.0200).",
        "NLL, worse than map: none.",
    ]


def test_the_best_of_a_metric_goes_by_its_direction_and_skips_missing_values():
    rows = [{m: {"mean": value} for m in METRICS} for value in (0.2, None, 0.7)]
    assert best(rows, "nll") == 0.2
    assert best(rows, "accuracy") == 0.7
    assert best(rows[1:2], "accuracy") is None


@pytest.fixture
def repeated(leanbayes, tiny, tmp_path):
    """`demo --seeds 3` of two methods, printed, and its file."""
    tiny("map", "mean_field")
    result = leanbayes("demo", "--smoke", "--seed", 4, "--seeds", 3, "--out", tmp_path)
    assert result.code == 0, result.err
    return result, json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))


def test_seeds_give_mean_and_standard_error_of_the_runs_they_list(repeated):
    result, figures = repeated
    assert figures["seeds"] == [run["seed"] for run in figures["by_seed"]] == [4, 5, 6]
    assert figures["command"] == "leanbayes demo --seed 4 --seeds 3 --smoke"
    for i, m in enumerate(figures["methods"]):
        for metric in METRICS:
            values = [run["methods"][i][metric] for run in figures["by_seed"]]
            if None in values:
                assert (m["label"], m[metric]["mean"]) == ("map", None)
                continue
            assert m[metric]["mean"] == pytest.approx(fmean(values))
            assert m[metric]["standard_error"] == pytest.approx(stdev(values) / 3**0.5)
    nll = figures["methods"][1]["nll"]
    assert f"{nll['mean']:.4f}\N{PLUS-MINUS SIGN}{nll['standard_error']:.4f}" in result.out


def test_the_difference_to_map_is_taken_seed_by_seed(repeated):
    figures = repeated[1]
    changes = [run["methods"][1]["nll"] - run["methods"][0]["nll"] for run in figures["by_seed"]]
    found = figures["methods"][1]["minus_baseline"]["nll"]
    assert found["mean"] == pytest.approx(fmean(changes))
    assert found["standard_error"] == pytest.approx(stdev(changes) / 3**0.5)


def test_stages_say_which_seed_they_belong_to(repeated):
    stages = [line.partition(":")[0] for line in repeated[0].err.splitlines()]
    assert stages[:3] == ["seed 4, training", "seed 4, map", "seed 4, mean_field"]
    assert stages[6:] == ["seed 6, training", "seed 6, map", "seed 6, mean_field"]


def test_no_seed_at_all_is_a_wrong_use(leanbayes, tmp_path):
    result = leanbayes("demo", "--seeds", 0, "--out", tmp_path)
    assert result.code == 2
    assert "--seeds" in result.err
