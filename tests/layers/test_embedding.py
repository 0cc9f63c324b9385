"""nn.Embedding: ids share noise within a row, rows do not, the padding row has none."""

import copy
import math

import pytest
import torch
from layer_cases import assert_equal
from torch import nn

import leanbayes as lb
from leanbayes.noise import KeyedNoise

IDS = torch.tensor([[3, 3, 0, 5], [3, 1, 2, 3], [0, 3, 3, 2]])
ESTIMATORS = ("auto", "flipout", "exemplar")


def table(padding=None, seed=0):
    torch.manual_seed(seed)
    return nn.Embedding(7, 8, padding_idx=padding).double()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_law_in_training_is_one_table_a_row(estimator):
    """4,000 passes: unit variance, nothing correlated but equal ids of one row, which are equal."""
    passes = 4_000
    layer = table()
    method = lb.MeanField(estimator=estimator, init_log_std=(-3, 1))
    model = lb.bayesianize(layer, method, example=IDS).train()
    with torch.no_grad():
        noise = torch.stack([model(IDS) for _ in range(passes)]) - layer.weight[IDS]
    z = noise / layer.slots["weight"].std().detach()[IDS]  # [passes, rows, tokens, features]
    assert_equal(z[:, 0, 0], z[:, 0, 1])
    assert_equal(z[:, 1, 0], z[:, 1, 3])
    assert_equal(z[:, 2, 1], z[:, 2, 2])
    limit = 5 / math.sqrt(passes)
    assert (z.square().mean(0) - 1).abs().max() < math.sqrt(2) * limit
    assert z.mean(0).abs().max() < limit
    apart = z[:, [0, 0, 0, 1, 1, 1, 2, 2], [0, 2, 3, 0, 1, 2, 0, 1]].flatten(1)
    covariance = apart.T @ apart / passes
    assert (covariance - covariance.diagonal().diag()).abs().max() < limit * 1.2


def test_equal_ids_of_a_group_share_noise_and_groups_do_not():
    model = lb.bayesianize(table(), lb.MeanField(init_std=0.5), example=IDS).eval()
    y = model(IDS.repeat(2, 1), plan=lb.Plan(groups=2, noise=KeyedNoise(0, range(2))))
    one, two = y.chunk(2)
    shared = (IDS == 3).nonzero()
    for row, token in shared.tolist():
        assert_equal(one[row, token], one[0, 0])
        assert_equal(two[row, token], two[0, 0])
    assert (one[0, 0] - two[0, 0]).abs().min() > 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("padding", [0, 3, -1])
def test_the_padding_row_has_no_noise_no_gradient_and_no_kl(padding, estimator):
    layer = table(padding)
    row = layer.padding_idx
    with torch.no_grad():
        layer.weight[row] = 0.3
    ids = torch.tensor([[row, 1, 2], [4, row, row], [5, 5, 1]])
    method = lb.MeanField(estimator=estimator, init_log_std=(-2, 0), prior_std=0.7)
    model = lb.bayesianize(layer, method, example=ids).train()
    posterior = layer.slots["weight"]
    for plan in (
        None,
        lb.Plan(),
        lb.Plan(groups=3),
        lb.Plan(groups=3, noise=KeyedNoise(0, (1, 2, 3))),
    ):
        model.zero_grad()
        y = model(ids, plan=plan)
        assert_equal(y[ids == row], torch.full((3, 8), 0.3, dtype=torch.float64))
        assert ((y - layer.weight[ids]).abs() > 1e-9)[ids != row].all()
        y.square().sum().backward()
        for gradient in (layer.weight.grad, posterior.log_std.grad):
            assert (gradient[row] == 0).all()
            assert (gradient[[1, 2, 4, 5]] != 0).all()
    model.zero_grad()
    kl = model.kl()
    kl.backward()
    others = [index for index in range(7) if index != row]
    mean, log_std = layer.weight.detach()[others], posterior.log_std.detach()[others]
    q = torch.distributions.Normal(mean, log_std.exp())
    prior = torch.distributions.Normal(torch.zeros_like(mean), 0.7)
    exact = torch.distributions.kl_divergence(q, prior).sum()
    assert_equal(kl.detach(), exact)
    for gradient in (layer.weight.grad, posterior.log_std.grad):
        assert (gradient[row] == 0).all()
        assert (gradient[others] != 0).all()


class Positions(nn.Module):
    """Ids, and positions that have no batch."""

    def __init__(self, length):
        super().__init__()
        self.token = nn.Embedding(7, 4)
        self.position = nn.Embedding(length, 4)

    def forward(self, ids):
        return self.token(ids) + self.position(torch.arange(ids.shape[1]))


@pytest.mark.parametrize("length", [7, 8], ids=["odd", "multiple_of_the_rows"])
def test_positions_without_a_batch_are_left_not_mixed_up_with_rows(length):
    """A table that takes [T] ids cannot hold one draw for each of B rows."""
    net = Positions(length)
    ids = torch.randint(0, 7, (4, length), generator=torch.Generator().manual_seed(0))
    report = lb.bayesianize(net, lb.MeanField(), example=ids).report
    assert type(net.position) is nn.Embedding
    assert [layer.name for layer in report.converted] == ["token"]
    (left,) = report.skipped
    assert left.name == "position"
    assert "the same input for any number of rows" in left.reason


