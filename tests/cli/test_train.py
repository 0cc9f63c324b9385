"""`leanbayes train`: from a settings file to a folder with a model, and every way to fail."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
import torch

import leanbayes as lb
from leanbayes.cli import app

SETTINGS = """
[model]
name = "mlp"
options = { inputs = 784, hidden = [8], outputs = 10 }

[data]
name = "fashion_mini"
options = { images = 64, held_out = 20 }

[method]
name = "mean_field"

[fit]
epochs = 2
batch_size = 16
lr = 0.05
save_every = 3
"""
FILES = {
    *("card.json", "checkpoints", "config.json", "environment.json", "metrics.jsonl", "model"),
    "report.json",
}


@pytest.fixture
def trained(leanbayes, tmp_path, monkeypatch):
    """Run `leanbayes train` on the settings above, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SETTINGS)

    def run(*changes, options=()):
        chosen = [word for change in changes for word in ("--set", change)]
        return leanbayes("train", "--config", "run.toml", *chosen, *options)

    return run


def weights(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


def test_a_run_leaves_a_folder_with_everything(trained, tmp_path):
    result = trained(options=["--folder", "runs/one"])
    assert result.code == 0, result.err
    folder = tmp_path / "runs" / "one"
    assert {path.name for path in folder.iterdir()} == FILES
    assert "2 layers converted" in result.out
    assert "8 steps, 2 epochs" in result.out
    found = json.loads((folder / "report.json").read_text())
    words = re.search(r"validation: nll (\S+), accuracy (\S+)", result.out)
    assert float(words[1]) == pytest.approx(found["figures"]["nll"], rel=1e-3)
    config = json.loads((folder / "config.json").read_text())
    assert (config["fit"]["epochs"], config["method"]["name"]) == (2, "mean_field")
    assert str(tmp_path) not in "".join(p.read_text() for p in folder.glob("*.json*"))


def test_the_saved_model_predicts_what_the_run_found(trained, tmp_path):
    trained(options=["--folder", "one"])
    net = lb.models.create("mlp", inputs=784, hidden=[8], outputs=10)
    model = lb.load(net, tmp_path / "one" / "model")
    data = lb.data.fashion_mini()
    p = lb.predict(model, data.x_train[-20:], seed=0)
    found = json.loads((tmp_path / "one" / "report.json").read_text())["figures"]
    nll = -p.log_prob(data.y_train[-20:]).mean().item()
    assert nll == pytest.approx(found["nll"], rel=1e-4)


def test_json_is_one_object_and_nothing_else(trained):
    result = trained("method.name=laplace", "method.fields.prior_std=0.01", options=["--json"])
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["method"]["name"] == "laplace"
    assert (found["result"]["steps"], found["measured"]["num_data"]) == (8, 64)
    assert found["figures"].keys() == {"nll", "accuracy"}
    assert [row["step"] for row in found["result"]["history"]] == [4, 8]


def test_set_changes_values_of_the_file(trained):
    found = json.loads(trained("fit.steps=3", "fit.epochs=none", options=["--json"]).out)
    assert found["result"]["steps"] == 3
    result = trained("method.fields.prior_std=0.3", "fit.folder=two", options=["--json"])
    assert json.loads(result.out)["method"]["fields"]["prior_std"] == 0.3


def test_the_same_command_twice_gives_the_same_bytes(trained, tmp_path):
    torch.manual_seed(1)
    trained(options=["--folder", "one"])
    torch.manual_seed(2)
    before = torch.get_rng_state()
    trained(options=["--folder", "two"])
    assert torch.equal(torch.get_rng_state(), before)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    reports = [(tmp_path / name / "report.json").read_bytes() for name in ("one", "two")]
    assert reports[0] == reports[1]


def test_a_finished_run_is_left_as_it_is(trained, tmp_path):
    trained(options=["--folder", "one"])
    before = weights(tmp_path / "one"), (tmp_path / "one" / "metrics.jsonl").read_bytes()
    result = trained(options=["--folder", "one"])
    assert result.code == 0
    assert "8 steps, 2 epochs" in result.out
    assert before == (weights(tmp_path / "one"), (tmp_path / "one/metrics.jsonl").read_bytes())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("fit.epochz=2", "fit.epochz: unknown; did you mean 'epochs'?"),
        ("fit.lr=-1", "fit.lr: "),
        ("fit.momentum=1.5", "fit.momentum: "),
        ("method.name=meanfield", "method.name: .*'mean_field'"),
        ("method.fields.prior_std=a", "method.fields.prior_std: "),
        ("model.name=mpl", "model.name: .*'mlp'"),
        ("model.options.inputs=5", "model.options: mlp .* inputs of 1x28x28"),
        ("model.options.hidden=[-3]", "model.options: mlp .*negative"),
        ("data.name=cifar", "data.name: "),
        ("data.options.imagez=3", "data.options.imagez: unknown; did you mean 'images'?"),
        ("data.options.images=0", "data.options: of 6000 images .*images=0"),
        ("data.options.held_out=6000", "data.options: .*held_out=6000"),
        ("fit.monitor=rmse", "monitor is one of"),
        ("oops", "--set oops: expected a path and a value"),
    ],
)
def test_a_wrong_setting_exits_with_2_and_names_its_key(trained, change, words):
    result = trained(change)
    assert result.code == 2
    last = result.err.splitlines()[-1]
    assert re.match(f"leanbayes: {words}", last), result.err
    assert "Traceback" not in result.err
    assert result.out == ""


