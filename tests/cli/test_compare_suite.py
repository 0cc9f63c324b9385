"""`leanbayes compare --suite`, and what a method may have of its own: OOD data, fits."""

import json

import pytest
import torch

import leanbayes as lb
from leanbayes.cli import prepare as preparing
from leanbayes.cli.settings_file import settings_of

FEW = ("compare", "fashion_mini", "--smoke", "--no-price", "--seeds", 1)
SUITE = ("--suite", "test,rotated:30,ood:digits", "--rows", 10)


def record_of(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_every_run_is_evaluated_and_figures_are_the_summary(leanbayes):
    words = ("--methods", "map,mean_field", "--seeds", 2, "--sweep")
    record = record_of(leanbayes(*FEW, *SUITE, *words, "--json"))
    for row in record["rows"]:
        found = [run["evaluation"] for run in row["runs"]]
        assert [list(one["splits"]) for one in found] == [["test", "rotated/30", "ood/digits"]] * 2
        counts = [split["count"] for split in found[0]["splits"].values()]
        assert counts[:2] == [64, 10]
        for name, value in row["figures"].items():
            values = [one["summary"].get(name) for one in found]
            if None not in values:
                assert value["mean"] == pytest.approx(sum(values) / 2), name
        assert [one["settings"]["seed"] for one in found] == [0, 1]
        assert "samples" in found[0]["splits"]["test"]["curves"]
        assert row["layers"][0]["kind"] == "Conv2d"
    assert record["rows"][0]["config"]["suite"]["splits"] == "test,rotated:30,ood:digits"
    assert "auroc_epistemic_digits" in record["rows"][1]["figures"]


LATER = """[suite]
splits = "test,ood:digits"
later = "test"
[suite.ood.digits]
name = "digits"
[methods.always]
name = "map"
splits = "test,ood:digits"
"""


def test_later_seeds_may_have_fewer_splits(leanbayes, tmp_path):
    """Figures that the first seed alone has are its own, and say so; others are means."""
    file, out = tmp_path / "c.toml", tmp_path / "c.json"
    file.write_text(LATER)
    words = ("--config", file, "--methods", "always,mean_field", "--seeds", 2, "--out", out)
    result = leanbayes(*FEW, *words)
    assert result.code == 0, result.err
    record = json.loads(out.read_text())
    splits = [[list(run["evaluation"]["splits"]) for run in row["runs"]] for row in record["rows"]]
    assert splits == [[["test", "ood/digits"]] * 2, [["test", "ood/digits"], ["test"]]]
    every, fewer = (row["figures"] for row in record["rows"])
    name = "auroc_total_digits"
    first, second = (run["figures"] for run in record["rows"][1]["runs"])
    assert fewer[name] == {"mean": first[name], "standard_error": None, "runs": 1}
    assert fewer["nll"]["mean"] == pytest.approx((first["nll"] + second["nll"]) / 2)
    assert "runs" not in fewer["nll"]
    assert every[name]["standard_error"] > 0
    assert name not in record["rows"][1]["significance"]
    # A file that was written before, and one with all splits for all seeds, can be gone on with.
    for changed in ("later=test", "later=test,ood:digits"):
        result = leanbayes(*FEW, *words, "--resume", "--set", f"suite.{changed}")
        assert result.code == 0, result.err
        assert "4 of 4 runs kept" in result.err
    result = leanbayes(*FEW, *words[:4], "--suite", "test", "--seeds", 2, "--json")
    found = [list(run["evaluation"]["splits"]) for run in record_of(result)["rows"][1]["runs"]]
    assert found == [["test"]] * 2


def test_the_clean_figures_are_those_without_a_suite(leanbayes):
    words = ("--methods", "mean_field", "--json")
    (bare,) = record_of(leanbayes(*FEW, *words))["rows"]
    (whole,) = record_of(leanbayes(*FEW, "--suite", "quick", *words))["rows"]
    for name in ("accuracy", "nll", "ece", "brier", "error_auroc"):
        expected = pytest.approx(bare["figures"][name]["mean"], rel=1e-5)
        assert whole["figures"][name]["mean"] == expected


def test_a_suite_of_a_file_with_foreign_data_of_its_own_goes_on(leanbayes, tmp_path):
    file, out = tmp_path / "c.toml", tmp_path / "c.json"
    file.write_text(
        '[suite]\nsplits = "test,ood"\nprecision = "bf16"\n[suite.ood.strange]\nname = "digits"\n'
    )
    flags = ("--config", file, "--out", out)
    result = leanbayes(*FEW, *flags, "--methods", "map")
    assert result.code == 0, result.err
    first = json.loads(out.read_text())["rows"][0]
    assert list(first["runs"][0]["evaluation"]["splits"]) == ["test", "ood/strange"]
    assert "auroc_total_strange" in result.out.splitlines()[0]
    result = leanbayes(*FEW, *flags, "--methods", "map,implicit", "--resume")
    assert "1 of 2 runs kept" in result.err
    assert json.loads(out.read_text())["rows"][0] == first | {
        "command": json.loads(out.read_text())["rows"][0]["command"]
    }
    result = leanbayes(*FEW, *flags, "--methods", "map,implicit", "--resume", "--suite", "quick")
    assert result.code == 2
    assert "suite.splits: 'test,ood' there, 'quick' now" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rows", 3), "--rows goes with --suite"),
        (("--suite", "quick", "--part", "train,test"), "--suite is made of one part"),
        (("--suite", "qiuck"), "no split is called 'qiuck'; did you mean 'quick'"),
    ],
)
def test_what_does_not_fit_is_said(leanbayes, words, said):
    result = leanbayes(*FEW, "--methods", "map", *words)
    assert result.code == 2
    assert said in result.err


