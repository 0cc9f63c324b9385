"""Laplace with Kronecker factors: exact on linear models, weight and bias in one law."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian

import leanbayes as lb
from leanbayes.noise import KeyedNoise
from leanbayes.plan import Plan

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


def kronecker_covariance(posterior):
    """Covariance of the flattened [O, J] matrix, from the stored bases."""
    bases = posterior.bases
    basis = torch.kron(bases.left, bases.right)
    return basis @ torch.diag(bases.std.flatten() ** 2) @ basis.T


@pytest.mark.parametrize("bias", [True, False])
def test_kronecker_of_a_linear_regression_is_the_exact_posterior(bias):
    x, y = regression(outputs=2)
    model = converted(nn.Linear(3, 2, bias=bias), structure="kronecker", prior_std=0.7)
    lb.fit_posterior(model, batches((x, y)), lb.Gaussian(precision=4.0))
    design = torch.cat([x, torch.ones(30, 1, dtype=F64)], 1) if bias else x
    precision = 4 * design.T @ design + torch.eye(design.shape[1], dtype=F64) / 0.7**2
    expected = torch.kron(torch.eye(2, dtype=F64), torch.linalg.inv(precision).contiguous())
    found = kronecker_covariance(model.net.slots["weight"])
    torch.testing.assert_close(found, expected)


def test_kronecker_of_one_example_is_the_inverse_of_the_dense_hessian():
    """One example makes the product exact: the reference is autograd's own Hessian."""
    x, y = torch.randn(1, 3, dtype=F64), torch.tensor([1])
    net = nn.Linear(3, 4, bias=False).to(F64)

    def loss(weight):
        return nn.functional.cross_entropy(x @ weight.reshape(4, 3).T, y)

    dense = hessian(loss, net.weight.detach().flatten())
    model = converted(net, structure="kronecker", prior_std=1.5)
    lb.fit_posterior(model, [(x, y)], lb.Categorical())
    expected = torch.linalg.inv(dense + torch.eye(12, dtype=F64) / 1.5**2)
    torch.testing.assert_close(kronecker_covariance(net.slots["weight"]), expected)


def test_kronecker_of_logistic_regression_with_equal_curvature_is_the_dense_hessian():
    """Weights of 0 give every example the same Hessian, so that G x A is the whole sum."""
    x, _ = regression()
    y = (torch.arange(30) % 2).to(F64)
    net = nn.Linear(3, 1, bias=False).to(F64)
    nn.init.zeros_(net.weight)

    def loss(weight):
        return nn.functional.binary_cross_entropy_with_logits(x @ weight, y, reduction="sum")

    dense = hessian(loss, torch.zeros(3, dtype=F64))
    model = converted(net, structure="kronecker")
    lb.fit_posterior(model, batches((x, y[:, None])), lb.Bernoulli())
    expected = torch.linalg.inv(dense + torch.eye(3, dtype=F64))
    torch.testing.assert_close(kronecker_covariance(net.slots["weight"]), expected)


@pytest.mark.parametrize("keyed", [False, True])
def test_draws_have_the_kronecker_covariance_weight_and_bias_together(keyed):
    x, y = labelled(regression()[0] + 2, classes=2)  # off 0, so that weight and bias hang together
    net = nn.Linear(3, 2).to(F64)
    model = converted(net, structure="kronecker").eval()
    lb.fit_posterior(model, [(x, y)], lb.Categorical())
    groups, probe = 6_000, torch.ones(1, 3, dtype=F64)
    noise = KeyedNoise(1, range(groups)) if keyed else None
    with torch.no_grad():
        values = model(probe.expand(groups, 3), plan=Plan(groups=groups, noise=noise))
    lift = torch.kron(torch.eye(2, dtype=F64), torch.cat([probe, torch.ones(1, 1)], 1))
    exact = lift @ kronecker_covariance(net.slots["weight"]) @ lift.T
    scale = exact.diagonal().max()
    assert ((torch.cov(values.T) - exact) / scale).abs().max() < 4 * math.sqrt(2 / groups)
    assert (values.mean(0) - model(probe)).abs().max() < 4 * (scale / groups).sqrt()
    assert exact[0, 1] > 0.5 * scale  # the data say nothing on a shift of all logits
    gap = exact[0, 0] + exact[1, 1] - 2 * exact[0, 1]  # what they do say, of both slots together
    assert abs((values[:, 0] - values[:, 1]).var() / gap - 1) < 4 * math.sqrt(2 / groups)


