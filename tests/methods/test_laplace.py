"""Laplace: exact where the model is, and the Gauss-Newton matrix of the likelihood elsewhere."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

import leanbayes as lb

F64 = torch.float64


def regression(rows=30, inputs=3, outputs=1):
    generator = torch.Generator().manual_seed(2)
    mix = torch.eye(inputs, dtype=F64) + 0.5  # correlated inputs
    x = torch.randn(rows, inputs, dtype=F64, generator=generator) @ mix
    return x, torch.randn(rows, outputs, dtype=F64, generator=generator)


def labelled(x, classes=3):
    return x, torch.arange(len(x)) % classes


def converted(net, **options):
    return lb.bayesianize(net.to(F64), lb.Laplace(**options))


def batches(data, size=7):
    x, y = data
    return list(zip(x.split(size), y.split(size), strict=True))


def deep(outputs=3):
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)).to(F64)


def gauss_newton(net, x, output_hessian):
    """J^T H J summed over rows, by functional Jacobians: dense, [P, P]."""
    names = dict(net.named_parameters())
    total = 0
    for row in x:
        jac = torch.func.jacrev(lambda p, r=row: functional_call(net, p, (r[None],))[0])(names)
        flat = torch.cat([jac[name].flatten(1) for name in names], 1)
        total = total + flat.T @ output_hessian(net(row[None])[0].detach()) @ flat
    return total


def softmax_hessian(f):
    p = torch.softmax(f, 0)
    return torch.diag(p) - torch.outer(p, p)


HESSIANS = {
    "Categorical": (lb.Categorical(), softmax_hessian),
    "Bernoulli": (lb.Bernoulli(), lambda f: torch.diag(f.sigmoid() * (1 - f.sigmoid()))),
    "Gaussian": (lb.Gaussian(precision=3.0), lambda f: 3.0 * torch.eye(len(f), dtype=F64)),
}


def targets_for(likelihood, rows, outputs=3):
    if isinstance(likelihood, lb.Categorical):
        return torch.arange(rows) % outputs
    return torch.zeros(rows, outputs, dtype=F64)


def stds(model):
    return torch.cat([q.std.flatten() for _, _, q, _ in model.posteriors()])


def test_diagonal_of_a_linear_regression_is_the_closed_form():
    x, y = regression()
    model = converted(nn.Linear(3, 1), prior_std=0.8)
    found = lb.fit_posterior(model, batches((x, y)), lb.Gaussian(precision=4.0), probes=None)
    precision = 4 * x.square().sum(0) + 1 / 0.8**2
    torch.testing.assert_close(model.net.slots["weight"].std[0], precision.rsqrt())
    bias = torch.tensor([4 * 30 + 1 / 0.8**2], dtype=F64).rsqrt()
    torch.testing.assert_close(model.net.slots["bias"].std, bias)
    assert (found["num_data"], found["prior_std"]) == (30, 0.8)


@pytest.mark.parametrize("name", HESSIANS)
def test_exact_diagonal_is_that_of_the_gauss_newton_matrix(name):
    likelihood, output_hessian = HESSIANS[name]
    net, (x, _) = deep(), regression(rows=10)
    matrix = gauss_newton(net, x, output_hessian)
    model = converted(copy.deepcopy(net), prior_std=2.0)
    data = batches((x, targets_for(likelihood, 10)))
    lb.fit_posterior(model, data, likelihood, probes=None)
    torch.testing.assert_close(stds(model), (matrix.diagonal() + 0.25).rsqrt())


@pytest.mark.parametrize("width", [2, 5])
def test_maps_of_targets_have_the_precision_of_their_channel(width):
    """As many columns as channels too, where a precision a channel would fit the columns."""
    net, x = nn.Conv2d(1, 2, 1).to(F64), torch.randn(3, 1, 4, width, dtype=F64)
    model = lb.bayesianize(net, lb.Laplace(prior_std=2.0))
    precision = torch.tensor([3.0, 0.5], dtype=F64)
    likelihood = lb.Gaussian(precision=precision.tolist())
    lb.fit_posterior(model, [(x, net(x).detach())], likelihood, probes=None)
    squares = torch.stack([x.square().sum(), torch.tensor(float(x.numel()), dtype=F64)])
    found = torch.stack([net.slots[name].std.flatten() for name in ("weight", "bias")])
    torch.testing.assert_close(found, (squares[:, None] * precision + 0.25).rsqrt())


@pytest.mark.parametrize("name", HESSIANS)
def test_random_signs_estimate_the_diagonal_without_bias(name):
    likelihood, output_hessian = HESSIANS[name]
    net, (x, _) = deep(), regression(rows=10)
    diagonal = gauss_newton(net, x, output_hessian).diagonal()
    model = converted(copy.deepcopy(net), prior_std=1e6)
    data = [(x, targets_for(likelihood, 10))]
    lb.fit_posterior(model, data, likelihood, probes=3000, seed=0)
    estimate = stds(model) ** -2
    # A squared sum of signs has a relative spread below sqrt(2): 0.026 after 3000 probes.
    assert (estimate / diagonal - 1).abs().max() < 0.11
    assert abs((estimate / diagonal).mean() - 1) < 0.02


def test_a_seed_fixes_the_signs_and_leaves_the_global_generator():
    data = batches(labelled(regression()[0]))
    results, state = [], torch.get_rng_state()
    for seed in (1, 1, 2):
        model = converted(deep())
        state = torch.get_rng_state()
        lb.fit_posterior(model, data, lb.Categorical(), seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        results.append(stds(model))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_last_layer_variants_convert_the_output_alone():
    for options in ({"structure": "kronecker"}, {"where": "last_layer"}):
        model = lb.bayesianize(deep(), lb.Laplace(**options), example=torch.randn(2, 3, dtype=F64))
        assert [layer.name for layer in model.report.converted] == ["2"]
        data = batches(labelled(regression()[0]))
        lb.fit_posterior(model, data, lb.Categorical())
        p = lb.predict(model, data[0][0], samples=6, seed=0)
        assert (p.epistemic > 1e-8).all()


def test_ignored_labels_do_not_count():
    x, y = labelled(regression()[0])
    some = y.clone()
    some[::2] = -100
    for options in ({}, {"structure": "kronecker"}):
        results = []
        for data in ((x, some), (x[1::2], y[1::2])):
            model = converted(deep(), **options)
            found = lb.fit_posterior(model, [data], lb.Categorical(), probes=None)
            assert found["num_data"] == 15
            results.append(torch.cat([p.flatten() for p in model.parameters()]))
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_labels_of_another_shape_are_refused_in_words(structure):
    x, y = labelled(regression()[0])
    model = converted(deep(), structure=structure)
    with pytest.raises(lb.ConfigError, match="expects whole-number labels of shape"):
        lb.fit_posterior(model, [(x, y[:, None])], lb.Categorical())


@pytest.mark.parametrize("options", [{}, {"num_data": 100}])
def test_data_without_any_label_are_refused(options):
    x, y = labelled(regression()[0])
    model = converted(deep())
    with pytest.raises(lb.DataError, match="no datum has a label"):
        lb.fit_posterior(model, [(x, torch.full_like(y, -100))], lb.Categorical(), **options)


def test_a_last_batch_without_a_label_is_no_reason_to_warn(recwarn):
    x, y = labelled(regression()[0])
    data = [(x, y), (x, torch.full_like(y, -100))]
    found = lb.fit_posterior(converted(deep(), prior_std=1e-3), data, lb.Categorical())
    assert found["draw_loss"] == found["mean_loss"] == 0
    assert not recwarn.list


def test_a_part_of_the_data_stands_for_the_whole():
    x, y = regression()
    twice = [(x, y), (x, y)]
    for options in ({}, {"structure": "kronecker"}):
        both, half = converted(nn.Linear(3, 1), **options), converted(nn.Linear(3, 1), **options)
        lb.fit_posterior(both, twice, lb.Gaussian(), probes=None)
        lb.fit_posterior(half, [(x, y)], lb.Gaussian(), probes=None, num_data=60)
        for (_, _, a, _), (_, _, b, _) in zip(both.posteriors(), half.posteriors(), strict=True):
            for p, q in zip(a.parameters(), b.parameters(), strict=True):
                torch.testing.assert_close(p.abs(), q.abs())


def test_a_fitted_prior_narrows_a_network_that_a_wide_one_ruins():
    data = batches(labelled(regression()[0]))
    wide, fitted = converted(deep(), prior_std=100.0), converted(deep())
    with pytest.warns(UserWarning, match=r"far from what was trained.* predictive='linearised'"):
        lost = lb.fit_posterior(wide, data, lb.Categorical(), seed=0)
    assert lost["draw_loss"] > lost["mean_loss"] + 1
    found = lb.fit_posterior(fitted, data, lb.Categorical(), seed=0, prior="fit")
    assert found["prior_std"] < 10
    assert stds(fitted).max() < stds(wide).max()


def test_frozen_networks_modes_and_gradients_are_left_as_they_were():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)).to(F64)
    net.requires_grad_(False)
    model = converted(net, prior_std=0.3).train()
    state = copy.deepcopy({k: v for k, v in net.state_dict().items() if "slots" not in k})
    lb.fit_posterior(model, batches(labelled(regression()[0])), lb.Categorical())
    assert all(m.training for m in model.modules() if m is not model.likelihood)
    assert not any(p.requires_grad for p in model.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(net.state_dict()[key], value) for key, value in state.items())
    assert all((q.std > 0.01).all() for _, _, q, _ in model.posteriors())  # 0.005 before


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
@pytest.mark.parametrize("posterior_only", [False, True])
def test_a_fitted_model_predicts_the_same_when_loaded(structure, posterior_only, tmp_path):
    model = converted(deep(), structure=structure)
    data = batches(labelled(regression()[0]))
    lb.fit_posterior(model, data, lb.Categorical())
    lb.save(model, tmp_path / "saved", posterior_only=posterior_only)
    again = lb.load(deep(), tmp_path / "saved")
    x = data[0][0]
    expected = lb.predict(model, x, samples=5, seed=2).probs
    assert torch.equal(lb.predict(again, x, samples=5, seed=2).probs, expected)
    run = torch.compile(again, backend="eager")
    torch.testing.assert_close(lb.predict(run, x, samples=5, seed=2).probs, expected)
    torch._dynamo.reset()


def test_images_of_labels_count_by_pixel():
    net = nn.Conv2d(2, 3, 1).to(F64)
    x, y = torch.randn(2, 2, 3, 3, dtype=F64), torch.randint(0, 3, (2, 3, 3))
    model = converted(net)
    found = lb.fit_posterior(model, [(x, y)], lb.Categorical(), probes=None)
    pixels = x.permute(0, 2, 3, 1).reshape(-1, 2)
    p = torch.softmax(net(x), 1).permute(0, 2, 3, 1).reshape(-1, 3).detach()
    expected = (p * (1 - p)).T @ pixels.square() + 1
    torch.testing.assert_close(net.slots["weight"].std[:, :, 0, 0], expected.rsqrt())
    assert found["num_data"] == 18


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "full"}, "structure is diagonal or kronecker"),
        ({"structure": "kronecker", "where": "all"}, "for the last layer"),
        ({"where": "first"}, "where is all or last_layer"),
        ({"prior_std": 1.0, "weight_decay": 1e-4}, "same thing twice"),
        ({"init_std": -1.0}, "init_std must be at least 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(lb.ConfigError, match=message):
        lb.Laplace(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"probes": 0}, "probes"), ({"prior": "flat"}, "fixed or fit"), ({"num_data": 0}, "num_data")],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(lb.ConfigError, match=message):
        lb.fit_posterior(converted(deep()), [regression()], lb.Gaussian(), **options)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_missing_values_are_refused_before_anything_is_written(structure):
    model = lb.bayesianize(nn.Linear(4, 3), lb.Laplace(structure=structure))
    before = copy.deepcopy(model.state_dict())
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    broken = x.clone()
    broken[2, 1] = torch.nan
    with pytest.raises(lb.DataError, match=r"after 8 data is nan.*posterior is unchanged"):
        lb.fit_posterior(model, [(x, y), (broken, y)], lb.Categorical())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.likelihood is None
