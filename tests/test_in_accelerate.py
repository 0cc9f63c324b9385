"""The how-to page in a loop of accelerate: weights as by a plain loop."""

import copy

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loop_cases import (
    METHOD,
    X,
    Y,
    adamw,
    assert_same,
    dense,
    imported,
    labels_of,
    names,
    noted,
    plain_loop,
    snippets,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@METHOD
@pytest.mark.parametrize("mixed", ["no", "bf16"])
def test_accelerate(method, mixed):
    state = imported("accelerate.state")
    state.AcceleratorState._reset_state(True)
    state.GradientState._reset_state()
    dtype = torch.float64 if mixed == "no" else torch.float32
    model = dense(method, dtype)
    twin, calls = copy.deepcopy(model), noted(model, labels_of)
    data = TensorDataset(X.to(dtype), Y)
    code = snippets("accelerate")[0].replace("_steps=2)", f"_steps=2, mixed_precision={mixed!r})")
    exec(code, names(model, data, loader=DataLoader(data, 4, shuffle=True)))
    assert len(calls) == 6
    plain_loop(twin, calls, adamw(twin), accumulate=2, bf16=mixed == "bf16")
    assert_same(model, twin, atol=1e-14 if mixed == "no" else 1e-7)
