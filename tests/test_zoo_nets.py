"""What the zoo's networks compute, whatever their size."""

import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, interpolate, max_pool2d, pad

from leanbayes.errors import ConfigError
from leanbayes.models import MODELS, PyramidNet, VisionTransformer, create
from leanbayes.models.mobilenet import InvertedResidual
from leanbayes.models.pyramidnet import PyramidBlock

# Options that keep a net small, and the shape of one example.
NETS = {
    "alexnet": ({"num_classes": 5}, (3, 64, 64)),
    "lenet": ({}, (1, 28, 28)),
    "lenet300": ({"norm": True}, (1, 28, 28)),
    "lstm_classifier": ({"events": 20, "width": 8, "layers": 2, "bidirectional": True}, (7,)),
    "mlp": ({"inputs": 4, "hidden": (8, 8), "outputs": 3, "norm": True}, (4,)),
    "mobilenet_v2": ({"width": 0.25, "num_classes": 5}, (3, 64, 64)),
    "pyramidnet110_270": ({}, (3, 8, 8)),
    "resnet18": ({"width": 4, "num_classes": 5, "stem": "conv7"}, (3, 16, 16)),
    "resnet20": ({}, (3, 16, 16)),
    "resnet50": ({"width": 4, "num_classes": 5, "stem": "cifar"}, (3, 16, 16)),
    "resnet56": ({}, (3, 8, 8)),
    "resnet_small": ({}, (3, 32, 32)),
    "unet": ({"num_classes": 4, "widths": (4, 8, 16)}, (3, 17, 14)),
    "vgg16": ({"size": "small"}, (3, 32, 32)),
    "vit_tiny": ({"image_size": 16, "patch": 4, "num_classes": 5, "depth": 2}, (3, 16, 16)),
    "wide_resnet": ({"depth": 10, "width": 1}, (3, 8, 8)),
}


def examples(name, rows, dtype=torch.float32):
    shape = (rows, *NETS[name][1])
    if name == "lstm_classifier":
        return torch.randint(20, shape)
    return torch.randn(shape, dtype=dtype)


def seeded_weights(name, seed):
    torch.manual_seed(seed)
    return nn.utils.parameters_to_vector(create(name, **NETS[name][0]).parameters())


def randomise_norms_(net):
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean):
                tensor.normal_()
            module.running_var.uniform_(0.5, 2)


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_every_model_of_the_registry_is_tested_here():
    assert set(NETS) == set(MODELS)


