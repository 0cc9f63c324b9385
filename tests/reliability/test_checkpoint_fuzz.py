"""Damaged and forged checkpoints: one error that names the file, no wrong value, no code run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from damage import SAME_SIZE, VALUES, header, rewritten
from fuzz_checkpoints import make_net
from torch import nn

import leanbayes as lb
from leanbayes.storage import read_directory
from leanbayes.train.state import pack, unpack
from leanbayes.train.store import Store

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"


def in_process(*arguments):
    """Run a script by itself, so that a signal or its memory is seen."""
    env = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(folder, count, seed):
    found = in_process(HERE / "fuzz_checkpoints.py", folder, count, seed)
    assert found["failures"] == []
    assert not found["code_run"]
    assert found["cases"] == count
    assert found["refused"] > 0.8 * count


def test_400_damaged_checkpoints_are_refused(tmp_path):
    check(tmp_path, 400, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_10000_damaged_checkpoints_are_refused(tmp_path):
    check(tmp_path, 10_000, seed=1)


MEASURE = """
import json, sys, torch, leanbayes as lb
from fuzz_checkpoints import NOW, PEAK, forget_peak, memory
from leanbayes.train.state import unpack
from leanbayes.train.store import Store
net = torch.nn.Linear(3000, 3000)
lb.load(torch.nn.Linear(3, 3), sys.argv[3])  # what is imported on the way is not counted
known, before = forget_peak(), memory(NOW)
if sys.argv[2] == "run":
    found = unpack(Store(sys.argv[1]).read(1))
else:
    found = lb.load(net, sys.argv[1])
print(json.dumps([known, memory(PEAK) - before]))
"""


@pytest.mark.parametrize("kind", ["run", "model"])
def test_reading_costs_no_more_than_twice_the_file(tmp_path, kind):
    model = lb.bayesianize(nn.Linear(3000, 3000), lb.MeanField())
    lb.save(lb.bayesianize(nn.Linear(3, 3), lb.MeanField()), tmp_path / "small")
    if kind == "run":
        Store(tmp_path / "big").save(1, pack(dict(model.state_dict())))
    else:
        lb.save(model, tmp_path / "big")
    size = sum(p.stat().st_size for p in (tmp_path / "big").rglob("*") if p.is_file())
    assert size > 70e6
    known, grown = in_process("-c", MEASURE, tmp_path / "big", kind, tmp_path / "small")
    if not known:
        pytest.skip("the system does not tell the peak of a process's memory")
    assert grown < 2.2 * size + 50e6


def odd_descriptions(description):
    """Every entry of a description, and of the method's fields, replaced by every odd value."""
    method = description["method"]
    for key, value in description.items():
        yield from ({**description, key: odd} for odd in VALUES if odd != value)
    for key, value in method["fields"].items():
        for odd in (v for v in VALUES if v != value):
            yield {**description, "method": {**method, "fields": {**method["fields"], key: odd}}}


def loaded(net, path):
    """The state of the loaded model, or the words of the refusal."""
    try:
        return lb.load(net, path).state_dict()
    except lb.CheckpointError as error:
        return str(error)


SPECIAL = {  # methods that need an argument
    "compose": lb.Compose([(lb.select.norms, lb.Patching()), (lb.select.output, lb.MeanField())]),
    "partial": lb.Partial(criterion="magnitude", rate=0.5),
}
QUICK = ("batch_ensemble", "compose", "mean_field", "patching")
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in lb.methods()]


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_description_is_refused_or_gives_the_same_weights(tmp_path, name):
    path, fresh = tmp_path / "m", make_net().state_dict()
    method = SPECIAL.get(name) or lb.methods()[name]()
    model = lb.bayesianize(make_net(), method, likelihood=lb.Gaussian(learn=True))
    lb.save(model, path)
    state = model.state_dict()
    refused = 0
    for odd in odd_descriptions(json.loads(read_directory(path)["leanbayes.json"])):
        rewritten(path, "leanbayes.json", json.dumps(odd).encode())
        net = make_net()
        found = loaded(net, path)
        if isinstance(found, str):
            assert str(path) in found
            assert all(type(module).__module__.startswith("torch.") for module in net)
            assert all(torch.equal(value, fresh[key]) for key, value in net.state_dict().items())
            refused += 1
        else:
            assert all(torch.equal(found[key], value) for key, value in state.items())
    assert refused > 100


def lied(data, edit):
    size = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + size])
    edit(entries)
    return header(entries, data[8 + size :])


def retype(entries):
    for entry in entries.values():
        entry["dtype"] = SAME_SIZE[entry["dtype"]]


def reshape(entries):
    for entry in entries.values():
        entry["shape"] = entry["shape"][::-1]


@pytest.mark.parametrize("edit", [retype, reshape])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_a_header_that_lies_about_type_or_shape_is_refused(tmp_path, edit, dtype):
    files = pack({"w": torch.randn(2, 3).to(dtype)})
    with pytest.raises(lb.CheckpointError, match=r"state\.safetensors has '/w' as"):
        unpack({**files, "state.safetensors": lied(files["state.safetensors"], edit)})
    lb.save(lb.bayesianize(nn.Linear(3, 2).to(dtype), lb.MeanField()), tmp_path / "m")
    data = read_directory(tmp_path / "m")["model.safetensors"]
    rewritten(tmp_path / "m", "model.safetensors", lied(data, edit))
    with pytest.raises(lb.CheckpointError, match=r"model\.safetensors is damaged"):
        lb.load(nn.Linear(3, 2).to(dtype), tmp_path / "m")


def test_a_link_to_the_right_file_is_as_good_as_the_file(tmp_path):
    lb.save(lb.bayesianize(make_net(), lb.MeanField()), tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert lb.load(make_net(), tmp_path / "m").method.name == "mean_field"
