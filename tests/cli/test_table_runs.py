"""Runs on a table: later files are read as the file of the training was."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import leanbayes as lb
from leanbayes.cli.card import Card
from leanbayes.cli.run import run
from leanbayes.cli.settings_file import settings_of
from leanbayes.data.table_again import table_again


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train on a file of the current folder; gives a function that predicts."""
    monkeypatch.chdir(tmp_path)

    def train(inputs, outputs=1, **options):
        network = {"inputs": inputs, "hidden": [4], "outputs": outputs}
        fit = {"steps": 20, "batch_size": 16, "lr": 0.05, "folder": "run", "progress": False}
        tables = {
            "data": {"name": "table", "options": {"root": "train.csv", **options}},
            "model": {"name": "mlp", "options": network},
            "method": {"name": "map"},
            "fit": fit,
        }
        run(settings_of(tables))
        net = lb.load(lb.models.create("mlp", **network), tmp_path / "run" / "model")
        return lambda x: lb.predict(net, x, seed=0, keep_samples=True)

    return train


def write(path, rows):
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def means(result):
    return [row["mean"] for row in json.loads(result.out)["rows"]]


def test_large_numbers_keep_their_digits_as_in_training(leanbayes, trained):
    """Seconds since 1970, an hour apart: float32 tells them apart by 128 alone."""
    rows = [{"time": 1_700_000_000 + 60 * i, "y": (i % 7) + 0.1 * i} for i in range(60)]
    write("train.csv", rows)
    predict = trained(1, target="y")
    x, y = lb.data.read("table", root="train.csv", target="y").test
    write("new.csv", [row for row in rows if any(np.isclose(row["y"], v) for v in y.flatten())])
    found = means(leanbayes("predict", "run", "new.csv", "--json"))
    assert found == pytest.approx(predict(x).mean.flatten().tolist(), rel=1e-5)


def test_gaps_are_filled_by_the_training_mean_where_the_training_did(leanbayes, trained):
    rows = [{"a": i if i % 5 else "", "b": i % 3, "y": 3.0 * i} for i in range(40)]
    write("train.csv", rows)
    trained(2, target="y", missing="mean")
    mean = lb.data.read("table", root="train.csv", target="y", missing="mean").normalize.mean[0]
    write("new.csv", [{"a": "NA", "b": 1}, {"a": repr(mean), "b": 1}, {"a": 3, "b": 1}])
    result = leanbayes("predict", "run", "new.csv", "--json")
    filled, same, other = means(result)
    assert result.err == ""
    assert filled == pytest.approx(same, rel=1e-6)
    assert filled != pytest.approx(other, rel=1e-3)
    write("new.csv", [{"a": 1e39, "b": 1}])
    result = leanbayes("predict", "run", "new.csv")
    assert (result.code, "infinite or missing" in result.err) == (5, True)


KINDS = {"flat": -3.0, "house": 1.0, "villa": 6.0}


def homes(count, kinds=tuple(KINDS), seed=0):
    draw = np.random.default_rng(seed)
    for _ in range(count):
        kind, area, age = draw.choice(kinds), draw.normal(100, 30), draw.normal(20, 5)
        price = 0.1 * area - 0.4 * age + KINDS[kind]
        dear = "dear" if price > 8 else "fair" if price > 0 else "cheap"
        yield {"area": area, "kind": kind, "age": age, "price": price, "dear": dear}


ALL = ("--part", "train", "--set", "test=0", "--set", "validation=0", "--json")


@pytest.mark.parametrize("kinds", [tuple(KINDS), ("villa", "flat")])
def test_another_table_is_scored_as_it_is_predicted(leanbayes, trained, kinds):
    """Columns in another order, and without one of the categories."""
    write("train.csv", list(homes(60)))
    trained(5, target="price", drop=["dear"])
    rows = [dict(reversed(row.items())) for row in homes(50, kinds, seed=1)]
    write("new.csv", rows)
    found = np.array(means(leanbayes("predict", "run", "new.csv", "--json")))
    rmse = np.sqrt(np.mean((found - [row["price"] for row in rows]) ** 2))
    scored = leanbayes("evaluate", "run", "--root", "new.csv", *ALL)
    assert json.loads(scored.out)["rmse"] == pytest.approx(rmse, rel=1e-5)
    suite = leanbayes("evaluate", "run", "--root", "new.csv", "--suite", "quick", *ALL)
    assert json.loads(suite.out)["rmse"] == pytest.approx(rmse, rel=1e-5)


