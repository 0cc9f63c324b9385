import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d

from leanbayes.models import WideResNet, resnet18, resnet50
from leanbayes.models.resnet import BasicBlock, Bottleneck
from leanbayes.models.wide_resnet import PreActivationBlock


def count(net):
    return sum(p.numel() for p in net.parameters())


def on_meta(build, **options):
    with torch.device("meta"):
        return build(**options)


def layer_sizes(net):
    """(inputs, outputs) of every linear layer and convolution."""
    for module in net.modules():
        if isinstance(module, nn.Linear):
            yield module.in_features, module.out_features
        elif isinstance(module, nn.Conv2d):
            yield module.in_channels, module.out_channels


def block_keys(stage, block, convs, projected):
    for index in range(1, convs + 1):
        yield f"{stage}.{block}.conv{index}.weight"
        yield from norm_keys(f"{stage}.{block}.bn{index}")
    if projected:
        yield f"{stage}.{block}.downsample.0.weight"
        yield from norm_keys(f"{stage}.{block}.downsample.1")


def norm_keys(name):
    for entry in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        yield f"{name}.{entry}"


def torchvision_keys(depths, convs, first_projected):
    keys = ["conv1.weight", *norm_keys("bn1")]
    for stage, depth in enumerate(depths, start=1):
        for block in range(depth):
            projected = block == 0 and (stage > 1 or first_projected)
            keys += block_keys(f"layer{stage}", block, convs, projected)
    return [*keys, "fc.weight", "fc.bias"]


def randomise_norms_(net):
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean):
                tensor.normal_()
            module.running_var.uniform_(0.5, 2)


def normalised(x, state, name):
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    return batch_norm(x, mean, var, state[f"{name}.weight"], state[f"{name}.bias"])


def test_resnet18_is_torchvisions():
    net = on_meta(resnet18)
    assert count(net) == 11_689_512
    assert list(net.state_dict()) == torchvision_keys((2, 2, 2, 2), 2, first_projected=False)
    norms = sum(count(m) for m in net.modules() if isinstance(m, nn.BatchNorm2d))
    assert norms == 9_600
    assert count(net.fc) == 513_000


def test_resnet50_is_torchvisions():
    net = on_meta(resnet50)
    assert count(net) == 25_557_032
    assert list(net.state_dict()) == torchvision_keys((3, 4, 6, 3), 3, first_projected=True)
    assert sum(i for i, _ in layer_sizes(net)) == 24_579
    assert sum(i + o for i, o in layer_sizes(net)) == 52_139


def test_the_cifar_stem_keeps_the_size():
    sizes = {}
    for stem in ("imagenet", "cifar"):
        net = resnet18(width=4, num_classes=10, stem=stem).eval()
        net.layer1.register_forward_hook(
            lambda _m, _i, out, s=stem: sizes.__setitem__(s, out.shape)
        )
        assert net(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert sizes == {"imagenet": (1, 4, 8, 8), "cifar": (1, 4, 32, 32)}
    assert resnet18(width=4, stem="cifar").conv1.kernel_size == (3, 3)


def test_an_unknown_stem_is_an_error():
    with pytest.raises(ValueError, match="unknown stem 'tiny'; write stem=\"imagenet\""):
        resnet18(stem="tiny")


def test_basic_block_adds_before_the_last_relu():
    torch.manual_seed(0)
    block = BasicBlock(4, 6, 2).double().eval()
    randomise_norms_(block)
    state = block.state_dict()
    x = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    hidden = normalised(conv2d(x, state["conv1.weight"], stride=2, padding=1), state, "bn1").relu()
    out = normalised(conv2d(hidden, state["conv2.weight"], padding=1), state, "bn2")
    short = conv2d(x, state["downsample.0.weight"], stride=2)
    short = normalised(short, state, "downsample.1")
    torch.testing.assert_close(block(x), (out + short).relu(), rtol=1e-12, atol=1e-12)


def test_bottleneck_strides_in_the_middle():
    torch.manual_seed(0)
    block = Bottleneck(12, 3, 2).double().eval()
    randomise_norms_(block)
    state = block.state_dict()
    x = torch.randn(2, 12, 8, 8, dtype=torch.float64)
    hidden = normalised(conv2d(x, state["conv1.weight"]), state, "bn1").relu()
    hidden = conv2d(hidden, state["conv2.weight"], stride=2, padding=1)
    hidden = normalised(hidden, state, "bn2").relu()
    out = normalised(conv2d(hidden, state["conv3.weight"]), state, "bn3")
    short = conv2d(x, state["downsample.0.weight"], stride=2)
    short = normalised(short, state, "downsample.1")
    torch.testing.assert_close(block(x), (out + short).relu(), rtol=1e-12, atol=1e-12)


def test_wide_resnet_has_the_published_sizes():
    net = on_meta(WideResNet)
    assert count(net) == 36_479_194
    assert sum(i for i, _ in layer_sizes(net)) == 9_475
    assert sum(i + o for i, o in layer_sizes(net)) == 19_581
    assert all(m.bias is None for m in net.modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize(("inputs", "stride"), [(4, 1), (4, 2), (6, 1)])
def test_wide_block_activates_before_it_projects(inputs, stride):
    torch.manual_seed(0)
    block = PreActivationBlock(inputs, 6, stride).double().eval()
    randomise_norms_(block)
    state = block.state_dict()
    x = torch.randn(2, inputs, 8, 8, dtype=torch.float64)
    active = normalised(x, state, "bn1").relu()
    hidden = conv2d(active, state["conv1.weight"], stride=stride, padding=1)
    out = conv2d(normalised(hidden, state, "bn2").relu(), state["conv2.weight"], padding=1)
    same = inputs == 6
    short = x if same else conv2d(active, state["shortcut.weight"], stride=stride)
    torch.testing.assert_close(block(x), out + short, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("depth", [4, 20, 27])
def test_wide_resnet_refuses_other_depths(depth):
    with pytest.raises(ValueError, match=f"6 n \\+ 4 with n >= 1, got {depth}; write depth=28"):
        WideResNet(depth=depth)
