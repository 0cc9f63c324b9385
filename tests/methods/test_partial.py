"""Partial: random entries, points elsewhere; its two ends are known methods."""

import copy
import math

import pytest
import torch
from partial_cases import F64, batch, masks, partial, small
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.noise import FreshNoise, KeyedNoise


def test_draws_move_the_mask_alone_and_every_mean_learns():
    net = small()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    model = partial(net)
    for _, _, posterior, base in model.posteriors():
        draw = posterior.draw(base, posterior.noise(base, 1, FreshNoise()))[0]
        moved = (draw != base).flatten().nonzero().flatten()
        assert torch.equal(moved, posterior.entries)
    x, y = batch()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1), momentum=0.9)
    lb.attach_kl(optimizer, model, num_data=100)
    lb.objective(model.train(), (x, y), lb.Categorical(), include_kl=False).loss.backward()
    optimizer.step()
    for name, p in net.named_parameters():
        if ".slots." not in name:
            still = (p == before[name]).sum()
            # The norm takes the mean of its channel away, and with it the bias of the convolution.
            assert still == 0 or name == "conv.bias", name


@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_entries_of_a_transposed_convolution_are_random_like_others(preset):
    """T3.7: nothing in the mathematics prevents what the paper leaves out."""
    torch.manual_seed(0)
    net = nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, bias=False).to(F64)
    weight, x = net.weight.detach().clone(), torch.randn(5, 4, 3, 3, dtype=F64)
    model = partial(net, 0.25, "magnitude", preset=preset, init_std=0.3)
    chosen = torch.zeros(weight.numel(), dtype=torch.bool)
    chosen[net.slots["weight"].entries] = True
    assert chosen.sum() == 27
    assert weight.flatten().abs()[chosen].min() > weight.flatten().abs()[~chosen].max()
    plan = lb.Plan(groups=1, noise=KeyedNoise(0, [3]))
    noise = KeyedNoise(0, [3]).normal("weight", 1, (27,), weight)[0]
    drawn = weight.flatten().index_put((net.slots["weight"].entries,), 0.3 * noise, accumulate=True)
    expected = F.conv_transpose2d(x, drawn.reshape(weight.shape), stride=2, groups=2)
    torch.testing.assert_close(model(x, plan=plan), expected, rtol=1e-12, atol=1e-12)


def matched_pair():
    """Partial at rate 1 and MeanField with the same means, scales and prior."""
    one = partial(small(), 1.0, prior_std=0.6)
    full = lb.bayesianize(small(), lb.MeanField(prior_std=0.6))
    scales = {q.key: q for _, _, q, _ in full.posteriors()}
    with torch.no_grad():
        for _, _, q, _ in one.posteriors():
            std = scales[q.key].log_std.exp().flatten()
            q.rho.copy_(torch.log(torch.expm1(std)))
    return one, full


def test_at_rate_one_it_is_mean_field():
    one, full = matched_pair()
    torch.testing.assert_close(one.kl(), full.kl(), rtol=1e-10, atol=0)
    x, _ = batch()
    probs = [
        lb.predict(m, x, likelihood=lb.Categorical(), samples=7, seed=4).probs for m in (one, full)
    ]
    torch.testing.assert_close(*probs, rtol=1e-9, atol=1e-12)
    for (_, _, a, base), (_, _, b, _) in zip(one.posteriors(), full.posteriors(), strict=True):
        noise = torch.randn(3, *base.shape, dtype=F64)
        torch.testing.assert_close(
            a.draw(base, noise.flatten(1)), b.draw(base, noise), rtol=1e-12, atol=1e-14
        )


def test_at_rate_zero_it_is_the_network():
    net, (x, _) = small(), batch()
    plain = copy.deepcopy(net).eval()
    model = lb.bayesianize(net, lb.Partial(rate=0.0), example=x)  # nothing to rank: no data
    assert not model.method.is_random
    assert model.report.added == 0
    assert model.kl() == 0
    assert torch.equal(model.eval()(x), plain(x))
    p = lb.predict(model, x, likelihood=lb.Categorical())
    assert (p.epistemic.abs() < 1e-12).all()
    assert torch.equal(model.train()(x), plain.train()(x))


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_the_first_order_variance_is_that_of_small_scales(rate):
    """Eq. 6: Var f_c = sum over the mask of (df_c / dtheta)^2 sigma^2."""
    net, (x, y) = small().eval(), batch(4)
    params = {k: v.detach() for k, v in net.named_parameters()}
    jacobian = jacrev(lambda p: functional_call(net, p, (x,)))(params)
    model = partial(copy.deepcopy(net), rate, init_std=0.01)
    exact = 0.0
    for name, entries in masks(model).items():
        exact = exact + 1e-4 * jacobian[name].flatten(2)[..., entries].square().sum(-1)
    kept = lb.predict(
        model, x, likelihood=lb.Gaussian(), samples=4000, seed=0, keep_samples=True, chunk=50
    )
    variance = kept.samples[..., 0].var(0)
    assert ((variance / exact - 1).abs() < 5 * math.sqrt(2 / 4000)).all()
    # The score is that sum over outputs, averaged over examples.
    scores = lb.sensitivity(net, [(x, y)], lb.Categorical(), samples=3000)
    share = sum(1e-4 * scores[name].flatten()[e].sum() for name, e in masks(model).items())
    torch.testing.assert_close(share, exact.sum(1).mean(), rtol=0.03, atol=0)


