"""DropConnect: weights times Bernoulli(keep) / keep, a draw a batch, a row or a sample."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.noise import KeyedNoise

F64 = torch.float64


def keyed(samples, seed=0):
    return lb.Plan(groups=len(samples), noise=KeyedNoise(seed, samples))


def convolutions():
    torch.manual_seed(0)
    layers = (nn.Conv2d(2, 4, 3, bias=False), nn.Flatten(), nn.Linear(64, 3, bias=False))
    return nn.Sequential(*layers)


def test_a_draw_is_the_weight_times_a_scaled_mask():
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 3), torch.randn(5, 6)
    model = lb.bayesianize(layer, lb.DropConnect(rate=0.4))
    uniform = KeyedNoise(0, [0]).uniform("weight", 1, (3, 6), torch.empty(()))[0]
    weight = layer.weight * (uniform < 0.6) / 0.6
    torch.testing.assert_close(model(x, plan=keyed([0])), F.linear(x, weight, layer.bias))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_it_is_ecmp_with_a_zero_copy_up_to_the_scale(rate):
    """The same key gives the same uniform numbers, hence the same dropped entries."""
    patching = lb.Patching(members=2, zero_copy=True, cross=True, keep=1 - rate, where="all")
    x, keep = torch.randn(4, 2, 6, 6), 1 - rate
    dropped = lb.bayesianize(convolutions(), lb.DropConnect(rate=rate))
    patched = lb.bayesianize(convolutions(), patching)
    for sample in range(3):
        ours, theirs = (m(x, plan=keyed([sample])) for m in (dropped, patched))
        torch.testing.assert_close(ours * keep**2, theirs)  # two layers without biases
        assert (ours - dropped.eval()(x)).abs().max() > 1e-3


def test_only_weights_are_dropped():
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3))
    model = lb.bayesianize(net, lb.DropConnect(), example=torch.randn(4, 2, 6, 6))
    slots = {c.name: c.slots for c in model.report.converted}
    assert slots == {"0": ("weight",), "3": ("weight",)}
    assert (model.report.added, model.kl().item(), model.kl_kind) == (0, 0.0, "none")
    model = lb.bayesianize(lb.collapse(model), lb.DropConnect(where=lb.select.convs))
    assert [c.name for c in model.report.converted] == ["0"]


def test_expected_value_and_variance_of_the_output():
    rate = 0.2
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 2).to(F64), torch.randn(1, 5, dtype=F64)
    model = lb.bayesianize(layer, lb.DropConnect(rate=rate, granularity="row")).train()
    y = model(x.expand(40000, 5))
    variance = rate / (1 - rate) * (x**2 @ layer.weight.T**2)[0]
    expected = F.linear(x, layer.weight, layer.bias)[0]
    torch.testing.assert_close(y.mean(0), expected, rtol=0, atol=0.02)
    torch.testing.assert_close(y.var(0), variance, rtol=0.05, atol=0)
    covariance = torch.cov(y.T)[0, 1]  # entries are dropped independently
    assert covariance.abs() < 0.03 * variance.max()


def test_a_batch_shares_a_draw_and_rows_have_their_own_on_demand():
    x = torch.randn(1, 30).expand(6, 30)
    for granularity, distinct in (("batch", 1), ("row", 6)):
        torch.manual_seed(0)
        method = lb.DropConnect(rate=0.5, granularity=granularity)
        model = lb.bayesianize(nn.Linear(30, 3), method).train()
        y = model(x)
        assert len({tuple(round(v, 4) for v in row) for row in y.tolist()}) == distinct
        assert not torch.allclose(model(x), y)


def test_the_padding_row_of_an_embedding_is_never_dropped():
    table = nn.Embedding(5, 40, padding_idx=2)
    with torch.no_grad():
        table.weight.fill_(1.0)
    model = lb.bayesianize(table, lb.DropConnect(rate=0.5)).train()
    y = model(torch.arange(5)[None].expand(3, 5))
    assert torch.equal(y[:, 2], torch.ones(3, 40))
    assert set(y[:, [0, 1, 3, 4]].unique().tolist()) == {0.0, 2.0}


def test_seeded_predictions_do_not_depend_on_chunks_and_collapse_keeps_the_weights():
    net, x = convolutions(), torch.randn(5, 2, 6, 6)
    weight = net[0].weight.detach().clone()
    model = lb.bayesianize(net, lb.DropConnect(rate=0.3), example=x)
    options = {"likelihood": lb.Categorical(), "samples": 5, "seed": 1, "keep_samples": True}
    one, other = (lb.predict(model, x, chunk=c, **options).samples for c in (1, 5))
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)
    assert (one[0] - one[1]).abs().max() > 1e-4
    assert torch.equal(lb.collapse(model)[0].weight, weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.5}, "below 1; found 1.5"),
        ({"granularity": "token"}, "'batch' or 'row'"),
        ({"where": None}, "lb.select.convs"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(lb.ConfigError, match=message):
        lb.DropConnect(**options)
