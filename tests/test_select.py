"""Selectors: what they match, how they combine, and that they survive JSON."""

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes import select
from leanbayes.select import Selector


class Net(nn.Module):
    """The head is registered first and runs last."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.stem = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))

    def forward(self, x):
        return self.head(self.block(self.norm(self.stem(x))).mean((2, 3)))


def names(selector, example=None):
    model = lb.bayesianize(Net(), lb.MeanField(select=selector), example=example)
    return {layer.name for layer in model.report.converted}


EXAMPLE = torch.randn(3, 1, 6, 6)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (select.everything, {"head", "stem", "norm", "block.0", "block.1"}),
        (select.norms, {"norm", "block.1"}),
        (select.convs, {"stem", "block.0"}),
        (select.linears, {"head"}),
        (select.output, {"head"}),
        (select.stem, {"stem"}),
        (select.norms | select.output, {"norm", "block.1", "head"}),
        (select.convs & ~select.stem, {"block.0"}),
        (~select.norms, {"head", "stem", "block.0"}),
        (select.by_name("block.*"), {"block.0", "block.1"}),
        (select.by_name("0"), {"block.0"}),
        (select.by_name("stem", "head"), {"stem", "head"}),
        (select.by_type(nn.Conv2d, "Linear"), {"stem", "block.0", "head"}),
        (select.by_type("_BatchNorm"), {"norm", "block.1"}),
    ],
)
def test_what_is_selected_is_converted_and_the_rest_is_listed(selector, expected):
    assert names(selector, EXAMPLE) == expected
    model = lb.bayesianize(Net(), lb.MeanField(select=selector), example=EXAMPLE)
    left = {s.name for s in model.report.skipped}
    assert left == {"head", "stem", "norm", "block.0", "block.1"} - expected


def test_without_an_example_the_output_is_the_last_registered_and_the_report_says_so():
    model = lb.bayesianize(Net(), lb.MeanField(select=select.output))
    assert [c.name for c in model.report.converted] == ["block.1"]
    assert "the output is the last layer registered" in str(model.report)
    assert lb.bayesianize(Net(), lb.MeanField(), example=EXAMPLE).report.output == "head"


def test_selectors_survive_json_and_read_well():
    selector = (select.norms | select.by_name("fc.*")) & ~select.by_type(nn.LayerNorm)
    assert Selector.from_json(selector.to_json()) == selector
    assert str(selector) == "((kind(norm) or name(fc.*)) and not type(LayerNorm))"


@pytest.mark.parametrize("data", ["norms", {"op": "exec", "args": []}, None, 3])
def test_what_is_no_selector_is_refused(data):
    with pytest.raises(lb.ConfigError, match="not a selector"):
        Selector.from_json(data)


def test_a_selector_that_matches_nothing_is_an_error_that_says_what_there_is():
    net = Net()
    with pytest.raises(lb.ConversionError, match=r"selects none.*BatchNorm2d, Conv2d, Linear"):
        lb.bayesianize(net, lb.MeanField(select=select.by_name("decoder.*")))
    assert type(net.head) is nn.Linear
