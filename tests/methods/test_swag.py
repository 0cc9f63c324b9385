"""SWAG: its moments are those of the iterates, and layers vary together."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.noise import KeyedNoise, PortableNoise
from leanbayes.plan import Plan

F64 = torch.float64


def problem(rows=24):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 3, dtype=F64, generator=generator)
    return x, torch.randint(0, 2, (rows,), generator=generator)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).to(F64)


def batches():
    x, y = problem()
    return list(zip(x.split(8), y.split(8), strict=True))


def explicit_iterates(plain, epochs, lr, momentum, weight_decay, every=None):
    """Parameters of every collected step, by torch's own SGD, [T] dicts of numpy arrays."""
    plain.train()
    options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
    optimizer = torch.optim.SGD(plain.parameters(), **options)
    kept, step = [], 0
    for _ in range(epochs):
        for x, y in batches():
            optimizer.zero_grad()
            nn.functional.cross_entropy(plain(x), y).backward()
            optimizer.step()
            step += 1
            if step % (every or len(batches())) == 0:
                kept.append({n: p.detach().clone().numpy() for n, p in plain.named_parameters()})
    return kept


def fitted(rank=3, method=None, **options):
    torch.manual_seed(1)
    plain = net()
    model = lb.bayesianize(copy.deepcopy(plain), method or lb.SWAG(rank=rank))
    found = lb.fit_posterior(model, batches(), lb.Categorical(), lr=0.2, **options)
    return plain, model, found


def by_name(model):
    """Posterior and mean of every tensor."""
    return {q.key: (q, base.detach().numpy()) for _, _, q, base in model.posteriors()}


@pytest.mark.parametrize(("every", "count"), [(None, 6), (2, 9)])
def test_mean_variance_and_deviations_are_those_of_the_iterates(every, count):
    options = {"epochs": 6, "momentum": 0.5, "weight_decay": 0.01}
    plain, model, found = fitted(rank=3, collect_every=every, **options)
    iterates = explicit_iterates(plain, 6, 0.2, 0.5, 0.01, every)
    assert found["collected"] == len(iterates) == count
    for name, (posterior, mean) in by_name(model).items():
        values = np.stack([iterate[name] for iterate in iterates])
        np.testing.assert_allclose(mean, values.mean(0), rtol=1e-9)
        std = np.sqrt((np.mean(values**2, 0) - values.mean(0) ** 2).clip(0) / 2)
        np.testing.assert_allclose(posterior.std, std, rtol=1e-6, atol=1e-9)
        running = np.cumsum(values, 0) / np.arange(1, count + 1).reshape(-1, *[1] * mean.ndim)
        last = (values - running)[-3:] / math.sqrt(2 * (3 - 1))
        order = [(t % 3) for t in range(count - 3, count)]  # the oldest gives way
        np.testing.assert_allclose(posterior.deviations[order], last, rtol=1e-7, atol=1e-10)


def test_rank_zero_is_the_diagonal_without_the_half():
    plain, model, _ = fitted(rank=0, epochs=4, momentum=0.0)
    iterates = explicit_iterates(plain, 4, 0.2, 0.0, 0.0)
    for name, (posterior, _) in by_name(model).items():
        values = np.stack([iterate[name] for iterate in iterates])
        np.testing.assert_allclose(posterior.std, values.std(0), rtol=1e-7, atol=1e-10)
        assert posterior.deviations is None


def test_scale_multiplies_the_covariance():
    _, one, _ = fitted(epochs=4)
    _, four, _ = fitted(epochs=4, scale=4.0)
    for (a, mean), (b, same) in zip(by_name(one).values(), by_name(four).values(), strict=True):
        np.testing.assert_array_equal(mean, same)
        torch.testing.assert_close(b.std, 2 * a.std)
        torch.testing.assert_close(b.deviations, 2 * a.deviations)


