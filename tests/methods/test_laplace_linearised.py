"""The linearised predictive of Laplace: outputs are f(w*) + J (w - w*), and nothing else."""

import copy
import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp

import leanbayes as lb
from leanbayes.linearise import linearised, moved
from leanbayes.noise import KeyedNoise

sys.path.append(str(Path(__file__).parents[1] / "contract"))
from nets import nets

F64 = torch.float64
LINEAR = lb.Laplace(predictive="linearised", init_std=0.1)
CATEGORICAL = lb.Categorical()


def deep(outputs=3):
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, outputs)).to(F64)


def rows(count=5):
    return torch.randn(count, 3, dtype=F64, generator=torch.Generator().manual_seed(1))


def changes(model, seed, sample):
    """The draw of every parameter less the parameter, by name, as the prediction draws it."""
    noise = KeyedNoise(seed, [sample])
    return {
        q.key: (q.std * q.noise(base, 1, noise)[0]).to(base) for _, _, q, base in model.posteriors()
    }


def reference(net, inputs, change):
    """Value and directional derivative by functional forward-mode differentiation."""
    point = {name: p.detach() for name, p in net.named_parameters()}
    direction = {name: change.get(name, torch.zeros_like(p)) for name, p in point.items()}
    value, tangent = jvp(lambda p: functional_call(net, p, (inputs,)), (point,), (direction,))
    return value + tangent


@pytest.mark.parametrize("name", ["mlp", "conv_norm", "grouped_conv", "tokens", "unet", "gru"])
def test_a_draw_is_the_value_and_the_directional_derivative(name):
    net, inputs = nets()[name]()
    net = net.to(F64).eval()
    inputs = inputs.to(F64) if inputs.is_floating_point() else inputs
    plain = copy.deepcopy(net)
    model = lb.bayesianize(net, LINEAR, example=inputs)
    found = lb.predict(
        model, inputs, samples=2, seed=7, likelihood=CATEGORICAL, keep_samples=True
    ).samples
    for sample, probs in enumerate(found):
        expected = reference(plain, inputs, changes(model, 7, sample)).softmax(1)
        torch.testing.assert_close(probs, expected, rtol=1e-10, atol=1e-12)
    assert (found[0] - found[1]).abs().max() > 1e-3  # inference mode would drop the tangents


def test_attention_is_linearised_too():
    """Its fused kernel has no rule for tangents, so another one is taken."""
    net, inputs = nets()["transformer"]()
    net, inputs = net.to(F64).eval(), inputs.to(F64) if inputs.is_floating_point() else inputs
    model = lb.bayesianize(copy.deepcopy(net), LINEAR, example=inputs)
    small = lb.bayesianize(net, lb.Laplace(init_std=0.1), example=inputs)
    for bayesian in (model, small):
        with torch.no_grad():
            for _, _, q, _ in bayesian.posteriors():
                q.std.mul_(1e-4)
    options = {"samples": 2, "seed": 3, "likelihood": CATEGORICAL, "keep_samples": True}
    mean = model.eval()(inputs).softmax(1).detach()
    linear, sampled = (lb.predict(m, inputs, **options).samples - mean for m in (model, small))
    assert linear.abs().max() > 1e-7
    torch.testing.assert_close(linear, sampled, rtol=0, atol=1e-3 * linear.abs().max().item())


def test_predictive_moments_are_those_of_the_linear_model():
    """Mean f(w*), covariance J diag(std^2) J^T, over many draws."""
    net, x = deep(outputs=2), rows(3)
    point = {name: p.detach() for name, p in net.named_parameters()}
    plain = copy.deepcopy(net)
    jacobian = torch.func.jacrev(lambda p: functional_call(plain, p, (x,)))(point)
    model = lb.bayesianize(net, lb.Laplace(predictive="linearised", init_std=0.7))
    draws = 20_000
    with torch.no_grad():
        torch.manual_seed(0)
        y = model(x.repeat(draws, 1), plan=lb.Plan(groups=draws)).reshape(draws, -1)
    flat = torch.cat([j.flatten(2).flatten(0, 1) for j in jacobian.values()], 1)
    covariance = 0.49 * flat @ flat.T
    scale = covariance.diagonal().sqrt()
    error = (y.mean(0) - plain(x).flatten().detach()) / (scale / draws**0.5)
    assert error.abs().max() < 4.5
    correlation = (torch.cov(y.T) - covariance) / torch.outer(scale, scale)
    assert correlation.abs().max() < 5 * (2 / draws) ** 0.5


def test_a_network_that_is_linear_in_its_weights_draws_the_same_either_way():
    torch.manual_seed(0)
    net = nn.Linear(3, 4).to(F64)
    models = [
        lb.bayesianize(copy.deepcopy(net), lb.Laplace(init_std=0.3, predictive=how))
        for how in ("sampled", "linearised")
    ]
    options = {"samples": 4, "seed": 2, "likelihood": CATEGORICAL, "keep_samples": True}
    sampled, linear = (lb.predict(m, rows(), **options).samples for m in models)
    torch.testing.assert_close(sampled, linear, rtol=1e-12, atol=1e-12)


