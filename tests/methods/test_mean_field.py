"""Mean field: every estimator has the law that the plan fixes, and the papers' claims hold."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import leanbayes as lb

F64 = torch.float64


def converted(net, example=None, **options):
    return lb.bayesianize(net, lb.MeanField(**options), example=example).train()


def many_outputs(model, x, passes, plan=None):
    """Outputs of many passes on the same rows, [passes, rows, ...]."""
    with torch.no_grad():
        return torch.stack([model(x, plan=plan) for _ in range(passes)])


class Pooled(nn.Module):
    """A convolution and the mean over its positions."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1, bias=False)

    def forward(self, x):
        return self.conv(x).mean((2, 3))


@pytest.mark.parametrize("estimator", ["flipout", "auto", "exemplar"])
def test_conv_spread_after_pooling_is_the_exact_one(estimator):
    """Signs a pixel, as peers draw them, shrink this spread tenfold (trap T1.5)."""
    net = Pooled().to(F64)
    x = torch.rand(4, 2, 16, 16, dtype=F64)
    model = converted(net, estimator=estimator, init_std=0.3)
    outputs = many_outputs(model, x, 10_000)
    # The pooled output is linear in the kernel, so its law is known: sd * |pooled patches|.
    patches = nn.functional.unfold(x, 3, padding=1).mean(-1)  # [rows, I * 9]
    exact = 0.3 * patches.norm(dim=1)
    spread = outputs.std(0)
    assert ((spread / exact[:, None] - 1).abs() < 0.03).all()


def test_conv_flipout_keeps_the_correlation_of_neighbours_and_rows_are_uncorrelated():
    net = nn.Conv2d(1, 2, 3, padding=1, bias=False).to(F64)
    x = 1 + 0.1 * torch.rand(3, 1, 6, 6, dtype=F64)
    model = converted(net, init_std=0.5)
    y = many_outputs(model, x, 6_000)[..., 2:4, 2]  # [passes, rows, O, 2 neighbours]
    neighbours = torch.corrcoef(y[:, 0, 0].T)[0, 1]
    assert neighbours > 0.8
    rows = torch.corrcoef(y[:, :, 0, 0].T) - torch.eye(3, dtype=F64)
    channels = torch.corrcoef(y[:, 0, :, 0].T) - torch.eye(2, dtype=F64)
    assert rows.abs().max() < 5 / math.sqrt(6_000)
    assert channels.abs().max() < 5 / math.sqrt(6_000)


def moments(outputs):
    flat = outputs.flatten(1)
    return flat.mean(0), torch.cov(flat.T)


def test_local_has_the_law_of_exemplar_on_linear():
    x = torch.randn(3, 5, dtype=F64)
    net = nn.Linear(5, 2).to(F64)
    passes = 10_000
    results = {}
    for estimator in ("local", "exemplar", "auto", "flipout"):
        copy = nn.Linear(5, 2).to(F64)
        copy.load_state_dict(net.state_dict())
        model = converted(copy, estimator=estimator, init_std=0.4)
        results[estimator] = moments(many_outputs(model, x, passes))
    variance = 0.16 * (x.square().sum(1) + 1)
    exact = torch.diag(variance.repeat_interleave(2))
    for mean, covariance in results.values():
        assert (mean - net(x).flatten()).abs().max() < 5 * float(variance.max().sqrt()) / math.sqrt(
            passes
        )
        assert (covariance - exact).abs().max() < 0.08 * float(variance.max())


def test_local_draws_less_noise_into_the_scale_gradient_than_exemplar():
    """T1.5: the local gradient of psi is the conditional mean of the exemplar one."""
    x, target = torch.randn(8, 20, dtype=F64), torch.randn(8, 4, dtype=F64)
    variances = {}
    for estimator in ("local", "exemplar"):
        torch.manual_seed(1)
        model = converted(nn.Linear(20, 4).to(F64), estimator=estimator, init_std=0.3)
        psi = model.net.slots["weight"].log_std
        grads = [
            torch.autograd.grad((model(x) - target).square().mean(), psi)[0] for _ in range(800)
        ]
        stacked = torch.stack(grads)
        variances[estimator] = stacked.var(0).mean()
        variances[estimator, "mean"] = stacked.mean(0)
    assert variances["exemplar"] / variances["local"] > 1.5
    gap = (variances["local", "mean"] - variances["exemplar", "mean"]).abs().mean()
    assert gap < 4 * (variances["exemplar"] / 800).sqrt()


def gradient_variance(estimator, runs=300, batch=32):
    """The toy of methods.md 2.0 (P21) at a smaller batch: variance over runs of the gradient."""
    torch.manual_seed(3)
    net = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(net.weight, mode="fan_out")
    x, target = torch.rand(batch, 3, 16, 16), torch.rand(batch, 16, 16, 16)
    model = converted(net, estimator=estimator)
    targets = [net.weight, net.slots["weight"].log_std]
    grads = [torch.autograd.grad((model(x) - target).square().mean(), targets) for _ in range(runs)]
    return [torch.stack(g).var(0).mean() for g in zip(*grads, strict=True)]


def test_gradient_variance_falls_by_the_batch_size():
    """T1.4: the paper's '>100x' is 1 / B of independent draws; Flipout reaches it with one."""
    shared, exemplar = gradient_variance("shared"), gradient_variance("exemplar")
    for a, b in zip(shared, exemplar, strict=True):
        assert abs(a / b / 32 - 1) < 0.2
    flipout = gradient_variance("flipout")
    for a, b in zip(shared, flipout, strict=True):
        assert a / b > 0.6 * 32


