"""Converting keeps the network; going back gives it back; each method, each network."""

import copy

import pytest
import torch
from nets import cast, converted, nets, silent
from torch import nn

import leanbayes as lb
from leanbayes.plan import fold


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_without_noise_a_converted_network_equals_the_original(method, net_name, dtype, tolerance):
    quiet = silent(method)
    if quiet is None:
        pytest.skip(f"{method.name} cannot be set to zero noise")
    net, inputs = nets()[net_name]()
    net, inputs = net.to(dtype), cast(inputs, dtype)
    original = copy.deepcopy(net)
    model = lb.bayesianize(net, quiet, example=inputs)
    original.train(), model.train()
    plans = (None, lb.Plan(), lb.Plan(groups=3), lb.Plan(groups=2, per_row=True))
    # Members of a deep ensemble normalise their own rows in training.
    for plan in () if isinstance(method, lb.DeepEnsemble) else plans:
        torch.testing.assert_close(
            model(inputs, plan=plan), original(inputs), rtol=tolerance, atol=tolerance
        )
    original.eval(), model.eval()
    with torch.no_grad():
        for plan in (None, lb.Plan(), lb.Plan(groups=6), lb.Plan(groups=2, per_row=True)):
            torch.testing.assert_close(
                model(inputs, plan=plan), original(inputs), rtol=tolerance, atol=tolerance
            )


def test_collapse_gives_the_network_back_bit_for_bit(method, net_name):
    quiet = silent(method) or method
    net, inputs = nets()[net_name]()
    original = copy.deepcopy(net)
    plain = lb.collapse(lb.bayesianize(net, quiet, example=inputs))
    assert [type(m) for m in plain.modules()] == [type(m) for m in original.modules()]
    assert list(plain.state_dict()) == list(original.state_dict())
    for key, value in original.state_dict().items():
        assert torch.equal(plain.state_dict()[key], value), key
    original.eval(), plain.eval()
    with torch.no_grad():
        assert torch.equal(plain(inputs), original(inputs))


