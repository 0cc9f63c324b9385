"""Two processes: what breaks on one stops both, and norms are those of the whole gradient."""

import copy
import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.errors import NonFinite
from leanbayes.train.guards import FiniteGuard
from leanbayes.train.runtime import Runtime
from two_processes import two_processes


def a_model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    return lb.bayesianize(net, lb.MeanField(init_std=0.0)).train()


def rows():
    torch.manual_seed(1)
    return torch.randn(8, 6), torch.arange(8) % 4


def backward(module, batch):
    loss = lb.objective(module, batch, lb.Categorical(), include_kl=False).loss
    loss.backward()
    return loss


def words(guard, step, loss, module, runtime, batch=None):
    try:
        guard.check(step, loss, module, runtime, batch)
    except NonFinite as error:
        return str(error)
    return ""


def faults(strategy, model):
    """Norm of a healthy step, then what the guard says to faults of the second process alone."""
    x, y = rows()
    with Runtime(strategy=strategy, device="cpu", timeout=60) as runtime:
        second = runtime.rank == 1
        part = slice(4 * runtime.rank, 4 * runtime.rank + 4)
        module = runtime.prepare(model, lb.Categorical())
        guard = FiniteGuard()
        loss = backward(module, (x[part], y[part]))
        said = [words(guard, 0, loss, module, runtime, x[part])]
        norm = float(guard.clip(1e-2))
        again = words(guard, 1, loss, module, runtime)
        clipped = float(guard.norm())
        said.append(words(guard, 2, loss * (math.nan if second else 1), module, runtime))
        broken = x[part] * (math.inf if second else 1)
        said.append(words(guard, 3, loss, module, runtime, broken))
        if second:
            grad = next(p.grad for n, p in model.named_parameters() if n == "net.2.weight")
            getattr(grad, "to_local", lambda: grad)().fill_(math.nan)
        said.append(words(guard, 4, loss, module, runtime))
    return {"said": said, "again": again, "norm": norm, "clipped": clipped}


def work(_rank):
    model = a_model()
    return {strategy: faults(strategy, copy.deepcopy(model)) for strategy in ("ddp", "fsdp2")}


@pytest.mark.distributed
def test_all_processes_stop_with_the_same_words_and_clip_by_the_same_norm(tmp_path):
    first, second = two_processes(work, tmp_path)
    model = a_model()
    backward(model, rows())
    whole = float(nn.utils.clip_grad_norm_(model.parameters(), math.inf))
    for strategy in ("ddp", "fsdp2"):
        here, there = first[strategy], second[strategy]
        assert here["said"] == there["said"], strategy
        assert here["said"][0] == here["again"] == ""
        assert here["said"][1].startswith("step 2: the loss infinite")
        assert here["said"][2].startswith("step 3: the data (inputs or targets) infinite")
        assert here["said"][3].startswith("step 4: the gradient of net.2.weight infinite")
        for found in (here, there):
            assert found["norm"] == pytest.approx(whole, rel=1e-5), strategy
            assert found["clipped"] == pytest.approx(1e-2, rel=1e-3), strategy
