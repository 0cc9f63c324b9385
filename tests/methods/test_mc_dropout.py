"""MC dropout: a mask a row in training, one a sample in prediction, none in the mean network."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.noise import KeyedNoise
from leanbayes.posteriors.bank import Bank
from leanbayes.posteriors.bernoulli import Mask

F64 = torch.float64


def keyed(samples, seed=0):
    return lb.Plan(groups=len(samples), noise=KeyedNoise(seed, samples))


def linear_model(width=6, outputs=3, example=None, **options):
    torch.manual_seed(0)
    net = nn.Linear(width, outputs).to(F64)
    return lb.bayesianize(net, lb.MCDropout(**options), example=example), net


def drawn_mask(key, shape, rate, sample=0, seed=0):
    """The factors of one keyed sample, made anew."""
    noise = KeyedNoise(seed, [sample]).uniform(key, 1, shape, torch.empty(()))[0]
    return (noise < 1 - rate).to(F64) / (1 - rate)


def test_before_a_linear_layer_it_is_dropout_of_the_input_with_the_same_mask():
    model, net = linear_model(rate=0.4)
    x = torch.randn(5, 6, dtype=F64)
    z = drawn_mask("in_scale", (6,), 0.4)
    torch.testing.assert_close(model(x, plan=keyed([0])), F.linear(x * z, net.weight, net.bias))


def test_after_a_layer_it_drops_the_output_bias_included():
    model, net = linear_model(rate=0.4, position="after")
    x = torch.randn(5, 6, dtype=F64)
    z = drawn_mask("out_mask", (3,), 0.4, sample=2)
    torch.testing.assert_close(model(x, plan=keyed([2])), F.linear(x, net.weight, net.bias) * z)
    conv = nn.Conv2d(2, 4, 3).to(F64)
    model = lb.bayesianize(conv, lb.MCDropout(rate=0.4, position="after"))
    x = torch.randn(3, 2, 5, 5, dtype=F64)
    expected = F.conv2d(x, conv.weight, conv.bias) * drawn_mask("out_mask", (4, 3, 3), 0.4)
    torch.testing.assert_close(model(x, plan=keyed([0])), expected)


NORMS = {
    "batch": (lambda: nn.BatchNorm2d(4), (4, 5, 5)),
    "batch1d": (lambda: nn.BatchNorm1d(4), (4,)),
    "group": (lambda: nn.GroupNorm(2, 4), (4, 5, 5)),
    "layer": (lambda: nn.LayerNorm(6), (3, 6)),
    "rms": (lambda: nn.RMSNorm(6), (3, 6)),
}


@pytest.mark.parametrize("channelwise", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_after_a_norm_it_is_dropout_behind_the_relu_that_follows(name, channelwise):
    make, shape = NORMS[name]
    torch.manual_seed(0)
    net = nn.Sequential(make(), nn.ReLU()).to(F64).eval()
    for p in net.parameters():
        nn.init.normal_(p)
    x = torch.randn(7, *shape, dtype=F64)
    expected = net(x).clone()
    method = lb.MCDropout(
        rate=0.4, where=lb.select.norms, position="after", channelwise=channelwise
    )
    model = lb.bayesianize(net, method, example=x)
    torch.testing.assert_close(model(x), expected)  # the mean network has no mask
    channel = 0 if name in ("batch", "batch1d", "group") else len(shape) - 1
    units = (shape[channel],) if channelwise else shape
    z = drawn_mask("0.out_mask", units, 0.4)
    if channelwise:
        z = z.reshape([-1 if at == channel else 1 for at in range(len(shape))])
    torch.testing.assert_close(model(x, plan=keyed([0])), expected * z)


def test_a_norm_without_parameters_has_no_mask():
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, elementwise_affine=False), nn.LayerNorm(4))
    dropout = lb.MCDropout(where=lb.select.norms, position="after")
    model = lb.bayesianize(net, dropout, example=torch.randn(3, 4))
    assert [c.name for c in model.report.converted] == ["2"]


def test_masks_after_norms_go_with_another_method_on_the_convolutions():
    """What masks alone do before a convolution, with the members of an ensemble inside it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3))
    net = net.to(F64).eval()
    x = torch.randn(6, 2, 7, 7, dtype=F64)
    inner, outer = net[:3](x), net[3]
    ensemble = lb.SharedEnsemble(members=3, init_std=0.3, per_channel=True)
    dropout = lb.MCDropout(rate=0.4, where=lb.select.norms, position="after")
    parts = [(lb.select.by_name("3"), ensemble), (lb.select.norms, dropout)]
    model = lb.bayesianize(net, lb.Compose(parts), example=x)
    for sample in range(3):
        plan = model.method.prediction_plan([sample], KeyedNoise(0, [sample]))
        z = drawn_mask("1.out_mask", (4, 5, 5), 0.4, sample=sample)
        member = lb.collapse(model, member=sample)[3]
        assert not torch.equal(member.weight, outer.weight)
        torch.testing.assert_close(model(x, plan=plan), member(inner * z))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_it_is_patching_with_a_zero_copy_up_to_the_scale(rate):
    """EMP's Table 2: dropout is a bank of two copies, one of them 0, an index an input unit."""
    weight = torch.randn(3, 6, dtype=F64)
    bank = Bank(weight, members=2, index="input", zero_copy=True, keep=1 - rate)
    noise = torch.rand(200, 6, dtype=F64)
    dropped = weight * Mask(rate).draw(weight, noise).unsqueeze(1)
    torch.testing.assert_close(dropped * (1 - rate), bank.draw(weight, noise))
    patching = lb.Patching(
        members=2, zero_copy=True, scope="input", keep=1 - rate, where="all", granularity="row"
    )
    assert set(lb.bayesianize(nn.Linear(6, 3), patching).net.slots) == {"weight"}