def test_conversion_is_in_place_and_keeps_parameters_and_keys(method, net_name):
    net, inputs = nets()[net_name]()
    before = dict(net.named_parameters())
    keys = set(net.state_dict())
    model = lb.bayesianize(net, method, example=inputs)
    assert model.net is net
    after = dict(net.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert {k for k in net.state_dict() if ".slots." not in f".{k}"} == keys
    assert {k.removeprefix("net.") for k in model.state_dict()} == set(net.state_dict())


def test_the_report_adds_up(method, net_name):
    net, inputs = nets()[net_name]()
    base = sum(p.numel() for p in net.parameters())
    model = lb.bayesianize(net, method, example=inputs)
    assert model.report.base == base
    assert model.report.base + model.report.added == sum(p.numel() for p in model.parameters())
    text = str(model.report)
    assert all(layer.name in text for layer in model.report.converted)


def test_every_converted_layer_acts(noisy, net_name):
    """Independent of the liveness check: move one slot's scale, and the draw must move."""
    model, inputs = converted(noisy, net_name, torch.float64)
    model.eval()
    plan, inputs = lb.Plan(groups=16), fold(inputs, 16)  # one draw might not use a given copy
    with torch.no_grad():
        for _, slot, posterior, _ in model.posteriors():
            for parameter in posterior.parameters():
                if not parameter.requires_grad:
                    continue
                move = 0.5 + torch.rand_like(parameter)  # norms forget what moves all alike
                torch.manual_seed(5)
                before = model(inputs, plan=plan)
                parameter.add_(move)
                torch.manual_seed(5)
                after = model(inputs, plan=plan)
                parameter.sub_(move)
                assert not torch.equal(before, after), posterior.key + slot


def test_a_network_converts_and_trains_where_gradients_are_off_around_it(noisy):
    net, inputs = nets()["mlp"]()
    with torch.no_grad():
        model = lb.bayesianize(net, noisy, example=inputs)
    assert model.train()(inputs).requires_grad
    other, inputs = nets()["mlp"]()
    with torch.inference_mode(), pytest.raises(lb.ConversionError, match="inference_mode"):
        lb.bayesianize(other, noisy, example=inputs)


def test_converting_twice_is_an_error_and_changes_nothing(method, net_name):
    model, inputs = converted(method, net_name)
    if not method.converts:
        with pytest.raises(lb.ConversionError, match="Bayesian already"):
            lb.bayesianize(model, method)
        return
    before = model(inputs, plan=lb.Plan(mean=True))
    for target in (model, model.net):
        with pytest.raises(lb.ConversionError, match="Bayesian already"):
            lb.bayesianize(target, method)
    assert torch.equal(model(inputs, plan=lb.Plan(mean=True)), before)


class Bypassed(nn.Module):
    """Reads the weight of a layer and never calls it."""

    def __init__(self):
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.read = nn.Linear(4, 3)

    def forward(self, x):
        return nn.functional.linear(self.used(x), self.read.weight)


class EvalBypass(Bypassed):
    """Runs the layer in training and bypasses it in eval + no_grad, as fused kernels do."""

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.read(self.used(x))
        return super().forward(x)


class Ignored(Bypassed):
    """Calls the layer and does not use what comes out."""

    def forward(self, x):
        self.read(x)
        return self.used(x)


@pytest.mark.parametrize("net_type", [Bypassed, EvalBypass, Ignored])
def test_a_bypassed_layer_fails_the_liveness_check_and_the_network_is_unchanged(noisy, net_type):
    net = net_type()
    classes, keys = [type(m) for m in net.modules()], list(net.state_dict())
    if not noisy.select(_bypassed_site(net)):
        pytest.skip(f"{noisy.name} does not select this layer")
    with pytest.raises(lb.ConversionError, match=r"read\..*The network is unchanged"):
        lb.bayesianize(net, noisy, example=torch.randn(5, 4))
    assert [type(m) for m in net.modules()] == classes
    assert list(net.state_dict()) == keys


def _bypassed_site(net):
    from leanbayes.surgery import survey

    return next(site for site in survey(net).sites if site.name == "read")


def test_the_liveness_check_leaves_no_trace(method, net_name):
    net, inputs = nets()[net_name]()
    for index, module in enumerate(net.modules()):
        module.training = index % 2 == 0
    modes = [m.training for m in net.modules()]
    buffers = {k: v.clone() for k, v in net.named_buffers()}
    state = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        lb.bayesianize(copy.deepcopy(net), method)
        drawn = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = lb.bayesianize(net, method, example=inputs)
        assert torch.equal(torch.get_rng_state(), drawn)  # only the initial scales were drawn
    assert torch.equal(torch.get_rng_state(), state)
    originals = [m for name, m in net.named_modules() if "slots" not in name]
    assert [m.training for m in originals] == modes
    now = dict(net.named_buffers())
    assert all(torch.equal(now[name], value) for name, value in buffers.items())
    assert all(p.grad is None for p in model.parameters())


class Replacing(nn.Module):
    """Counts and averages by new tensors in place of its buffers; a table grows with the input."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("table", torch.zeros(0))

    def forward(self, x):
        h = self.first(x)
        self.passes = self.passes + 1
        self.average = 0.9 * self.average + 0.1 * h.detach().mean(0)
        if len(self.table) < len(x):
            self.table = torch.arange(len(x), dtype=x.dtype)
        return self.head(h)


@pytest.mark.parametrize("looks_at_data", [False, True])
def test_buffers_that_a_forward_pass_replaces_are_put_back(looks_at_data):
    net, x = Replacing(), torch.randn(5, 4)
    passes, average = net.passes, net.average
    if looks_at_data:
        lb.sensitivity(net, [(x, torch.arange(5) % 3)], lb.Categorical())
    else:
        lb.bayesianize(net, lb.MeanField(), example=x)
    assert net.passes is passes
    assert net.average is average
    assert not passes.any()
    assert not average.any()
    assert len(net.table) >= 5  # a cache that has grown is no state


class LayerDrop(nn.Module):
    """Leaves each of its layers out of a pass by chance in training, as speech encoders do."""

    def __init__(self, rate, layers=4):
        super().__init__()
        self.rate = rate
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for layer in self.layers:
            if not self.training or torch.rand(()) >= self.rate:
                x = x + torch.tanh(layer(x))
        return self.head(x)


@pytest.mark.parametrize("seed", range(4))
def test_layers_that_chance_leaves_out_of_training_passes_convert(seed):
    torch.manual_seed(seed)
    model = lb.bayesianize(LayerDrop(0.5), lb.MeanField(), example=torch.randn(5, 4))
    assert len(model.report.converted) == 5
    with pytest.raises(lb.ConversionError, match=r"layers\.0\.bias does not act in training"):
        lb.bayesianize(LayerDrop(1.0), lb.MeanField(), example=torch.randn(5, 4))


class ReadBeside(nn.Module):
    """Looks words up in an embedding, and scores them by its weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, ids):
        self.mix.weight.new_zeros(2)  # type and device are no values
        x = self.mix(self.embed(ids)).type_as(self.embed.weight).mean(1)
        return x @ self.embed.weight.T


class ReadInStock(ReadBeside):
    """The same product by a layer that shares the weight."""

    def __init__(self):
        super().__init__()
        self.words = nn.Linear(4, 7, bias=False)
        self.words.weight = self.embed.weight

    def forward(self, ids):
        return self.words(self.mix(self.embed(ids)).mean(1))


def test_a_weight_that_the_network_reads_beside_its_layer_is_refused():
    """Half of it would be drawn and half would not."""
    ids, net = torch.randint(0, 7, (5, 3)), ReadBeside()
    with pytest.raises(lb.ConversionError, match=r"^embed\.weight is used by the network itself"):
        lb.bayesianize(net, lb.MeanField(), example=ids)
    assert type(net.embed) is nn.Embedding
    assert not net.embed._forward_hooks
    head = lb.MeanField(select=lb.select.by_name("mix"))
    assert len(lb.bayesianize(net, head, example=ids).report.converted) == 1
    words = lb.MeanField(select=~lb.select.by_name("words"))  # reads it too, and is a layer
    assert len(lb.bayesianize(ReadInStock(), words, example=ids).report.converted) == 2
    assert len(lb.bayesianize(ReadInStock(), lb.MeanField(), example=ids).report.converted) == 3


class ReadTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(nn.functional.linear(self.fc(x), self.fc.weight))


def test_factors_and_masks_of_weights_do_not_reach_what_a_network_reads_either():
    x = torch.randn(5, 4)
    for method in (lb.RankOne(), lb.SharedEnsemble(), lb.DropConnect(rate=0.3), lb.SWAG()):
        with pytest.raises(lb.ConversionError, match=r"^fc\.weight is used by the network itself"):
            lb.bayesianize(ReadTwice(), method, example=x)
    for method in (lb.MAP(), lb.MCDropout(rate=0.3)):  # masks of activations leave the weights
        lb.bayesianize(ReadTwice(), method, example=x)
