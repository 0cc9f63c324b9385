"""With sigma -> 0 a converted layer is the stock layer; collapse gives it back bit for bit."""

import copy

import pytest
import torch
from layer_cases import BATCH_NORMS, CASES, ROWS, assert_equal, each
from torch import nn

import leanbayes as lb

# torch says so once where 'same' pads one side more than the other, which is to be tested too.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

PLANS = [
    None,
    lb.Plan(),
    lb.Plan(groups=2),
    lb.Plan(groups=ROWS),
    lb.Plan(groups=ROWS, per_row=True),
]
PRECISIONS = [(torch.float64, 1e-12), (torch.float32, 1e-6)]


def twins(case, dtype=torch.float64, **options):
    """A converted layer and an untouched copy of what it was."""
    layer = case.layer(dtype)
    stock = copy.deepcopy(layer)
    method = lb.MeanField(init_std=0.0, **options)
    return lb.bayesianize(layer, method, example=case.inputs(dtype)), stock


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS, ids=["float64", "float32"])
@pytest.mark.parametrize("estimator", ["auto", "exemplar"])
@each(CASES)
def test_training_output_equals_the_stock_layer_under_every_plan(case, estimator, dtype, tolerance):
    model, stock = twins(case, dtype, estimator=estimator)
    model.train()
    for seed, plan in enumerate(PLANS):
        x = case.inputs(dtype, seed=seed)
        assert_equal(model(x, plan=plan), stock(x), tolerance)
    for name, buffer in stock.named_buffers():  # running statistics saw the same five batches
        assert_equal(model.net.get_buffer(name), buffer, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS, ids=["float64", "float32"])
@each(CASES)
def test_evaluation_output_equals_the_stock_layer_with_and_without_gradients(
    case, dtype, tolerance
):
    model, stock = twins(case, dtype)
    model.eval()
    stock.eval()
    x = case.inputs(dtype)
    for plan in PLANS:
        assert_equal(model(x, plan=plan), stock(x), tolerance)
        with torch.no_grad():
            assert_equal(model(x, plan=plan), stock(x), tolerance)
    for name, buffer in stock.named_buffers():
        assert torch.equal(model.net.get_buffer(name), buffer)


@pytest.mark.parametrize("estimator", ["auto", "exemplar"])
@each(CASES)
def test_gradients_of_parameters_and_input_equal_the_stock_layer(case, estimator):
    model, stock = twins(case, estimator=estimator)
    names = [name for name, _ in stock.named_parameters()]
    model.train()
    for plan in PLANS:
        found = gradients(model, names, case.inputs(), plan=plan)
        expected = gradients(stock, names, case.inputs())
        for name in expected:
            assert_equal(found[name], expected[name])


def gradients(module, names, x, **options):
    """Gradients of a weighted sum of the outputs, by parameter, and that of the input."""
    module.zero_grad()
    x.requires_grad_(x.is_floating_point())
    y = module(x, **options)
    weights = torch.linspace(-1, 1, y.numel()).double().reshape(y.shape)
    (y * weights).sum().backward()
    layer = getattr(module, "net", module)
    grads = {name: layer.get_parameter(name).grad for name in names}
    return grads if x.grad is None else {**grads, "input": x.grad}


@each(CASES)
def test_collapse_gives_the_stock_layer_back_bit_for_bit(case):
    layer = case.layer().eval()
    stock = copy.deepcopy(layer)
    model = lb.bayesianize(layer, lb.MeanField(), example=case.inputs())
    plain = lb.collapse(model)
    assert type(plain) is type(stock)
    assert plain.__dict__.keys() == stock.__dict__.keys()
    assert plain.state_dict().keys() == stock.state_dict().keys()
    for name, tensor in stock.state_dict().items():
        assert torch.equal(plain.state_dict()[name], tensor)
    assert torch.equal(plain(case.inputs()), stock(case.inputs()))


@each(CASES)
def test_conversion_keeps_parameters_keys_and_modes(case):
    layer = case.layer().eval()
    parameters, keys = dict(layer.named_parameters()), list(layer.state_dict())
    buffers = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    net = nn.Sequential(layer)
    model = lb.bayesianize(net, lb.MeanField(), example=case.inputs())
    assert model.net is net
    assert net[0] is layer
    assert not layer.training
    assert isinstance(layer, type(case.layer()))
    for name, parameter in parameters.items():
        assert layer.get_parameter(name) is parameter
        assert parameter.grad is None
    for name, buffer in buffers.items():
        assert torch.equal(layer.get_buffer(name), buffer)
    new = [key for key in net.state_dict() if ".slots." not in key]
    assert new == [f"0.{key}" for key in keys]
    assert {c.slots for c in model.report.converted} == {tuple(parameters)}


@each(CASES)
def test_a_single_row_passes_in_evaluation(case):
    model, stock = twins(case)
    model.eval()
    stock.eval()
    x = case.inputs(rows=1)
    for plan in (None, lb.Plan(), lb.Plan(per_row=True)):
        assert_equal(model(x, plan=plan), stock(x))


def test_a_batch_norm_without_a_counter_updates_as_the_stock_layer_does():
    norm = nn.BatchNorm1d(4).double()
    norm.num_batches_tracked = None
    stock = copy.deepcopy(norm)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).double()
    model = lb.bayesianize(norm, lb.MeanField(init_std=0.0)).train()
    assert_equal(model(x), stock(x))
    assert_equal(norm.running_var, stock.running_var)


@each(BATCH_NORMS)
def test_a_norm_without_affine_map_stays_stock_and_counts_as_before(case):
    norm = case.layer()
    plain = type(norm)(4, affine=False, momentum=norm.momentum).double()
    stock = copy.deepcopy(plain)
    head = nn.Flatten(), nn.LazyLinear(2).double()
    net = nn.Sequential(plain, *head)
    net(case.inputs())
    plain.load_state_dict(stock.state_dict())
    model = lb.bayesianize(net, lb.MeanField(), example=case.inputs())
    model.train()
    model(case.inputs())
    stock(case.inputs())
    assert type(plain) is type(stock)
    assert [c.name for c in model.report.converted] == ["2"]
    for name, buffer in stock.named_buffers():
        assert torch.equal(plain.get_buffer(name), buffer)
