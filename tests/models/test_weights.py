"""Weights of files into networks: every layout that is about, and what is said of the others."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import leanbayes as lb
from leanbayes.models import create, load_weights

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
CHECKPOINT = DATA / "resnet_cifar10" / "resnet20-12fca82f.th"


def small(classes=3, seed=0):
    torch.manual_seed(seed)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, classes)
    return nn.Sequential(*layers)


def prefixed(state, prefix):
    return {f"{prefix}{key}": value for key, value in state.items()}


def assert_equal_nets(left, right):
    pairs = zip(left.state_dict().items(), right.state_dict().items(), strict=True)
    for (key, value), (_, other) in pairs:
        assert torch.equal(value, other), key


def frozen(net):
    return {key: value.clone() for key, value in net.state_dict().items()}


LAYOUTS = {
    "bare": lambda state: state,
    "state_dict": lambda state: {"best_prec1": 91.7, "state_dict": prefixed(state, "module.")},
    "model": lambda state: {"model": state, "optimizer": {"state": {}}, "epoch": 3},
    "model_state_dict": lambda state: {"model_state_dict": state},
    "nested": lambda state: {"model": {"state_dict": state}},
    "compiled": lambda state: prefixed(state, "_orig_mod.module."),
    "lightning": lambda state: {"state_dict": prefixed(state, "model.")},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_usual_layout_loads_bit_for_bit(layout, tmp_path):
    source, target = small(seed=1), small(seed=2)
    source[1].running_mean.normal_()
    torch.save(LAYOUTS[layout](source.state_dict()), tmp_path / "net.pth")
    found = load_weights(target, tmp_path / "net.pth")
    assert_equal_nets(source, target)
    assert found.loaded == tuple(source.state_dict())
    assert (found.missing, found.left_over, found.unfit) == ((), (), ())


def test_safetensors_load_too_and_a_tied_tensor_is_there_once(tmp_path):
    def tied(seed):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
        net[1].weight = net[0].weight
        return net

    source, target = tied(1), tied(2)
    save_file({"0.weight": source[0].weight.detach()}, tmp_path / "net.safetensors")
    load_weights(target, str(tmp_path / "net.safetensors"))
    assert_equal_nets(source, target)
    assert target[1].weight is target[0].weight


def test_a_prefix_that_the_network_has_itself_stays(tmp_path):
    source, target = (nn.ModuleDict({"module": small(seed=s)}) for s in (1, 2))
    torch.save(source.state_dict(), tmp_path / "net.pt")
    load_weights(target, tmp_path / "net.pt")
    assert_equal_nets(source, target)


def test_numbers_take_the_type_of_the_network(tmp_path):
    source, target = small(seed=1), small(seed=2)
    torch.save(source.half().state_dict(), tmp_path / "net.pt")
    load_weights(target, tmp_path / "net.pt")
    assert target[0].weight.dtype == torch.float32
    assert torch.equal(target[0].weight, source[0].weight.float())


def test_files_of_torch_before_the_batch_counter_load(tmp_path):
    source, target = small(seed=1), small(seed=2)
    state = source.state_dict()
    del state["1.num_batches_tracked"]
    torch.save(state, tmp_path / "old.th")
    assert load_weights(target, tmp_path / "old.th").missing == ()
    assert_equal_nets(source, target)


def test_a_made_up_file_in_the_layout_of_the_public_resnet20_loads(tmp_path):
    source, target = create("resnet20"), create("resnet20")
    state = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    torch.save({"best_prec1": 1.0, "state_dict": prefixed(state, "module.")}, tmp_path / "r.th")
    assert len(load_weights(target, tmp_path / "r.th").loaded) == 97
    assert_equal_nets(source, target)


@pytest.mark.skipif(not CHECKPOINT.exists(), reason=f"shared data not found: {CHECKPOINT}")
def test_the_public_resnet20_loads_and_converts():
    net = create("resnet20")
    assert len(load_weights(net, CHECKPOINT).loaded) == 97
    state = torch.load(CHECKPOINT, map_location="cpu", weights_only=True)["state_dict"]
    assert torch.equal(net.linear.weight, state["module.linear.weight"])
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    expected = net.eval()(x).detach()
    model = lb.bayesianize(net, lb.MeanField(), example=x).eval()
    torch.testing.assert_close(model(x).detach(), expected)


def test_other_classes_are_refused_and_nothing_is_changed(tmp_path):
    torch.save(small(classes=5).state_dict(), tmp_path / "net.pt")
    net = small(classes=3, seed=1)
    before = frozen(net)
    with pytest.raises(lb.CheckpointError) as caught:
        load_weights(net, tmp_path / "net.pt")
    words = str(caught.value)
    assert "net.pt does not fit the network: 7 of 9 keys fit" in words
    assert "3.weight [5, 16] in the file, [3, 16] in the network" in words
    assert "strict=False" in words
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_without_strict_all_but_the_last_layer_is_copied(tmp_path):
    source, net = small(classes=5), small(classes=3, seed=1)
    before = frozen(net)
    torch.save(source.state_dict(), tmp_path / "net.pt")
    found = load_weights(net, tmp_path / "net.pt", strict=False)
    assert found.unfit == ("3.weight", "3.bias")
    assert torch.equal(net[0].weight, source[0].weight)
    assert torch.equal(net[3].weight, before["3.weight"])


def test_a_renamed_layer_is_listed_with_the_nearest_of_its_shape(tmp_path):
    state = small().state_dict()
    renamed = {key.replace("3.", "head."): value for key, value in state.items()}
    torch.save({**renamed, "extra": torch.zeros(2)}, tmp_path / "net.pt")
    with pytest.raises(lb.CheckpointError) as caught:
        load_weights(small(), tmp_path / "net.pt")
    words = str(caught.value)
    assert "2 missing in the file: 3.weight [3, 16] (nearest: head.weight [3, 16])" in words
    assert "3 left over: head.weight [3, 16], head.bias [3], extra [2]" in words


def test_weights_of_another_network_are_refused_even_without_strict(tmp_path):
    torch.save({"a.weight": torch.zeros(2)}, tmp_path / "net.pt")
    with pytest.raises(lb.CheckpointError, match=r"0 of 9 keys fit\n8 missing .* and 3 more\n"):
        load_weights(small(), tmp_path / "net.pt", strict=False)


class Harmful:
    def __reduce__(self):
        return exec, ("raise SystemExit('code of the file ran')",)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("code.pt", {"state_dict": Harmful()}, "holds more than tensors.*net.state_dict()"),
        ("net.pt", small(), "holds more than tensors"),
        ("list.pt", [torch.zeros(2)], "holds a list; expected a state_dict"),
        ("other.pt", {"weights": {"a": 1}, "epoch": 2}, "no state_dict: found weights, epoch"),
        ("empty.pt", {}, "found nothing"),
        ("tensor.pt", torch.zeros(2), "holds a Tensor"),
        ("raw.pt", b"not a pickle at all", "damaged"),
        ("short.pt", b"", "damaged"),
        ("raw.safetensors", b"\xff" * 40, "damaged or no file of weights"),
    ],
)
def test_a_file_that_is_no_weights_is_refused_and_runs_no_code(tmp_path, name, content, words):
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        torch.save(content, tmp_path / name)
    with pytest.raises(lb.CheckpointError, match=words):
        load_weights(small(), tmp_path / name)


def test_a_file_cut_off_is_damaged(tmp_path):
    torch.save(small().state_dict(), tmp_path / "net.pt")
    whole = (tmp_path / "net.pt").read_bytes()
    (tmp_path / "net.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(lb.CheckpointError, match=r"net\.pt is damaged"):
        load_weights(small(), tmp_path / "net.pt")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(lb.CheckpointError, match=r"no file of weights at .*gone.pth"):
        load_weights(small(), tmp_path / "gone.pth")
