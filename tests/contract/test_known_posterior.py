"""Mean field on a conjugate linear regression, whose posterior is known in closed form."""

import math

import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64


def conjugate_problem(num_data=60, inputs=3, precision=4.0, prior_std=0.8):
    """Correlated inputs, so that the exact posterior has a full covariance."""
    generator = torch.Generator().manual_seed(4)
    mix = torch.eye(inputs, dtype=F64) + 0.5
    x = torch.randn(num_data, inputs, dtype=F64, generator=generator) @ mix
    weight = torch.randn(inputs, 1, dtype=F64, generator=generator)
    noise = torch.randn(num_data, 1, dtype=F64, generator=generator)
    y = x @ weight + noise / math.sqrt(precision)
    matrix = precision * x.T @ x + torch.eye(inputs, dtype=F64) / prior_std**2
    return x, y, matrix, precision * torch.linalg.solve(matrix, x.T @ y)


def fitted(x, y, attach, precision=4.0, prior_std=0.8):
    model = lb.bayesianize(
        nn.Linear(x.shape[1], 1, bias=False).to(F64), lb.MeanField(prior_std=prior_std)
    ).train()
    likelihood = lb.Gaussian(precision=precision)
    optimizer = torch.optim.Adam(lb.param_groups(model, lr=0.05, posterior_lr=0.05))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.993)
    if attach:
        lb.attach_kl(optimizer, model, num_data=len(x))
    for _ in range(1000):
        optimizer.zero_grad()
        lb.objective(
            model, (x, y), likelihood, num_data=len(x), samples=8, include_kl=not attach
        ).loss.backward()
        optimizer.step()
        schedule.step()
    return model


def test_mean_is_exact_and_variance_is_the_reciprocal_of_the_precisions_diagonal():
    x, y, matrix, mean = conjugate_problem()
    for attach in (False, True):
        model = fitted(x, y, attach)
        std = model.net.slots["weight"].log_std.exp().flatten()
        expected = matrix.diagonal().rsqrt()
        assert (model.net.weight.flatten() - mean.flatten()).abs().max() < 0.05 * expected.min()
        assert (std / expected - 1).abs().max() < 0.02
        marginal = torch.linalg.inv(matrix).diagonal().sqrt()
        assert (std < 0.9 * marginal).all()  # mean field is known to be too narrow here
