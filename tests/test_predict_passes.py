"""What a prediction does besides its passes: no trial pass, no wait for a device, known numbers."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb
from leanbayes.budget import LIVE_ACTIVATIONS, leaves_of, worth_trying
from leanbayes.forms import Ask
from leanbayes.noise import KeyedNoise

F64 = torch.float64


class Net(nn.Module):
    """Two convolutions with norms and an output, in numbers that no generator has made."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


METHODS = {
    "map": lb.MAP(),
    "mean_field": lb.MeanField(init_std=0.3),
    "rank_one": lb.RankOne(members=2, init_std=0.5, init_scale=0.3),
    "cauchy": lb.RankOne(members=2, init_std=0.5, init_scale=0.3, law="cauchy"),
    "points_inside": lb.RankOne(members=2, init_std=0.5, init_scale=0.3, stochastic="out"),
    "implicit": lb.Implicit(members=2, init_std=0.5),
    "batch_ensemble": lb.BatchEnsemble(members=2, init_std=0.5),
    "shared_ensemble": lb.SharedEnsemble(members=2, init_std=0.5),
    "by_channel": lb.SharedEnsemble(members=2, init_std=0.5, per_channel=True, rank=2),
    "deep_ensemble": lb.DeepEnsemble(members=2, init_std=0.5),
    "layers": lb.Patching(init_std=0.5),
    "dropped_layers": lb.Patching(init_std=0.5, members=2, zero_copy=True, keep=0.7),
    "elements": lb.Patching(init_std=0.5, cross=True),
    "network": lb.Patching(init_std=0.5, scope="network", members=2),
    "heads": lb.Patching(init_std=0.5, exact_output=True),
    "partial": lb.Partial(rate=0.5, criterion="random", init_std=0.3),
    "mc_dropout": lb.MCDropout(rate=0.3),
    "drop_connect": lb.DropConnect(rate=0.3),
    "compose": lb.Compose(
        [
            (lb.select.convs, lb.SharedEnsemble(members=2, init_std=0.5, per_channel=True)),
            (lb.select.output, lb.MeanField(init_std=0.3)),
        ]
    ),
}


def wave(count, *shape):
    return torch.sin(torch.arange(1, count + 1, dtype=F64) * 1.7).reshape(shape)


def converted(method, dtype=F64):
    net = Net().to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(wave(p.numel(), *p.shape) * 0.7 + 0.2)
    torch.manual_seed(0)
    example = torch.zeros(2, 3, 4, 4, dtype=dtype)
    return lb.bayesianize(net.eval(), method, example=example, likelihood=lb.Categorical())


def rows(count=2):
    return wave(count * 48, count, 3, 4, 4)