def test_all_problems_are_told_at_once(trained):
    err = trained("fit.lr=-1", "method.fields.prior=2", "model.options.width=3").err
    for path in ("fit.lr", "method.fields.prior", "model.options.width"):
        assert path in err


def test_a_file_that_is_missing_or_no_toml_exits_with_2(trained, tmp_path):
    (tmp_path / "run.toml").write_text("[model\n")
    assert "run.toml: is not TOML" in trained().err
    (tmp_path / "run.toml").unlink()
    result = trained()
    assert (result.code, "run.toml: cannot be read" in result.err) == (2, True)


def test_a_file_with_a_byte_order_mark_is_read(trained, tmp_path):
    (tmp_path / "run.toml").write_text(SETTINGS, encoding="utf-8-sig")
    assert trained(options=["--dry-run"]).code == 0


def test_other_settings_for_the_same_folder_exit_with_2(trained):
    trained(options=["--folder", "one"])
    result = trained("fit.lr=0.1", options=["--folder", "one"])
    assert result.code == 2
    assert "lr: 0.05 there, 0.1 now" in result.err


def test_a_loss_that_is_not_finite_exits_with_3_and_keeps_the_last_checkpoint(trained, tmp_path):
    changes = ("fit.lr=1e30", "fit.save_every=1", "fit.momentum=0.0")
    result = trained(*changes, options=["--folder", "one"])
    assert result.code == 3
    assert re.match(r"leanbayes: step \d+: .*net\.", result.err.splitlines()[-1])
    assert not (tmp_path / "one" / "model").exists()
    assert not (tmp_path / "one" / "report.json").exists()


def test_labels_that_the_network_has_no_output_for_exit_with_5(trained):
    result = trained("model.options.outputs=4")
    assert result.code == 5
    assert "out of range" in result.err


def test_a_damaged_folder_exits_with_5(trained, tmp_path):
    trained(options=["--folder", "one"])
    (tmp_path / "one" / "config.json").write_text("{")
    result = trained(options=["--folder", "one"])
    assert result.code == 5
    assert "config.json" in result.err


def start(folder, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "leanbayes", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_saves_and_the_same_command_goes_on(trained, tmp_path):
    trained(options=["--folder", "whole"])
    long = ["--set", "fit.epochs=100000", "--set", "fit.schedule=constant"]
    process = start(tmp_path, "train", "--config", "run.toml", "--folder", "cut", *long)
    while "validation" not in process.stderr.readline():  # an epoch is over
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 130
    stopped = int(re.search(r"stopped at step (\d+) of 400000", out)[1])
    assert "goes on from here" in out
    changes = [f"fit.epochs={stopped // 4 + 2}", "fit.schedule=constant"]
    result = trained(*changes, options=["--folder", "cut"])
    assert f"going on from step {stopped}" in result.err
    trained(*changes, options=["--folder", "other"])
    assert weights(tmp_path / "cut") == weights(tmp_path / "other")


EXAMPLES = {
    command.callback.__name__: " ".join(found[1].split())
    for command in app.registered_commands
    if (found := re.search(r"Example: (.*)", command.callback.__doc__, re.S))
}


@pytest.mark.usefixtures("trained")
def test_the_example_of_train_runs(leanbayes, tmp_path):
    result = leanbayes(*shlex.split(EXAMPLES["train"])[1:])
    assert result.code == 0, result.err
    assert {path.name for path in (tmp_path / "runs" / "one").iterdir()} == FILES


@pytest.mark.distributed
def test_the_example_of_launch_runs(tmp_path):
    (tmp_path / "run.toml").write_text(SETTINGS + 'folder = "one"\n')
    process = start(tmp_path, *shlex.split(EXAMPLES["launch"])[1:])
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.count("8 steps, 2 epochs") == 1  # the first process alone speaks
    assert {path.name for path in (tmp_path / "one").iterdir()} == FILES


def test_a_table_of_whole_numbers_is_told_to_be_ids(trained, tmp_path):
    import numpy as np

    np.savez(tmp_path / "whole.npz", x=np.arange(80).reshape(20, 4), y=np.arange(20) % 2)
    result = trained("data={name='npz', options={root='whole.npz'}}", "model.options.inputs=4")
    assert result.code == 2
    assert "inputs of 4, whole numbers as of an embedding (ids)" in result.err