@pytest.mark.parametrize("name", NETS)
def test_a_loss_reaches_every_parameter(name):
    net = create(name, **NETS[name][0])
    net(examples(name, 3)).logsumexp(1).mean().backward()
    dead = [key for key, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert dead == []


@pytest.mark.parametrize("name", NETS)
def test_in_eval_mode_a_row_is_computed_from_itself_alone(name):
    net = create(name, **NETS[name][0]).double().eval()
    x, other = (examples(name, 3, torch.float64) for _ in range(2))
    other[1] = x[1]
    with torch.no_grad():
        first, second, alone = net(x), net(other), net(x[1:2])
    torch.testing.assert_close(first[1], alone[0], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(first[1], second[1], rtol=1e-8, atol=1e-8)
    assert (first[0] - second[0]).abs().max() > 1e-3 * first[0].abs().max()


@pytest.mark.parametrize("name", sorted(set(NETS) - {"alexnet", "pyramidnet110_270", "vgg16"}))
def test_a_seed_fixes_the_weights(name):
    first, again, other = (seeded_weights(name, seed) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "mobilenet_v2"])
def test_dropout_is_off_unless_asked_for(name):
    with torch.device("meta"):
        nets = create(name), create(name, dropout=0.5)
    rates = [{m.p for m in net.modules() if isinstance(m, nn.Dropout)} for net in nets]
    assert rates == [{0.0}, {0.5}]
    assert list(nets[0].state_dict()) == list(nets[1].state_dict())


def test_alexnet_and_the_large_vgg16_have_torchvisions_keys():
    layout = {"alexnet": ((0, 3, 6, 8, 10), (1, 4, 6))}
    layout["vgg16"] = ((0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28), (0, 3, 6))
    for name, (convs, linears) in layout.items():
        with torch.device("meta"):
            net = create(name)
        layers = [f"features.{i}" for i in convs] + [f"classifier.{i}" for i in linears]
        expected = [f"{layer}.{entry}" for layer in layers for entry in ("weight", "bias")]
        assert list(net.state_dict()) == expected
        assert net(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, 1000)


def test_mobilenet_has_torchvisions_keys():
    with torch.device("meta"):
        keys = list(create("mobilenet_v2").state_dict())
    weights = [key.removesuffix(".running_mean") for key in keys if key.endswith("running_mean")]
    expected = ["features.0.1", "features.1.conv.0.1", "features.1.conv.2"]
    for block in range(2, 18):
        expected += [f"features.{block}.conv.{i}" for i in ("0.1", "1.1", "3")]
    assert weights == [*expected, "features.18.1"]
    assert keys[-2:] == ["classifier.1.weight", "classifier.1.bias"]


def test_resnet20_keeps_the_layout_of_the_public_checkpoints():
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = ["conv1.weight", *(f"bn1.{entry}" for entry in norm)]
    for block in (f"layer{s}.{b}" for s in (1, 2, 3) for b in range(3)):
        for i in (1, 2):
            expected += [f"{block}.conv{i}.weight", *(f"{block}.bn{i}.{entry}" for entry in norm)]
    assert list(create("resnet20").state_dict()) == [*expected, "linear.weight", "linear.bias"]


def test_an_mlp_without_norm_has_only_its_linear_layers_in_the_state_dict():
    keys = list(create("mlp", inputs=2, hidden=(3,), outputs=1).state_dict())
    assert keys == ["hidden.0.weight", "hidden.0.bias", "output.weight", "output.bias"]


def test_an_mlp_normalises_before_its_relu():
    net = create("mlp", inputs=1, hidden=(1,), outputs=1, norm=True, hidden_bias=False)
    with torch.no_grad():
        net.hidden[0].weight.fill_(3.0)
        net.output.weight.fill_(1.0)
        net.output.bias.zero_()
    out = net(torch.tensor([[1.0], [3.0]]))
    torch.testing.assert_close(out, torch.tensor([[0.0], [1.0]]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("stride", "size"), [(1, 6), (2, 6), (2, 5)])
def test_a_pyramid_block_averages_and_pads_its_shortcut(stride, size):
    block = PyramidBlock(3, 5, stride).double().eval()
    randomise_norms_(block)
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    branch = nn.Sequential(block.bn1, block.conv1, block.bn2, nn.ReLU(), block.conv2, block.bn3)
    expected = branch(x)
    # Windows over the edge of an odd size average the pixels that exist.
    ones = pad(torch.ones_like(x), (0, size % 2, 0, size % 2))
    padded = pad(x, (0, size % 2, 0, size % 2))
    short = x if stride == 1 else avg_pool2d(padded, 2) / avg_pool2d(ones, 2)
    expected[:, :3] += short
    assert_same(block(x), expected)


def test_an_inverted_residual_adds_only_where_shapes_agree():
    for outputs, stride, added in ((4, 1, True), (6, 1, False), (4, 2, False)):
        block = InvertedResidual(4, outputs, stride, expansion=3).double().eval()
        randomise_norms_(block)
        x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
        inner = block.conv(x)
        assert_same(block(x), inner + x if added else inner)
        assert block.conv[1][0].groups == block.conv[1][0].in_channels == 12


def test_the_small_resnet_halves_the_size_in_every_layer():
    net = create("resnet_small").eval()
    sizes = []
    for layer in (net.conv1, net.maxpool, *net.blocks):
        layer.register_forward_hook(lambda _m, _i, out: sizes.append(tuple(out.shape[1:])))
    net(torch.zeros(1, 3, 32, 32))
    assert sizes == [(16, 16, 16), (16, 8, 8), (16, 4, 4), (16, 2, 2), (32, 1, 1), (64, 1, 1)]


def test_the_conv7_stem_keeps_the_size():
    net = create("resnet18", width=4, stem="conv7")
    assert net.conv1.kernel_size == (7, 7)
    assert net.maxpool(net.conv1(torch.zeros(1, 3, 32, 32))).shape == (1, 4, 32, 32)


def test_unet_joins_the_upsampled_map_and_the_bridge():
    net = create("unet", num_classes=3, widths=(4, 6)).double()
    x = torch.randn(2, 3, 8, 6, dtype=torch.float64)

    def double(block, x):
        return block.conv2(block.conv1(x).clamp(min=0)).clamp(min=0)

    full = double(net.down[0], x)
    half = double(net.down[1], max_pool2d(full, 2))
    joined = torch.cat((full, interpolate(half, scale_factor=2, mode="bilinear")), 1)
    assert_same(net(x), net.output(double(net.up[0], joined)))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_padded_sequence_reads_as_the_cut_one(cell, bidirectional):
    options = {"width": 6, "layers": 2, "cell": cell, "bidirectional": bidirectional}
    net = create("lstm_classifier", events=9, **options).double()
    events, lengths = torch.randint(9, (3, 5)), torch.tensor([2, 5, 3])
    out = net(events, lengths)
    for row, length in enumerate(lengths):
        assert_same(out[row], net(events[row : row + 1, :length])[0])
    assert (out[0] - net(events)[0]).abs().max() > 1e-6


def test_the_recurrent_readout_is_the_end_of_each_direction():
    net = create("lstm_classifier", events=9, width=6, bidirectional=True).double()
    events = torch.randint(9, (2, 5))
    states, _ = net.recurrent(net.embedding(events))
    assert_same(net(events), net.fc(torch.cat((states[:, -1, :6], states[:, 0, 6:]), 1)))


def test_vit_knows_the_place_of_a_patch_by_its_position_alone():
    options = {"image_size": 8, "patch": 4, "num_classes": 5, "depth": 2}
    net = create("vit_tiny", **options).double().eval()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    swapped = x.roll(4, dims=3)
    before, changed = net(x), net(swapped)
    assert (before - changed).abs().max() > 1e-6
    with torch.no_grad():
        net.position.copy_(net.position[:, [0, 2, 1, 4, 3]])
    assert_same(net(swapped), before)


def test_vit_blocks_start_with_weights_of_their_own():
    net = create("vit_tiny", image_size=8, patch=4, depth=2)
    assert not torch.equal(net.blocks[0].linear1.weight, net.blocks[1].linear1.weight)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vgg16", {"size": "huge"}, "unknown size 'huge'; write size=\"small\""),
        (
            "lstm_classifier",
            {"events": 3, "cell": "rnn"},
            "unknown cell 'rnn'; write cell=\"lstm\"",
        ),
        ("resnet18", {"stem": "tiny"}, "unknown stem 'tiny'; write stem=\"imagenet\""),
        ("resnet_small", {"widths": ()}, r"widths is empty; write widths=\(16"),
        ("unet", {"widths": (8,)}, r"two entries or more, got \(8,\); write widths="),
        ("mobilenet_v2", {"width": 0}, r"width must be positive, got 0; write width=1\.0"),
        ("vit_tiny", {"image_size": 30}, "patch must divide image_size, got 30 and 16"),
        ("wide_resnet", {"depth": 27}, "got 27; write depth=28"),
    ],
)
def test_a_bad_value_says_what_to_write(name, options, message):
    with pytest.raises(ConfigError, match=message):
        create(name, **options)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"depth must be 6 n \+ 2 with n >= 1, got 100"):
        PyramidNet(depth=100)
    with pytest.raises(ConfigError, match="alpha must not be negative, got -1"):
        PyramidNet(alpha=-1)
    with pytest.raises(ConfigError, match="heads must divide width, got 5 and 192"):
        VisionTransformer(heads=5)


def test_an_unknown_name_is_a_config_error_with_the_nearest_names():
    with pytest.raises(ConfigError, match=r"'pyramidnet'; nearest: pyramidnet110_270"):
        create("pyramidnet")


def test_a_bad_option_names_the_model_and_its_options():
    with pytest.raises(TypeError, match=r"'vgg16': .*'sise'.* options: size, num_classes, dropout"):
        create("vgg16", sise="small")
    with pytest.raises(TypeError, match=r"'lstm_classifier': missing .*'events'"):
        create("lstm_classifier")
