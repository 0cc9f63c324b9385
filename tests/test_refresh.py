"""BatchNorm refresh: statistics of all data, by the mean network or draws, nothing else touched."""

import copy

import pytest
import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64


def net():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4),
        nn.BatchNorm1d(4, momentum=0.3), nn.Dropout(0.5), nn.Linear(4, 2),
    ).to(F64)  # fmt: skip


def images(rows=11):
    return torch.randn(rows, 2, 6, 6, dtype=F64) * 2 + 1


def norms(model):
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def test_a_layer_gets_mean_and_variance_of_all_rows_whatever_the_batches():
    model, x = net(), images()
    assert lb.refresh_batchnorm(model, [(part, None) for part in x.split([5, 4, 2])]) == 2
    activations = model[0](x).transpose(0, 1).flatten(1)
    first = model[1]
    torch.testing.assert_close(first.running_mean, activations.mean(1))
    torch.testing.assert_close(first.running_var, activations.var(1))
    assert first.num_batches_tracked == 3


def test_one_batch_gives_every_layer_what_torch_itself_would_keep():
    model, x = net(), images()
    reference = copy.deepcopy(model).train()
    reference[6].eval()  # dropout does not run in a refresh
    for norm in norms(reference):
        norm.momentum = 1.0
    reference(x)
    lb.refresh_batchnorm(model, [x])
    for found, expected in zip(norms(model), norms(reference), strict=True):
        torch.testing.assert_close(found.running_mean, expected.running_mean)
        torch.testing.assert_close(found.running_var, expected.running_var)


def test_a_bayesian_model_is_refreshed_under_its_mean_network():
    plain, x = net(), images()
    model = lb.bayesianize(copy.deepcopy(plain), lb.MeanField(init_std=0.7)).train()
    state = torch.get_rng_state()
    lb.refresh_batchnorm(plain, x.split(6))
    lb.refresh_batchnorm(model, x.split(6))
    assert torch.equal(torch.get_rng_state(), state)
    for found, expected in zip(norms(model), norms(plain), strict=True):
        torch.testing.assert_close(found.running_mean, expected.running_mean)
        torch.testing.assert_close(found.running_var, expected.running_var)


def test_modes_momentum_gradients_and_hooks_stay():
    model = net().train()
    model[1].eval()  # a BatchNorm that the user keeps frozen in training
    modes = [m.training for m in model.modules()]
    lb.refresh_batchnorm(model, [images()])
    assert [m.training for m in model.modules()] == modes
    assert [m.momentum for m in norms(model)] == [0.1, 0.3]
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize(
    ("loader", "error"),
    [([], lb.ConfigError), ([images(), torch.zeros(2, 5, 6, 6, dtype=F64)], RuntimeError)],
    ids=["empty", "a batch that does not fit"],
)
def test_a_refresh_that_fails_changes_nothing(loader, error):
    model = net().train()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error):
        lb.refresh_batchnorm(model, loader)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(m.training for m in model.modules())


def test_without_running_statistics_there_is_nothing_to_do():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))
    assert lb.refresh_batchnorm(model, [torch.randn(4, 2)]) == 0


def test_large_offsets_do_not_cancel_the_variance():
    model = nn.Sequential(nn.BatchNorm1d(1))
    x = 3000 + torch.tensor([[0.0], [0.1], [0.2], [0.3]])
    lb.refresh_batchnorm(model, x.split(2))
    torch.testing.assert_close(model[0].running_var, x.double().var(0).float())


@pytest.mark.parametrize(
    "method",
    [
        lb.MeanField(init_std=0.7),
        lb.SharedEnsemble(members=3, init_std=0.5),
        lb.RankOne(members=3, init_std=0.5),
        lb.Implicit(members=3),
        lb.Patching(members=3, init_std=0.5),
        lb.BatchEnsemble(members=3, init_std=0.5),
        lb.MAP(),
    ],
    ids=lambda method: method.name,
)
def test_under_draws_one_batch_gives_what_a_training_step_would_keep(method):
    x, y = images(12), torch.arange(12) % 2
    model = lb.bayesianize(net(), method, example=x)
    reference = copy.deepcopy(model).train()
    reference.net[6].eval()  # dropout does not run in a refresh
    for norm in norms(reference):
        norm.momentum = 1.0
    torch.manual_seed(3)
    lb.objective(reference, (x, y), lb.Categorical(), include_kl=False)
    torch.manual_seed(3)
    assert lb.refresh_batchnorm(model, [x], draws=True) == 2
    assert not any(module.training for module in model.eval().modules())
    for found, expected in zip(norms(model), norms(reference), strict=True):
        torch.testing.assert_close(found.running_mean, expected.running_mean)
        torch.testing.assert_close(found.running_var, expected.running_var)


def test_the_variance_under_draws_is_that_of_the_data_and_of_the_posterior():
    """y = w x with w ~ N(m, s^2 I) has the variance m' Cov(x) m + s^2 E|x|^2; x is centred."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 3, bias=False), nn.BatchNorm1d(3)).to(F64)
    model = lb.bayesianize(plain, lb.MeanField(init_std=0.4, select=lb.select.linears))
    x = torch.randn(20_000, 8, dtype=F64)
    lb.refresh_batchnorm(model, x.split(1000))
    mean_network = model.net[1].running_var.clone()
    torch.testing.assert_close(mean_network, model.net[0].weight.square().sum(1), rtol=0.05, atol=0)
    lb.refresh_batchnorm(model, x.split(1000), draws=True)
    expected = mean_network + 0.4**2 * 8
    torch.testing.assert_close(model.net[1].running_var, expected, rtol=0.05, atol=0)


def test_members_with_statistics_of_their_own_keep_them_but_the_first():
    x = images(12)
    model = lb.bayesianize(net(), lb.DeepEnsemble(members=2), example=x)
    mean = copy.deepcopy(model)
    lb.refresh_batchnorm(mean, [x])
    lb.refresh_batchnorm(model, [x], draws=True)
    for key, value in model.state_dict().items():
        assert torch.equal(value, mean.state_dict()[key]), key


def test_draws_are_those_of_a_bayesian_model():
    with pytest.raises(TypeError, match="expected a BayesianModel, found Sequential"):
        lb.refresh_batchnorm(net(), [images()], draws=True)


def test_a_norm_may_be_called_by_keyword():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(2)

        def forward(self, x):
            return self.norm(input=x)

    named, x = Named().to(F64), images()
    lb.refresh_batchnorm(named, [(x, None)])
    torch.testing.assert_close(named.norm.running_mean, x.mean((0, 2, 3)))
