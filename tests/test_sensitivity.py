"""Sensitivity scores against gradients by example, and what scoring leaves untouched."""

import sys

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

import leanbayes as lb

F64 = torch.float64
CRITERIA = ("loss_grad", "fisher", "output_jacobian", "magnitude", "random")


def small_net():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 3)
    ).to(F64)
    net[1].running_mean.normal_()
    return net


def small_data(rows=8):
    torch.manual_seed(1)
    return torch.randn(rows, 3, dtype=F64), torch.arange(rows) % 3


def batches(x, y, size=3):
    return list(zip(x.split(size), y.split(size), strict=True))


def by_example(net, function, x, *rest):
    """The gradient of `function(output row, ...)` for every example, by name."""
    net = net.eval()
    params = {k: v.detach() for k, v in net.named_parameters()}

    def of_row(values, row, *others):
        return function(functional_call(net, values, (row[None],))[0], *others)

    derivative = jacrev(of_row) if not rest else grad(of_row)
    return vmap(derivative, (None, 0, *(0 for _ in rest)))(params, x, *rest)


def log_prob(output, label):
    return -nn.functional.cross_entropy(output[None], label[None])


def exact(criterion, net, x, y):
    if criterion == "output_jacobian":
        found = by_example(net, lambda f: f, x)
        return {k: g.square().sum(1).mean(0) for k, g in found.items()}
    found = by_example(net, log_prob, x, y)
    if criterion == "fisher":
        return {k: g.square().mean(0) for k, g in found.items()}
    return {k: g.mean(0).abs() for k, g in found.items()}


@pytest.mark.parametrize("criterion", ["fisher", "output_jacobian"])
def test_random_signs_estimate_squares_by_example_without_bias(criterion):
    net, (x, y) = small_net(), small_data()
    reference = exact(criterion, small_net(), x, y)
    samples = 3000
    found = lb.sensitivity(
        net, batches(x, y), lb.Categorical(), criterion=criterion, samples=samples
    )
    # The square of a sum with random signs has at most sqrt(2) times its mean as spread.
    error = (2 / samples) ** 0.5
    for name, expected in reference.items():
        assert ((found[name] - expected).abs() <= 5 * error * expected + 1e-12).all(), name
    total = sum(v.sum() for v in found.values()) / sum(v.sum() for v in reference.values())
    assert abs(total - 1) < 0.02


@pytest.mark.parametrize("size", [1, 3, 8])
def test_loss_grad_is_the_gradient_of_the_mean_loss_whatever_the_batches(size):
    net, (x, y) = small_net(), small_data()
    found = lb.sensitivity(net, batches(x, y, size), lb.Categorical(), criterion="loss_grad")
    for name, expected in exact("loss_grad", small_net(), x, y).items():
        torch.testing.assert_close(found[name], expected, rtol=1e-10, atol=1e-14)


def test_one_example_a_batch_and_one_output_need_no_luck():
    """A single sign squares away: the estimate is exact."""
    net, (x, _) = nn.Linear(3, 1).to(F64), small_data()
    found = lb.sensitivity(net, batches(x, torch.zeros(8, 1), 1), lb.Gaussian())
    torch.testing.assert_close(found["weight"][0], x.square().mean(0), rtol=1e-12, atol=0)
    assert found["bias"].item() == 1


