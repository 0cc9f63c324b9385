"""Flags beside the settings file, `adapt`, `--dry-run`, recipes, and examples of commands."""

import json
import re
import shlex
import sys
import tomllib

import numpy as np
import pytest
import torch
from PIL import Image

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.cli.flags import Flags
from leanbayes.cli.settings_file import settings_of

QUICK = ["--data", "fashion_mini", "--set", "data.options.images=32", "--epochs", "1"]
SMALL = {"model": {"name": "lenet"}, "data": {"name": "digits"}}


def test_flags_go_before_the_file_and_set_before_flags(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[model]\nname = "resnet20"\noptions = { num_classes = 3 }\n[fit]\nsteps = 7\n')
    given = Flags(
        config=file, model="lenet", data="npz", root="d", method="map", epochs=3, seed=4,
        resume=False, precision="bf16", folder="f", change=["fit.seed=5"],
    )  # fmt: skip
    found = given.settings()
    assert (found.model.name, found.model.options) == ("lenet", {})
    assert (found.data.name, found.data.options) == ("npz", {"root": "d"})
    assert (found.fit.epochs, found.fit.steps, found.fit.seed) == (3, None, 5)
    assert (found.fit.resume, found.fit.precision, found.fit.folder) == (False, "bf16", "f")


def test_a_recipe_brings_method_and_training_and_tables_change_them():
    base = lb.recipe("rank1-cifar10")
    assert settings_of({**SMALL, "recipe": "rank1-cifar10"}).method == base.method
    tables = {"method": {"fields": {"members": 2}}, "fit": {"steps": 9}}
    found = settings_of({**SMALL, **tables, "recipe": "rank1-cifar10"})
    assert (found.method.members, found.fit.steps, found.fit.epochs) == (2, 9, None)
    assert found.fit.lr == base.config.lr
    other = settings_of({**SMALL, "recipe": "rank1-cifar10", "method": {"name": "map"}})
    assert (other.method, other.fit) == (lb.MAP(), base.config)
    with pytest.raises(lb.ConfigError, match=r"recipe: no such name .*'rank1-cifar10'"):
        settings_of({**SMALL, "recipe": "rank1-cifar1"})


def test_adapt_starts_from_the_mean_network_of_a_run(leanbayes, finished, tmp_path):
    options = ["--weights", finished, *QUICK, "--method", "map", "--set", "fit.lr=0.0"]
    result = leanbayes("adapt", *options, "--folder", tmp_path / "two")
    assert result.code == 0, result.err

    def mean(folder):
        net = lb.models.create("mlp", inputs=784, hidden=[8], outputs=10)
        return lb.collapse(lb.load(net, folder / "model")).state_dict()

    before, after = mean(finished), mean(tmp_path / "two")
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_weights_of_a_file_are_loaded_before_the_conversion(leanbayes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(5)
    net = lb.models.create("lenet")
    torch.save({"state_dict": {f"module.{k}": v for k, v in net.state_dict().items()}}, "net.th")
    flags = ["--model", "lenet", "--method", "map", *QUICK, "--set", "fit.lr=0.0"]
    assert leanbayes("adapt", "--weights", "net.th", *flags, "--out", "one").code == 0
    found = lb.collapse(lb.load(lb.models.create("lenet"), tmp_path / "one" / "model"))
    assert all(torch.equal(v, found.state_dict()[k]) for k, v in net.state_dict().items())
    result = leanbayes("adapt", "--weights", "nowhere.th", *flags)
    assert (result.code, "nowhere.th" in result.err) == (5, True)


def test_adapt_without_weights_and_a_run_without_data_exit_with_2(leanbayes):
    result = leanbayes("adapt", *QUICK, "--model", "lenet", "--method", "map")
    assert (result.code, "--weights FILE or --weights RUN" in result.err) == (2, True)
    result = leanbayes("train", "--method", "map")
    assert (result.code, "--config FILE.toml" in result.err) == (2, True)


def test_a_dry_run_prints_settings_that_are_read_again_and_writes_nothing(
    leanbayes, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    flags = ["--model", "resnet20", "--recipe", "emp-cifar100", "--set", "model.options={}"]
    data = ["--data", "fashion_mini", "--set", "method.fields.members=3"]
    flags = ["--model", "lenet", *flags[2:], *data, "--folder", "one"]
    result = leanbayes("train", *flags, "--dry-run")
    assert result.code == 0, result.err
    assert list(tmp_path.iterdir()) == []
    tables = tomllib.loads(result.out)
    again = settings_of(tables)
    assert (again.method.members, again.fit.folder) == (3, "one")
    assert again.method == settings_of({**SMALL, "recipe": "emp-cifar100",
        "method": {"fields": {"members": 3}}}).method  # fmt: skip
    words = re.search(r"parameters: ([\d,]+) before, ([\d,]+) after", result.out)
    before = sum(p.numel() for p in lb.models.create("lenet").parameters())
    assert int(words[1].replace(",", "")) == before
    found = json.loads(leanbayes("train", *flags, "--dry-run", "--json").out)
    counts = found["parameters"]
    assert counts["after"] == counts["before"] + counts["added"] == int(words[2].replace(",", ""))
    adam = 4  # value, gradient, two moments
    assert found["memory"]["state"] == 4 * adam * counts["after"]
    assert found["settings"] == tables


def test_the_number_of_classes_follows_the_data_unless_it_is_told(leanbayes):
    flags = ["--data", "fashion_mini", "--model", "resnet_small", "--method", "map", "--dry-run"]
    result = leanbayes("train", *flags)
    assert result.code == 2  # three channels against one
    assert "resnet_small with {'num_classes': 10}" in result.err


def test_a_folder_that_cannot_be_written_exits_without_a_traceback(leanbayes, tmp_path):
    (tmp_path / "file").write_text("")
    flags = ["--model", "lenet", "--method", "map", *QUICK, "--folder", tmp_path / "file" / "one"]
    result = leanbayes("train", *flags)
    assert result.code in (2, 5)
    assert "Traceback" not in result.err
    assert "Not a directory" in result.err


def test_a_full_disk_is_one_line_and_exit_code_5(monkeypatch, capsys):
    from leanbayes.cli import main

    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lb, "methods", full)
    monkeypatch.setattr(sys, "argv", ["leanbayes", "methods"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 5
    assert capsys.readouterr().err == "leanbayes: a file: No space left on device\n"


def example(command):
    found = re.search(r"Example: (.*)", command.callback.__doc__ or "", re.S)
    return " ".join(found[1].split()) if found else None


EXAMPLES = {command.callback.__name__: example(command) for command in app.registered_commands}
HERE = (
    *("adapt", "predict", "evaluate", "info", "methods", "models", "data"),
    *("compare", "experiment", "recipes", "landscape", "trajectory"),
)


@pytest.mark.parametrize("name", HERE)
def test_the_example_of_a_command_runs(leanbayes, finished, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one").symlink_to(finished)
    (tmp_path / "images").mkdir()
    Image.new("L", (28, 28)).save(tmp_path / "images" / "black.png")
    words = shlex.split(EXAMPLES[name])
    assert words[:2] == ["leanbayes", name]
    result = leanbayes(*words[1:])
    assert result.code == 0, result.err
    assert result.out
    assert "Example: leanbayes" in leanbayes(name, "--help").out


def test_a_shell_can_complete_names(leanbayes):
    from leanbayes.cli.completion import data_names, method_names, model_names, recipe_names

    assert method_names("mean_") == ["mean_field"]
    assert "resnet20" in model_names("resnet")
    assert data_names("fashion_mi") == ["fashion_mini"]
    assert recipe_names("pbn-im") == ["pbn-imagenet"]
    assert "--show-completion" in leanbayes("--help").out


def test_data_without_a_training_part_are_refused(leanbayes, tmp_path):
    np.save(tmp_path / "labels.npy", np.zeros(50, dtype=np.int64))
    np.save(tmp_path / "fog.npy", np.zeros((50, 32, 32, 3), dtype=np.uint8))
    words = ["--data", "cifar10_c", "--root", tmp_path, "--model", "resnet20", "--method", "map"]
    result = leanbayes("train", *words)
    assert result.code == 5
    assert "has nothing to train on" in result.err


def test_data_of_files_ask_for_their_place(leanbayes):
    result = leanbayes("train", "--data", "mnist", "--model", "lenet", "--method", "map")
    assert result.code == 2
    assert "write --root DIR" in result.err
