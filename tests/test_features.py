"""Mean features against a loop over members and draws by hand; hooks that leave no trace."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64


class Net(nn.Module):
    """Two layers and a head that are no Sequential."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.unused = nn.Identity()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.body(x))))


def converted(method, **options):
    net = Net().to(F64)
    x = torch.randn(7, 4, dtype=F64)
    return lb.bayesianize(net, method, example=x, **options), x


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def draws(model, x, samples, seed):
    """Features by the logits: a head that is the identity shows what enters it."""
    with torch.no_grad():
        model.net.head = nn.Identity()
    return lb.predict(
        model, x, likelihood=lb.Gaussian(), samples=samples, seed=seed, keep_samples=True
    ).samples[..., 0]


def test_features_are_the_mean_over_the_draws_of_predict():
    only_body = lb.MeanField(init_std=0.5, select=lb.select.by_name("body"))
    model, x = converted(only_body)
    found = lb.predict_features(model, x, samples=6, seed=3, normalise=False)
    normal = lb.predict_features(model, x, samples=6, seed=3)
    each = draws(model, x, 6, 3)
    assert each.std(0).max() > 0.05
    torch.testing.assert_close(found, each.mean(0))
    torch.testing.assert_close(normal, each.mean(0) / each.mean(0).norm(dim=1, keepdim=True))


def test_features_of_a_deterministic_network_are_its_own():
    model, x = converted(lb.MAP())
    net = model.net.eval()
    expected = torch.tanh(net.norm(net.body(x)))
    found = lb.predict_features(model, x, normalise=False)
    torch.testing.assert_close(found, expected.detach())
    named = lb.predict_features(model, x, layer="body", normalise=False)
    torch.testing.assert_close(named, net.body(x).detach())


def test_features_of_a_deep_ensemble_are_the_mean_of_its_members():
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(F64)
    x = torch.randn(7, 4, dtype=F64)
    model = lb.bayesianize(net, lb.DeepEnsemble(members=3), example=x)
    members = [lb.collapse(deepcopy(model), member=k)[:2](x).detach() for k in range(3)]
    assert (members[0] - members[1]).abs().max() > 0.1
    found = lb.predict_features(model, x, normalise=False)
    torch.testing.assert_close(found, torch.stack(members).mean(0))


def test_a_named_layer_gives_what_leaves_it():
    model, x = converted(lb.MeanField(init_std=0.3))
    found = lb.predict_features(model, x, layer="head", samples=5, seed=1, normalise=False)
    p = lb.predict(model, x, likelihood=lb.Gaussian(), samples=5, seed=1)
    torch.testing.assert_close(found, p.mean)


def test_loaders_and_batches_give_the_same_rows():
    model, x = converted(lb.MeanField(init_std=0.3))
    whole = lb.predict_features(model, x, samples=4, seed=0)
    loader = [(x[:3], torch.zeros(3)), (x[3:], torch.zeros(4))]
    torch.testing.assert_close(lb.predict_features(model, iter(loader), samples=4, seed=0), whole)


def test_maps_are_normalised_a_row():
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Conv2d(3, 4, 1))
    x = torch.randn(5, 2, 4, 4)
    model = lb.bayesianize(net, lb.MeanField(), example=x)
    found = lb.predict_features(model, x, seed=0, samples=2)
    assert found.shape == (5, 3, 4, 4)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.ones(5, dtype=F64))


def test_copies_of_the_output_layer_do_not_touch_what_enters_it():
    net = Net().to(F64)
    x = torch.randn(7, 4, dtype=F64)
    method = lb.Patching(where="norm+output", scope="layer", exact_output=True)
    model = lb.bayesianize(net, method, example=x)
    found = lb.predict_features(model, x, samples=5, seed=2, normalise=False)
    named = lb.predict_features(model, x, layer="norm", samples=1, seed=2, normalise=False)
    assert found.shape == (7, 6)
    one = lb.predict_features(model, x, samples=1, seed=2, normalise=False)
    torch.testing.assert_close(one, torch.tanh(named))


def test_modes_hooks_and_generator_are_as_before():
    model, x = converted(lb.MeanField())
    model.train()
    model.net.norm.eval()
    before = hooks(model), torch.get_rng_state()
    features = lb.predict_features(model, x, samples=2, seed=0)
    assert (hooks(model), model.training, model.net.norm.training) == (before[0], True, False)
    assert torch.equal(torch.get_rng_state(), before[1])
    assert not features.requires_grad


def test_a_pass_that_fails_leaves_no_hook():
    model, x = converted(lb.MeanField())
    model.train()
    before = hooks(model)
    with pytest.raises(RuntimeError):
        lb.predict_features(model, x[:, :2], samples=2)
    assert hooks(model) == before
    assert model.training


def test_compiled_models_give_the_same_features():
    model, x = converted(lb.MeanField(init_std=0.3))
    plain = lb.predict_features(model, x, samples=3, seed=0)
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(lb.predict_features(compiled, x, samples=3, seed=0), plain)


def test_every_method_has_features():
    x = torch.randn(6, 4)
    for name, method in lb.methods().items():
        if name in ("compose", "deep_ensemble"):
            continue
        net = nn.Sequential(
            nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, 3)
        )
        options = {}
        if name == "partial":
            options = {"data": [(x, torch.zeros(6).long())], "likelihood": lb.Categorical()}
        model = lb.bayesianize(net, method(), example=x, **options)
        found = lb.predict_features(model, x, seed=0)
        assert found.shape == (6, 6), name
        torch.testing.assert_close(found.norm(dim=1), torch.ones(6, dtype=F64), msg=name)


@pytest.mark.parametrize(
    ("layer", "words"),
    [("haed", "no layer 'haed'; expected a name such as head"), ("unused", "'unused' did not run")],
)
def test_layers_that_give_nothing_are_refused(layer, words):
    model, x = converted(lb.MeanField())
    with pytest.raises(lb.ConfigError, match=words):
        lb.predict_features(model, x, layer=layer, samples=2)
    assert hooks(model) == 0


def test_features_without_a_row_an_example_are_refused():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.last(self.first(x.flatten(0, 1))).reshape(*x.shape[:2], 2)

    model = lb.bayesianize(Tokens(), lb.MAP())
    with pytest.raises(lb.ConfigError, match=r"'last' have shape \(6, 5\): expected a row"):
        lb.predict_features(model, torch.randn(2, 3, 4))
    with pytest.raises(lb.ConfigError, match="no batch"):
        lb.predict_features(model, iter([]))
