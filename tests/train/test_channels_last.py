"""Channels last: the same numbers, and the layout survives every form of a draw."""

import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.train.layout import turn_, turned

METHODS = {
    "map": lb.MAP(),
    "shared": lb.MeanField(estimator="shared"),
    "flipout": lb.MeanField(estimator="flipout"),
    "exemplar by block": lb.MeanField(estimator="exemplar", groups=2),
    "shared ensemble": lb.SharedEnsemble(members=4),
    "per channel": lb.SharedEnsemble(members=4, rank=2, per_channel=True),
    "implicit": lb.Implicit(),
    "rank one": lb.RankOne(),
    "patching": lb.Patching(),
    "crossed": lb.Patching(cross=True),
    "patched kernels": lb.Patching(where="all"),
    "partial": lb.Partial(rate=0.05),
    "batch ensemble": lb.BatchEnsemble(),
    "dropout": lb.MCDropout(where=lb.select.convs),
}


def built(method, rows=16):
    """A small wide network as a model, and rows; in float64, where rounding flips no ReLU."""
    torch.manual_seed(0)
    net = lb.models.create("wide_resnet", depth=10, width=1).double()
    x, y = torch.randn(rows, 3, 8, 8).double(), torch.arange(rows) % 10
    seen = {"data": [(x, y)], "likelihood": lb.Categorical()} if method.looks_at_data else {}
    return lb.bayesianize(net, method, example=x, **seen), x


def is_turned(x):
    return x.is_contiguous(memory_format=torch.channels_last)


def watched(model):
    """Names of convolutions and norms whose output is laid out otherwise."""
    found = []
    for name, layer in model.net.named_modules():
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):
            layer.register_forward_hook(
                lambda _layer, _x, y, name=name: None if is_turned(y) else found.append(name)
            )
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_pass_keeps_the_layout_and_gives_the_same_numbers(name):
    model, x = built(METHODS[name])
    other = turn_(deepcopy(model))
    broken = watched(other)
    outputs = []
    for one, rows in ((model, x), (other, turned(x))):
        torch.manual_seed(1)
        outputs.append(one.train()(rows))
        outputs[-1].square().sum().backward()
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-10)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-8, atol=1e-8)
            assert two.grad.dim() != 4 or two.grad.stride() == two.stride()
    assert broken == []


@pytest.mark.parametrize("name", METHODS)
def test_predictions_keep_the_layout_whatever_that_of_the_inputs(name):
    model, x = built(METHODS[name])
    other = turn_(deepcopy(model))
    broken = watched(other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer samples than members
        probs = [
            lb.predict(m, x, likelihood=lb.Categorical(), samples=3, seed=0).probs
            for m in (model, other)
        ]
    torch.testing.assert_close(*probs, rtol=0, atol=1e-10)
    assert broken == []


@pytest.mark.parametrize("name", ["map", "flipout", "shared ensemble", "rank one"])
def test_a_run_channels_last_ends_where_the_other_does(name):
    x, y = torch.randn(32, 3, 8, 8), torch.arange(32) % 10
    found = []
    for last in (False, True):
        torch.manual_seed(0)
        net = lb.models.create("wide_resnet", depth=10, width=1)
        config = lb.FitConfig(
            steps=2, batch_size=16, lr=1e-3, channels_last=last, device="cpu", progress=False
        )
        done = lb.adapt(net, METHODS[name], (x, y), config=config)
        found.append(done.model)
    assert is_turned(found[1].net.stage1[0].conv1.weight)
    for key, one in found[0].state_dict().items():
        torch.testing.assert_close(one, found[1].state_dict()[key], rtol=1e-4, atol=1e-5)


class CutError(Exception):
    """What ends a run here."""


class CutOff(lb.Callback):
    """Ends a run after its first checkpoint."""

    def on_save(self, *_told):
        raise CutError


def test_it_survives_saving_and_resuming(tmp_path):
    x, y = torch.randn(32, 3, 8, 8), torch.arange(32) % 10
    options = {"batch_size": 16, "lr": 1e-2, "channels_last": True, "device": "cpu"}
    options |= {"schedule": "constant", "progress": False}

    def run(callbacks=(), **more):
        torch.manual_seed(0)
        net = lb.models.create("wide_resnet", depth=10, width=1)
        model = lb.bayesianize(net, lb.MeanField(estimator="shared"), example=x)
        config = lb.FitConfig(steps=4, save_every=2, **options, **more)
        lb.fit(model, (x, y), lb.Categorical(), config=config, callbacks=callbacks)
        return model

    whole, folder = run(), str(tmp_path / "run")
    with pytest.raises(CutError):
        run([CutOff()], folder=folder)
    parts = run(folder=folder)
    lb.save(parts, tmp_path / "model")
    back = lb.load(lb.models.create("wide_resnet", depth=10, width=1), tmp_path / "model")
    for key, one in whole.state_dict().items():
        assert torch.equal(one, parts.state_dict()[key])
        assert torch.equal(one, back.state_dict()[key])


def test_shards_are_refused():
    with pytest.raises(lb.ConfigError, match="channels_last"):
        lb.FitConfig(channels_last=True, strategy="fsdp2")
