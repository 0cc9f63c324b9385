"""A run's directory: what is in it, whose it is, and that it is never half written."""

import getpass
import json
import os
import platform
from dataclasses import replace

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.train import folder as folders
from leanbayes.train.config import FitConfig
from leanbayes.train.folder import environment, open_run, write_file


def a_model(**options):
    return lb.bayesianize(nn.Linear(4, 3), lb.MeanField(**options))


CONFIG = FitConfig(epochs=3, lr=0.1, milestones=(0.3, 0.6))


def test_config_and_environment_are_written(tmp_path):
    path = open_run(tmp_path / "deep" / "run", CONFIG, a_model(prior_std=0.5))
    config = json.loads((path / "config.json").read_text())
    assert FitConfig.from_json(config["fit"]) == CONFIG
    assert config["method"]["name"] == "mean_field"
    assert config["method"]["fields"]["prior_std"] == 0.5
    found = json.loads((path / "environment.json").read_text())
    assert found["torch"] == torch.__version__
    assert found["leanbayes"] == lb.__version__
    assert found["device"] == "cpu"
    assert sorted(x.name for x in path.iterdir()) == ["config.json", "environment.json"]


def test_the_environment_tells_nothing_of_people_machines_or_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = open_run("run", CONFIG, a_model())
    text = (path / "environment.json").read_text() + (path / "config.json").read_text()
    assert str(tmp_path) not in text
    values = [str(v) for v in environment().values()]
    assert not any("/" in v or os.sep in v for v in values)
    assert platform.node() not in values
    assert getpass.getuser() not in values


def test_the_same_run_opens_again_and_may_be_longer(tmp_path):
    open_run(tmp_path, CONFIG, a_model())
    longer = replace(CONFIG, epochs=9, progress=False, keep=5, workers=2, log_every=3)
    open_run(tmp_path, longer, a_model())
    config = json.loads((tmp_path / "config.json").read_text())
    assert FitConfig.from_json(config["fit"]) == longer


def test_another_run_is_refused_with_every_setting_that_differs(tmp_path):
    open_run(tmp_path, CONFIG, a_model(prior_std=2.0))
    before = (tmp_path / "config.json").read_bytes()
    other = replace(CONFIG, lr=0.2, milestones=(0.5,), epochs=5)
    with pytest.raises(ConfigError) as caught:
        open_run(tmp_path, other, a_model(prior_std=3.0))
    text = str(caught.value)
    assert "lr: 0.1 there, 0.2 now" in text
    assert "milestones: [0.3, 0.6] there, [0.5] now" in text
    assert "method.fields.prior_std: 2.0 there, 3.0 now" in text
    assert "epochs: " not in text
    assert (tmp_path / "config.json").read_bytes() == before


def test_another_method_is_refused(tmp_path):
    open_run(tmp_path, CONFIG, a_model())
    with pytest.raises(ConfigError, match=r"method\.name: 'mean_field' there, 'map' now"):
        open_run(tmp_path, CONFIG, lb.bayesianize(nn.Linear(4, 3), lb.MAP()))


def test_parts_of_a_composition_are_compared_one_by_one(tmp_path):
    """A setting that an older version did not know is None, and no difference."""

    def composed(**options):
        part = lb.select.linears, lb.MeanField(**options)
        return lb.bayesianize(nn.Linear(4, 3), lb.Compose([part]))

    path = open_run(tmp_path / "run", CONFIG, composed(prior_std=0.5))
    file = path / "config.json"
    config = json.loads(file.read_text())
    del config["method"]["fields"]["parts"][0][1]["fields"]["groups"]
    file.write_text(json.dumps(config))
    open_run(path, CONFIG, composed(prior_std=0.5))
    words = r"settings: method\.fields\.parts\.0\.1\.fields\.prior_std: 0\.5 there, 2\.0 now\. "
    with pytest.raises(ConfigError, match=words):
        open_run(path, CONFIG, composed(prior_std=2.0))


def test_a_run_is_not_overwritten_by_one_that_does_not_resume(tmp_path):
    fresh = replace(CONFIG, resume=False)
    open_run(tmp_path, fresh, a_model())
    open_run(tmp_path, fresh, a_model())  # nothing saved yet
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match="holds a run already and resume=False would overwrite"):
        open_run(tmp_path, fresh, a_model())
    open_run(tmp_path, CONFIG, a_model())


def test_checkpoints_of_nobody_knows_whom_are_left_alone(tmp_path):
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"checkpoints but no config\.json"):
        open_run(tmp_path, CONFIG, a_model())


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="folder='run' is a file"):
        open_run(tmp_path / "run", CONFIG, a_model())
    with pytest.raises(CheckpointError, match="cannot make folder='inner'"):
        open_run(tmp_path / "run" / "inner", CONFIG, a_model())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"fit": 3, "method": {}}', '{"fit": {}}'])
def test_a_damaged_config_is_an_error_that_names_the_file(tmp_path, text):
    open_run(tmp_path, CONFIG, a_model())
    (tmp_path / "config.json").write_text(text)
    with pytest.raises((CheckpointError, ConfigError), match=r"config\.json|other settings"):
        open_run(tmp_path, CONFIG, a_model())


def test_other_versions_are_told_and_noted(tmp_path):
    open_run(tmp_path, CONFIG, a_model())
    file = tmp_path / "environment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "torch": "2.9.0"}))
    with pytest.warns(UserWarning, match=r"torch: '2\.9\.0' there, .* not be bit for bit"):
        open_run(tmp_path, CONFIG, a_model())
    open_run(tmp_path, CONFIG, a_model())  # silent: noted
    file.write_text("{")
    open_run(tmp_path, CONFIG, a_model())
    assert json.loads(file.read_text())["torch"] == torch.__version__


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "config.json"
    write_file(file, b"old")

    def broken(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders.os, "fsync", broken)
    with pytest.raises(CheckpointError, match=r"cannot write config\.json .*No space left"):
        write_file(file, b"new")
    assert file.read_bytes() == b"old"
    assert [x.name for x in tmp_path.iterdir()] == ["config.json"]


def test_what_has_no_plain_form_is_kept_by_name_and_equals_itself(tmp_path):
    def made():
        return lb.bayesianize(nn.Linear(4, 3), lb.DeepEnsemble(members=2, factory=a_layer))

    open_run(tmp_path, CONFIG, made())
    kept = (tmp_path / "config.json").read_text()
    assert "a_layer" in kept
    assert " at 0x" not in kept  # an address would be another one next time
    open_run(tmp_path, CONFIG, made())
    assert (tmp_path / "config.json").read_text() == kept


def a_layer():
    return nn.Linear(4, 3)
