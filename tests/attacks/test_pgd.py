"""PGD on the averaged predictive: it hurts, stays where it may, and leaves the model alone."""

import math
from copy import deepcopy

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.attacks.victim import Victim

EPS = 0.1
SCALE = lb.data.Normalize((0.5, 0.3), (0.25, 0.2))


def images(rows=24, dtype=torch.float32):
    """Two channels of 4 x 4 pixels; of three classes, by which stripe is bright."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(rows) % 3
    x = 0.35 * torch.rand(rows, 2, 4, 4, generator=generator, dtype=dtype)
    x[torch.arange(rows), :, y] += 0.4
    return x, y


def network():
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)
    )


@pytest.fixture(scope="module")
def trained():
    config = lb.FitConfig(epochs=30, lr=0.02, batch_size=12, seed=0)
    method = lb.MeanField(init_std=0.1)
    return lb.adapt(network(), method, images(), likelihood=lb.Categorical(), config=config).model


def loss(model, x, y, average="probabilities"):
    found = lb.predict(model, x, samples=30, seed=77, keep_samples=True)
    if average == "probabilities":
        return -found.log_prob(y).mean()
    return -found.samples[:, torch.arange(len(y)), y].log().mean()


@pytest.mark.parametrize("average", ["probabilities", "loss"])
@pytest.mark.parametrize("norm", ["inf", "2"])
def test_every_step_budget_raises_the_loss_of_the_average(trained, norm, average):
    x, y = images()
    options = {"eps": EPS if norm == "inf" else 4 * EPS, "samples": 5, "seed": 0, "norm": norm}
    losses = [loss(trained, x, y, average)]
    for steps in (1, 2, 5, 10, 20):
        found = lb.attacks.pgd(trained, x, y, steps=steps, average=average, **options)
        losses.append(loss(trained, found, y, average))
    assert losses[0] < 0.1  # the network was right before
    assert all(later > 1.5 * losses[0] for later in losses[1:])
    assert losses[-1] > 0.95 * max(losses)


@pytest.mark.parametrize("normalize", [None, SCALE])
@pytest.mark.parametrize("norm", ["inf", "2"])
@pytest.mark.parametrize("start", [True, False])
def test_pixels_stay_in_the_ball_and_in_their_bounds(trained, norm, start, normalize):
    pixels, y = images()
    pixels[:6] = (pixels[:6] * 3).clamp(0, 1)  # some at the edge already
    x = pixels if normalize is None else normalize(pixels)
    found = lb.attacks.pgd(
        trained,
        x,
        y,
        eps=EPS,
        steps=3,
        step_size=EPS,
        samples=2,
        seed=3,
        norm=norm,
        random_start=start,
        normalize=normalize,
    )
    found = found if normalize is None else normalize.undo(found)
    shift = (found - pixels).flatten(1)
    size = shift.abs().amax(1) if norm == "inf" else shift.norm(dim=1)
    assert size.max() <= EPS + 1e-6
    assert size.max() > 0.9 * EPS
    assert found.min() >= -1e-6
    assert found.max() <= 1 + 1e-6


def test_the_gradient_is_that_of_the_log_of_the_mean_of_what_predict_averages(trained):
    """Weights of the draws included: three samples of two members do not count alike."""
    x, y = images(6)
    for model in (
        trained,
        lb.bayesianize(network(), lb.SharedEnsemble(members=2), likelihood=lb.Categorical()),
        lb.bayesianize(
            network(),
            lb.Patching(members=3, exact_output=True),
            example=x,
            likelihood=lb.Categorical(),
        ),
        lb.bayesianize(network(), lb.MAP(), likelihood=lb.Categorical()),
    ):
        victim = Victim.of(model, None, 3, 5)
        with victim.open():
            leaf = x.clone().requires_grad_(True)
            whole = victim.log_prob(leaf, y)
            (expected,) = torch.autograd.grad(-whole.sum(), leaf)
            found = victim.slope(x, y, 0)
        wanted = lb.predict(model, x, samples=3, seed=5).log_prob(y)
        torch.testing.assert_close(whole.double(), wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_averages_differ_where_draws_do():
    """Of two members the paper's loss follows the one that is right, mean losses the other."""
    net = nn.Linear(2, 2, bias=False)
    model = lb.bayesianize(
        net,
        lb.DeepEnsemble(members=2, factory=lambda: nn.Linear(2, 2, bias=False)),
        likelihood=lb.Categorical(),
    )
    right, wrong = torch.tensor([[4.0, 0], [-4, 0]]), torch.tensor([[0.0, -8], [0, 8]])
    with torch.no_grad():
        net.weight.copy_(right)
        for _, _, posterior, _ in model.posteriors():
            next(iter(posterior.parameters())).copy_(wrong)
    x, y = torch.tensor([[0.5, 0.5]]), torch.tensor([0])
    slopes = {}
    for average in ("probabilities", "loss"):
        victim = Victim.of(model, None, 2, 0, average=average)
        with victim.open():
            slopes[average] = victim.slope(x, y, 0)[0]
    p = [torch.softmax(w @ x[0], 0)[0] for w in (right, wrong)]
    each = [(1 - q) * (w[0] - w[1]) for q, w in zip(p, (right, wrong), strict=True)]
    expected = -(p[0] * each[0] + p[1] * each[1]) / (p[0] + p[1])
    torch.testing.assert_close(slopes["probabilities"], expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(slopes["loss"], -(each[0] + each[1]) / 2, rtol=1e-4, atol=1e-6)
    assert slopes["probabilities"].abs().argmax() == 0
    assert slopes["loss"].abs().argmax() == 1


def test_normalised_inputs_give_the_pixels_of_a_network_that_normalises():
    x, y = images(dtype=torch.float64)
    mean, std = (torch.tensor(v).double()[:, None, None] for v in (SCALE.mean, SCALE.std))
    method, likelihood = lb.MeanField(init_std=0.1), lb.Categorical()
    outside = lb.bayesianize(network().double(), method, likelihood=likelihood)
    inside = deepcopy(outside)
    inside.net.register_forward_pre_hook(lambda _net, args: ((args[0] - mean) / std,))
    options = {"eps": EPS, "steps": 4, "samples": 3, "seed": 9}
    found = lb.attacks.pgd(outside, (x - mean) / std, y, normalize=SCALE, **options)
    expected = lb.attacks.pgd(inside, x, y, **options)
    torch.testing.assert_close(found * std + mean, expected, rtol=0, atol=1e-6)
    assert found.dtype == torch.float64


@pytest.mark.parametrize(
    "method", [lb.MeanField(init_std=0.1), lb.MCDropout(rate=0.2), lb.RankOne(members=2)]
)
def test_a_seed_repeats_and_pieces_give_the_whole(method):
    model = lb.bayesianize(network(), method, likelihood=lb.Categorical())
    x, y = images(7)
    options = {"eps": EPS, "steps": 3, "samples": 4}
    whole = lb.attacks.pgd(model, x, y, seed=4, **options)
    assert torch.equal(whole, lb.attacks.pgd(model, x, y, seed=4, **options))
    assert not torch.equal(whole, lb.attacks.pgd(model, x, y, seed=5, **options))
    pieces = lb.attacks.pgd(model, x, y, seed=4, rows=3, **options)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-6)