def test_ids_of_any_integer_type_give_the_same_rows():
    model = lb.bayesianize(table(), lb.MeanField(init_std=0.5), example=IDS).eval()
    plan = lb.Plan(groups=3, noise=KeyedNoise(0, range(3)))
    assert torch.equal(model(IDS.int(), plan=plan), model(IDS, plan=plan))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_norm": 1.0}, "max_norm"),
        ({"sparse": True}, "sparse"),
        ({"scale_grad_by_freq": True}, "scale_grad_by_freq"),
    ],
    ids=["max_norm", "sparse", "scale_grad_by_freq"],
)
def test_tables_that_a_draw_would_break_are_left_and_listed(options, reason):
    torch.manual_seed(0)
    layer = nn.Embedding(7, 8, **options)
    net = nn.Sequential(layer, nn.Linear(8, 2))
    stock = copy.deepcopy(layer)
    model = lb.bayesianize(net, lb.MeanField(), example=IDS)
    assert type(layer) is nn.Embedding
    assert [c.name for c in model.report.converted] == ["1"]
    (skipped,) = model.report.skipped
    assert (skipped.name, skipped.type) == ("0", "Embedding")
    assert reason in skipped.reason
    assert torch.equal(layer(IDS), stock(IDS))


def test_positions_given_once_for_all_rows_are_drawn_by_row():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(7, 4), nn.Embedding(5, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, ids):
            place = torch.arange(ids.shape[1]).unsqueeze(0)
            return self.head((self.words(ids) + self.places(place)).mean(1))

    ids = torch.randint(0, 7, (6, 5))
    model = lb.bayesianize(Positions().double(), lb.MeanField(init_std=0.3), example=ids)
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 0}
    folded = lb.predict(model, ids, chunk=4, **options).probs
    torch.testing.assert_close(folded, lb.predict(model, ids, **options).probs, rtol=1e-12, atol=0)
    y = model.train()(ids[:1].expand(6, 5))
    assert len({tuple(row.tolist()) for row in y}) == 6


COPIES = {
    "layer": lb.Patching(where="all", init_std=0.3),
    "element": lb.Patching(where="all", cross=True, init_std=0.3),
    "network": lb.Patching(where="all", scope="network", init_std=0.3),
    "zero": lb.Patching(where="all", zero_copy=True, init_std=0.3),
    "zero_network": lb.Patching(where="all", zero_copy=True, scope="network", init_std=0.3),
    "zero_element": lb.Patching(where="all", zero_copy=True, cross=True, members=2, keep=0.5),
    "deep_ensemble": lb.DeepEnsemble(members=5, init_std=0.3),
    "deep_ensemble_fresh": lb.DeepEnsemble(members=5),
}


@pytest.mark.parametrize("method", COPIES.values(), ids=COPIES)
def test_copies_of_a_table_share_the_padding_row_before_and_after_a_step(method):
    layer, ids = table(3), torch.tensor([[3, 1, 2], [4, 3, 0]])
    with torch.no_grad():
        layer.weight[3] = 0.3
    model = lb.bayesianize(layer, method, example=ids).train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1), momentum=0.9)
    handle = lb.attach_kl(optimizer, model, num_data=10)
    for _ in range(2):
        plan = method.prediction_plan(range(5), KeyedNoise(0, range(5)))
        y = model(ids.repeat(5, 1), plan=plan).reshape(5, *ids.shape, 8)
        assert_equal(y[:, ids == 3], torch.full((5, 2, 8), 0.3, dtype=torch.float64))
        assert y[:, ids != 3].std(0).max() > 0.05
        y.square().sum().backward()
        optimizer.step()
    assert handle.steps == 2


@pytest.mark.parametrize("samples", [1, 5])
def test_the_zero_copy_of_a_table_keeps_its_padding_row_in_prediction(samples):
    """One pass a sample takes a short way: the copy is read by its number."""
    layer, ids = table(3), torch.tensor([[3, 1], [2, 3]])
    with torch.no_grad():
        layer.weight[3] = 0.3
    method = lb.Patching(where="all", zero_copy=True, members=2, prior_std=0.5)
    model = lb.bayesianize(layer, method, likelihood=lb.Gaussian(), example=ids).eval()
    options = {"seed": 0, "chunk": samples, "keep_samples": True}
    kept = lb.predict(model, ids, samples=20, **options).samples[..., 0]
    assert_equal(kept[:, ids == 3], torch.full((20, 2, 8), 0.3, dtype=torch.float64))
    assert (kept[:, ids != 3] == 0).any()
    # The zero copy adds nothing, nor does the padding row: half of the trained one's other squares.
    rest = layer.weight[[0, 1, 2, 4, 5, 6]]
    expected = 0.5 * rest.square().sum() / (2 * 0.5**2)
    torch.testing.assert_close(model.kl(), expected)
    assert_equal(lb.collapse(model, None).weight[3], layer.weight[3])


def test_the_inputs_of_a_table_are_its_ids():
    """A copy an input unit: the row of an id comes from one copy whole, and ids pick apart."""
    torch.manual_seed(0)
    method = lb.Patching(scope="input", members=2, where="all", init_std=0.5)
    model = lb.bayesianize(nn.Sequential(nn.Embedding(40, 6)), method).train()
    copies = model.net[0].slots["weight"].values(model.net[0].weight)
    rows = model(torch.arange(40)[None], plan=lb.Plan())[0]
    hits = torch.stack([(rows == copy).all(1) for copy in copies])
    assert torch.equal(hits.sum(0), torch.ones(40, dtype=torch.long))
    assert 8 <= int(hits[0].sum()) <= 32