def rows_of(model, x):
    """How many different rows a training pass gives for equal rows."""
    return len({tuple(row.flatten().tolist()) for row in model.train()(x)})


def test_one_draw_a_batch_but_one_a_row_where_noise_integrates_out():
    for net, x, rows in (
        (nn.Linear(7, 3), torch.ones(5, 7), 5),
        (nn.Linear(7, 3), torch.ones(5, 2, 7), 1),
        (nn.Conv2d(2, 3, 1), torch.ones(5, 2, 4, 4), 1),
    ):
        for estimator, expected in (("auto", rows), ("shared", 1), ("exemplar", 5)):
            model = partial(copy.deepcopy(net), 0.5, estimator=estimator, init_std=1.0)
            assert rows_of(model, x) == expected, (type(net), estimator)


def test_integrated_noise_has_the_law_of_explicit_draws():
    net, x = nn.Linear(5, 2).to(F64), torch.randn(3, 5, dtype=F64)
    results = []
    for estimator in ("auto", "exemplar"):
        model = partial(copy.deepcopy(net), 0.5, estimator=estimator, init_std=0.4).train()
        with torch.no_grad():
            results.append(torch.stack([model(x) for _ in range(8000)]))
    weight, bias = torch.zeros(10, dtype=F64), torch.zeros(2, dtype=F64)
    chosen = masks(model)
    weight[chosen["weight"]] = 0.16
    if "bias" in chosen:
        bias[chosen["bias"]] = 0.16
    variance = x.square() @ weight.reshape(2, 5).T + bias
    for outputs in results:
        assert ((outputs.var(0) - variance).abs() <= 0.08 * variance + 1e-20).all()


def test_means_get_no_decay_where_a_mask_has_a_prior():
    net = small()
    scores = {n: torch.full_like(p, float(n == "fc.weight")) for n, p in net.named_parameters()}
    model = lb.bayesianize(net, lb.Partial(rate=0.05), scores=scores)
    groups = {g["name"]: g for g in lb.param_groups(model, lr=0.1, weight_decay=1e-4)}
    assert [id(p) for p in groups["mean"]["params"]] == [id(net.fc.weight)]
    assert groups["mean"]["weight_decay"] == groups["posterior"]["weight_decay"] == 0
    assert groups["base"]["weight_decay"] == 1e-4
    assert len(groups["base"]["params"]) == 7


def test_a_summed_kl_is_four_nats_a_weight_and_the_mean_by_tensor_is_not():
    """T3.5: r = 1 % of a ResNet-18 would start at half a million nats."""
    net = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)).to(F64)
    for p in net.parameters():
        nn.init.zeros_(p)
    one = math.log(1 / 0.01) + 0.5e-4 - 0.5
    assert one == pytest.approx(4.1, abs=0.01)
    model = partial(copy.deepcopy(net), 0.1, "random", init_std=0.01)
    torch.testing.assert_close(model.kl().item(), one * round(0.1 * 3280), rtol=1e-9, atol=0)
    model = partial(copy.deepcopy(net), 0.1, "random", init_std=0.01, kl_reduction="tensor_mean")
    tensors = len(masks(model))
    torch.testing.assert_close(model.kl().item(), one * tensors, rtol=1e-9, atol=0)


def test_the_papers_preset():
    method = lb.Partial(preset="paper")
    assert (method.criterion, method.estimator) == ("loss_grad", "shared")
    assert (method.kl_reduction, method.default_samples) == ("tensor_mean", 5)
    assert lb.Partial(preset="paper", criterion="fisher").criterion == "fisher"
    model = partial(rate=1.0, preset="paper")
    assert {c.name for c in model.report.converted} == {"conv", "fc", "head"}  # norms stay points


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": -0.1}, "rate is the fraction of random parameters, from 0 to 1"),
        ({"rate": 1.5}, "found 1.5"),
        ({"rate": float("nan")}, "from 0 to 1"),
        ({"criterion": "hessian"}, "criterion is one of loss_grad"),
        ({"estimator": "reparam"}, "estimator is one of auto"),
        ({"kl_reduction": "mean"}, "kl_reduction is one of sum, tensor_mean"),
        ({"init_std": -1.0}, "init_std must be at least 0"),
        ({"prior_std": 0.0}, "prior_std must be a positive number"),
        ({"preset": "ours"}, "preset is 'recommended' or 'paper'"),
    ],
)
def test_bad_settings_are_refused_in_words(options, words):
    with pytest.raises(lb.ConfigError, match=words):
        lb.Partial(**options)