def test_a_wrong_table_is_said(leanbayes, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('[suite]\nsplit = "quick"\n[suite.ood.a]\nname = "digitz"\n')
    result = leanbayes(*FEW, "--config", file, "--methods", "map")
    assert result.code == 2
    assert "suite.split: unknown; did you mean 'splits'?" in result.err
    assert "suite.ood.a.name: no such name as 'digitz'; did you mean 'digits'?" in result.err


def test_a_regulariser_has_ood_images_of_its_own(leanbayes, tmp_path, monkeypatch):
    seen, ood_inputs = [], lb.ood_inputs

    def noted(x, eps, images, *scale):
        seen.append((eps, None if images is None else images.clone()))
        return ood_inputs(x, eps, images, *scale)

    monkeypatch.setattr(preparing.lb, "ood_inputs", noted)
    file = tmp_path / "c.toml"
    entry = "name = 'mean_field'\nfit = { regularizer = { alpha = 2.0 } }\n"
    file.write_text(
        f"[methods.noise]\n{entry}"
        f"[methods.digits]\n{entry}ood = {{ eps = 0.1, name = 'digits', part = 'test' }}\n"
    )
    words = ("--config", file, "--methods", "map,noise,digits", "--json")
    rows = record_of(leanbayes(*FEW, *words))["rows"]
    assert [row["config"].get("ood") for row in rows] == [
        None,
        {"eps": 0.031, "name": None, "options": {}, "part": "train"},
        {"eps": 0.1, "name": "digits", "options": {}, "part": "test"},
    ]
    assert [eps for eps, _ in seen] == [0.031, 0.1]
    assert seen[0][1] is None
    assert torch.equal(seen[1][1], lb.data.read("digits").test[0])
    assert rows[1]["figures"]["nll"] != rows[2]["figures"]["nll"]


def test_what_is_fitted_after_training_has_options(leanbayes):
    words = ("--methods", "laplace", "--set", "methods.laplace.fitting.probes=2")
    words += ("--set", "methods.laplace.fields.prior_std=0.01")
    (row,) = record_of(leanbayes(*FEW, *words, "--json"))["rows"]
    assert row["config"]["fitting"] == {"probes": 2}
    wrong = leanbayes(*FEW, "--methods", "laplace", "--set", "methods.laplace.fitting.prior=7")
    assert wrong.code == 2


def test_a_settings_file_has_them_too():
    tables = {
        "model": {"name": "lenet"},
        "data": {"name": "fashion_mini", "ood": {"eps": 0.2, "name": "digits"}},
        "method": {"name": "swag", "fitting": {"epochs": 3}},
    }
    found = settings_of(tables)
    assert (found.ood.eps, found.ood.name, found.fitting) == (0.2, "digits", {"epochs": 3})
    tables["data"]["ood"] = {"epz": 0.2}
    with pytest.raises(lb.ConfigError, match=r"data.ood.epz: unknown; did you mean 'eps'\?"):
        settings_of(tables)