def test_labels_that_are_ignored_count_nowhere():
    net = nn.Conv2d(1, 3, 1).to(F64)
    x = torch.randn(2, 1, 4, 4, dtype=F64)
    y = torch.randint(0, 3, (2, 4, 4))
    y[:, :2] = -100
    found = lb.sensitivity(net, [(x, y)], lb.Categorical(), criterion="loss_grad")
    loss = nn.functional.cross_entropy(net(x), y)  # mean over labelled pixels
    for (name, p), g in zip(
        net.named_parameters(), torch.autograd.grad(loss, net.parameters()), strict=True
    ):
        assert found[name].shape == p.shape
        torch.testing.assert_close(found[name], g.abs(), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("scale", [0.01, 1.0, 7.0])
def test_loss_grad_is_that_of_the_weighted_mean_whatever_the_size_of_class_weights(scale):
    net, (x, y) = small_net(), small_data()
    weights = scale * torch.tensor([0.3, 0.2, 0.1], dtype=F64)
    likelihood = lb.Categorical(class_weights=weights.tolist())
    found = lb.sensitivity(net, batches(x, y), likelihood, criterion="loss_grad")
    loss = nn.functional.cross_entropy(net.eval()(x), y, weight=weights)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    for name, expected in zip(found, gradients, strict=True):
        torch.testing.assert_close(found[name], expected.abs(), rtol=1e-10, atol=1e-14)


def test_magnitude_and_random_need_no_data():
    net = small_net()
    scores = lb.sensitivity(net, criterion="magnitude")
    assert all(torch.equal(scores[n], p.abs()) for n, p in net.named_parameters())
    first, again = (lb.sensitivity(net, criterion="random", seed=3) for _ in range(2))
    other = lb.sensitivity(net, criterion="random", seed=4)
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
        self.head.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.tanh(self.first(x)))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_scores_go_by_the_names_and_the_order_of_the_parameters(criterion):
    net, (x, y) = Tied(), small_data()
    scores = lb.sensitivity(net, [(x.float(), y)], lb.Categorical(), criterion=criterion)
    assert list(scores) == ["first.weight", "head.bias"]
    assert all(scores[n].shape == p.shape for n, p in net.named_parameters())
    assert all((s >= 0).all() for s in scores.values())


@pytest.mark.parametrize("criterion", CRITERIA)
def test_scoring_leaves_modes_gradients_buffers_flags_and_random_states(criterion):
    net, (x, y) = small_net(), small_data()
    net.train()
    net[2].eval()
    net[0].weight.requires_grad_(False)
    net[4].bias.grad = torch.ones(3, dtype=F64)
    state = {k: v.clone() for k, v in net.state_dict().items()}
    modes = [m.training for m in net.modules()]
    generator = torch.get_rng_state()
    with torch.no_grad():
        scores = lb.sensitivity(net, batches(x, y), lb.Categorical(), criterion=criterion)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), generator)
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert [p.requires_grad for p in net.parameters()] == [False] + [True] * 5
    assert [p.grad is None for p in net.parameters()] == [True] * 5 + [False]
    assert torch.equal(net[4].bias.grad, torch.ones(3, dtype=F64))
    assert scores["0.weight"].abs().sum() > 0  # frozen parameters can be random, too
    assert not any(s.requires_grad for s in scores.values())


def test_a_failing_network_gets_its_flags_back():
    net = small_net().train()
    net[0].weight.requires_grad_(False)
    with pytest.raises(RuntimeError):
        lb.sensitivity(
            net, [(torch.zeros(2, 9, dtype=F64), torch.zeros(2).long())], lb.Categorical()
        )
    assert net.training
    assert not net[0].weight.requires_grad


def test_a_recurrent_network_has_scores():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    scores = lb.sensitivity(
        Last(), [(torch.randn(4, 5, 3), torch.zeros(4).long())], lb.Categorical()
    )
    assert all(s.abs().sum() > 0 for s in scores.values())


def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    net, (x, y) = small_net(), small_data()
    lb.sensitivity(net, batches(x, y), lb.Categorical())
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    lb.sensitivity(net, batches(x, y), lb.Categorical(), criterion="fisher")
    assert "sensitivity (fisher): 100%" in capsys.readouterr().err
    lb.sensitivity(net, batches(x, y), lb.Categorical(), progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"data": None}, r"data=loader, likelihood=lb.Categorical\(\)"),
        ({"likelihood": None}, "output_jacobian needs a likelihood"),
        ({"data": []}, "saw no datum"),
        ({"data": torch.zeros(4, 3)}, r"data=\[\(x, y\)\]"),
        ({"criterion": "hessian"}, "criterion is one of loss_grad, fisher"),
        ({"samples": 0}, "samples must be a whole number of at least 1"),
    ],
)
def test_bad_input_is_refused_in_words(arguments, words):
    x, y = small_data()
    given = {"data": [(x, y)], "likelihood": lb.Categorical(), **arguments}
    with pytest.raises(lb.ConfigError, match=words):
        lb.sensitivity(small_net(), **given)