def exact_log_evidence(x, y, precision, prior_std):
    covariance = torch.eye(len(x), dtype=F64) / precision + prior_std**2 * x @ x.T
    law = torch.distributions.MultivariateNormal(torch.zeros(len(x), dtype=F64), covariance)
    return law.log_prob(y.flatten()).item()


def test_the_evidence_of_a_linear_regression_is_exact_and_its_maximum_is_found():
    x, _ = regression()
    y = x @ torch.tensor([[0.3], [-0.2], [0.4]], dtype=F64) + 0.5 * torch.randn(30, 1, dtype=F64)
    prior_std = 0.6
    matrix = 4 * x.T @ x + torch.eye(3, dtype=F64) / prior_std**2
    net = nn.Linear(3, 1, bias=False).to(F64)
    with torch.no_grad():
        net.weight.copy_((4 * torch.linalg.solve(matrix, x.T @ y)).T)
    model = converted(net, structure="kronecker", prior_std=prior_std)
    found = lb.fit_posterior(model, batches((x, y)), lb.Gaussian(precision=4.0))
    expected = exact_log_evidence(x, y, 4.0, prior_std)
    assert found["log_evidence"] == pytest.approx(expected, rel=1e-10)
    best = lb.fit_posterior(model, batches((x, y)), lb.Gaussian(precision=4.0), prior="fit")
    exact = {s: exact_log_evidence(x, y, 4.0, s) for s in (10 ** (k / 10) for k in range(-20, 21))}
    # The trained weights depend on the prior, too, but hardly where the data say so much.
    assert abs(math.log10(best["prior_std"] / max(exact, key=exact.get))) < 0.11
    assert best["log_evidence"] >= found["log_evidence"]


def test_layers_that_have_no_kronecker_factors_are_named():
    with pytest.raises(lb.ConfigError, match="is a Conv2d; Kronecker factors need a Linear"):
        lb.bayesianize(nn.Conv2d(1, 2, 1), lb.Laplace(structure="kronecker"))
    net = nn.Sequential(nn.Linear(3, 3), nn.LogSoftmax(1))
    model = converted(net, structure="kronecker")
    with pytest.raises(lb.ConfigError, match=r"output of the network.*structure='diagonal'"):
        lb.fit_posterior(model, [labelled(regression()[0])], lb.Categorical())


class Named(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        return self.head(input=x)


def test_the_last_layer_may_be_called_by_keyword():
    data, head = batches(regression(outputs=2)), nn.Linear(3, 2)
    state, found = copy.deepcopy(head.state_dict()), []
    for net in (head, Named(nn.Linear(3, 2))):
        layer = getattr(net, "head", net)
        layer.load_state_dict(state)
        lb.fit_posterior(converted(net, structure="kronecker"), data, lb.Gaussian())
        found.append(kronecker_covariance(layer.slots["weight"]))
    torch.testing.assert_close(*found)


class Pooled(nn.Module):
    """As networks that classify sequences of transformers: the last layer runs on every token."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x).mean(1)


def test_a_last_layer_that_is_not_the_output_is_told_what_it_gives():
    x, y = torch.randn(6, 5, 4), torch.randint(0, 3, (6,))
    model = lb.bayesianize(Pooled(), lb.Laplace(structure="kronecker"), example=x)
    words = r"here it gives \(6, 5, 3\) and the network \(6, 3\)"
    with pytest.raises(lb.ConfigError, match=words):
        lb.fit_posterior(model, [(x, y)], lb.Categorical())
