"""`leanbayes compare`: one table and one record, every row of which can be run again."""

import json
import shlex
from statistics import fmean, stdev

import pytest
import torch

import leanbayes as lb
from leanbayes import records
from leanbayes.cli import readers, smoke
from leanbayes.cli.compare.command import compare
from leanbayes.data.dataset import Data, Normalize

FEW = ["--set", "data.options.images=64", "--smoke"]


def line(name: str = "boston", split: int = 0) -> Data:
    """Read made-up numbers, y = 3 x + noise in raw units of hundreds."""
    g = torch.Generator().manual_seed(split)
    x = torch.randn(120, 2, generator=g)
    y = 500 + 100 * (3 * x[:, :1] + 0.1 * torch.randn(120, 1, generator=g))
    scale = Normalize.of(y[:80])
    return Data(
        name=f"line-{name}",
        task="regression",
        train=(x[:80], y[:80]),
        test=(x[80:], y[80:]),
        target_scale=scale,
    )


def two(seed: int = 0) -> Data:
    """Read two classes of made-up rows."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(120, 3, generator=g)
    y = (x[:, 0] > 0).long()
    return Data(
        name="two", task="binary", train=(x[:80], y[:80]), test=(x[80:], y[80:]), classes=("a", "b")
    )


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    known = readers.Readers._found
    more = {"line": line, "two": two}
    monkeypatch.setattr(readers.Readers, "_found", lambda self: {**known(self), **more})


def record_of(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


def figures(row):
    return {name: found["mean"] for name, found in row["figures"].items()}


def test_the_example_of_the_help_writes_a_record_and_prints_a_table(
    leanbayes, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    example = compare.__doc__.split("Example: ")[1].strip()
    result = leanbayes(*shlex.split(example)[1:])
    assert result.code == 0, result.err
    assert [path.name for path in tmp_path.iterdir()] == ["compare.json"]
    record = json.loads((tmp_path / "compare.json").read_text())
    assert [row["method"] for row in record["rows"]] == ["map", "mean_field"]
    assert record["seeds"] == [0, 1]
    lines = result.out.splitlines()
    assert lines[0].split()[:5] == ["method", "accuracy", "nll", "ece", "brier"]
    assert lines[0].split()[5:] == ["error_auroc", "parameters", "added", "seconds"]
    row = record["rows"][1]
    nll = row["figures"]["nll"]
    assert f"{nll['mean']:.4f} +- {nll['standard_error']:.4f}" in lines[3]
    assert (row["parameters"], row["parameters_added"]) == (41_806, 41_806)
    assert str(tmp_path) not in (tmp_path / "compare.json").read_text()


def test_mean_and_standard_error_are_those_of_the_runs(leanbayes):
    args = ["compare", "fashion_mini", "--methods", "mean_field", *FEW, "--seeds", 2, "--json"]
    row = record_of(leanbayes(*args))["rows"][0]
    values = [run["figures"]["nll"] for run in row["runs"]]
    assert values[0] != values[1]
    assert row["figures"]["nll"]["mean"] == pytest.approx(fmean(values))
    assert row["figures"]["nll"]["standard_error"] == pytest.approx(stdev(values) / 2**0.5)
    assert row["seconds"] == pytest.approx(sum(run["seconds"] for run in row["runs"]))
    assert 0 < row["training_seconds"] < row["seconds"]


def test_every_row_holds_a_command_that_gives_it_again(leanbayes):
    own = ["--set", "methods.mean_field.fields.prior_std=0.5", "--set", "fit.lr=0.01"]
    args = ["compare", "fashion_mini", "--methods", "map,mean_field", *FEW, *own, "--seeds", 1]
    first = record_of(leanbayes(*args, "--json"))["rows"]
    for row in first:
        assert row["commit"] == records.commit()
        again = record_of(leanbayes(*shlex.split(row["command"])[1:], "--json"))["rows"]
        assert len(again) == 1
        assert again[0]["config"] == row["config"]
        assert figures(again[0]) == figures(row)
    assert first[1]["config"]["method"]["fields"]["prior_std"] == 0.5
    assert "methods.mean_field" not in first[0]["command"]
    assert {row["config"]["fit"]["lr"] for row in first} == {0.01}


def test_all_methods_start_from_the_same_network_at_a_seed(leanbayes):
    """At rate 0 nothing is learnt, so a narrow mean_field predicts what the point estimate does."""
    changes = ("fit.lr=0", "methods.mean_field.fields.init_std=0.0")
    words = [word for change in changes for word in ("--set", change)]
    args = ["compare", "fashion_mini", *FEW, *words, "--seeds", 1, "--json"]
    point, narrow = record_of(leanbayes(*args))["rows"]
    assert figures(point) == pytest.approx(figures(narrow), rel=1e-5)


def test_weights_of_a_file_are_where_every_method_starts(leanbayes, tmp_path):
    torch.manual_seed(5)
    net = lb.models.create("lenet")
    torch.save({"state_dict": net.state_dict()}, tmp_path / "lenet.th")
    args = ["compare", "fashion_mini", "--methods", "map", *FEW, "--set", "fit.lr=0"]
    args += ["--weights", tmp_path / "lenet.th", "--seeds", 1, "--json"]
    row = record_of(leanbayes(*args))["rows"][0]
    data = lb.data.fashion_mini()
    with torch.no_grad():
        logits = net.eval()(data.x_test[: smoke.ROWS])
    expected = torch.nn.functional.cross_entropy(logits, data.y_test[: smoke.ROWS])
    assert row["figures"]["nll"]["mean"] == pytest.approx(expected.item(), rel=1e-5)
    assert row["config"]["model"]["weights"] is True


def test_a_name_after_a_dash_is_the_option_of_a_reader_and_seeds_may_be_splits(leanbayes):
    args = ["compare", "line-other", "--methods", "map", "--splits", "--smoke", "--json"]
    row = record_of(leanbayes(*args))["rows"][0]
    assert row["config"]["data"] == {"name": "line", "options": {"name": "other"}, "part": "test"}
    assert row["config"]["model"]["name"] == "mlp"
    assert row["figures"].keys() == {"rmse", "lpd", "coverage_95"}
    assert row["parameters"] == 2 * 50 + 50 + 50 + 1


def test_regression_is_learnt_in_raw_units(leanbayes):
    changes = ("fit.epochs=40", "fit.lr=0.01", "fit.batch_size=20")
    words = [word for change in changes for word in ("--set", change)]
    args = ["compare", "line", "--methods", "map", "--seeds", 1, *words, "--json"]
    found = figures(record_of(leanbayes(*args))["rows"][0])
    assert 5 < found["rmse"] < 60  # the targets' own deviation is 300, the noise 10
    assert 0.5 < found["coverage_95"] <= 1


def test_two_classes_have_an_area_under_precision_and_recall(leanbayes):
    args = ["compare", "two", "--methods", "map", "--seeds", 1, "--set", "fit.lr=0.1", "--json"]
    found = figures(record_of(leanbayes(*args))["rows"][0])
    assert found["auc_pr"] > 0.9
    assert found["accuracy"] > 0.8


def test_a_method_that_fails_has_words_for_figures_and_the_others_go_on(leanbayes, tmp_path):
    out = tmp_path / "c.json"
    own = [
        "--set",
        "methods.mean_field.fit.lr=1e30",
        "--set",
        "methods.mean_field.fit.momentum=0.0",
    ]
    args = ["compare", "fashion_mini", "--methods", "mean_field,map", *FEW, *own, "--seeds", 1]
    result = leanbayes(*args, "--out", out)
    assert result.code == 3
    rows = json.loads(out.read_text())["rows"]
    assert "figures" not in rows[0]
    assert rows[0]["failed"] in " ".join(result.out.split())
    assert rows[1]["figures"]["accuracy"]["mean"] >= 0
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["fashion_mini", "--methods", "map,meanfield"],
            "no method is called 'meanfield'; did you",
        ),
        (["fashion_mino"], "data.*fashion_min[oi]"),
        (
            ["fashion_mini", "--set", "methods.swag.fields.rank=3"],
            "'swag' is not compared; map, mean",
        ),
        (["fashion_mini", "--set", "methods.map.x=3"], "expected methods.NAME.fields.KEY=VALUE"),
        (["fashion_mini", "--set", "fit.epochz=3"], "fit.epochz: unknown; did you mean 'epochs'?"),
        (["fashion_mini", "--model", "lenett"], "model.name: no such name as 'lenett'"),
        (["fashion_mini", "--part", "tset", "--smoke"], "no part 'tset'; did you mean 'test'?"),
    ],
)
def test_a_wrong_word_exits_with_2_before_anything_is_trained(leanbayes, args, words):
    import re

    result = leanbayes("compare", *args)
    assert result.code == 2, result.out
    assert re.search(words, result.err), result.err
    assert "Traceback" not in result.err


def test_a_place_that_cannot_be_written_is_told_before_the_training(leanbayes, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "c.json"):
        result = leanbayes("compare", "fashion_mini", "--out", out, "--smoke")
        assert result.code == 2
        assert "--out must be a file that can be written" in result.err
        assert "seed 0" not in result.err


def test_the_commit_is_that_of_leanbayes_own_clone_alone(tmp_path, monkeypatch):
    found = records.commit()
    assert found is None or len(found.removesuffix("+")) == 40
    monkeypatch.setattr(records, "__file__", str(tmp_path / "records.py"))
    assert records.commit() is None


def test_one_method_is_compared_under_several_settings(leanbayes, tmp_path):
    """By labels: on the command line, and in the tables of a file."""
    file = tmp_path / "compare.toml"
    file.write_text('[methods.tight]\nname = "mean_field"\nfields = { prior_std = 0.1 }\n')
    out = tmp_path / "out.json"
    words = ["--methods", "map,tight,wide=mean_field", "--config", file, "--out", out, "--smoke"]
    change = ["--set", "methods.wide.fields.prior_std=3.0"]
    result = leanbayes("compare", "fashion_mini", *words, *change, "--seeds", 1)
    assert result.code == 0, result.err
    rows = {row["method"]: row for row in json.loads(out.read_text())["rows"]}
    stds = {
        label: row["config"]["method"]["fields"].get("prior_std") for label, row in rows.items()
    }
    assert stds == {"map": None, "tight": 0.1, "wide": 3.0}
    assert "--methods wide=mean_field" in rows["wide"]["command"].replace("'", "")
    assert "methods.wide" not in rows["tight"]["command"]


def test_a_table_of_a_label_has_known_keys(leanbayes, tmp_path):
    file = tmp_path / "compare.toml"
    file.write_text('[methods.a]\nname = "map"\nfield = {}\n')
    result = leanbayes("compare", "fashion_mini", "--methods", "a", "--config", file, "--smoke")
    assert result.code == 2
    assert "methods.a: expected name, fields, fit, fitting, model" in result.err


def test_a_method_starts_from_weights_of_its_own(leanbayes, tmp_path):
    """At a rate of nearly 0 the rows differ by their weights alone."""
    trained = ("train", "--data", "fashion_mini", "--model", "lenet", "--method", "map", "--smoke")
    assert leanbayes(*trained, "--folder", tmp_path / "one").code == 0
    file = tmp_path / "own.toml"
    file.write_text(
        f'[methods.after]\nname = "map"\nweights = "{tmp_path / "one"}"\nfit = {{ lr = 1e-12 }}\n'
        "[methods.afresh]\nname = 'map'\nfit = { lr = 1e-12 }\n"
    )
    result = leanbayes(
        *("compare", "fashion_mini", "--config", file, "--methods", "after,afresh"),
        *("--seeds", 1, "--smoke", "--json"),
    )
    after, afresh = json.loads(result.out)["rows"]
    assert after["config"]["model"]["weights"] is True
    assert afresh["config"]["model"]["weights"] is False
    assert after["figures"]["nll"] != afresh["figures"]["nll"]


def test_members_of_a_deep_ensemble_have_the_whole_training_each(leanbayes, monkeypatch):
    asked, adapt = {}, lb.adapt

    def noted(net, method, **options):
        asked[method.name] = options.get("members")
        return adapt(net, method, **options)

    monkeypatch.setattr(lb, "adapt", noted)
    words = ("--methods", "map,deep_ensemble", "--seeds", 1, "--smoke", "--json")
    assert leanbayes("compare", "fashion_mini", *words).code == 0
    assert asked == {"map": None, "deep_ensemble": "in_turn"}


def test_a_label_for_two_methods_is_refused(leanbayes):
    """Only the last one ran."""
    result = leanbayes("compare", "digits", "--methods", "a=map,a=swag", "--smoke")
    assert result.code == 2, result.err
    assert "--methods: 'a' is 'map' and 'swag'" in result.err
