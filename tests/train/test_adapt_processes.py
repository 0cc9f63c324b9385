"""`lb.adapt` in two gloo processes: all of them end with the same model."""

import pytest
import torch
from fit_cases import Net, digest, problem, settings
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import leanbayes as lb
from leanbayes.errors import DataError
from leanbayes.train.loop import Trainer
from leanbayes.train.runtime import Runtime
from two_processes import two_processes

pytestmark = pytest.mark.distributed


def run(method, seed=0, **options):
    """Digest, figures and report of an adaptation that starts from a network of this seed."""
    torch.manual_seed(seed)
    fit = options.pop("fit", {})
    done = lb.adapt(
        Net(),
        method,
        problem(),
        validation=problem(24, seed=1),
        config=settings(device="cpu", **fit),
        **options,
    )
    return digest(done.model), done.measured, done.figures, done.result.steps


CASES = {
    "laplace": (lb.Laplace(prior_std=0.05), {}),
    "kronecker": (lb.Laplace(structure="kronecker"), {"fit": {"strategy": "fsdp2"}}),
    "swag": (lb.SWAG(rank=2), {"fitting": {"epochs": 3}}),
    "partial": (lb.Partial(rate=0.1), {}),
    "in_turn": (lb.DeepEnsemble(members=2), {"members": "in_turn"}),
}
ALONE = lb.DeepEnsemble(members=3)


def maps():
    """Images with a label a pixel; every fourth has few, so that two processes have unlike many."""
    y = torch.arange(20 * 16).reshape(20, 4, 4) % 3
    y[::4, 1:] = -100
    return problem(20)[0], y


def apart(rank):
    """Digest and num_data of runs on data of which each process has its own part."""
    data = TensorDataset(*maps())
    loader = DataLoader(data, 5, sampler=DistributedSampler(data, 2, rank, shuffle=False))
    return {"loader": trained(loader), "list": trained(list(loader))}


def trained(data, validation=None):
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Sequential(nn.Conv2d(1, 3, 3, padding=1)), lb.MeanField())
    config = settings(device="cpu", steps=4)
    with Runtime.of(config) as runtime:
        trainer = Trainer(model, lb.Categorical(), config, runtime)
        trainer.run(data, validation=validation)
    return digest(model), trainer.stepper.parts.num_data


def refused(rank):
    """What both say where one has fewer batches, and where the validation data are a part."""
    data = TensorDataset(*maps())
    part = DataLoader(data, 5, sampler=DistributedSampler(data, 2, rank))
    with pytest.raises(DataError) as caught:
        trained([(x[None], y[None]) for x, y in zip(*maps(), strict=True)][: 2 + rank])
    with pytest.raises(DataError, match="expected all of them in every process"):
        trained(data, validation=part)
    return str(caught.value)


def work(rank, folder):
    # Networks that differ by process: the first one's counts.
    found = {name: run(method, rank, **options) for name, (method, options) in CASES.items()}
    fit = {"folder": str(folder / "by_process")}
    found["by_process"] = run(ALONE, rank, members="by_process", fit=fit)
    found["again"] = run(ALONE, rank, members="by_process", fit=fit)
    found |= {"apart": apart(rank), "refused": refused(rank)}
    return found


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    return two_processes(work, folder, folder), folder


@pytest.mark.parametrize("case", [*CASES, "by_process", "again"])
def test_all_processes_have_the_same_model_and_the_same_figures(processes, case):
    first, second = (found[case] for found in processes[0])
    assert first == second


def test_a_member_a_process_equals_members_in_turn(processes):
    alone = run(ALONE, members="in_turn", fit={"strategy": "single"})
    assert processes[0][0]["by_process"] == alone
    assert processes[0][0]["again"] == alone


@pytest.mark.parametrize("kind", ["loader", "list"])
def test_data_in_parts_are_counted_together(processes, kind):
    """Each process divided the KL by the labels of its own part, and the weights drifted apart."""
    first, second = (found["apart"][kind] for found in processes[0])
    assert first == second
    assert first[1] == int((maps()[1] != -100).sum())


def test_unlike_numbers_of_batches_are_refused_by_all(processes):
    """The processes were out of step: one ended by a signal that nobody had sent."""
    first, second = (found["refused"] for found in processes[0])
    assert first == second
    assert "the processes have 2, 3 batches an epoch" in first


def test_every_member_has_a_folder(processes):
    folder = processes[1] / "by_process"
    members = [f"member-{k}" for k in range(3)]
    assert sorted(path.name for path in folder.iterdir()) == [*members, "report.json"]
    for name in members:
        files = {"checkpoints", "config.json", "environment.json", "metrics.jsonl"}
        assert {path.name for path in (folder / name).iterdir()} == files


def test_the_data_of_a_fit_after_training_are_counted_once(processes):
    assert processes[0][0]["laplace"][1]["num_data"] == 48
