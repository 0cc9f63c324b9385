"""Short vectors that are drawn in one go on entry: the same law, the same gradients."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import leanbayes as lb
from leanbayes.forms import Shared
from leanbayes.posteriors.bank import Bank


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 6)
        self.norm1, self.norm2 = nn.LayerNorm(6), nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)
        self.reentrant = None

    def block(self, x):
        return torch.tanh(self.norm2(self.second(torch.tanh(self.norm1(x)))))

    def forward(self, x):
        x = self.first(x)
        if self.reentrant is None:
            return self.head(self.block(x))
        return self.head(checkpoint(self.block, x, use_reentrant=self.reentrant))


METHODS = {
    "rank_one": lb.RankOne(members=2, init_std=0.3),
    "cauchy": lb.RankOne(members=2, law="cauchy", init_std=0.3, clip=None),
    "implicit": lb.Implicit(members=2, init_std=0.3, granularity="batch"),
    "mean_field": lb.MeanField(estimator="shared", init_std=0.3),
    "patching": lb.Patching(init_std=0.5),
    "network": lb.Patching(init_std=0.5, scope="network"),
    "elements": lb.Patching(init_std=0.5, cross=True),
    "elements_by_row": lb.Patching(init_std=0.5, cross=True, granularity="row"),
    "points": lb.BatchEnsemble(members=2, init_std=0.3),
    "candidates": lb.SharedEnsemble(members=3, init_std=0.3, per_channel=True),
    "candidates_of_rank_two": lb.SharedEnsemble(members=3, rank=2, init_std=0.3, per_channel=True),
    "sparse": lb.Partial(rate=0.5, criterion="random", init_std=0.3, estimator="shared"),
}


def passed(method, rows=6, reentrant=None):
    """A model at the start of a training pass, and its input."""
    torch.manual_seed(0)
    x = torch.randn(rows, 4, dtype=torch.float64)
    model = lb.bayesianize(Stack().double(), method, example=x)
    model.net.reentrant = reentrant
    torch.manual_seed(1)
    begin(model.train(), x)
    return model, x


def begin(model, x):
    """What a call does before the network runs."""
    model.enter(model.training_plan(len(x)), len(x))


def value_of(form):
    return form.value[None] if isinstance(form, Shared) else form.value


def drawn(model):
    """Posterior, tensor, components, value and noise of every law that was drawn ahead."""
    for _, _, posterior, base in model.posteriors():
        if isinstance(posterior, Bank) or posterior.key not in model.scope.ahead:
            continue
        value = value_of(model.scope.ahead[posterior.key])
        component = model.scope.component(posterior.granularity)
        zero, one = (
            posterior.draw(base, torch.full_like(value, c), component).detach() for c in (0.0, 1.0)
        )
        yield posterior, base, component, value, (value.detach() - zero) / (one - zero)


@pytest.mark.parametrize("name", ["rank_one", "cauchy", "implicit", "mean_field"])
def test_a_joint_draw_is_the_draw_of_each_with_its_own_noise(name):
    model, _ = passed(METHODS[name])
    seen = []
    for posterior, base, component, value, noise in drawn(model):
        single = posterior.draw(base, noise, component)
        torch.testing.assert_close(value, single, rtol=1e-12, atol=1e-12)
        given = [p for p in posterior.parameters() if p.requires_grad]
        seed = torch.randn_like(value)
        for a, b in zip(
            torch.autograd.grad(value, given, seed, retain_graph=True),
            torch.autograd.grad(single, given, seed),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        seen.append(noise.flatten())
    numbers = torch.cat(seen)
    assert len(seen) > 2
    assert len(numbers.unique()) == len(numbers)  # no two entries share a number


@pytest.mark.parametrize("name", ["rank_one", "mean_field"])
def test_joint_noise_is_standard_normal(name):
    model, x = passed(METHODS[name])
    found = []
    for _ in range(400):
        begin(model, x)
        found += [noise.flatten() for *_, noise in drawn(model)]
    z = torch.cat(found)
    error = len(z) ** -0.5
    assert z.mean().abs() < 4 * error
    assert (z.square().mean() - 1).abs() < 4 * 2**0.5 * error
    assert (z.pow(4).mean() - 3).abs() < 4 * 96**0.5 * error


def test_weight_and_bias_of_a_layer_take_one_copy_and_layers_their_own():
    model, x = passed(METHODS["patching"])
    picks = {"norm1": [], "norm2": []}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    for _ in range(300):
        begin(model, x)
        for norm, taken in picks.items():
            host, forms = getattr(model.net, norm), model.scope.ahead
            weight, bias = (
                (host.posterior(s).values(getattr(host, s)) == forms[f"{norm}.{s}"].value).all(1)
                for s in ("weight", "bias")
            )
            assert torch.equal(weight, bias)
            taken.append(int(weight.nonzero()))
    for taken in picks.values():
        count = torch.bincount(torch.tensor(taken), minlength=5)
        assert (count - 60).abs().max() < 4 * (300 * 0.2 * 0.8) ** 0.5
    assert picks["norm1"] != picks["norm2"]


@pytest.mark.parametrize("name", METHODS)
def test_some_tensors_are_drawn_ahead(name):
    model, _ = passed(METHODS[name])
    assert len(model.scope.ahead) > 1


def test_a_sparse_joint_draw_moves_the_random_entries_alone_by_noise_of_the_stated_scale():
    model, x = passed(METHODS["sparse"])
    found = []
    for _ in range(200):
        begin(model, x)
        for _, _, posterior, base in model.posteriors():
            shift = (model.scope.ahead[posterior.key].value - base).flatten().detach()
            found.append(shift[posterior.entries])
            shift[posterior.entries] = 0
            assert not shift.any()
    z = torch.cat(found) / 0.3
    assert z.mean().abs() < 4 * len(z) ** -0.5
    assert (z.square().mean() - 1).abs() < 4 * (2 / len(z)) ** 0.5
    assert len(z.unique()) == len(z)


def test_noise_that_a_layer_integrates_out_is_not_drawn_ahead():
    model, _ = passed(lb.Partial(rate=0.5, criterion="random", init_std=0.3))
    assert not {key for key in model.scope.ahead if key.split(".")[0] in ("first", "head")}


@pytest.mark.parametrize("name", METHODS)
def test_copies_and_scales_get_the_gradient_of_the_loss(name):
    """Finite differences under one seed, with and without blocks that are computed again."""
    for reentrant in (None, False, True):
        model, x = passed(METHODS[name], reentrant=reentrant)

        def loss(model=model, x=x):
            torch.manual_seed(7)
            return model(x).square().sum()

        loss().backward()
        for _, _, posterior, base in model.posteriors():
            for tensor in (base, *posterior.parameters()):
                if not tensor.requires_grad:
                    continue
                grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                direction = torch.randn_like(tensor)
                found = []
                for step in (1e-5, -2e-5):
                    with torch.no_grad():
                        tensor.add_(direction, alpha=step)
                    found.append(loss().detach())
                with torch.no_grad():
                    tensor.add_(direction, alpha=1e-5)
                expected = (found[0] - found[1]) / 2e-5
                torch.testing.assert_close((grad * direction).sum(), expected, rtol=1e-5, atol=1e-6)


def test_nothing_is_kept_after_a_pass_and_a_model_can_be_copied_after_a_step():
    model, x = passed(METHODS["rank_one"])
    assert model.scope.ahead
    model(x).sum().backward()
    copied = copy.deepcopy(model)
    assert not copied.scope.ahead
    torch.manual_seed(3)
    expected = model(x)
    assert not model.scope.ahead
    torch.manual_seed(3)
    torch.testing.assert_close(copied(x), expected, rtol=0, atol=0)


def test_the_mean_network_draws_nothing_ahead():
    model, x = passed(METHODS["rank_one"])
    model.enter(lb.Plan(mean=True), len(x))
    assert not model.scope.ahead
