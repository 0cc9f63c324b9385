"""Two gloo processes: DDP and FSDP2 train, predict and save as one process does.

Starting processes costs seconds, so all networks of a method run in one start; the processes
measure, the test compares.
"""

import gc
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from nets import FEW, converted, default, gradients, labels, nets, predicted, silent
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

import leanbayes as lb

pytestmark = pytest.mark.distributed

WORLD, NUM_DATA, PATIENCE = 2, 4, 300
WRAPPERS = ("ddp", "fsdp2")
TOLERANCE = {"ddp": 1e-6, "fsdp2": 1e-5}


def batch_of(method, inputs, rank=None):
    """The batch, or the half of a process; members are spread over both halves alike."""
    times = max(1, method.members)
    rows = inputs.repeat(times, *(1,) * (inputs.dim() - 1))
    targets = labels(len(rows))
    if rank is None:
        return rows, targets
    half = slice(rank * len(rows) // WORLD, (rank + 1) * len(rows) // WORLD)
    return rows[half], targets[half]


def prepared(model):
    """Training mode; statistics of a batch are left alone, for a half batch has others."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


def blocks_of(net):
    """What a user would shard by itself: elements of lists and children, inner ones first."""
    elements = [list(m) for m in net.modules() if isinstance(m, nn.ModuleList)]
    inner = [m for group in reversed(elements) for m in group]
    children = [m for name, m in net.named_children() if name != "slots"]
    blocks = [m for m in [*inner, *children] if not isinstance(m, nn.ModuleList)]
    owners = Counter(id(p) for m in children for p in m.parameters())
    return [
        m
        for m in blocks
        if list(m.parameters()) and all(owners[id(p)] == 1 for p in m.parameters())
    ]


def wrapped(kind, model):
    if kind == "ddp":
        return DistributedDataParallel(model)
    mesh = dist.init_device_mesh("cpu", (WORLD,))
    for block in blocks_of(model.net)[:-1]:  # the last one belongs to the root's group
        fully_shard(block, mesh=mesh)
    # By default the root stays gathered after a pass; one network shows that it need not.
    fully_shard(model, mesh=mesh, reshard_after_forward=isinstance(model.net, nn.Sequential))
    return model


def looked_at(run, batch):
    """A pass for a log: FSDP2's root then holds whole parameters, strangers to an optimiser."""
    with torch.no_grad():
        run(batch[0])


def objective_gradients(run, batch, seed):
    model = run.module if isinstance(run, DistributedDataParallel) else run
    prepared(model)
    model.zero_grad()
    torch.manual_seed(seed)
    lb.objective(run, batch, lb.Categorical(), num_data=NUM_DATA).loss.backward()
    return gradients(model)


def edited_gradients(run, batch, seed):
    """The same by way of `attach_kl`: what the optimiser sees, with a learning rate of 0."""
    model = run.module if isinstance(run, DistributedDataParallel) else run
    prepared(model)
    model.zero_grad()
    optimizer = torch.optim.SGD(lb.param_groups(run, lr=0.0))
    handle = lb.attach_kl(optimizer, run, num_data=NUM_DATA)
    torch.manual_seed(seed)
    lb.objective(run, batch, lb.Categorical(), include_kl=False).loss.backward()
    looked_at(run, batch)
    optimizer.step()
    handle.remove()
    return gradients(model)


def train(run, batch, seed):
    """A step with the KL in the loss and one with the KL as gradient edit."""
    looked_at(run, batch)
    optimizer = torch.optim.SGD(lb.param_groups(run, lr=0.05), momentum=0.9)
    objective_gradients(run, batch, seed)
    optimizer.step()
    optimizer.zero_grad()
    handle = lb.attach_kl(optimizer, run, num_data=NUM_DATA)
    lb.objective(run, batch, lb.Categorical(), include_kl=False).loss.backward()
    optimizer.step()
    handle.remove()


def whole(parameters):
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in parameters]


def measured(kind, method, name, rank, folder):
    """Everything that is compared, from one network in one wrapper."""
    found = {}
    quiet = silent(method)
    if quiet is not None:
        model, inputs = converted(quiet, name)
        run = wrapped(kind, model)
        found["quiet"] = objective_gradients(run, batch_of(method, inputs, rank), seed=rank)
    model, inputs = converted(method, name)
    run, batch = wrapped(kind, model), batch_of(method, inputs, rank)
    parameters = list(model.parameters())
    found["kl"] = model.kl().detach()
    found["probs"] = predicted(run, inputs)
    found["same parameters"] = all(map(lambda a, b: a is b, model.parameters(), parameters))
    found["objective"] = objective_gradients(run, batch, seed=10 + rank)
    found["edited"] = edited_gradients(run, batch, seed=10 + rank)
    train(run, batch, seed=20 + rank)
    found["state"] = whole(model.parameters())
    torch.manual_seed(30 + rank)
    with torch.no_grad():
        found["draw"] = run(inputs)
    found["trained probs"] = predicted(run, inputs)
    lb.save(run, Path(folder) / kind / name)
    with pytest.raises(lb.CheckpointError, match="not overwritten"):  # in both processes, at once
        lb.save(run, Path(folder))
    return found