class TwoWeights(nn.Module):
    """The output is the two weights themselves: draws can be read off."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return torch.cat([self.a(x), self.b(x)], 1)


class Thrice(TwoWeights):
    """The first layer runs twice, so that its noise is drawn before the pass."""

    def forward(self, x):
        return torch.cat([(self.a(x) + self.a(x)) / 2, self.b(x)], 1)


def with_known_law(net_type):
    net, x = net_type().to(F64), torch.ones(2, 1, dtype=F64)
    model = lb.bayesianize(net, lb.SWAG(rank=3), example=x).eval()
    columns = torch.tensor([[0.5, -0.2, 0.1], [0.6, -0.3, 0.4]], dtype=F64)
    stds = torch.tensor([0.2, 0.1], dtype=F64)
    with torch.no_grad():
        for layer, column, std in zip((net.a, net.b), columns, stds, strict=True):
            layer.slots["weight"].std.fill_(std)
            layer.slots["weight"].deviations.copy_(column.reshape(3, 1, 1))
    mean = torch.cat([net.a.weight, net.b.weight]).flatten().detach()
    return model, mean, columns @ columns.T + torch.diag(stds**2)


@pytest.mark.parametrize("net_type", [TwoWeights, Thrice])
@pytest.mark.parametrize("keyed", [False, True])
def test_draws_have_the_covariance_of_the_law_across_layers(net_type, keyed):
    model, mean, covariance = with_known_law(net_type)
    draws = 8_000
    noise = KeyedNoise(5, range(draws)) if keyed else None
    with torch.no_grad():
        values = model(torch.ones(draws, 1, dtype=F64), plan=Plan(groups=draws, noise=noise))
    # Standard errors of means and covariances are below 0.009 and 0.010 here.
    assert (values.mean(0) - mean).abs().max() < 0.036
    assert (torch.cov(values.T) - covariance).abs().max() < 0.04
    assert covariance[0, 1] > 0.3


def test_two_passes_take_new_common_noise():
    model, _, _ = with_known_law(TwoWeights)
    with torch.no_grad():
        model.net.a.slots["weight"].std.zero_()
        x = torch.ones(1, 1, dtype=F64)
        values = [model(x, plan=Plan())[0, 0].item() for _ in range(4)]
    assert len(set(values)) == 4


def test_training_runs_the_mean_network_without_kl_or_learnt_scales():
    model = lb.bayesianize(net(), lb.SWAG(rank=2, init_std=0.5)).train()
    x, y = problem()
    result = lb.objective(model, (x, y), lb.Categorical(), num_data=24)
    torch.testing.assert_close(result.loss, nn.functional.cross_entropy(lb.collapse(model)(x), y))
    assert (result.kl, model.kl_kind) == (0, "none")
    groups = lb.param_groups(model, lr=0.1, weight_decay=0.01)
    assert [(g["name"], g["weight_decay"]) for g in groups] == [("base", 0.01)]


def test_batchnorm_has_the_statistics_of_the_average():
    _, model, _ = fitted(epochs=4)
    x, _ = problem()
    activations = model.net[0](x).detach()
    torch.testing.assert_close(model.net[1].running_mean, activations.mean(0))
    torch.testing.assert_close(model.net[1].running_var, activations.var(0))
    _, stale, _ = fitted(epochs=4, refresh=False)
    assert not torch.allclose(stale.net[1].running_mean, activations.mean(0))


def test_modes_come_back_gradients_go_and_the_likelihood_stays():
    model = lb.bayesianize(net(), lb.SWAG(rank=2))
    model.net[1].eval()
    modes = [m.training for m in model.modules()]
    likelihood = lb.Categorical()
    lb.fit_posterior(model, batches(), likelihood, epochs=2)
    assert [m.training for m in model.modules() if m is not likelihood] == modes
    assert all(p.grad is None for p in model.parameters())
    p = lb.predict(model, problem()[0], samples=4, seed=0)  # needs no likelihood any more
    assert (p.epistemic > 0).all()


def test_parameters_without_a_slot_are_averaged_and_frozen_ones_stay():
    torch.manual_seed(1)
    plain = net()
    plain[3].bias.requires_grad_(False)
    model = lb.bayesianize(copy.deepcopy(plain), lb.SWAG(rank=2, select=lb.select.output))
    lb.fit_posterior(model, batches(), lb.Categorical(), lr=0.2, epochs=3, momentum=0.0)
    iterates = explicit_iterates(plain, 3, 0.2, 0.0, 0.0)
    expected = np.mean([iterate["0.weight"] for iterate in iterates], 0)
    np.testing.assert_allclose(model.net[0].weight.detach(), expected, rtol=1e-9)
    bias = model.net[3].slots["bias"]
    assert torch.equal(model.net[3].bias, plain[3].bias)
    assert bias.std.abs().sum() == bias.deviations.abs().sum() == 0


def test_the_padding_row_has_no_noise_before_or_after():
    words = nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Flatten(), nn.Linear(6, 2))
    model = lb.bayesianize(words, lb.SWAG(rank=2))
    posterior = words[0].slots["weight"]
    assert posterior.std[0].eq(0).all()
    assert posterior.std[1:].eq(0.005).all()
    x, y = torch.randint(0, 5, (8, 2)), torch.arange(8) % 2
    lb.fit_posterior(model, [(x, y)], lb.Categorical(), epochs=3)
    assert posterior.std[0].eq(0).all()
    assert posterior.deviations[:, 0].eq(0).all()
    assert posterior.std[1:].gt(0).any()


def test_a_fitted_model_predicts_the_same_when_loaded(tmp_path):
    _, model, _ = fitted(epochs=4)
    x, _ = problem()
    lb.save(model, tmp_path / "saved")
    again = lb.load(net(), tmp_path / "saved")
    expected = lb.predict(model, x, samples=5, seed=2).probs
    assert torch.equal(lb.predict(again, x, samples=5, seed=2).probs, expected)


def test_a_batch_without_a_label_moves_nothing():
    x, _ = problem(8)
    empty = x, torch.full((8,), -100)
    found = []
    for data in (batches(), [*batches(), empty]):
        torch.manual_seed(1)
        model = lb.bayesianize(net(), lb.SWAG(rank=2))
        options = {"lr": 0.2, "momentum": 0.0, "epochs": 3}
        figures = lb.fit_posterior(model, data, lb.Categorical(), **options)
        assert all(math.isfinite(value) for value in figures.values())
        found.append(torch.cat([p.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_iterates_that_are_lost_are_found_where_the_last_batch_has_no_label():
    x, _ = problem(8)
    model = lb.bayesianize(net(), lb.SWAG(rank=2))
    data = [*batches(), (x, torch.full((8,), -100))]
    with torch.no_grad():
        model.net[3].weight[0, 0] = math.nan
    with pytest.raises(lb.ConfigError, match="the loss is nan after 4 steps"):
        lb.fit_posterior(model, data, lb.Categorical(), epochs=3)


def test_a_learnt_noise_is_not_moved():
    likelihood = lb.Gaussian(precision=2.0, learn=True)
    model = lb.bayesianize(nn.Linear(3, 1).to(F64), lb.SWAG(rank=2))
    x, _ = problem()
    lb.fit_posterior(model, [(x, x[:, :1])], likelihood, epochs=3)
    assert likelihood.log_precision.item() == pytest.approx(math.log(2))
    assert likelihood.log_precision.grad is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 2}, "collected 2 iterates, fewer than rank=3"),
        ({"learning_rate": 0.1}, "no option learning_rate; expected some of lr, epochs"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"epochs": 0}, "epochs, collect_every and draw_batches must be at least 1"),
        ({"lr": 1e308, "epochs": 3}, "loss is .* smaller lr"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    model = lb.bayesianize(net(), lb.SWAG(rank=3))
    with pytest.raises(lb.ConfigError, match=message):
        lb.fit_posterior(model, batches(), lb.Categorical(), **options)


@pytest.mark.parametrize("rank", [1, -2, True, 2.5])
def test_one_deviation_is_no_covariance(rank):
    with pytest.raises(lb.ConfigError, match=r"rank must be (at least 2, or 0|a whole number)"):
        lb.SWAG(rank=rank)


def test_loaders_that_end_early_or_give_no_targets_are_refused():
    model = lb.bayesianize(net(), lb.SWAG(rank=2))
    with pytest.raises(lb.ConfigError, match="no batches"):
        lb.fit_posterior(model, [], lb.Categorical())
    with pytest.raises(lb.ConfigError, match="read only once"):
        lb.fit_posterior(model, iter(batches()), lb.Categorical(), epochs=3)
    with pytest.raises(lb.ConfigError, match=r"found Tensor; a single batch is written \[\(inputs"):
        lb.fit_posterior(model, problem(), lb.Categorical())
    with pytest.raises(lb.ConfigError, match="needs a likelihood"):
        lb.fit_posterior(model, batches(), None)


def test_methods_that_learn_their_posterior_say_where_to_go():
    model = lb.bayesianize(net(), lb.MeanField())
    with pytest.raises(lb.ConfigError, match=r"mean_field learns.*lb\.Laplace, lb\.SWAG"):
        lb.fit_posterior(model, batches(), lb.Categorical())


# Draws with statistics of their own.


def wide_draws(draws=None, **options):
    """A network whose first layer varies so much that the average's statistics fit no draw."""
    torch.manual_seed(1)
    method = lb.SWAG(rank=3, draws=draws)
    model = lb.bayesianize(net(), method, example=problem()[0])
    found = lb.fit_posterior(model, batches(), lb.Categorical(), lr=0.2, epochs=4, **options)
    return model, found


