import doctest
import sys

import pytest
import torch
from torch import nn

from leanbayes import models
from leanbayes.models import create


def test_the_seed_fixes_the_weights():
    nets = []
    for _ in range(2):
        torch.manual_seed(3)
        nets.append(create("lenet"))
    for left, right in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(left, right)


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(ValueError, match=r"'ResNet81'; nearest: resnet18, .*create\(\"resnet18\""):
        create("ResNet81")
    with pytest.raises(ValueError, match="nearest: alexnet, lenet, lenet300, lstm_classifier, mlp"):
        create("???")


def test_an_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="widht"):
        create("lenet", widht=2)


def test_he_normal_draws_with_the_fan_out_variance():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(32, 64, 3), nn.Conv2d(64, 128, 1, groups=2))
    models.initialise.he_normal_(net)
    assert net[0].weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert net[1].weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.02)


def test_examples_in_the_docstrings_run():
    modules = [
        module for name, module in sys.modules.items() if name.startswith("leanbayes.models")
    ]
    results = {module.__name__: doctest.testmod(module) for module in modules}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) >= 10
