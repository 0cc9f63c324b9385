"""Sizes that papers print, as exact integers of our own definitions (built without memory)."""

import pytest
import torch
from torch import nn

from leanbayes.models import MODELS, create

DEEP = {"inputs": 100, "hidden": (100,) * 99, "outputs": 100, "output_bias": False}


def build(name, **options):
    with torch.device("meta"):
        return create(name, **options)


def count(net):
    return sum(p.numel() for p in net.parameters())


def count_norms(net):
    return sum(count(m) for m in net.modules() if isinstance(m, nn.BatchNorm2d))


def nodes(net):
    """Inputs of every linear layer and convolution: the factors that iBNN draws."""
    linear = sum(m.in_features for m in net.modules() if isinstance(m, nn.Linear))
    return linear + sum(m.in_channels for m in net.modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        ("resnet18", {}, 11_689_512),
        ("pyramidnet110_270", {}, 28_511_307),
        ("mlp", DEEP, 1_009_900),
        ("mlp", DEEP | {"hidden_bias": False, "norm": True}, 1_019_800),
        ("alexnet", {}, 61_100_840),
        ("vgg16", {"size": "small"}, 15_245_130),
        ("vgg16", {"size": "large"}, 138_357_544),
        ("lenet", {}, 41_806),
        ("lenet", {"width": 2}, 165_202),
        ("lenet", {"width": 4}, 656_794),
        ("lenet", {"width": 8}, 2_619_178),
        ("resnet50", {}, 25_557_032),
        ("wide_resnet", {}, 36_479_194),
        ("unet", {}, 31_380_180),
        ("lenet300", {}, 266_610),
        ("lenet300", {"norm": True}, 267_410),
        ("resnet20", {}, 269_722),
        ("resnet56", {}, 853_018),
        ("mobilenet_v2", {}, 3_504_872),
        ("vit_tiny", {}, 5_717_416),
    ],
)
def test_parameters_are_the_published_ones(name, options, parameters):
    assert count(build(name, **options)) == parameters


@pytest.mark.parametrize(
    ("name", "options", "inputs"),
    [
        ("alexnet", {}, 18_307),
        ("vgg16", {"size": "small"}, 5_251),
        ("vgg16", {"size": "large"}, 36_995),
        ("resnet50", {}, 24_579),
        ("wide_resnet", {}, 9_475),
    ],
)
def test_layer_inputs_are_the_nodes_of_the_ibnn_paper(name, options, inputs):
    assert nodes(build(name, **options)) == inputs


def test_lenet_has_207_nodes_where_the_ibnn_paper_prints_23():
    # The paper's Table 1 counts the inputs of the three convolutions alone: 1 + 6 + 16 = 23.
    net = build("lenet")
    convs = [m.in_channels for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert sum(convs) == 23
    assert nodes(net) == 207
    assert round(count(net) / nodes(net)) == 202  # weights a node; the paper prints 1800


def test_what_patching_copies_in_resnet18_and_pyramidnet():
    resnet, pyramid = build("resnet18"), build("pyramidnet110_270")
    assert (count_norms(resnet), count(resnet.fc)) == (9_600, 513_000)
    assert (count_norms(pyramid), count(pyramid.fc)) == (49_798, 28_700)


def test_five_explicit_copies_have_the_emp_papers_size():
    assert 5 * count(build("resnet18")) == 58_447_560
    assert 5 * count(build("pyramidnet110_270")) == 142_556_535


def test_four_wide_resnets_have_the_rank1_papers_size():
    # The paper prints 36.68M for four WRN-28-5 (ours: 36.53M) and 146M for four WRN-28-10.
    assert 4 * count(build("wide_resnet", width=5)) == 36_530_536
    assert 4 * count(build("wide_resnet")) == 145_916_776


def test_four_resnet50_are_not_the_rank1_papers_146_7_million():
    # Table 1 of that paper prints 146.7M for four ResNet-50; it is near four WRN-28-10.
    assert 4 * count(build("resnet50")) == 102_228_128


def test_pyramidnet_adds_five_channels_a_block():
    net = build("pyramidnet110_270")
    blocks = [*net.layer1, *net.layer2, *net.layer3]
    assert [b.conv1.in_channels for b in blocks] == list(range(16, 282, 5))
    assert [b.conv2.out_channels for b in blocks] == list(range(21, 287, 5))
    assert [i for i, b in enumerate(blocks) if b.conv1.stride == (2, 2)] == [18, 36]


def test_the_stems_of_resnet18_differ_in_one_kernel_only():
    sizes = {s: count(build("resnet18", stem=s)) for s in ("imagenet", "conv7", "cifar")}
    assert sizes["conv7"] == sizes["imagenet"]
    assert sizes["imagenet"] - sizes["cifar"] == 64 * 3 * (49 - 9)


def test_the_small_resnet_is_the_sum_of_its_layers():
    stem, fc = 3 * 16 * 9 + 32, 64 * 10 + 10
    pairs = [(16, 16), (16, 16), (16, 32), (32, 64)]
    blocks = sum(9 * i * o + 9 * o * o + i * o + 6 * o for i, o in pairs)
    assert count(build("resnet_small")) == stem + blocks + fc == 83_290


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
def test_recurrent_parameters_grow_with_gates_directions_and_layers(cell, gates):
    options = {"events": 50, "width": 8, "layers": 2, "bidirectional": True}
    net = build("lstm_classifier", cell=cell, **options)
    first, second = gates * 8 * (8 + 8 + 2), gates * 8 * (16 + 8 + 2)
    assert count(net.recurrent) == 2 * (first + second)
    assert count(net) == 50 * 8 + 2 * (first + second) + (16 + 1) * 2


@pytest.mark.parametrize(("width", "channels"), [(0.35, 1280), (1.0, 1280), (1.4, 1792)])
def test_mobilenet_rounds_channels_to_multiples_of_eight(width, channels):
    net = build("mobilenet_v2", width=width)
    convs = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert all(m.out_channels % 8 == 0 for m in convs)
    assert convs[-1].out_channels == channels


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"mlp", "lstm_classifier"}))
def test_classes_change_the_last_layer_alone(name):
    few, many = (list(build(name, num_classes=n).state_dict().items()) for n in (3, 4))
    changed = [k for (k, a), (_, b) in zip(few, many, strict=True) if a.shape != b.shape]
    assert changed == [few[-2][0], few[-1][0]]
    assert [len(t) for _, t in many[-2:]] == [4, 4]
