"""A network that parts of an experiment share is trained once, whoever asks first."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import leanbayes as lb
from leanbayes.experiments.kept_network import Kept, kept


def training(calls):
    def train():
        calls.append(1)
        time.sleep(0.05)  # long enough for the others to come and wait
        return Kept({"weight": torch.arange(3.0)}, 7)

    return train


def test_those_who_come_together_train_once_and_have_the_same(tmp_path):
    calls = []
    path = str(tmp_path / "runs" / "net.pt")
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(kept, path, {"lr": 0.1}, training(calls)) for _ in range(4)]
        found = [one.result() for one in asked]
    assert len(calls) == 1
    for state, steps in found:
        assert torch.equal(state["weight"], torch.arange(3.0))
        assert steps == 7


def test_without_a_file_everyone_trains(tmp_path):
    calls = []
    for _ in range(2):
        assert kept("", {}, training(calls)).steps == 7
    assert len(calls) == 2
    assert not list(tmp_path.iterdir())


def test_a_network_of_other_settings_is_refused_and_a_failed_training_leaves_nothing(tmp_path):
    path = str(tmp_path / "net.pt")

    def fails():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        kept(path, {"lr": 0.1}, fails)
    assert kept(path, {"lr": 0.1}, training([])).steps == 7
    with pytest.raises(lb.ConfigError, match="trained otherwise"):
        kept(path, {"lr": 0.2}, fails)


def test_the_mark_is_that_of_the_weights_whether_or_not_they_were_kept(tmp_path):
    own = kept("", {}, training([]))
    assert own.mark == kept(str(tmp_path / "net.pt"), {}, training([])).mark
    assert own.mark != Kept({"weight": torch.tensor([0.0, 1.0, 2.0 + 1e-6])}, 7).mark
