"""The table `cifar10-wrn`: its settings at full size, and every row of it in a small form."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import leanbayes as lb
from leanbayes.cli.compare.ask import Ask
from leanbayes.cli.compare.data import Sets
from leanbayes.cli.compare.settings import labelled, lineup_of
from leanbayes.cli.compare.words import SWITCHES, command_of
from leanbayes.recipes.tables import table, tables

NAME = "cifar10-wrn"
ROWS = list(table(NAME)["methods"])
# Side by side under xdist; the rows that take longest are far apart.
EVERY = ["test", "ood/tiny", "pgd", "corrupted/fog/3"]
# How many of them the rows have that do not have all: the words of "test,ood:tiny,pgd".
SPLITS = {
    k: len(v["splits"].split(",")) for k, v in table(NAME)["methods"].items() if "splits" in v
}
GROUPS = [ROWS[first::8] for first in range(8)]
TUNING = Path(__file__).parents[2] / "results" / "configs" / "cifar10_tuning.toml"
COUNTS = {"train": 80, "test": 10}
SMOKE = ("compare", "fashion_mini", "--table", NAME, "--smoke", "--no-price", "--seeds", 2)


@pytest.fixture(scope="module")
def lineup():
    whole = table(NAME)
    whole.pop("suite")
    whole["data"] |= {"name": "npz", "options": {"root": "cifar10.npz"}}
    return lineup_of(whole, labelled(",".join(ROWS), whole), (), Sets())


def test_the_first_rows_are_the_main_ones_and_have_all_seeds(lineup):
    assert ROWS[:3] == ["map", "mean_field", "shared_ensemble"]
    main = [label for label in ROWS if label not in lineup.seeds]
    assert main == ROWS[:8]
    assert set(lineup.seeds.values()) == {1}
    methods = {lineup.settings[label].method.name for label in main}
    assert methods == {
        *("map", "mean_field", "shared_ensemble", "rank_one", "implicit", "patching", "partial")
    }


def test_every_method_of_the_library_that_trains_a_network_has_a_row(lineup):
    found = {settings.method.name for settings in lineup.settings.values()}
    assert set(lb.methods()) - found == {"drop_connect"}


def test_rows_begin_where_the_table_says(lineup):
    scratch = {label for label in ROWS if label.endswith("_scratch") or label.startswith("vgg_")}
    assert lineup.assembled == {"deep_ensemble"}
    assert set(ROWS) - lineup.starts == {*scratch, "deep_ensemble", "deep_ensemble_narrow"}
    for label in scratch:
        assert lineup.settings[label].fit.epochs == 60
    tuned = {lineup.settings[k].fit.epochs for k in lineup.starts}
    assert tuned == {0, 5, 12}
    assert lineup.settings["deep_ensemble_narrow"].model.options["width"] == 5


def test_all_train_in_one_way_but_for_what_a_row_says(lineup):
    for label, settings in lineup.settings.items():
        fit = settings.fit
        assert (fit.precision, fit.channels_last, fit.resident) == ("bf16", True, True), label
        assert fit.batch_size == (128 if label.endswith("_reg") else 256)
        assert settings.augment == "crop+flip+cutout:16"
        assert (fit.regularizer is not None) == label.endswith("_reg")
    point = lineup.point.fit
    assert (point.epochs, point.lr, point.schedule, point.weight_decay) == (60, 0.2, "cosine", 1e-3)
    mean_field = lineup.settings["mean_field"]
    assert mean_field.method.resolved_prior_std() == pytest.approx(
        0.02**0.5
    )  # the decay as a prior
    assert (mean_field.fit.lr, mean_field.fit.posterior_lr) == (1e-4, 1e-3)


def test_a_network_of_the_table_has_the_parameters_of_the_papers(lineup):
    options = lineup.point.model.options
    net = lb.models.create("wide_resnet", **options)
    assert sum(p.numel() for p in net.parameters()) == 36_479_194
    narrow = lb.models.create("wide_resnet", **options | {"width": 5})
    assert 4 * sum(p.numel() for p in narrow.parameters()) == pytest.approx(36.5e6, rel=2e-3)


@pytest.mark.parametrize("rows", GROUPS, ids=lambda rows: rows[0])
def test_every_row_runs_in_its_small_form(rows, leanbayes, tmp_path):
    out = tmp_path / "table.json"
    once = [f"methods.{label}.seeds=1" for label in rows]
    words = [word for change in once for word in ("--set", change)]
    result = leanbayes(*SMOKE, "--methods", ",".join(rows), *words, "--out", out)
    assert result.code == 0, result.err
    record = json.loads(out.read_text())
    assert [row["method"] for row in record["rows"]] == rows
    for row in record["rows"]:
        splits = list(row["runs"][0]["evaluation"]["splits"])
        assert splits == EVERY[: SPLITS.get(row["method"], 4)]
        figures = {"accuracy", "nll", "ece", "brier", "accuracy_at_95", "auroc_total_tiny"}
        figures |= {"ap_total_pgd"} if "pgd" in splits else set()
        figures |= {"corrupted_nll"} if EVERY[3] in splits else set()
        assert figures <= row["figures"].keys()
        random = not (row["method"].startswith("map") or row["method"] == "vgg_map")
        assert ("disagreement_normalised" in row["figures"]) == random
        assert f"--table {NAME}" in row["command"]


def test_other_rows_of_the_file_stay_when_some_are_asked_for(leanbayes, tmp_path):
    out = tmp_path / "table.json"
    found = []
    for rows in ("emp_norm", "rank_one"):
        words = ("--methods", rows, "--suite", "test", "--out", out, "--resume")
        result = leanbayes(*SMOKE, *words, "--set", f"methods.{rows}.seeds=1")
        assert result.code == 0, result.err
        found.append(json.loads(out.read_text())["rows"])
    assert [row["method"] for row in found[1]] == ["rank_one", "emp_norm"]  # as in the table
    assert found[1][1] == found[0][0]


def test_rows_are_tested_against_the_point_of_the_table_also_where_another_one_is_asked_for(
    leanbayes, tmp_path
):
    out = tmp_path / "table.json"
    for rows in ("map", "map_longer,emp_norm"):
        words = ("--methods", rows, "--suite", "test", "--seeds", 1, "--out", out, "--resume")
        assert leanbayes(*SMOKE, *words).code == 0
    found = {row["method"]: row for row in json.loads(out.read_text())["rows"]}
    for label in ("map_longer", "emp_norm"):
        gap = [found[k]["figures"]["nll"]["mean"] for k in (label, "map")]
        difference = found[label]["significance"]["nll"]["difference"]
        assert difference == pytest.approx(gap[0] - gap[1])


def test_a_table_and_a_file_are_refused(leanbayes, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("")
    result = leanbayes("compare", "fashion_mini", "--table", NAME, "--config", file)
    assert result.code == 2
    assert "give one of them" in result.err
    result = leanbayes("compare", "fashion_mini", "--table", "cifar10-wm")
    assert "no table is called 'cifar10-wm'; did you mean 'cifar10-wrn'?" in result.err
    assert list(tables()) == [NAME]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("methods.emp_norm.splits=tset", "no split is called 'tset'; did you mean 'test'?"),
        ("suite.later=tset", "no split is called 'tset'; did you mean 'test'?"),
        ("methods.emp_norm.splits=3", "methods.emp_norm.splits: expected names of splits"),
    ],
)
def test_splits_of_a_row_are_checked_before_the_training(change, words, leanbayes):
    result = leanbayes(*SMOKE, "--methods", "map,emp_norm,emp", "--set", change)
    assert result.code == 2
    assert words in result.err
    assert "map" not in result.out


def test_a_flag_goes_before_the_splits_of_a_row(leanbayes, tmp_path):
    out = tmp_path / "table.json"
    words = ("--methods", "emp_norm", "--suite", "test", "--out", out)
    result = leanbayes(*SMOKE, *words, "--set", "methods.emp_norm.splits=test,ood:tiny")
    assert result.code == 0, result.err
    (row,) = json.loads(out.read_text())["rows"]
    assert list(row["runs"][0]["evaluation"]["splits"]) == ["test"]
    assert row["config"]["suite"]["splits"] == "test"


def test_commands_name_files_and_not_where_they_lie():
    given = dict.fromkeys(("model", "weights", "config", "samples", "suite", "rows", *SWITCHES))
    given |= {"data": "npz", "root": "/here/cifar10.npz", "table": NAME, "seeds": 1, "seed": 0}
    given |= {"part": "test", "price": True, "change": ["suite.ood.tiny.options.root=/here/t.npz"]}
    command = command_of(given, "map")
    assert "--root cifar10.npz" in command
    assert "--set suite.ood.tiny.options.root=t.npz" in command


def coloured(folder):
    """Files such as the table is for, with a few made-up images."""
    numbers = np.random.default_rng(0)
    x = {k: numbers.integers(0, 256, (n, 32, 32, 3), np.uint8) for k, n in COUNTS.items()}
    y = {f"y_{k}": numbers.integers(0, 10, n).astype(np.uint8) for k, n in COUNTS.items()}
    np.savez(folder / "few.npz", **{f"x_{k}": v for k, v in x.items()}, **y)
    np.savez(folder / "foreign.npz", x=x["test"][:8], y=np.arange(8, dtype=np.uint8))


def test_the_command_of_the_whole_table_runs_in_its_small_form_by_one_more_word(
    leanbayes, tmp_path
):
    """Before hours on a GPU; the small form for the embedded images had its own foreign ones."""
    coloured(tmp_path)
    words = ("--set", f"suite.ood.tiny.options.root={tmp_path / 'foreign.npz'}", "--seeds", 1)
    words += ("--table", NAME, "--methods", "map,vgg_map", "--smoke", "--no-price")
    words += ("--out", tmp_path / "out.json")
    result = leanbayes("compare", "npz", "--root", tmp_path / "few.npz", *words)
    assert result.code == 0, result.err
    rows = {row["method"]: row for row in json.loads((tmp_path / "out.json").read_text())["rows"]}
    assert rows["map"]["config"]["model"]["options"] == {"depth": 10, "width": 1, "num_classes": 10}
    assert rows["vgg_map"]["config"]["model"]["name"] == "vgg16"
    for row in rows.values():
        assert row["config"]["augment"] == "crop+flip+cutout:16"
        assert row["config"]["suite"]["ood"]["tiny"]["name"] == "npz"
        assert row["figures"].keys() >= {"auroc_total_tiny"}


def test_the_tuning_of_the_table_scores_training_images_alone(leanbayes, tmp_path):
    coloured(tmp_path)
    rows = tomllib.loads(TUNING.read_text())["methods"]
    labels = [label for label, row in rows.items() if row.get("name") != "swag"]  # needs iterates
    words = ("--methods", ",".join(labels[::6]), "--part", "validation", "--no-price", "--smoke")
    words += ("--seeds", 1, "--set", "model.options.width=1", "--set", "fit.precision=fp32")
    words += ("--set", "data.options.validation=20", "--out", tmp_path / "tuning.json")
    result = leanbayes("compare", "npz", "--root", tmp_path / "few.npz", "--config", TUNING, *words)
    assert result.code == 0, result.err
    record = json.loads((tmp_path / "tuning.json").read_text())
    for row in record["rows"]:
        # What the file says of the data holds, though the command alone names them.
        assert row["config"]["data"]["options"] == {"validation": 20}
        assert row["config"]["data"]["part"] == "validation"
        assert row["config"]["augment"] == "crop+flip"


def test_foreign_data_that_are_missing_are_said_before_the_training(leanbayes):
    words = ("--set", "suite.ood.tiny.name=npz", "--methods", "map", "--suite", "test,ood:tiny")
    result = leanbayes(*SMOKE, *words)
    assert result.code == 2
    assert "npz reads files" in result.err
    assert "start" not in result.err


def drawn(lineup, label):
    """Draws a prediction of a run that is not a short one."""
    return Ask().draws(lineup.settings[label])


def recorded(name):
    """Draws a prediction by label, as a file of results has them."""
    rows = json.loads((TUNING.parents[1] / f"{name}.json").read_text())["rows"]
    return {row["method"]: row["config"]["samples"] for row in rows if "config" in row}


def test_rows_predict_with_as_many_draws_as_the_recorded_ones(lineup):
    known = recorded("cifar10_wrn")
    assert {label: drawn(lineup, label) for label in known} == known
    assert (known["rank_one"], known["rank_one_cauchy"], known["implicit_16"]) == (4, 16, 80)
    assert (drawn(lineup, "rank_one_scratch"), drawn(lineup, "vgg_implicit_8")) == (4, 40)


@pytest.mark.parametrize("name", ["cifar10_tuning", "resnet20_orders"])
def test_so_do_those_of_files(name):
    tables = tomllib.loads((TUNING.parent / f"{name}.toml").read_text())
    tables["data"] |= {"name": "npz", "options": {"root": "cifar10.npz"}}
    known = {k: v for k, v in recorded(name).items() if k in tables["methods"]}
    found = lineup_of(tables, labelled(",".join(known), tables), (), Sets())
    assert {label: drawn(found, label) for label in known} == known


@pytest.mark.parametrize(
    ("change", "expected"),
    [([], 3), (["methods.wide.samples=2"], 2), (["methods.wide.samples=none"], 20)],
)
def test_a_label_may_say_its_draws_and_a_flag_goes_before_it(change, expected):
    entry = {"name": "rank_one", "samples": 3}
    tables = {
        "model": {"name": "lenet"},
        "data": {"name": "fashion_mini"},
        "methods": {"wide": entry},
    }
    settings = lineup_of(tables, {"wide": "rank_one"}, change, Sets()).settings["wide"]
    assert Ask().draws(settings) == expected
    assert Ask(samples=7).draws(settings) == 7
    assert Ask(smoke=True).draws(settings) == min(expected, 4)


@pytest.mark.parametrize("key", ["samples", "seeds"])
@pytest.mark.parametrize("value", [0, 1.5, True, "many"])
def test_counts_of_a_label_are_whole_numbers(key, value):
    tables = {"model": {"name": "lenet"}, "methods": {"map": {key: value}}}
    with pytest.raises(lb.ConfigError, match=rf"methods\.map\.{key}: expected a whole number"):
        lineup_of(tables, {"map": "map"}, (), Sets())