# P(class 0) and P(class 1) of the first row, then the aleatoric part of the second.
KNOWN = {
    "map": (0.727401130, 0.239169456, 0.687037170),
    "mean_field": (0.307994108, 0.645385161, 0.422157380),
    "rank_one": (0.231186100, 0.397865810, 0.742878705),
    "cauchy": (0.376489854, 0.250003375, 0.173324712),
    "points_inside": (0.234225284, 0.381408688, 0.690396544),
    "implicit": (0.524717338, 0.336299234, 0.973781031),
    "batch_ensemble": (0.480352156, 0.173221270, 0.685832856),
    "shared_ensemble": (0.535554276, 0.405276480, 0.320618012),
    "by_channel": (0.047867680, 0.944900894, 0.214984260),
    "deep_ensemble": (0.856441736, 0.121655007, 0.386240356),
    "layers": (0.675840031, 0.303391231, 0.325646105),
    "dropped_layers": (0.572165573, 0.270031390, 0.902732896),
    "elements": (0.427140594, 0.248471942, 0.589574663),
    "network": (0.391260283, 0.580832414, 0.500300175),
    "heads": (0.475846595, 0.347477949, 0.590204162),
    "partial": (0.470722181, 0.288129964, 0.349092730),
    "mc_dropout": (0.590284178, 0.256977548, 0.796971286),
    "drop_connect": (0.260992435, 0.476872075, 0.520066319),
    "compose": (0.392885057, 0.556735606, 0.457368000),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_seeded_prediction_has_the_numbers_that_it_always_had(name):
    p = lb.predict(converted(METHODS[name]), rows(), samples=4, seed=3)
    found = torch.stack([p.probs[0, 0], p.probs[0, 1], p.aleatoric[1]])
    torch.testing.assert_close(found, torch.tensor(KNOWN[name], dtype=F64), rtol=0, atol=1e-7)


class Waiting(TorchFunctionMode):
    """Counts calls that wait for a GPU, whatever the device is."""

    reads = frozenset(("item", "tolist", "cpu", "nonzero", "is_nonzero", "masked_select", "numpy"))

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", str(func)), kwargs or {}
        goes = name == "to" and any(isinstance(a, (torch.device, str)) for a in args[1:])
        made = name in ("tensor", "as_tensor") and "device" in kwargs
        if goes or made or name in self.reads or "unique" in name:
            self.calls[name] += 1
        return func(*args, **kwargs)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("cast", [False, True])
def test_samples_do_not_wait_for_the_device(name, cast):
    model, x = converted(METHODS[name], torch.float32), rows().float()

    def calls(samples):
        with torch.autocast("cpu", torch.bfloat16, enabled=cast), Waiting() as mode:
            lb.predict(model, x, samples=samples, seed=0)
        return mode.calls

    assert calls(4) == calls(8)


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_that_fits_takes_one_pass_a_sample(name):
    model, seen = converted(METHODS[name]), []
    model.net.conv1.register_forward_hook(lambda _m, i, _o: seen.append(len(i[0])))
    lb.predict(model, rows(), samples=4, seed=0)
    assert seen == [2] * (4 if model.method.is_random else 1)


def test_a_pass_that_outgrows_the_memory_is_ended_and_the_batch_is_cut():
    model, x, seen = converted(METHODS["rank_one"]), rows(8), []
    whole = lb.predict(model, x, samples=4, seed=0)
    model.net.conv1.register_forward_hook(lambda _m, i, _o: seen.append(len(i[0])))
    largest = 8 * 4 * 16 * 8  # rows, channels, pixels, bytes
    cut = lb.predict(model, x, samples=4, seed=0, memory=LIVE_ACTIVATIONS * largest // 2)
    assert seen == [8, 2, *[4] * 8]  # the first one ended here; two rows tell what fits
    torch.testing.assert_close(cut.probs, whole.probs, rtol=1e-12, atol=1e-12)
    assert not any(
        module._forward_hooks for module in model.modules() if module is not model.net.conv1
    )


def test_batches_of_one_shape_are_watched_once():
    model, x = converted(METHODS["rank_one"]), rows(6)
    watched = []
    model.net.conv1.register_forward_hook(
        lambda *_: watched.append(len(model.net.norm1._forward_hooks))
    )
    lb.predict(model, DataLoader(TensorDataset(x), batch_size=2), samples=2, seed=0)
    assert watched == [1, 0, 0, 0, 0, 0]


def test_batches_that_have_to_be_cut_are_measured_once():
    model, x, seen = converted(METHODS["rank_one"]), rows(8), []
    model.net.conv1.register_forward_hook(lambda _m, i, _o: seen.append(len(i[0])))
    row = LIVE_ACTIVATIONS * 4 * 16 * 8
    lb.predict(model, DataLoader(TensorDataset(x), batch_size=4), samples=2, memory=row)
    assert seen == [4, 2, *[1] * 16]  # tried and ended, measured, and known from then on


def test_an_encoder_keeps_its_fast_path():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net, x = nn.Sequential(layer, nn.Flatten(), nn.Linear(32, 3)).eval(), torch.randn(2, 4, 8)
    watched = []
    model = lb.bayesianize(net, lb.MAP(), likelihood=lb.Categorical())
    with torch.inference_mode():
        expected = torch.softmax(net(x).double(), 1)
    net[2].register_forward_pre_hook(lambda *_: watched.append(len(layer.linear1._forward_hooks)))
    assert torch.equal(lb.predict(model, x).probs, expected)
    assert watched[-1] == 0


def test_only_batches_whose_layers_stay_within_the_memory_are_tried():
    leaves = leaves_of(list(nn.Sequential(nn.Linear(10, 4096), nn.ReLU()).modules()))
    x = torch.zeros(64, 10)
    assert worth_trying(leaves, x, 64, 64 * 4096 * 4)
    assert not worth_trying(leaves, x, 64, 64 * 4096 * 4 - 1)
    table = leaves_of(list(nn.Embedding(100, 32).modules()))
    ids = torch.zeros(8, 5, dtype=torch.long)
    assert worth_trying(table, ids, 8, 8 * 5 * 100 * 4)
    assert not worth_trying(table, ids, 8, 8 * 5 * 100 * 4 - 1)


@pytest.mark.parametrize(
    "name", ["mean_field", "rank_one", "cauchy", "implicit", "elements", "partial"]
)
def test_vectors_drawn_in_one_go_equal_those_drawn_alone(name):
    model = converted(METHODS[name], torch.float32)
    with torch.no_grad(), model.drawing_ahead():
        assert any(len(group) > 1 for group in model._ahead)
        plan = model.method.prediction_plan(range(3, 4), KeyedNoise(5, range(3, 4), {}))
        model.enter(plan, 2)
        together = dict(model.scope.ahead)
        alone = {q.key: q.form(base, model.scope, Ask()) for _, _, q, base in model.posteriors()}
    assert together.keys() == alone.keys()
    for key, form in alone.items():
        assert torch.equal(together[key].value, form.value), key


def test_parameters_may_change_in_place_between_two_predictions():
    model, x = converted(METHODS["compose"], torch.float32), rows().float()
    with torch.autocast("cpu", torch.bfloat16):
        before = lb.predict(model, x, samples=4, seed=0).probs
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1.5)
        after = lb.predict(model, x, samples=4, seed=0).probs
        with torch.no_grad():
            for p in model.parameters():
                p.div_(1.5)
        again = lb.predict(model, x, samples=4, seed=0).probs
    assert (after - before).abs().max() > 0.01
    torch.testing.assert_close(again, before, rtol=0, atol=1e-3)