def test_shared_draws_of_long_blocks_are_independent_and_cost_one_product():
    """Flipout would give all blocks the same noise but for its signs, at twice the products."""
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Linear(1, 1, bias=False), lb.MeanField(estimator="shared")).train()
    x = torch.ones(16, 1)
    gaps = []
    for _ in range(200):
        y = model(x, plan=lb.Plan(groups=2)).reshape(2, 8)
        assert (y == y[:, :1]).all()
        gaps.append(y[:, 0] - model.net.weight[0, 0])
    first, second = torch.stack(gaps).abs().detach().unbind(1)
    assert (first != second).all()
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 0.23  # 99.9 % of 200 pairs
    convolution = nn.Conv2d(3, 4, 3, bias=False)
    wide = lb.bayesianize(convolution, lb.MeanField(estimator="shared")).train()
    images = torch.randn(32, 3, 6, 6)
    found = []
    for groups in (1, 4, 8):
        with FlopCounterMode(display=False) as count:
            wide(images, plan=lb.Plan(groups=groups))
        found.append(count.get_total_flops() / (2 * 32 * 4 * 27 * 16))
    assert found == [1, 1, 2]  # blocks of 4 rows have signs


def test_shared_draws_once_a_batch_and_auto_once_a_row():
    x = torch.ones(5, 7)
    for estimator, distinct in (("shared", 1), ("auto", 5), ("exemplar", 5), ("flipout", 5)):
        y = converted(nn.Linear(7, 3), estimator=estimator, init_std=1.0)(x)
        assert len({tuple(row.tolist()) for row in y}) == distinct, estimator


@pytest.mark.parametrize(("groups", "rows", "draws"), [(4, 8, 4), (1, 8, 1), (8, 8, 8), (5, 8, 4)])
def test_exemplar_by_groups_draws_so_often_a_batch(groups, rows, draws):
    model = converted(nn.Linear(7, 3), estimator="exemplar", groups=groups, init_std=1.0)
    y = model(torch.ones(rows, 7))
    assert len({tuple(row.tolist()) for row in y}) == draws
    blocks = y.reshape(draws, -1, 3)
    assert torch.equal(blocks, blocks[:, :1].expand_as(blocks))


def test_tokens_of_a_row_share_the_weight():
    """Local noise would be independent by token: a Linear on [B, T, I] takes Flipout."""
    model = converted(nn.Linear(4, 3), init_std=1.0)
    x = torch.ones(2, 5, 4)
    y = model(x)
    assert torch.allclose(y, y[:, :1].expand_as(y))
    assert not torch.allclose(y[0], y[1])
    flat = model(x, plan=lb.Plan(groups=2, per_row=False))
    assert torch.allclose(flat, flat[:, :1].expand_as(flat))


def test_prior_from_weight_decay_is_the_papers():
    method = lb.MeanField(weight_decay=2e-4, num_data=50_000)
    assert method.resolved_prior_std() == pytest.approx(math.sqrt(0.1), rel=1e-12)
    model = lb.bayesianize(nn.Linear(3, 2), method)
    assert model.net.slots["weight"].prior_std == method.resolved_prior_std()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prior_std": 1.0, "weight_decay": 1e-4, "num_data": 10}, "same thing twice"),
        ({"weight_decay": 1e-4}, "weight_decay needs num_data"),
        ({"prior_std": 0.0}, "prior_std must be a positive number"),
        ({"prior_std": float("nan")}, "prior_std must be a positive number"),
        ({"weight_decay": 1e-4, "num_data": 0}, "num_data must be a positive number"),
        ({"estimator": "reparam"}, "estimator must be one of auto, shared"),
        ({"groups": 4}, "estimator='exemplar'"),
        ({"estimator": "exemplar", "groups": 0}, "at least 1"),
        ({"init_std": -1.0}, "init_std must be at least 0"),
    ],
)
def test_bad_settings_are_refused_in_words(options, words):
    with pytest.raises(lb.ConfigError, match=words):
        lb.MeanField(**options)


def test_methods_json_round_trip():
    method = lb.MeanField(
        estimator="exemplar", groups=4, prior_std=0.3, select=lb.select.norms | lb.select.output
    )
    entry = method.to_json()
    assert lb.methods()[entry["name"]].from_json(entry["fields"]) == method


def test_the_papers_preset_sets_the_networks_own_dropout_to_zero_until_it_is_collapsed():
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))
    model = lb.bayesianize(net, lb.MeanField(preset="paper"), example=torch.randn(5, 4))
    assert net[1].p == 0
    assert "dropout is switched off: 1" in str(model.report)
    assert lb.collapse(model)[1].p == 0.3


def test_a_prior_around_the_weights_holds_them_there_and_comes_from_the_file(tmp_path):
    """Without data the mean goes back to where it was converted, whatever has happened since."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)).double()
    trained = copy.deepcopy(net)
    model = lb.bayesianize(net, lb.MeanField(prior_std=0.1, prior_mean="weights"))
    assert model.kl() < lb.bayesianize(copy.deepcopy(trained), lb.MeanField(prior_std=0.1)).kl()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.rand_like(parameter) * parameter.requires_grad)
    lb.save(model, tmp_path / "model")
    again = lb.load(copy.deepcopy(trained), tmp_path / "model")
    torch.testing.assert_close(again.kl(), model.kl(), rtol=1e-14, atol=0)
    opt = torch.optim.SGD(lb.param_groups(again, lr=0.1, posterior_lr=0.01))
    lb.attach_kl(opt, again, num_data=100)
    for _ in range(300):
        opt.zero_grad()
        opt.step()
    for found, expected in zip(lb.collapse(again).parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_a_prior_mean_that_does_not_exist_is_refused():
    with pytest.raises(lb.ConfigError, match="zero, weights"):
        lb.MeanField(prior_mean="trained")
