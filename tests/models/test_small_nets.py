import pytest
import torch
from torch import nn
from torch.nn import functional

from leanbayes.models import MLP, LeNet


def count(net):
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("width", "parameters"), [(1, 41_806), (2, 165_202), (4, 656_794), (8, 2_619_178)]
)
def test_lenet_parameters(width, parameters):
    assert count(LeNet(width)) == parameters


def test_lenet_has_207_input_nodes():
    layers = list(LeNet().children())
    nodes = [m.in_channels if isinstance(m, nn.Conv2d) else m.in_features for m in layers]
    assert nodes == [1, 6, 16, 120, 64]
    assert sum(nodes) == 207


def test_lenet_computes_conv_relu_pool():
    torch.manual_seed(0)
    net = LeNet().double()
    x = torch.randn(3, 1, 28, 28, dtype=torch.float64)
    weights = dict(net.named_parameters())

    def patches(x, name, kernel):
        """A convolution written as unfold and matmul."""
        columns = functional.unfold(x, kernel)
        out = weights[f"{name}.weight"].flatten(1) @ columns + weights[f"{name}.bias"][:, None]
        size = x.shape[-1] - kernel + 1
        return out.view(len(x), -1, size, size).clamp(min=0)

    def pool(x):
        n, c, h, w = x.shape
        return x.view(n, c, h // 2, 2, w // 2, 2).amax((3, 5))

    hidden = patches(pool(patches(pool(patches(x, "conv1", 5)), "conv2", 5)), "conv3", 4)[..., 0, 0]
    hidden = (hidden @ weights["fc1.weight"].T + weights["fc1.bias"]).clamp(min=0)
    expected = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
    torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)


def test_mlp_parameters():
    assert count(MLP(784, (300, 100), 10)) == 266_610
    assert count(MLP(100, [512, 512], 10)) == 319_498
    assert count(MLP(13, (), 1)) == 14


def test_mlp_computes_relu_between_layers_only():
    net = MLP(2, (2,), 1)
    with torch.no_grad():
        net.hidden[0].weight.copy_(torch.eye(2))
        net.hidden[0].bias.zero_()
        net.output.weight.copy_(torch.tensor([[1.0, -3.0]]))
        net.output.bias.fill_(0.5)
    x = torch.tensor([[2.0, -1.0], [-4.0, 5.0]])
    assert net(x).tolist() == [[2.5], [-14.5]]
    assert torch.equal(net(x.view(2, 1, 1, 2)), net(x))