def test_steps_have_draws_of_their_own():
    model = lb.bayesianize(network(), lb.MeanField(init_std=0.3), likelihood=lb.Categorical())
    victim = Victim.of(model, None, 2, 0)
    x, y = images(3)
    with victim.open():
        first, second, again = (victim.log_prob(x, y, step) for step in (0, 1, 0))
    assert torch.equal(first, again)
    assert (first - second).abs().min() > 1e-4


@pytest.mark.parametrize("bayesian", [True, False])
def test_the_model_is_left_as_it_was(bayesian):
    net = network()
    model = lb.bayesianize(net, lb.MeanField(), likelihood=lb.Categorical()) if bayesian else net
    model.train()
    net[1].eval()  # a frozen BatchNorm keeps its own mode
    x, y = images(5)
    model(x).sum().backward()
    state = deepcopy(model.state_dict())
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    modes = {name: module.training for name, module in model.named_modules()}
    generator = torch.get_rng_state()
    with torch.no_grad():
        found = lb.attacks.pgd(model, x, y, eps=EPS, steps=2, samples=3, seed=0)
    with torch.inference_mode():
        same = lb.attacks.pgd(model, x + 0, y + 0, eps=EPS, steps=2, samples=3, seed=0)
    assert torch.equal(found, same)
    assert not found.requires_grad
    assert torch.equal(torch.get_rng_state(), generator)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    after = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert grads.keys() == after.keys()
    assert all(torch.equal(after[name], grad) for name, grad in grads.items())


