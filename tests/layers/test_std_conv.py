"""Standardised kernels: every draw is standardised by itself, whatever form it comes in."""

import copy

import look_alikes as alike
import pytest
import torch
from layer_cases import assert_equal
from torch import nn

import leanbayes as lb
from leanbayes.forms import Flipped, LowRank, PerDraw, Selected, Shared
from leanbayes.layers.std_conv import mapped
from leanbayes.noise import KeyedNoise

F64 = torch.float64
EPS = 0.05


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Pickles name the module of a class."""
    alike.make_importable(monkeypatch)


def layer(**options):
    torch.manual_seed(0)
    return alike.StdConv2d(4, 6, 3, padding=0, eps=EPS, bias=True, **options).double()


def standardised(kernel):
    """By the definition."""
    mean, variance = kernel.mean((1, 2, 3), True), kernel.var((1, 2, 3), False, keepdim=True)
    return (kernel - mean) / (variance + EPS).sqrt()


METHODS = {
    "mean_field": lb.MeanField(init_std=0.3),
    "shared": lb.MeanField(init_std=0.3, estimator="shared"),
    "partial": lb.Partial(rate=0.4, criterion="magnitude", init_std=0.5),
    "shared_ensemble": lb.SharedEnsemble(members=3, init_std=0.4),
    "by_channel": lb.SharedEnsemble(members=3, init_std=0.4, rank=2, per_channel=True),
    "patching": lb.Patching(members=3, where="all", init_std=0.4),
    "deep_ensemble": lb.DeepEnsemble(members=3),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_predicted_sample_has_the_standardised_kernel_of_its_draw(method):
    x = torch.randn(2, 4, 6, 6, dtype=F64)
    model = lb.bayesianize(layer(), method, example=x).eval()
    noise, samples = KeyedNoise(5, range(3)), range(3)
    y = model(x.repeat(3, 1, 1, 1), plan=method.prediction_plan(samples, noise))
    values = {}
    component = torch.arange(3) % method.index_members if method.index_members else None
    for host, slot, posterior, base in model.posteriors():
        drawn = posterior.noise(base, 3, noise)
        values[slot] = posterior.draw(base, drawn, component)
        assert host is model.net
    bias = values.get("bias", model.net.bias.expand(3, -1))
    expected = [
        nn.functional.conv2d(x, standardised(values["weight"][k]), bias[k]) for k in range(3)
    ]
    assert_equal(y, torch.cat(expected))


@pytest.mark.parametrize("draws", [2, 3, 5])
@pytest.mark.parametrize("columns", [4, 36], ids=["by_channel", "by_position"])
def test_low_rank_candidates_are_written_out_before_they_are_mapped(draws, columns):
    torch.manual_seed(1)
    base, left, right = torch.randn(6, 4, 3, 3), torch.randn(3, 6, 2), torch.randn(3, 2, columns)
    component = torch.arange(draws) % 3
    form = mapped(LowRank(base, left, right, component), lambda kernels: kernels.tanh())
    assert isinstance(form, PerDraw if draws < 3 else Selected)
    found = form.value if draws < 3 else form.values[form.component]
    product = (left @ right)[component]
    shape = (draws, 6, 4, 3, 3) if columns == 36 else (draws, 6, 4, 1, 1)
    assert_equal(found, (base * product.reshape(shape)).tanh(), 1e-6)


def test_a_form_with_signs_has_no_draws_to_map():
    signs = torch.ones(2, 6), torch.ones(2, 4)
    with pytest.raises(TypeError, match="Flipped"):
        mapped(Flipped(torch.ones(6, 4), torch.ones(6, 4), *signs), torch.tanh)
    assert torch.equal(mapped(Shared(torch.ones(2)), torch.tanh).value, torch.ones(2).tanh())


def test_rows_of_a_training_pass_have_kernels_of_their_own():
    """The spread of a row's output is that of drawn kernels: Flipout would be another law."""
    x = torch.randn(1, 4, 3, 3, dtype=F64)
    model = lb.bayesianize(layer(), lb.MeanField(init_std=0.3)).train()
    with torch.no_grad():
        rows = model(x.expand(20_000, -1, -1, -1)).flatten(1)
        base, std = model.net.weight, model.net.slots.weight.log_std.exp()
        kernels = base + std * torch.randn(20_000, *base.shape, dtype=F64)
        flat = kernels.flatten(2)
        normed = (flat - flat.mean(2, True)) / (flat.var(2, False, keepdim=True) + EPS).sqrt()
        noise = model.net.slots.bias.log_std.exp() * torch.randn(20_000, 6, dtype=F64)
        reference = normed @ x.flatten() + model.net.bias + noise
    error = reference.std(0) / 20_000**0.5
    assert ((rows.mean(0) - reference.mean(0)).abs() < 5 * error * 2**0.5).all()
    assert ((rows.std(0) / reference.std(0) - 1).abs() < 0.03).all()


@pytest.mark.parametrize("name", ["rank_one", "implicit", "batch_ensemble"])
def test_methods_of_factors_leave_it_and_say_so(name):
    """A factor on channels of the kernel would be standardised away, in a collapsed network too."""
    net = nn.Sequential(layer(), nn.Flatten(), nn.Linear(6, 3).double())
    x = torch.randn(5, 4, 3, 3, dtype=F64)
    report = lb.bayesianize(net, lb.methods()[name](), example=x).report
    assert [c.name for c in report.converted] == ["2"]
    assert [s.name for s in report.skipped] == ["0"]


def test_members_of_a_shared_ensemble_are_turned_back_exactly():
    x = torch.randn(5, 4, 6, 6, dtype=F64)
    method = lb.SharedEnsemble(members=3, init_std=0.4)
    model = lb.bayesianize(layer(), method, example=x).eval()
    for k in range(3):
        plain = lb.collapse(model, member=k)
        assert type(plain) is alike.StdConv2d
        plan = method.prediction_plan([k], KeyedNoise(0, [k]))
        assert_equal(plain(x), model(x, plan=plan))
    assert_equal(lb.collapse(copy.deepcopy(model))(x), model(x))
