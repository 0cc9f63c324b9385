"""Layers that run twice and tensors that layers share: one posterior, one draw, one KL term."""

import copy

import pytest
import torch
from layer_cases import assert_equal, written_out
from torch import nn
from torch.func import functional_call

import leanbayes as lb
from leanbayes.layers import Host
from leanbayes.noise import KeyedNoise

ESTIMATORS = pytest.mark.parametrize(
    "estimator", ["auto", "shared", "exemplar", "local", "flipout"]
)
ROWS = 6


class Twice(nn.Module):
    """One layer after itself, on rows and on tokens."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(self.fc(x))
        return self.fc(torch.stack([y, x], 1)).flatten(1)


class Difference(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x) - self.layer(x)


class TwiceInEvaluation(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) if self.training else self.layer(x) - self.layer(x)


class TwoNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = self.one

    def forward(self, x):
        return self.one(x) - self.two(x)


class Tied(nn.Module):
    """A language model in small: the head uses the table of the embedding."""

    def __init__(self, head_first=False, padding=None):
        super().__init__()
        for name in ("head", "embed") if head_first else ("embed", "head"):
            layer = nn.Embedding(7, 4, padding) if name == "embed" else nn.Linear(4, 7)
            setattr(self, name, layer)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids).tanh())


class Autoencoder(nn.Module):
    """A convolution and its transpose with one kernel."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(4, 8, 3, groups=2)
        self.up = nn.ConvTranspose2d(8, 4, 3, groups=2)
        self.up.weight = self.down.weight

    def forward(self, x):
        return self.up(self.down(x).tanh())


def rows(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, 4, generator=generator, dtype=torch.float64)


def images():
    return torch.randn(ROWS, 4, 5, 5, generator=torch.Generator().manual_seed(1)).double()


def ids():
    return torch.randint(0, 7, (ROWS, 3), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def draws_of(monkeypatch):
    """Run a model and give its output and the tensors of every row, by posterior key.

    Every use of a tensor in the pass must stand for the same values.
    """

    def run(model, x, groups=1, **options):
        uses, form = [], Host.form

        def recording(self, slot, *args):
            uses.append((self.posterior(slot).key, form(self, slot, *args)))
            return uses[-1][1]

        with monkeypatch.context() as patch:
            patch.setattr(Host, "form", recording)
            output = model(x, **options)
        values = {}
        for key, used in uses:
            tensors = torch.stack(written_out(used, ROWS, groups if "weight" in key else 1))
            assert_equal(tensors, values.setdefault(key, tensors))
        return output, values

    return run


def assert_rows_are_stock_passes(stock, x, output, values):
    for row in range(ROWS):
        draw = {key: value[row] for key, value in values.items()}
        assert_equal(output[[row]], functional_call(stock, draw, x[[row]]))


@ESTIMATORS
def test_a_layer_that_runs_three_times_is_one_weight_a_row(estimator, draws_of):
    torch.manual_seed(0)
    net = Twice().double()
    stock = copy.deepcopy(net)
    method = lb.MeanField(estimator=estimator, init_std=0.5)
    model = lb.bayesianize(net, method, example=rows()).train()
    output, values = draws_of(model, rows(1))
    assert_rows_are_stock_passes(stock, rows(1), output, values)
    distinct = len({tuple(w.flatten().tolist()) for w in values["fc.weight"]})
    assert distinct == (1 if estimator == "shared" else ROWS)


@ESTIMATORS
@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (lambda: nn.Linear(4, 4), rows()),
        (lambda: nn.Conv2d(4, 8, 3), images()),
        (lambda: nn.LayerNorm(4), rows()),
        (lambda: nn.Embedding(7, 4), ids()),
    ],
    ids=["Linear", "Conv2d", "LayerNorm", "Embedding"],
)
def test_the_difference_of_two_calls_is_exactly_zero_in_training(layer, x, estimator):
    method = lb.MeanField(estimator=estimator, init_std=0.5)
    model = lb.bayesianize(Difference(layer().double()), method, example=x).train()
    for plan in (None, lb.Plan(), lb.Plan(groups=2), lb.Plan(groups=ROWS)):
        y = model(x, plan=plan)
        assert torch.equal(y, torch.zeros_like(y))


@ESTIMATORS
def test_without_an_example_a_second_call_raises_in_training_and_predicts_right(estimator):
    method = lb.MeanField(estimator=estimator, init_std=0.5)
    model = lb.bayesianize(Difference(nn.Linear(4, 4).double()), method).train()
    with pytest.raises(lb.PlanError, match=r"layer\.weight.*example=x"):
        model(rows())
    probs = lb.predict(model, rows(), likelihood=lb.Categorical(), samples=4, seed=0).probs
    assert torch.equal(probs, torch.full_like(probs, 0.25))
    assert torch.equal(model.eval()(rows()), torch.zeros(ROWS, 4).double())


@ESTIMATORS
@pytest.mark.parametrize("example", [None, rows()], ids=["no_example", "example"])
def test_a_layer_of_two_names_takes_one_draw_even_without_an_example(estimator, example):
    method = lb.MeanField(estimator=estimator, init_std=0.5)
    model = lb.bayesianize(TwoNames().double(), method, example=example).train()
    assert torch.equal(model(rows()), torch.zeros(ROWS, 4).double())
    assert len(list(model.posteriors())) == 2
    assert len(model.report.converted) == 1