def test_masks_of_feature_maps_are_by_element_or_by_channel():
    x = torch.ones(2, 4, 6, 6)
    for channelwise, units in ((False, (4, 6, 6)), (True, (4,))):
        conv = nn.Conv2d(4, 4, 1, groups=4, bias=False)
        nn.init.ones_(conv.weight)
        model = lb.bayesianize(conv, lb.MCDropout(rate=0.5, channelwise=channelwise))
        y = model(x, plan=keyed([0]))
        z = drawn_mask("in_scale", units, 0.5).float()
        expected = x * (z[:, None, None] if channelwise else z)
        torch.testing.assert_close(y, expected)


def test_channelwise_training_has_the_law_of_dropout2d():
    conv = nn.Conv2d(3, 3, 1, groups=3, bias=False)
    nn.init.ones_(conv.weight)
    model = lb.bayesianize(conv, lb.MCDropout(rate=0.3, channelwise=True)).train()
    torch.manual_seed(1)
    maps = torch.ones(3000, 3, 2, 2)
    y, stock = model(maps), F.dropout2d(maps, 0.3)
    for each in (y, stock):
        flat = each.flatten(2)
        assert torch.equal(flat.amin(2), flat.amax(2))
    torch.testing.assert_close(y.mean((0, 2, 3)), stock.mean((0, 2, 3)), rtol=0, atol=0.06)
    torch.testing.assert_close(y.var((0, 2, 3)), stock.var((0, 2, 3)), rtol=0.1, atol=0)


def test_expected_value_and_variance_of_the_output():
    """E y = W x + b and Var y = rate / keep * sum_i w_i^2 x_i^2."""
    rate = 0.3
    model, net = linear_model(rate=rate)
    x = torch.randn(1, 6, dtype=F64)
    torch.manual_seed(2)
    y = model.train()(x.expand(40000, 6))
    mean = F.linear(x, net.weight, net.bias)[0]
    variance = rate / (1 - rate) * (x**2 @ net.weight.T**2)[0]
    torch.testing.assert_close(
        y.mean(0), mean, rtol=0, atol=4 * (variance.max() / 40000).sqrt().item()
    )
    torch.testing.assert_close(y.var(0), variance, rtol=0.04, atol=0)