def drawn_network(model, k):
    """Draw k as a plain network, by its definition; BatchNorm has the average's statistics."""
    source = (PortableNoise if model.method.draws else KeyedNoise)(0, [k])
    plain = copy.deepcopy(net())
    plain.load_state_dict(lb.collapse(copy.deepcopy(model)).state_dict())
    tensors = dict(plain.named_parameters())
    with torch.no_grad():
        for key, (q, _) in by_name(model).items():
            if key in tensors:
                base = tensors[key]
                base.copy_(q.draw(base, q.noise(base, 1, source))[0])
    return plain


@pytest.mark.parametrize("limit", [None, 2])
def test_fixed_draws_have_the_statistics_that_their_own_activations_have(limit):
    model, _ = wide_draws(draws=3, draw_batches=limit)
    x, _ = problem()
    probs = []
    for k in range(3):
        plain = drawn_network(model, k)
        lb.refresh_batchnorm(plain, batches()[:limit])
        with torch.no_grad():
            probs.append(plain.eval()(x).softmax(1))
    every = lb.predict(model, x, keep_samples=True)
    assert len(every.samples) == 3
    torch.testing.assert_close(every.samples, torch.stack(probs), rtol=1e-9, atol=1e-9)
    # The seed has no say, draws come in turn, and chunks do not matter.
    more = lb.predict(model, x, samples=6, seed=5, keep_samples=True, chunk=4).samples
    torch.testing.assert_close(more, torch.stack(probs * 2), rtol=1e-9, atol=1e-9)