@ESTIMATORS
@pytest.mark.parametrize("head_first", [False, True], ids=["embed_first", "head_first"])
@pytest.mark.parametrize("example", [None, ids()], ids=["no_example", "example"])
def test_tied_weights_take_one_draw_a_row(estimator, head_first, example, draws_of):
    torch.manual_seed(0)
    net = Tied(head_first).double()
    stock = copy.deepcopy(net)
    method = lb.MeanField(estimator=estimator, init_std=0.5)
    model = lb.bayesianize(net, method, example=example).train()
    assert net.embed.slots["weight"] is net.head.slots["weight"]
    output, values = draws_of(model, ids())
    assert set(values) == {"head.bias", "embed.weight"}
    assert_rows_are_stock_passes(stock, ids(), output, values)


@ESTIMATORS
def test_a_convolution_tied_to_its_transpose_takes_one_draw_a_row(estimator, draws_of):
    torch.manual_seed(0)
    net = Autoencoder().double()
    stock = copy.deepcopy(net)
    method = lb.MeanField(estimator=estimator, init_std=0.5)
    model = lb.bayesianize(net, method, example=images()).train()
    output, values = draws_of(model, images(), groups=2)
    assert_rows_are_stock_passes(stock, images(), output, values)


def test_tied_weights_count_once_in_the_kl_the_report_and_the_parameters():
    torch.manual_seed(0)
    net = Tied().double()
    weight, bias = net.embed.weight, net.head.bias
    model = lb.bayesianize(net, lb.MeanField(init_std=0.5, prior_std=2.0))
    prior = torch.distributions.Normal(0.0, 2.0)
    exact = sum(
        torch.distributions.kl_divergence(torch.distributions.Normal(p.detach(), 0.5), prior).sum()
        for p in (weight, bias)
    )
    assert_equal(model.kl().detach(), exact)
    assert len(list(model.posteriors())) == 2
    assert model.report.added == weight.numel() + bias.numel()
    assert sum(p.numel() for p in model.parameters()) == 2 * model.report.added
    plain = lb.collapse(model)
    assert plain.head.weight is plain.embed.weight


def test_a_layer_that_runs_twice_in_evaluation_alone_takes_one_fresh_draw_there():
    x = torch.randn(3, 4)
    model = lb.bayesianize(TwiceInEvaluation(), lb.MeanField(init_std=0.5), example=x).eval()
    assert_equal(model(x, plan=lb.Plan()), torch.zeros(3, 4))


@pytest.mark.parametrize("head_first", [False, True], ids=["embed_first", "head_first"])
def test_a_collapsed_member_of_one_layer_leaves_the_tensor_of_the_other_as_it_is(head_first):
    torch.manual_seed(0)
    net = Tied(head_first).double()
    head = lb.DeepEnsemble(members=2, init_std=0.5, select=lb.select.by_name("head"))
    model = lb.bayesianize(net, head).eval()
    plain = lb.collapse(model, member=1)
    assert torch.equal(plain.embed.weight, net.embed.weight)
    assert not torch.equal(plain.head.weight, net.head.weight)
    assert_equal(plain(ids()), model(ids(), plan=lb.Plan(component=torch.tensor([1]))))


def test_tied_weights_take_one_keyed_draw_in_prediction():
    torch.manual_seed(0)
    net = Tied().double()
    stock = copy.deepcopy(net)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.5), example=ids()).eval()
    noise = KeyedNoise(3, range(2))
    found = model(ids(), plan=lb.Plan(groups=2, noise=noise))
    for group, block in enumerate(ids().chunk(2)):
        draw = {
            q.key: base + 0.5 * noise.normal(q.key, 2, base.shape, base)[group]
            for _, _, q, base in model.posteriors()
        }
        assert_equal(found.chunk(2)[group], functional_call(stock, draw, block))


@pytest.mark.parametrize("head_first", [False, True], ids=["embed_first", "head_first"])
def test_the_padding_row_of_a_tied_table_is_fixed_whichever_layer_comes_first(head_first):
    net = Tied(head_first, padding=2).double()
    lb.bayesianize(net, lb.MeanField(init_std=0.5))
    std = net.embed.slots["weight"].std()
    assert (std[2] == 0).all()
    assert (std[[0, 1, 3, 4, 5, 6]] > 0).all()


class Renamed(nn.Module):
    """One layer under two names, in either order."""

    def __init__(self, head_first):
        super().__init__()
        layer = nn.Linear(4, 4)
        for name in ("one", "two") if head_first else ("two", "one"):
            setattr(self, name, layer)

    def forward(self, x):
        return self.two(self.one(x))


@pytest.mark.parametrize("kind", [Tied, Renamed])
@pytest.mark.parametrize(
    "method",
    [
        lb.MeanField(init_std=0.3),
        lb.Patching(where="all", init_std=0.3),
        lb.DropConnect(rate=0.3),
        lb.RankOne(init_scale=0.3),
    ],
    ids=lambda method: method.name,
)
def test_keyed_draws_do_not_depend_on_the_order_of_registration(kind, method):
    """api.md: module order does not matter, also where the name that comes first changes."""
    x = torch.arange(6) if kind is Tied else torch.randn(6, 4, dtype=torch.float64)
    found, state = [], None
    for head_first in (False, True):
        model = lb.bayesianize(kind(head_first).double(), method, example=x)
        state = model.state_dict() if state is None else state
        model.load_state_dict(state)
        options = {"samples": 5, "seed": 3, "keep_samples": True}
        found.append(lb.predict(model, x, likelihood=lb.Categorical(), **options).samples)
    assert (found[0][0] - found[0][1]).abs().max() > 1e-3
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)
