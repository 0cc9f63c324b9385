import importlib.util
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from leanbayes.models import resnet20, resnet56
from leanbayes.models.resnet_cifar import CifarBlock

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
CHECKPOINT = DATA / "resnet_cifar10" / "resnet20-12fca82f.th"
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def count(net):
    return sum(p.numel() for p in net.parameters())


def cifar10_test():
    """Normalised images [10000, 3, 32, 32] and labels, by the reader that lies beside the data."""
    spec = importlib.util.spec_from_file_location("shared_load", DATA / "load.py")
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    arrays = reader.cifar10(parts=("test",))
    images = torch.from_numpy(arrays["x_test"]).permute(0, 3, 1, 2).float().div(255)
    return (images - MEAN) / STD, torch.from_numpy(arrays["y_test"]).long()


def test_parameters():
    assert count(resnet20()) == 269_722
    assert count(resnet56()) == 853_018


def test_the_top_level_names_are_the_checkpoints():
    names = [name for name, _ in resnet20().named_children()]
    assert names == ["conv1", "bn1", "layer1", "layer2", "layer3", "linear"]
    assert not any("shortcut" in key for key in resnet20().state_dict())


def test_the_shortcut_subsamples_and_pads_channels():
    block = CifarBlock(2, 4, 2).eval()
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.arange(32.0).view(1, 2, 4, 4)
    expected = torch.zeros(1, 4, 2, 2)
    expected[0, 1] = torch.tensor([[0.0, 2.0], [8.0, 10.0]])
    expected[0, 2] = torch.tensor([[16.0, 18.0], [24.0, 26.0]])
    assert torch.equal(block(x), expected)


@pytest.mark.slow
@pytest.mark.skipif(not CHECKPOINT.exists(), reason=f"shared data not found: {CHECKPOINT}")
def test_the_public_checkpoint_reaches_its_published_accuracy():
    state = torch.load(CHECKPOINT, map_location="cpu", weights_only=True)["state_dict"]
    net = resnet20().eval()
    net.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
    images, labels = cifar10_test()
    with torch.inference_mode():
        logits = torch.cat([net(x) for x in images.split(500)])
    assert (logits.argmax(1) == labels).double().mean().item() == pytest.approx(0.9173, abs=1e-9)
    assert cross_entropy(logits, labels).item() == pytest.approx(0.3727, abs=1e-4)
