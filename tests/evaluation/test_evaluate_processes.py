"""Two gloo processes share the rows of every split and find what one finds."""

import json
from functools import partial

import pytest
import torch
from evaluation_cases import data, evaluate, network, timeless, trained
from torch.nn.parallel import DistributedDataParallel

import leanbayes as lb
from two_processes import process_group, two_processes

pytestmark = pytest.mark.distributed
NAMES = "test,corrupted:shot_noise/3,noise:0.5,ood:other,pgd"
# What ranks rows, or is a mean in their order, has the same bits; sums of batches may differ.
EXACT = ("auroc", "ap_", "fpr95", "aurc", "error_auroc", "accuracy_at", "total", "adaptive")


def suite(rows=41):
    generator = torch.Generator().manual_seed(8)
    foreign = {"other": torch.rand(10, 1, 9, 9, generator=generator)}  # one batch: one has none
    options = {"rows": rows, "foreign": foreign, "sweep": True, "examples": 2}
    return lb.Suite.of(data(), NAMES, **options)


def scenes():
    """Labels by pixel, in one batch of the grid for each process and a half."""
    torch.manual_seed(2)
    net = torch.nn.Conv2d(3, 3, 3, padding=1)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3), likelihood=lb.Categorical())
    x = torch.rand(20, 3, 8, 8)
    return model, lb.Suite.of((x, (x[:, 0] * 2.999).long()), "test")


def numbers():
    torch.manual_seed(1)
    model = lb.bayesianize(torch.nn.Linear(3, 1), lb.MeanField(), likelihood=lb.Gaussian(1.0))
    x = torch.randn(50, 3)
    return model, lb.Suite.of((x, x[:, :1] * 2), "test", sweep=True)


def work(rank, folder):
    """The same as one process, wrapped, with a file; then what goes wrong in one of them."""
    model = lb.load(network(), f"{folder}/model")  # training would use the group
    found = {"plain": evaluate(model, suite(), out=f"{folder}/two.json")}
    found["again"] = evaluate(model, suite(), out=f"{folder}/two.json")
    found["wrapped"] = evaluate(DistributedDataParallel(model), suite())
    with lb.Runtime("fsdp2", device="cpu") as runtime:
        own, likelihood = lb.load(network(), f"{folder}/model"), lb.Categorical()
        module = runtime.prepare(own, likelihood)
        found["shards"] = evaluate(module, suite(), likelihood=likelihood)
    found["pixels"], found["numbers"] = evaluate(*scenes()), evaluate(*numbers())
    x, y = data().test
    wrong = y.clone()
    wrong[-1] = 9  # the last row: of the second process
    found["errors"] = [
        error_of(lambda: evaluate(model, lb.Suite.of((x, wrong), "test"))),
        error_of(lambda: evaluate(model, suite(), seed=rank)),
        error_of(lambda: evaluate(model, suite(), seed=9, out=f"{folder}/two.json")),
    ]
    return found


def error_of(action):
    try:
        action()
    except lb.LeanBayesError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def assert_alike(found, expected, path=""):
    if isinstance(expected, dict):
        assert list(found) == list(expected), path
        for name, value in expected.items():
            assert_alike(found[name], value, f"{path}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for at, value in enumerate(expected):
            assert_alike(found[at], value, f"{path}/{at}")
    elif isinstance(expected, float) and not path.rpartition("/")[2].startswith(EXACT):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-14), path
    else:
        assert found == expected, path


def assert_close(found, expected):
    """Draws from shards may differ from those of whole tensors in the last bit."""
    for name, split in expected["splits"].items():
        for figure, value in split["figures"].items():
            assert found["splits"][name]["figures"][figure] == pytest.approx(value, rel=1e-4), name


def test_two_processes_find_what_one_finds(tmp_path):
    lb.save(trained(), tmp_path / "model")
    place = partial(process_group, folder=tmp_path)
    first, second = two_processes(work, tmp_path, str(tmp_path), place=place)
    one = timeless(evaluate(trained(), suite()))
    assert timeless(first["plain"]) == timeless(second["plain"])
    assert_alike(timeless(first["plain"]), one)
    for result in (first, second):
        assert result["again"] == first["plain"]  # read from the file
        assert_alike(timeless(result["wrapped"]), one)
        assert_close(timeless(result["shards"]), one)
        assert_alike(timeless(result["pixels"]), timeless(evaluate(*scenes())))
        assert_alike(timeless(result["numbers"]), timeless(evaluate(*numbers())))
    file = json.loads((tmp_path / "two.json").read_text())
    assert file["evaluation"] == first["plain"]
    assert not {"world", "processes", "rank"} & file["identity"].keys()  # any number may go on
    label, seeds, other = zip(first["errors"], second["errors"], strict=True)
    assert "process 1 has failed: label 9 is outside the 3 classes" in label[0]
    assert label[1].startswith("DataError: label 9")
    assert all("processes [1] evaluate something else" in words for words in seeds)
    assert "seed: 0 there, 1 now" in seeds[1]
    assert all("seed: 5 there, 9 now" in words for words in other)
