"""The command in a file of figures: typed again where the file lies, it gives the figures again."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

NET = "from torch import nn\n\n\ndef net():\n    return nn.Linear(4, 3)\n"
COMMANDS = {
    "evaluate": ("--suite", "test"),
    "landscape": ("--points", 2, "--rows", 9, "--draws", 2, "--seed", 1),
    "trajectory": ("--rows", 9, "--samples", 3, "--seed", 1),
}


@pytest.fixture
def place(leanbayes, tmp_path, monkeypatch):
    """A folder with a run of a network from outside leanbayes, and its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("outside_net.py").write_text(NET)
    draw = np.random.default_rng(0)
    np.savez("some.npz", x=draw.normal(size=(40, 4)), y=draw.integers(0, 3, 40))
    data = ("--data", "npz", "--root", "some.npz", "--set", "data.options.test=20")
    model = ("--model", "outside_net:net", "--method", "mean_field", "--epochs", 1)
    assert leanbayes("train", *data, *model, "--folder", "a run").code == 0
    return tmp_path


def figures(path):
    """What does not depend on the clock."""
    record = json.loads(path.read_text())
    if "evaluation" in record:
        return record["evaluation"]["splits"]["test"]["figures"]
    return record.get("landscape", record.get("points"))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_a_file_can_be_typed_again(leanbayes, place, command):
    out = place / "found.json"
    given = ("--root", "some.npz", "--model", "outside_net:net", "--out", out)
    flags = (*given, "--set", f"root={place / 'some.npz'}", *COMMANDS[command])
    assert leanbayes(command, "a run", *flags).code == 0
    first, record = figures(out), json.loads(out.read_text())
    assert str(place) not in out.read_text()  # places of this machine are nobody's
    program, *words = shlex.split(record["command"])
    assert program == "leanbayes"
    result = leanbayes(*words, *(() if "--out" in words else ("--out", out)))
    assert result.code == 0, result.err
    assert figures(out) == first
