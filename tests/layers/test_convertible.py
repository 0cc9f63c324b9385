"""Which layers convert, which are left and listed, and what a converted layer keeps."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import leanbayes as lb
from leanbayes import layers, ops
from leanbayes.layers import Host


class Branded(nn.Linear):
    """A subclass without forward of its own, with state and a method of its own."""

    def __init__(self, *args, brand="none"):
        super().__init__(*args)
        self.brand = brand

    def shout(self):
        return self.brand.upper()


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * nn.functional.linear(input, self.weight, self.bias)


class Standardised(nn.Conv2d):
    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, weight - weight.mean(), bias)


class Half(nn.Module):
    def forward(self, weight):
        return weight / 2


def beside(layer, width=4):
    """The layer between two that convert."""
    return nn.Sequential(nn.Linear(4, width), layer, nn.Linear(4, 2))


def converted(model):
    return [c.name for c in model.report.converted]


def reasons(model):
    return {s.name: s.reason for s in model.report.skipped}


@pytest.fixture
def x():
    torch.manual_seed(5)
    return torch.randn(6, 4)


def test_a_subclass_without_forward_of_its_own_converts_and_comes_back(x):
    layer = Branded(4, 4, brand="acme")
    state = copy.deepcopy(layer.state_dict())
    model = lb.bayesianize(beside(layer), lb.MeanField(init_std=0.5), example=x)
    assert converted(model) == ["0", "1", "2"]
    assert isinstance(layer, Branded)
    assert isinstance(layer, Host)
    assert type(layer).__name__ == "BayesianBranded"
    assert layer.shout() == "ACME"
    plain = lb.collapse(model)[1]
    assert type(plain) is Branded
    assert plain.shout() == "ACME"
    for name, tensor in state.items():
        assert torch.equal(plain.state_dict()[name], tensor)


def test_converted_layers_of_one_subclass_have_one_class(x):
    net = nn.Sequential(Branded(4, 4), Branded(4, 4))
    model = lb.bayesianize(net, lb.MeanField(), example=x)
    assert type(net[0]) is type(net[1]) is type(copy.deepcopy(model).net[0])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_of_a_converted_subclass_predict_the_same_and_stand_alone(copied, x):
    net = beside(Branded(4, 4, brand="acme"))
    model = lb.bayesianize(net, lb.MeanField(init_std=0.5), example=x)
    twin = copied(model)
    assert isinstance(twin.net[1], Branded)
    assert twin.net[1].scope is twin.scope is not model.scope
    a, b = (lb.predict(m, x, likelihood=lb.Categorical(), seed=0).probs for m in (model, twin))
    assert torch.equal(a, b)
    with torch.no_grad():
        twin.net[1].weight.zero_()
    assert torch.equal(lb.predict(model, x, likelihood=lb.Categorical(), seed=0).probs, a)
    assert type(lb.collapse(twin)[1]) is Branded


@pytest.mark.parametrize("build", [lambda: Doubled(4, 4), lambda: Standardised(4, 4, 1)])
def test_a_subclass_with_its_own_arithmetic_is_left_and_listed(build):
    layer = build()
    x = torch.randn(3, 4, 5, 4) if isinstance(layer, nn.Conv2d) else torch.randn(3, 4)
    net = nn.Sequential(layer, nn.LayerNorm(4))
    model = lb.bayesianize(net, lb.MeanField(), example=x)
    assert type(layer) is type(build())
    assert converted(model) == ["1"]
    assert "overrides" in reasons(model)["0"]


def test_a_layer_whose_forward_was_replaced_on_the_instance_is_left_and_listed(x):
    layer = nn.Linear(4, 4)
    layer.forward = lambda input: input
    model = lb.bayesianize(beside(layer), lb.MeanField(), example=x)
    assert converted(model) == ["0", "2"]
    assert "replaced on this instance" in reasons(model)["1"]
    assert layer(x) is x


def parametrised():
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Half())
    return layer


def old_weight_norm():
    with pytest.warns(FutureWarning, match="weight_norm"):
        return nn.utils.weight_norm(nn.Linear(4, 4))


@pytest.mark.parametrize(
    "build",
    [
        parametrised,
        lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
        old_weight_norm,
        lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
        lambda: prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=3),
    ],
    ids=["parametrize", "weight_norm", "spectral_norm", "old_weight", "old_spectral", "prune"],
)
def test_a_layer_whose_weight_is_computed_is_left_and_listed(build, x):
    layer = build()
    kind = type(layer)
    net = beside(layer).eval()
    with torch.no_grad():
        expected = net(x)
    model = lb.bayesianize(net, lb.MeanField(), example=x).eval()
    assert type(layer) is kind
    assert converted(model) == ["0", "2"]
    assert "1" in reasons(model)
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)


def test_the_output_projection_of_an_attention_layer_that_is_left_is_left_too():
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    parametrize.register_parametrization(layer, "in_proj_weight", Half())
    model = lb.bayesianize(nn.ModuleList([layer, nn.Linear(4, 2)]), lb.MeanField())
    assert converted(model) == ["1"]
    assert {"0", "0.out_proj"} <= set(reasons(model))


def test_a_lazy_layer_is_left_and_listed_until_it_is_initialised(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(2))
    model = lb.bayesianize(net, lb.MeanField())
    assert converted(model) == ["0"]
    assert "not initialised" in reasons(model)["1"]
    net = lb.collapse(model)
    net(x)
    assert converted(lb.bayesianize(net, lb.MeanField(), example=x)) == ["0", "1"]


def test_what_has_no_host_is_left_and_listed(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 2))
    model = lb.bayesianize(net, lb.MeanField(), example=x)
    assert reasons(model) == {"1": "no host for this type: its parameters stay point estimates"}


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.weight


class BayesianScale(Host, Scale):
    kind = "scale"
    stock = Scale
    tensor_names = ("weight",)

    def forward(self, x):
        return ops.affine(x, self.form("weight"), None, 1)


def test_a_registered_host_makes_a_new_type_convertible(x):
    net = nn.Sequential(nn.Linear(4, 4), Scale(4))
    try:
        assert lb.register_host(BayesianScale) is BayesianScale
        lb.register_host(BayesianScale)  # once more is harmless
        with pytest.raises(lb.ConversionError, match="BayesianScale already"):
            lb.register_host(type("Other", (BayesianScale,), {}))
        model = lb.bayesianize(net, lb.MeanField(init_std=0.5), example=x)
        assert converted(model) == ["0", "1"]
        assert type(lb.collapse(model)[1]) is Scale
    finally:
        layers.HOSTS.pop(Scale, None)


def test_hooks_fire_after_conversion_and_after_collapse(x):
    calls = []
    layer = nn.Linear(4, 4)
    layer.register_forward_pre_hook(lambda *_: calls.append("before"))
    layer.register_forward_hook(lambda _m, _i, output: calls.append("after") or output + 1)
    layer.register_full_backward_hook(lambda *_: calls.append("backward"))
    net = beside(layer)
    expected = net(x)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.0), example=x)
    for module in (model, lb.collapse(model), model):
        calls.clear()
        y = module(x)
        y.sum().backward()
        assert calls == ["before", "after", "backward"]
        torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-6)


def test_state_dict_hooks_and_load_state_dict_see_the_original_keys():
    original = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    state = copy.deepcopy(original.state_dict())
    torch.manual_seed(9)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    lb.bayesianize(net, lb.MeanField())
    result = net.load_state_dict(state, strict=False)
    assert not result.unexpected_keys
    assert all(".slots." in key for key in result.missing_keys)
    assert torch.equal(net[0].weight, original[0].weight)


@pytest.mark.parametrize(
    ("layer", "example"),
    [
        (nn.Linear(4, 2), torch.randn(3, 4)),
        (nn.Conv1d(4, 2, 3), torch.randn(3, 4, 5)),
        (nn.LayerNorm(4), torch.randn(3, 4)),
        (Branded(4, 2), torch.randn(3, 4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_bare_root_layer_converts(layer, example):
    kind = type(layer)
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.5), example=example)
    assert converted(model) == [""]
    assert model.net is layer
    assert {q.key for _, _, q, _ in model.posteriors()} == {"weight", "bias"}
    model.train()
    assert (model(example) - model(example)).abs().max() > 1e-3
    assert type(lb.collapse(model)) is kind


def test_converting_twice_is_refused_and_collapse_makes_way(x):
    net = beside(Branded(4, 4))
    model = lb.bayesianize(net, lb.MeanField(), example=x)
    for again in (net, model):
        with pytest.raises(lb.ConversionError, match="already"):
            lb.bayesianize(again, lb.MeanField())
    assert converted(lb.bayesianize(lb.collapse(model), lb.MeanField())) == ["0", "1", "2"]
