"""Subclasses whose own forward calls that of their stock class: they convert where it is proved."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.layers import Host
from leanbayes.noise import KeyedNoise


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


class Shifted(Doubled):
    """Two forwards on the way, and a question about the type of the weight."""

    def forward(self, input):
        shift = torch.ones((), dtype=self.weight.dtype, device=self.weight.device)
        return super().forward(input.to(self.weight.dtype)) + shift


class Scaled(nn.Embedding):
    """What BART and Gemma look words up with."""

    def forward(self, ids):
        return 3 * super().forward(ids)


class Normed(nn.BatchNorm2d):
    def forward(self, x):
        return torch.relu(super().forward(x))


class Padded(nn.Conv2d):
    def forward(self, x):
        return super().forward(F.pad(x, (0, 1, 0, 1)))


class Reads(nn.Linear):
    def forward(self, input):
        return super().forward(input) + input @ self.weight.T


class ReadsInside(nn.Linear):
    def forward(self, input):
        return super().forward(input) + next(row @ self.weight.T for row in (input,))


class ReadsInMethod(nn.Linear):
    def forward(self, input):
        return super().forward(input) + self.twice(input)

    def twice(self, input):
        return next(2 * self.plain(row) for row in (input,))

    def plain(self, input):
        return F.linear(input, self.weight)


class ReadsInProperty(Doubled):
    @property
    def scale(self):
        return self.weight.norm()

    def forward(self, input):
        return self.scale * super().forward(input)


class ByName(nn.Linear):
    def forward(self, input):
        return nn.Linear.forward(self, input)


class Decorated(nn.Linear):
    @torch.no_grad()
    def forward(self, input):
        return super().forward(input)


class Sometimes(nn.Linear):
    def forward(self, input):
        return super().forward(input) if self.training else input.clone()


IDS = torch.tensor([[0, 1], [2, 3], [4, 0]])
GRID = torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
# A layer, the stock layer, what the own forward adds to it, and an input.
CASES = {
    "linear": (Doubled, nn.Linear, (4, 4), lambda stock, x: 2 * stock(x), X),
    "chain": (Shifted, nn.Linear, (4, 4), lambda stock, x: 2 * stock(x) + 1, X),
    "embedding": (Scaled, nn.Embedding, (5, 4), lambda stock, ids: 3 * stock(ids), IDS),
    "norm": (Normed, nn.BatchNorm2d, (4,), lambda stock, x: torch.relu(stock(x)), GRID),
    "conv": (Padded, nn.Conv2d, (4, 2, 3), lambda stock, x: stock(F.pad(x, (0, 1, 0, 1))), GRID),
}
METHODS = {
    "mean_field": lb.MeanField(init_std=0.3),
    "patching": lb.Patching(where="all", init_std=0.3),
    "rank_one": lb.RankOne(members=2, init_std=0.3),
}


def pair(case):
    """The layer and its stock layer with the same tensors."""
    kind, stock, arguments, expected, x = CASES[case]
    torch.manual_seed(0)
    layer, plain = kind(*arguments).double(), stock(*arguments).double()
    plain.load_state_dict(layer.state_dict())
    return layer, plain, expected, x


NO_FACTORS = ("norm", "embedding")  # of these types
DRAWS = [(c, m) for c in CASES for m in METHODS if m != "rank_one" or c not in NO_FACTORS]


@pytest.mark.parametrize(("case", "name"), DRAWS)
def test_a_draw_acts_where_super_is_called(case, name):
    """Draws by key go by the tensor's name, so that the stock layer draws the same."""
    layer, plain, expected, x = pair(case)
    own = lb.bayesianize(layer, METHODS[name], example=x).eval()
    torch.manual_seed(3)
    stock = lb.bayesianize(plain, METHODS[name], example=expected_input(case, x)).eval()
    stock.load_state_dict(own.state_dict())
    plan = own.method.prediction_plan(range(8), KeyedNoise(0, range(8)))
    rows = x.repeat(8, *(1,) * (x.dim() - 1))
    y = own(rows, plan=plan)
    reference = expected(lambda z: stock(z, plan=plan), rows)
    torch.testing.assert_close(y, reference, rtol=1e-12, atol=1e-12)
    assert y.reshape(8, *x.shape[:1], -1).std(0).max() > 0.05


def expected_input(case, x):
    return F.pad(x, (0, 1, 0, 1)) if case == "conv" else x


@pytest.mark.parametrize("case", CASES)
def test_without_noise_it_is_the_layer_in_training_and_evaluation(case):
    layer, _, _, x = pair(case)
    stock = copy.deepcopy(layer)
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=x)
    for mode in (True, False):
        torch.testing.assert_close(model.train(mode)(x), stock.train(mode)(x), rtol=0, atol=1e-14)
    for name, buffer in stock.named_buffers():
        assert torch.equal(layer.get_buffer(name), buffer)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_files_and_the_way_back(copied, tmp_path):
    layer, _, _, x = pair("chain")
    before = copy.deepcopy(layer)
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.5), example=x)
    assert isinstance(layer, Host)
    assert type(layer).__name__ == "BayesianShifted"
    options = {"likelihood": lb.Gaussian(), "samples": 3, "seed": 0}
    p = lb.predict(model, x, **options).mean
    twin = copied(model)
    assert type(twin.net) is type(layer)
    assert torch.equal(lb.predict(twin, x, **options).mean, p)
    lb.save(model, tmp_path / "saved")
    again = lb.load(Shifted(4, 4).double(), tmp_path / "saved")
    assert torch.equal(lb.predict(again, x, **options).mean, p)
    plain = lb.collapse(twin)
    assert type(plain) is Shifted
    assert torch.equal(plain(x), before(x))


def test_the_compiler_takes_it_in_one_graph():
    layer, _, _, x = pair("chain")
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=x).train()
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(x), model(x), rtol=0, atol=1e-14)


def test_without_an_example_it_is_left_and_told_of():
    net = nn.Sequential(Doubled(4, 4), nn.Linear(4, 2))
    report = lb.bayesianize(net, lb.MeanField()).report
    (skipped,) = report.skipped
    assert skipped.name == "0"
    assert "example=x" in skipped.reason


@pytest.mark.parametrize(
    "kind", [Reads, ReadsInside, ReadsInMethod, ReadsInProperty, ByName, Decorated]
)
def test_one_that_reaches_the_weight_otherwise_is_left(kind):
    net = nn.Sequential(kind(4, 4), nn.Linear(4, 2)).double()
    report = lb.bayesianize(net, lb.MeanField(), example=X).report
    (skipped,) = report.skipped
    assert skipped.name == "0"
    assert "overrides forward of Linear, which a host would replace" in skipped.reason


def test_one_that_does_not_always_call_super_is_found_out():
    net = nn.Sequential(Sometimes(4, 4), nn.Linear(4, 2)).double()
    with pytest.raises(lb.ConversionError, match=r"0\.bias does not act in eval"):
        lb.bayesianize(net, lb.MeanField(), example=X)
    assert type(net[0]) is Sometimes
