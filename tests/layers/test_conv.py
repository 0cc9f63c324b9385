"""What only convolutions have: output_size, inputs without a batch, memory formats."""

import copy

import pytest
import torch
from layer_cases import CONVS, TRANSPOSED, assert_equal, each
from torch import nn

import leanbayes as lb
from leanbayes.noise import KeyedNoise

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("estimator", ["auto", "exemplar"])
def test_output_size_is_that_of_the_stock_layer(dims, estimator):
    kind = getattr(nn, f"ConvTranspose{dims}d")
    torch.manual_seed(0)
    layer = kind(4, 6, 3, stride=3, groups=2, padding=1).double()
    stock = copy.deepcopy(layer)
    x = torch.randn(6, 4, *(3,) * dims).double()
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0, estimator=estimator), example=x)
    model.train()
    for size in (7, 8, 9):
        for plan in (None, lb.Plan(), lb.Plan(groups=3), lb.Plan(mean=True)):
            found = model(x, output_size=[size] * dims, plan=plan)
            assert found.shape[2:] == (size,) * dims
            assert_equal(found, stock(x, output_size=[size] * dims))
    with pytest.raises(ValueError, match="output size"):
        model(x, output_size=[30] * dims)


@each([*CONVS, *TRANSPOSED])
def test_an_input_without_a_batch_passes_under_one_draw_and_is_refused_under_more(case):
    layer = case.layer()
    stock = copy.deepcopy(layer)
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=case.inputs())
    x = case.inputs()[0]
    for plan in (lb.Plan(), lb.Plan(mean=True)):
        assert_equal(model(x, plan=plan), stock(x))
    with pytest.raises(lb.PlanError, match="unsqueeze"):
        model(x, plan=lb.Plan(groups=2))


def test_keyed_kernels_do_not_depend_on_the_memory_format():
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Conv2d(4, 8, 3).double(), lb.MeanField(init_std=0.3)).eval()
    x = torch.randn(6, 4, 5, 5).double()
    plan = lb.Plan(groups=3, noise=KeyedNoise(0, range(3)))
    assert_equal(model(x.to(memory_format=torch.channels_last), plan=plan), model(x, plan=plan))