def test_labels_of_another_table_count_by_their_names(leanbayes, trained):
    write("train.csv", list(homes(60)))
    trained(5, outputs=3, target="dear", task="classification", drop=["price"])
    rows = [row for row in homes(60, seed=1) if row["dear"] != "cheap"]
    write("new.csv", rows)
    found = json.loads(leanbayes("predict", "run", "new.csv", "--json").out)["rows"]
    right = [row["label"] == truth["dear"] for row, truth in zip(found, rows, strict=True)]
    scored = leanbayes("evaluate", "run", "--root", "new.csv", *ALL)
    assert scored.err == ""
    assert json.loads(scored.out)["accuracy"] == pytest.approx(np.mean(right))
    write("new.csv", [*rows, {**rows[0], "dear": "free"}])
    scored = leanbayes("evaluate", "run", "--root", "new.csv", *ALL)
    assert scored.code == 5
    assert f"row {len(rows) + 1} of target 'dear' is 'free'" in scored.err


def test_the_runs_own_table_is_read_bit_for_bit(trained):
    write("train.csv", list(homes(60)))
    options = {"root": "train.csv", "target": "price", "drop": ["dear"], "seed": 3}
    trained(5, **{key: value for key, value in options.items() if key != "root"})
    first = lb.data.read("table", **options)
    again = table_again(Card.read(Path("run")).data, **options)
    for part in ("train", "validation", "test"):
        for one, two in zip(getattr(first, part), getattr(again, part), strict=True):
            assert one.equal(two)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"b": i % 5, "kind": "xy"[i % 2], "a": i, "y": i} for i in range(40)], "column 1 .*'a'"),
        (
            [{"a": i, "kind": "xz"[i % 2], "b": i % 5, "y": i} for i in range(40)],
            r"\(x, y\).*\(x, z\)",
        ),
        ([{"a": i, "kind": "xy"[i % 2], "b": i % 5, "cost": 9 * i} for i in range(40)], None),
    ],
)
def test_weights_of_a_run_want_its_columns_in_its_order(leanbayes, trained, rows, words):
    """The network would run on others all the same, and take one column for another."""
    write("train.csv", [{"a": i, "kind": "xy"[i % 2], "b": i % 5, "y": i} for i in range(40)])
    trained(4, target="y")
    write("other.csv", rows)
    data = (
        "--data",
        "table",
        "--root",
        "other.csv",
        "--set",
        f"data.options.target={list(rows[0])[-1]}",
    )
    result = leanbayes("adapt", "--weights", "run", *data, "--method", "mean_field", "--epochs", 1)
    assert result.code == (0 if words is None else 2), result.err
    assert re.search(words or "", result.err), result.err


TABLE = ("--data", "table", "--root", "train.csv", "--set", "data.options.target=y")
NETWORK = ("--model", "mlp", "--set", "model.options.hidden=[4]", "--method", "map")


@pytest.mark.parametrize(
    ("task", "likelihood", "outputs"),
    [
        ("regression", (), 1),
        ("regression", ("--set", "likelihood.name=heteroscedastic_gaussian"), 2),
        ("classification", (), 3),
        ("binary", (), 1),
    ],
)
def test_a_network_gets_the_inputs_and_outputs_of_the_table(
    tmp_path, monkeypatch, leanbayes, task, likelihood, outputs
):
    """Nobody should have to count the categories of a column."""
    monkeypatch.chdir(tmp_path)
    answers = {"regression": [0.5, 1.5, 4], "classification": [*"abc"], "binary": ["no", "yes"] * 2}
    rows = [{"size": i, "kind": "xyz"[i % 3], "y": answers[task][i % 3]} for i in range(40)]
    write("train.csv", rows)
    task_flag = ("--set", f"data.options.task={task}")
    flags = (*TABLE, *task_flag, *likelihood, *NETWORK, "--epochs", 1, "--folder", "run")
    result = leanbayes("train", *flags)
    assert result.code == 0, result.err
    assert Card.read(Path("run")).model["options"] == {
        "inputs": 4, "hidden": [4], "outputs": outputs
    }  # fmt: skip


def test_words_in_a_list_without_quotes(tmp_path, monkeypatch, leanbayes):
    monkeypatch.chdir(tmp_path)
    result = leanbayes("train", *TABLE, "--set", "data.options.drop=[size]", *NETWORK)
    assert result.code == 2
    assert re.search(r"\[size\]. is no list; .*words in quotes: --set .data", result.err)


def test_a_run_without_a_folder_says_that_it_is_not_saved(tmp_path, monkeypatch, leanbayes):
    monkeypatch.chdir(tmp_path)
    write("train.csv", [{"size": i, "y": 2 * i} for i in range(40)])
    flags = (*TABLE, *NETWORK, "--epochs", 1)
    result = leanbayes("train", *flags)
    assert "without --folder the run is not saved" in result.err
    assert "1 epoch\n" in result.out
    assert "not saved" not in leanbayes("train", *flags, "--folder", "run").err