def test_an_attack_that_fails_gives_the_modes_back():
    model = lb.bayesianize(network(), lb.MAP(), likelihood=lb.Categorical()).train()
    x, y = images(3)
    with pytest.raises(lb.ConfigError, match="outside the 3 classes"):
        lb.attacks.pgd(model, x, y + 1, eps=EPS)
    assert all(module.training for module in model.modules())


def test_several_labels_a_row_are_missed_together():
    """Dense targets: draws weigh pixel by pixel, labels that mean none do not count."""
    torch.manual_seed(3)
    net = nn.Conv2d(2, 3, 3, padding=1)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.2), likelihood=lb.Categorical())
    x = torch.rand(4, 2, 4, 4)
    y = torch.randint(0, 3, (4, 4, 4))
    found = lb.attacks.pgd(model, x, y, eps=EPS, steps=5, samples=3, seed=0)
    before, after = (lb.predict(model, v, samples=9, seed=8).log_prob(y).mean() for v in (x, found))
    assert after < before - 0.03
    y[2] = -100
    start = lb.attacks.pgd(model, x, y, eps=EPS, steps=5, samples=3, seed=0, random_start=False)
    assert torch.equal(start[2], x[2])


def test_numbers_are_driven_away_from_their_targets():
    net = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, -2.0, 0.5]]))
    model = lb.bayesianize(net, lb.MAP(), likelihood=lb.Gaussian())
    x, y = torch.tensor([[5.0, -3.0, 2.0]]), torch.tensor([[0.0]])
    found = lb.attacks.fgsm(model, x, y, eps=0.5, bounds=None)
    torch.testing.assert_close(found, x + 0.5 * torch.tensor([[1.0, -1.0, 1.0]]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eps": 0.0}, "eps must be a positive"),
        ({"eps": math.nan}, "eps must be a positive"),
        ({"step_size": -1.0}, "step_size must be a positive"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"rows": 0}, "rows must be a whole number"),
        ({"samples": 0}, "samples must be a whole number"),
        ({"norm": "1"}, "norm is 'inf' or '2'"),
        ({"average": "votes"}, "average is 'probabilities' or 'loss'"),
        ({"x": torch.zeros(3, 2, 4, 4, dtype=torch.long)}, "floating numbers"),
        ({"x": torch.full((3, 2, 4, 4), 1.5)}, "normalize=lb.data.Normalize"),
        ({"y": torch.zeros(2, dtype=torch.long)}, "3 inputs and 2 targets"),
        ({"model": lb.bayesianize(network(), lb.MAP())}, "needs a likelihood"),
    ],
)
def test_wrong_arguments_say_what_to_write(change, words):
    x, y = images(3)
    model = lb.bayesianize(network(), lb.MAP(), likelihood=lb.Categorical())
    given = {"model": model, "x": x, "y": y, "eps": EPS} | change
    with pytest.raises((lb.ConfigError, lb.DataError), match=words):
        lb.attacks.pgd(given.pop("model"), given.pop("x"), given.pop("y"), **given)


@pytest.mark.parametrize("norm", ["inf", "2"])
def test_with_an_index_no_row_depends_on_its_batch(norm):
    model, (x, y) = lb.bayesianize(network(), lb.MeanField()), images(9)
    options = {"eps": EPS, "steps": 2, "samples": 2, "seed": 3, "norm": norm}
    options["likelihood"] = lb.Categorical()
    whole = lb.attacks.pgd(model, x, y, first=4, **options)
    parts = [
        lb.attacks.pgd(model, x[at : at + 4], y[at : at + 4], first=4 + at, **options)
        for at in range(0, 9, 4)
    ]
    assert (torch.cat(parts) - whole).abs().max() < 1e-6
    assert (lb.attacks.pgd(model, x, y, first=5, **options) - whole).abs().max() > 1e-3
