"""Methods without members on the plane: their draws are the samples of `lb.predict`."""

import pytest
import torch
from landscape_cases import CATEGORICAL, bayesian, conv_net, labelled
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.landscape.networks import places

DRAWN = [
    lb.MeanField(init_std=0.3),
    lb.Partial(rate=0.5, criterion="random", init_std=0.3),
    lb.Patching(members=3, where="all", init_std=0.4),
    lb.DropConnect(rate=0.3),
    lb.MCDropout(rate=0.4),
    lb.MCDropout(rate=0.4, position="after"),
]


@pytest.mark.parametrize("method", DRAWN, ids=lambda m: f"{m.name}-{getattr(m, 'position', '')}")
def test_draws_are_the_samples_of_predict(method):
    model, (x, y) = bayesian(method), labelled(4)
    found = lb.landscape(model, (x, y), points=2, draws=3, seed=7)
    assert [m["label"] for m in found["members"]] == ["draw 0", "draw 1", "draw 2"]
    assert found["of"] == "draws"
    kept = lb.predict(model, x, samples=3, seed=7, keep_samples=True).samples
    for probs, member in zip(kept, found["members"], strict=True):
        assert member["loss"] == pytest.approx(F.nll_loss(probs.log(), y).item(), rel=1e-4)


@pytest.mark.parametrize("method", [lb.SWAG(rank=3), lb.Laplace()], ids=lambda m: m.name)
def test_draws_of_fitted_posteriors_are_the_samples_of_predict(method):
    model, (x, y) = bayesian(method), labelled(4)
    options = {"epochs": 5, "lr": 0.5} if method.name == "swag" else {}
    lb.fit_posterior(model, [(x, y)], CATEGORICAL, **options)
    found = lb.landscape(model, (x, y), points=2, seed=7)
    kept = lb.predict(model, x, samples=8, seed=7, keep_samples=True).samples
    losses = [F.nll_loss(probs.log(), y).item() for probs in kept]
    assert [m["loss"] for m in found["members"]] == pytest.approx(losses, rel=1e-4)


def test_draws_of_members_are_the_samples_of_predict_too():
    model, (x, y) = bayesian(lb.Implicit(members=2, init_std=0.4, init_scale=0.3)), labelled(4)
    found = lb.landscape(model, (x, y), points=2, draws=2, seed=7)
    kept = lb.predict(model, x, samples=4, seed=7, keep_samples=True).samples
    names = ["member 0, draw 0", "member 0, draw 1", "member 1, draw 0", "member 1, draw 1"]
    assert [m["label"] for m in found["members"]] == names
    for sample, member in zip((0, 2, 1, 3), found["members"], strict=True):
        own = F.nll_loss(kept[sample].log(), y).item()
        assert member["loss"] == pytest.approx(own, rel=1e-4)


def test_masks_that_no_weight_can_hold_are_refused():
    net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    with pytest.raises(lb.ConfigError, match="masks activations"):
        lb.landscape(bayesian(lb.MCDropout(), lambda: net), labelled(4))
    method = lb.MCDropout(rate=0.4, where=lb.select.convs)
    with pytest.raises(lb.ConfigError, match="channelwise=True"):
        lb.landscape(bayesian(method, conv_net), labelled(1, 6, 6))
    method = lb.MCDropout(rate=0.4, where=lb.select.convs, channelwise=True)
    model, (x, _) = bayesian(method, conv_net), labelled(1, 6, 6)
    kept = lb.predict(model, x, samples=4, seed=0, keep_samples=True).samples
    for place, probs in zip(places(model, None, 4, 0, x), kept, strict=True):
        torch.testing.assert_close(place.net(x).softmax(1).double(), probs, rtol=1e-4, atol=1e-5)