def test_a_run_of_python_is_not_called_unfinished(tmp_path, leanbayes):
    x = torch.randn(20, 2)
    config = lb.FitConfig(epochs=1, folder=str(tmp_path / "run"), progress=False)
    lb.adapt(torch.nn.Linear(2, 3), lb.MAP(), (x, torch.arange(20) % 3), config=config)
    result = leanbayes("info", tmp_path / "run")
    assert result.code == 5
    assert "or one of Python (lb.restore reads it; lb.save writes models)" in result.err


def test_targets_that_the_network_has_not_are_one_line(leanbayes, trained):
    write("train.csv", list(homes(60)))
    trained(5, target="price", drop=["dear"])
    two = ("--root", "train.csv", "--set", 'target=["price", "area"]')
    result = leanbayes("evaluate", "run", *two)
    assert (result.code, "targets (6, 2): expected one a prediction" in result.err) == (5, True)


def test_labels_in_another_form_are_one_line(leanbayes, trained):
    write("train.csv", list(homes(60)))
    trained(5, outputs=3, target="dear", task="classification", drop=["price"])
    draw = np.random.default_rng(0)
    for y, words in ((draw.random(20), "whole numbers"), (draw.random((20, 2)), "the data have 2")):
        np.savez("other.npz", x=draw.random((20, 5)), y=y)
        other = ("--data", "npz", "--root", "other.npz", "--part", "train")
        result = leanbayes("evaluate", "run", *other)
        assert (result.code, words in result.err) == (5, True), result.err


def test_a_table_split_at_something_else_is_told_how_those_of_the_run_are(leanbayes, trained):
    write("train.csv", [{"a": i, "b": i % 5, "y": i} for i in range(40)])
    trained(2, target="y")
    for text in ("a;b\n1;2\n", "a,b\n1;2\n"):
        Path("new.csv").write_text(text)
        result = leanbayes("predict", "run", "new.csv")
        assert "(as the table of the run: write this one so too)" in result.err
        assert (result.code, "delimiter=" in result.err) == (5, False)


def test_members_disagree_about_labels_alone(leanbayes, trained):
    write("train.csv", [{"a": i, "b": i % 5, "y": i} for i in range(40)])
    trained(2, target="y")
    result = leanbayes("trajectory", "run", "--root", "train.csv", "--out", "t.json")
    assert (result.code, "the run's task is regression" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("task=classification", "trained with regression there"),
        ('drop=["a"]', "trained with none there"),
        ('categorical=["b"]', "trained with a there"),
    ],
)
def test_what_training_has_decided_cannot_be_asked_otherwise(leanbayes, trained, change, words):
    write("train.csv", [{"a": i % 4, "b": i % 3, "y": 3.0 * i} for i in range(40)])
    trained(5, target="y", categorical=["a"])
    result = leanbayes("evaluate", "run", "--set", change)
    assert (result.code, words in result.err) == (2, True), result.err
    same = ["--set", "task=regression", "--set", 'categorical="a"', "--root", "train.csv"]
    assert leanbayes("evaluate", "run", *same).code == 0


def test_words_that_training_had_not_are_told_of_by_predict_and_evaluate(leanbayes, trained):
    write("train.csv", list(homes(60)))
    trained(5, target="price", drop=["dear"])
    rows = list(homes(50, seed=1))
    rows[3]["kind"] = "castle"
    write("new.csv", rows)
    words = "column 'kind' holds 1 words that training had not ('castle')"
    scored = leanbayes("evaluate", "run", "--root", "new.csv", *ALL)
    suite = leanbayes("evaluate", "run", "--root", "new.csv", "--suite", "quick", *ALL)
    for result in (leanbayes("predict", "run", "new.csv", "--json"), scored, suite):
        assert (result.code, result.err.count(words)) == (0, 1), result.err


def test_a_target_that_is_missing_is_named_by_its_row(leanbayes, trained):
    write("train.csv", list(homes(60)))
    trained(5, target="price", drop=["dear"])
    rows = list(homes(50, seed=1))
    for cell in ("", "nan"):
        rows[3]["price"] = cell
        write("new.csv", rows)
        result = leanbayes("evaluate", "run", "--root", "new.csv", *ALL)
        assert (result.code, "row 4 of column 'price' is missing" in result.err) == (5, True)


def test_a_column_that_cannot_be_standardised_is_named(tmp_path):
    write(
        tmp_path / "wild.csv",
        [{"k": "ab"[i % 2], "a": 10.0 ** (i * 20), "y": i} for i in range(12)],
    )
    with pytest.raises(lb.errors.DataError, match=r"column 'a' holds numbers too large"):
        lb.data.read("table", root=str(tmp_path / "wild.csv"), target="y")