def test_without_fixed_draws_all_share_the_statistics_of_the_average():
    model, _ = wide_draws()
    x, _ = problem()
    plain = drawn_network(model, 1)  # with the statistics of the average
    with torch.no_grad():
        expected = plain.eval()(x).softmax(1)
    found = lb.predict(model, x, samples=2, seed=0, keep_samples=True).samples[1]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_until_they_are_measured_draws_follow_the_statistics_of_training():
    model = lb.bayesianize(net(), lb.SWAG(rank=2, draws=4, init_std=0.0))
    x, _ = problem()
    before = lb.predict(model, x, likelihood=lb.Categorical()).probs
    with torch.no_grad():
        model.train()(x * 3)  # moves the running statistics
    plain = lb.collapse(copy.deepcopy(model)).eval()
    after = lb.predict(model, x, likelihood=lb.Categorical()).probs
    with torch.no_grad():
        torch.testing.assert_close(after, plain(x).softmax(1))
    assert not torch.allclose(before, after)


def test_fixed_draws_survive_a_checkpoint(tmp_path):
    model, _ = wide_draws(draws=3)
    x, _ = problem()
    lb.save(model, tmp_path / "swag")
    again = lb.load(net(), tmp_path / "swag")
    found = [lb.predict(m, x, keep_samples=True).samples for m in (model, again)]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    assert again.method.draws == 3


def test_a_network_without_batchnorm_has_fixed_draws_too():
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(F64)
    model = lb.bayesianize(plain, lb.SWAG(rank=2, draws=3))
    lb.fit_posterior(model, batches(), lb.Categorical(), lr=0.2, epochs=3)
    x, _ = problem()
    one, two = (lb.predict(model, x, samples=3, seed=s).probs for s in (0, 1))
    assert torch.equal(one, two)
    assert lb.predict(model, x, keep_samples=True).samples.std(0).max() > 0


def test_the_loss_of_draws_is_told_and_lost_draws_are_warned_of():
    _, found = wide_draws()
    assert found["mean_loss"] < found["draw_loss"] < found["mean_loss"] + 1
    with pytest.warns(UserWarning, match=r"loss .* of a few draws .* Write draws with BatchNorm"):
        wide_draws(scale=1e4)


@pytest.mark.parametrize("draws", [0, -1, True, 1.5])
def test_draws_are_a_number_or_none(draws):
    with pytest.raises(lb.ConfigError, match="draws must be a whole number of at least 1"):
        lb.SWAG(draws=draws)


def test_compiled_predictions_take_the_same_fixed_draws():
    model, _ = wide_draws(draws=3)
    x, _ = problem()
    plain = lb.predict(model, x, seed=1).probs
    compiled = lb.predict(torch.compile(model, backend="eager"), x, seed=2).probs
    torch.testing.assert_close(compiled, plain)