def test_samples_of_one_pass_are_those_of_several():
    model = lb.bayesianize(deep(), LINEAR)
    options = {"samples": 6, "seed": 2, "likelihood": CATEGORICAL, "keep_samples": True}
    one, many = (lb.predict(model, rows(), chunk=c, **options).samples for c in (1, 3))
    torch.testing.assert_close(one, many, rtol=1e-12, atol=1e-12)


def test_training_and_the_mean_network_know_nothing_of_it():
    model, plain = lb.bayesianize(deep(), LINEAR), deep()
    torch.testing.assert_close(model.train()(rows()), plain(rows()), rtol=0, atol=0)
    torch.testing.assert_close(model.eval()(rows()), plain(rows()), rtol=0, atol=0)


def test_gradients_of_a_linearised_output_go_back_to_its_inputs():
    """As an attack needs them: against differences of the outputs."""
    model, x = lb.bayesianize(deep(), LINEAR).eval(), rows(2).requires_grad_()

    def total(inputs):
        plan = lb.Plan(groups=1, noise=KeyedNoise(5, [0]))
        return model(inputs, plan=plan).square().sum()

    (found,) = torch.autograd.grad(total(x), x)
    step = 1e-6
    for place in ((0, 0), (1, 2)):
        moved_x = [x.detach().clone() for _ in range(2)]
        moved_x[0][place] += step
        moved_x[1][place] -= step
        slope = (total(moved_x[0]) - total(moved_x[1])).item() / (2 * step)
        assert found[place].item() == pytest.approx(slope, rel=1e-6)


def test_a_wide_diagonal_keeps_the_network_where_draws_lose_it():
    """A standard normal prior, on real images: the trap that the mode is for."""
    data = lb.data.fashion_mini()
    x, y = data.x_train[:2000], data.y_train[:2000]
    test_x, test_y = data.x_test[:500], data.y_test[:500]
    torch.manual_seed(0)
    sizes = (784, 32, 32, 10)
    layers = [m for i, o in pairwise(sizes) for m in (nn.Linear(i, o), nn.ReLU())]
    net = nn.Sequential(nn.Flatten(), *layers[:-1])
    optimizer = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-4)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    found = {}
    for how in ("sampled", "linearised"):
        model = lb.bayesianize(copy.deepcopy(net), lb.Laplace(prior_std=1.0, predictive=how))
        lost = pytest.warns(UserWarning, match="far from what was trained")
        with lost if how == "sampled" else nullcontext():
            lb.fit_posterior(model, [(x, y)], CATEGORICAL, probes=20, seed=0)
        p = lb.predict(model, test_x, samples=100, seed=0, likelihood=CATEGORICAL)
        found[how] = lb.metrics.accuracy(p.probs, test_y).item()
    point = (net(test_x).argmax(1) == test_y).double().mean().item()
    assert point > 0.7
    assert found["sampled"] < point - 0.3
    assert found["linearised"] > point - 0.05


def test_it_is_saved_and_loaded_and_an_older_file_draws_as_it_did(tmp_path):
    model = lb.bayesianize(deep(), LINEAR)
    lb.save(model, tmp_path / "model")
    again = lb.load(deep(), tmp_path / "model")
    assert again.method.predictive == "linearised"
    options = {"samples": 2, "seed": 0, "likelihood": CATEGORICAL, "keep_samples": True}
    found, expected = (lb.predict(m, rows(), **options).samples for m in (again, model))
    assert torch.equal(found, expected)
    fields = lb.Laplace().to_json()["fields"]
    assert fields.pop("predictive") == "sampled"
    assert lb.Laplace(**{k: v for k, v in fields.items() if k != "select"}) == lb.Laplace()


class Unknown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # noqa: ARG004
        return x.exp()


class Strange(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return Unknown.apply(self.inner(x))


def test_an_operation_that_cannot_be_linearised_is_said():
    model = lb.bayesianize(Strange(), LINEAR)
    with pytest.raises(lb.PlanError, match=r"cannot be linearised .*predictive='sampled'"):
        lb.predict(model, torch.zeros(2, 3), likelihood=CATEGORICAL)
    with pytest.raises(NotImplementedError, match="something else"):
        linearised(lambda: (_ for _ in ()).throw(NotImplementedError("something else")))
    with pytest.raises(lb.ConfigError, match="predictive is sampled or linearised; found 'glm'"):
        lb.Laplace(predictive="glm")


def test_outputs_without_a_tangent_stay_as_they_are():
    found = linearised(lambda: {"a": torch.ones(2), "b": moved(torch.ones(2), torch.ones(2)) ** 3})
    assert found["a"].tolist() == [1.0, 1.0]
    assert found["b"].tolist() == [4.0, 4.0]


def test_what_autocast_cannot_linearise_is_said_with_what_to_write():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(6, 4)
    model = lb.bayesianize(net, lb.Laplace(predictive="linearised"), example=x)
    lb.fit_posterior(model, [(x, torch.arange(6) % 3)], lb.Categorical())
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(lb.PlanError, match=r"under autocast.*enabled=False"),
    ):
        lb.predict(model, x, samples=2, seed=0)