@contextmanager
def process_group(rank, folder):
    """gloo by way of a file: no port to clash on. The wrappers must be gone before the group."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=PATIENCE),
    )
    yield
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def work(rank, method_name, names, folder):
    # FSDP2 warns of outputs on which it would lose its hooks; stock layers give such, too.
    warnings.simplefilter("error")
    stock = r"FSDP2-wrapped module \(FSDP(Linear|(Bayesian)?(LSTM|GRU))\) returned a view"
    warnings.filterwarnings("ignore", stock)
    warnings.simplefilter("ignore", lb.NotFitted)  # what is drawn is the placeholder
    torch.set_num_threads(1)
    method = default(lb.methods()[method_name])
    with process_group(rank, folder):
        found = {
            (kind, name): measured(kind, method, name, rank, folder)
            for name in names
            for kind in WRAPPERS
        }
        torch.save(found, f"{folder}/rank{rank}.pt")
        del found


def results_of(method, names, folder):
    """What both processes measured; they end, well or not, before this returns."""
    context = mp.start_processes(
        work, (method.name, names, str(folder)), nprocs=WORLD, join=False, start_method="spawn"
    )
    deadline = time.monotonic() + 2 * PATIENCE
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < deadline, "the processes hang"
    finally:
        for process in context.processes:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(WORLD)]


def assert_gradients(found, expected, tolerance, where):
    assert found.keys() == expected.keys(), where
    for name, grad in expected.items():
        torch.testing.assert_close(
            found[name],
            grad,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda m, n=name: f"{where} {n}: {m}",
        )


def pooled(grads):
    """Gradients with those of further copies of a tensor added to its own."""
    totals = {name: grad.clone() for name, grad in grads.items() if ".further" not in name}
    for name, grad in grads.items():
        if ".further" in name:
            path, _, rest = name.partition("slots.")
            slot, _, number = rest.partition(".further")
            totals[path + slot] += grad if number else grad.sum(0)
        elif name.endswith((".left", ".right")):  # candidates of random rows
            totals[name] = grad.sum(0)
    return totals


def check_training(first, second, kind, method, name):
    where, tolerance = f"{method.name} {name} {kind}", TOLERANCE[kind]
    quiet = silent(method)
    if quiet is not None:
        model, inputs = converted(quiet, name)
        single = objective_gradients(model, batch_of(method, inputs), seed=0)
        # Which copy or candidate a process draws is its own affair; what all of them get is not.
        found, single = pooled(first["quiet"]), pooled(single)
        assert_gradients(found, single, tolerance, f"{where} against one process")
    for each in (first, second):
        assert_gradients(each["edited"], each["objective"], tolerance, f"{where} attach_kl")
    assert_gradients(first["objective"], second["objective"], 0.0, f"{where} between ranks")
    before = list(converted(method, name)[0].parameters())
    for a, b, start in zip(first["state"], second["state"], before, strict=True):
        assert torch.equal(a, b), f"{where}: parameters differ between processes"
        assert not (start.requires_grad and torch.equal(a, start)), f"{where}: nothing was learnt"
    differ = not torch.equal(first["draw"], second["draw"])
    draws = method.is_random and not method.trains_as_point
    assert differ == draws, f"{where}: noise of two seeds"


def check_prediction(first, second, kind, method, name, folder):
    where = f"{method.name} {name} {kind}"
    model, inputs = converted(method, name)
    torch.testing.assert_close(first["kl"], model.kl().detach(), rtol=1e-6, atol=1e-6)
    expected = predicted(model, inputs)
    net, _ = nets(seed=3)[name]()
    loaded = predicted(lb.load(net, folder / kind / name), inputs)
    for each in (first, second):
        assert each["same parameters"], f"{where}: predict left gathered parameters behind"
        torch.testing.assert_close(each["probs"], expected, rtol=1e-5, atol=1e-5, msg=where)
        torch.testing.assert_close(each["trained probs"], loaded, rtol=1e-5, atol=1e-5, msg=where)
    assert not torch.allclose(loaded, expected, rtol=1e-5, atol=1e-5), f"{where}: nothing learnt"


@pytest.mark.parametrize(
    "names",
    [FEW, pytest.param(tuple(n for n in nets() if n not in FEW), marks=pytest.mark.slow)],
    ids=["few", "others"],
)
def test_ddp_and_fsdp2_train_predict_and_save_as_one_process_does(method, names, tmp_path):
    first, second = results_of(method, names, tmp_path)
    for kind, name in first:
        cell = first[kind, name], second[kind, name], kind, method, name
        check_training(*cell)
        check_prediction(*cell, tmp_path)
