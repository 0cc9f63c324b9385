"""The objective: mean over data, KL divided once, and the two ways of adding it."""

import math

import pytest
import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64


def model_and_batch(rows=6, **options):
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(F64)
    model = lb.bayesianize(net, lb.MeanField(**options)).train()
    return model, (torch.randn(rows, 4, dtype=F64), torch.arange(rows) % 3)


def test_kl_is_summed_over_all_weights_not_averaged():
    model, _ = model_and_batch(prior_std=0.5)
    expected = 0.0
    for layer in (model.net[0], model.net[2]):
        for name in ("weight", "bias"):
            mean, std = getattr(layer, name), layer.slots[name].log_std.exp()
            q = torch.distributions.Normal(mean, std)
            p = torch.distributions.Normal(torch.zeros_like(mean), 0.5)
            expected = expected + torch.distributions.kl_divergence(q, p).sum()
    torch.testing.assert_close(model.kl(), expected, rtol=1e-12, atol=0)


def test_loss_is_nll_plus_kl_over_num_data():
    model, batch = model_and_batch(init_std=0.0)
    result = lb.objective(model, batch, lb.Categorical(), num_data=1000, kl_weight=0.3)
    nll = nn.functional.cross_entropy(model(batch[0]), batch[1])
    torch.testing.assert_close(result.nll, nll, rtol=1e-12, atol=0)
    torch.testing.assert_close(result.loss, nll + 0.3 * model.kl() / 1000, rtol=1e-12, atol=0)


def test_mixture_is_the_log_of_the_mean_likelihood_and_never_above_the_average():
    model, batch = model_and_batch(init_std=0.5)
    options = {"num_data": 10, "samples": 5, "include_kl": False}
    torch.manual_seed(1)
    average = lb.objective(model, batch, lb.Categorical(), **options).nll
    torch.manual_seed(1)
    mixture = lb.objective(model, batch, lb.Categorical(), likelihood_of="mixture", **options).nll
    torch.manual_seed(1)
    y = model(batch[0].repeat(5, 1), plan=lb.Plan(groups=5, per_row=True))
    log_p = torch.log_softmax(y, 1).reshape(5, 6, 3)[:, torch.arange(6), batch[1]]
    torch.testing.assert_close(average, -log_p.mean())
    torch.testing.assert_close(mixture, -(log_p.logsumexp(0) - math.log(5)).mean())
    assert mixture < average


def test_samples_repeat_rows_with_independent_draws():
    """The gradient with S samples is the mean of S gradients: its variance falls by S."""
    model, batch = model_and_batch(rows=3, init_std=0.4)

    def spread(samples):
        values = [
            lb.objective(
                model, batch, lb.Categorical(), samples=samples, include_kl=False
            ).nll.detach()
            for _ in range(600)
        ]
        return torch.stack(values).var()

    assert 5 < spread(1) / spread(8) < 12


def test_inputs_may_be_tuples_and_dicts():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, a, b):
            return self.fc(a + b)

    model = lb.bayesianize(Two(), lb.MeanField(init_std=0.0)).train()
    a, b, y = torch.randn(6, 4), torch.randn(6, 4), torch.arange(6) % 3
    expected = nn.functional.cross_entropy(model.net.fc(a + b), y)
    for inputs in ((a, b), {"a": a, "b": b}):
        result = lb.objective(model, (inputs, y), lb.Categorical(), num_data=6, samples=2)
        torch.testing.assert_close(result.nll, expected)


@pytest.mark.parametrize("num_data", [None, 0, -5, float("nan"), True])
def test_num_data_must_be_said(num_data):
    model, batch = model_and_batch()
    with pytest.raises(lb.ConfigError, match="num_data must be the number of training data"):
        lb.objective(model, batch, lb.Categorical(), num_data=num_data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(lb.ConfigError, match="num_data must be the number of training data"):
        lb.attach_kl(optimizer, model, num_data=num_data)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"samples": 2.0}, r"whole number of at least 1, found 2.0 \(a float\)"),
        ({"samples": "2"}, "whole number of at least 1, found '2'"),
        ({"likelihood_of": "sum"}, "'average' or 'mixture'"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    model, batch = model_and_batch()
    with pytest.raises(lb.ConfigError, match=words):
        lb.objective(model, batch, lb.Categorical(), num_data=10, **options)


def test_a_plain_network_is_refused_with_the_line_to_write():
    with pytest.raises(TypeError, match=r"lb\.bayesianize\(net"):
        lb.objective(
            nn.Linear(2, 2), (torch.zeros(1, 2), torch.zeros(1)), lb.Categorical(), num_data=1
        )


def test_labels_outside_the_classes_are_named():
    model, (x, _) = model_and_batch()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    with pytest.raises(lb.ConfigError, match="label 3 is outside the 3 classes"):
        lb.objective(model, (x, y), lb.Categorical(), num_data=6)


NO_LIKELIHOODS = [torch.nn.CrossEntropyLoss(), lb.Categorical, "categorical", None]


@pytest.mark.parametrize("wrong", NO_LIKELIHOODS)
def test_what_is_no_likelihood_is_refused_in_words(wrong):
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
    batch = torch.randn(8, 4), torch.arange(8) % 3
    with pytest.raises(lb.ConfigError, match=r"objective needs a likelihood.*CrossEntropyLoss"):
        lb.objective(model, batch, wrong, num_data=8)
    with pytest.raises(lb.ConfigError, match=r"fit needs a likelihood such as lb.Categorical\(\)"):
        lb.fit(model, batch, wrong)
    if wrong is not None:
        with pytest.raises(lb.ConfigError, match="adapt needs a likelihood"):
            lb.adapt(torch.nn.Linear(4, 3), lb.MeanField(), batch, likelihood=wrong)


@pytest.mark.parametrize(
    ("likelihood_of", "weights"),
    [("average", None), ("average", [1.0, 2.0, 0.5]), ("mixture", None)],
)
def test_a_batch_without_a_label_says_nothing(likelihood_of, weights):
    """0 / 0 ended a run as if it had diverged."""
    model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField()).train()
    batch = torch.randn(5, 4), torch.full((5,), -100)
    options = {"num_data": 10, "samples": 2, "likelihood_of": likelihood_of}
    found = lb.objective(model, batch, lb.Categorical(class_weights=weights), **options)
    found.nll.backward(retain_graph=True)
    assert found.nll.item() == 0
    assert not model.net.weight.grad.any()
    assert found.loss.item() == pytest.approx(found.kl.item() / 10)


def test_a_schedule_in_place_of_its_value_is_told_what_to_write():
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
    batch = torch.randn(6, 4), torch.arange(6) % 3
    warm_up = lb.schedule.linear_warmup(steps=10)
    with pytest.raises(lb.ConfigError, match=r"write kl_weight=schedule\(step\)"):
        lb.objective(model, batch, lb.Categorical(), num_data=6, kl_weight=warm_up)


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ({"x": torch.randn(6, 4), "y": torch.arange(6) % 3}, "found a dict"),
        ((torch.randn(6, 4), torch.arange(6) % 3, torch.arange(6)), "found a tuple of 3"),
        (torch.randn(2, 4), "found a Tensor"),
    ],
)
def test_a_batch_that_is_no_pair_is_told_so(batch, found):
    """Of a dict the two keys were taken."""
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
    with pytest.raises(lb.ConfigError, match=rf"pair \(inputs, targets\), {found}"):
        lb.objective(model, batch, lb.Categorical(), num_data=6)