def test_rows_differ_in_training_and_agree_in_prediction():
    model, _ = linear_model(width=40, rate=0.5)
    x = torch.randn(1, 40, dtype=F64).expand(8, 40)
    trained = model.train()(x)
    assert len({tuple(row) for row in trained.tolist()}) == 8
    predicted = model.eval()(x, plan=keyed([0]))
    torch.testing.assert_close(predicted, predicted[:1].expand(8, 3))
    assert torch.equal(model(x), model(x))
    torch.testing.assert_close(model(x), F.linear(x, model.net.weight, model.net.bias))


def test_tokens_have_masks_of_their_own_unless_channels_are_dropped():
    torch.manual_seed(0)
    layer = nn.Linear(30, 30, bias=False)
    nn.init.eye_(layer.weight)
    x = torch.ones(2, 4, 30)
    for channelwise in (False, True):
        model = lb.bayesianize(
            lb.collapse(lb.bayesianize(layer, lb.MAP())),
            lb.MCDropout(rate=0.5, channelwise=channelwise),
        )
        y = model.train()(x)
        assert torch.equal(y[0, 0], y[0, 1]) == channelwise
        assert not torch.equal(y[0, 0], y[1, 0])


def test_seeded_predictions_do_not_depend_on_chunks():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(64, 3)
    )
    x = torch.randn(5, 1, 6, 6)
    model = lb.bayesianize(net, lb.MCDropout(rate=0.3), example=x)
    options = {"likelihood": lb.Categorical(), "samples": 6, "seed": 1, "keep_samples": True}
    one, *others = (lb.predict(model, x, chunk=c, **options).samples for c in (1, 4, 6))
    for other in others:
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)
    apart = torch.cat([lb.predict(model, x[i : i + 1], **options).samples for i in range(5)], 1)
    torch.testing.assert_close(apart, one, rtol=1e-5, atol=1e-6)
    assert (one[0] - one[1]).abs().max() > 1e-4


def test_it_has_no_parameters_and_no_kl_and_collapses_to_the_network():
    model, net = linear_model(rate=0.2)
    weight = net.weight.detach().clone()
    assert (model.report.added, model.kl_kind, model.kl().item()) == (0, "none", 0.0)
    assert torch.equal(lb.collapse(model).weight, weight)


@pytest.mark.parametrize("position", ["before", "after"])
def test_channelwise_masks_of_grouped_convolutions_collapse_to_the_network(position):
    conv = nn.ConvTranspose2d(4, 6, 3, groups=2)
    weight = conv.weight.detach().clone()
    method = lb.MCDropout(position=position, channelwise=True)
    assert torch.equal(lb.collapse(lb.bayesianize(conv, method)).weight, weight)


def test_a_layer_that_is_not_the_last_one_registered_survives_saving(tmp_path):
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 3)
            self.body = nn.Linear(4, 8)

        def forward(self, x):
            return self.head(torch.relu(self.body(x)))

    torch.manual_seed(0)
    net, x = Crossed(), torch.randn(5, 4)
    model = lb.bayesianize(net, lb.MCDropout(rate=0.5), example=x)
    assert [c.name for c in model.report.converted] == ["head"]
    lb.save(model, tmp_path / "saved")
    again = lb.load(Crossed(), tmp_path / "saved")
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 2}
    assert again.method == model.method
    assert torch.equal(lb.predict(again, x, **options).probs, lb.predict(model, x, **options).probs)


def test_masks_are_the_same_in_half_precision():
    noise = torch.rand(1000)
    single, half = (Mask(0.1).draw(torch.empty((), dtype=t), noise) for t in (F64, torch.bfloat16))
    assert torch.equal(single == 0, half == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.0}, "below 1; found 1.0"),
        ({"rate": -0.1}, "at least 0"),
        ({"position": "inside"}, "'before' or 'after'"),
        ({"where": "output"}, "lb.select.output"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(lb.ConfigError, match=message):
        lb.MCDropout(**options)


def test_a_choice_without_any_layer_that_takes_a_mask_is_an_error():
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    with pytest.raises(lb.ConversionError, match="selects none"):
        lb.bayesianize(net, lb.MCDropout(where=lb.select.norms))
