"""The network's own dropout layers as hosts: masks by the plan instead of the training flag."""

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.noise import KeyedNoise

SELECT_NOTHING = {"where": lb.select.nothing}
CASES = [
    (nn.Dropout, (5,), ()),
    (nn.Dropout, (4, 5), ()),
    (nn.Dropout1d, (4, 5), (1,)),
    (nn.Dropout2d, (4, 3, 5), (1, 2)),
    (nn.Dropout3d, (4, 3, 2, 2), (1, 2, 3)),
]


class Twice(nn.Module):
    """One dropout layer that runs twice in a pass."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return torch.cat([self.drop(x), self.drop(x)], 1)


def keyed(samples, seed=0):
    return lb.Plan(groups=len(samples), noise=KeyedNoise(seed, samples))


@pytest.fixture(params=CASES, ids=lambda c: f"{c[0].__name__}-{len(c[1])}")
def case(request):
    kind, shape, inner = request.param
    torch.manual_seed(0)
    net = nn.Sequential(kind(0.4))
    model = lb.bayesianize(net, lb.MCDropout(**SELECT_NOTHING), example=torch.ones(2, *shape))
    return model, shape, inner


def test_the_mean_network_is_the_identity_and_so_is_evaluation(case):
    model, shape, _ = case
    x = torch.randn(3, *shape)
    assert torch.equal(model.eval()(x), x)
    assert torch.equal(model.train()(x, plan=lb.Plan(mean=True)), x)


def test_training_follows_the_law_of_the_stock_layer(case):
    model, shape, inner = case
    x = torch.ones(4000, *shape)
    y = model.train()(x)
    assert torch.equal(y.unique(), nn.functional.dropout(x, 0.4).unique())
    dropped = (y == 0).float()
    torch.testing.assert_close(dropped.mean(0), torch.full(shape, 0.4), rtol=0, atol=0.04)
    if inner:  # whole channels
        by_channel = dropped.flatten(2)
        assert torch.equal(by_channel.amin(2), by_channel.amax(2))
    units = dropped if not inner else dropped.flatten(2)[..., 0]
    flat = units.flatten(1)
    corr = torch.corrcoef(flat.T)
    assert (corr - torch.eye(flat.shape[1])).abs().max() < 0.08


def test_a_keyed_mask_is_shared_by_rows_and_differs_between_samples(case):
    model, shape, _ = case
    x = torch.ones(6, *shape)
    y = model(x, plan=keyed([0, 1])).reshape(2, 3, *shape)
    assert torch.equal(y[:, 0], y[:, 1])
    again = model(x[:4], plan=keyed([0, 1])).reshape(2, 2, *shape)
    assert torch.equal(again, y[:, :2])
    many = model(torch.ones(16, *shape), plan=keyed(range(16)))
    assert len({tuple(m.flatten().tolist()) for m in many}) > 4


def test_every_call_of_a_layer_has_a_mask_of_its_own():
    model = lb.bayesianize(Twice(), lb.MCDropout(**SELECT_NOTHING), example=torch.ones(2, 40))
    for plan in (None, keyed([0])):
        model.train()
        first, second = model(torch.ones(1, 40), plan=plan).chunk(2, 1)
        assert not torch.equal(first, second)
    y = model(torch.ones(2, 40), plan=keyed([3]))
    assert torch.equal(y, model(torch.ones(2, 40), plan=keyed([3])))


def test_other_methods_leave_the_layers_and_collapse_gives_them_back():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.AlphaDropout(0.1), nn.Linear(4, 2))
    model = lb.bayesianize(net, lb.MeanField(), example=torch.ones(2, 4))
    assert type(net[1]) is nn.Dropout
    assert any("own dropout stays: 1, 2" in note for note in model.report.notes)
    assert "1" not in [s.name for s in model.report.skipped]
    plain = lb.collapse(model)
    model = lb.bayesianize(plain, lb.MCDropout(), example=torch.ones(2, 4))
    assert {c.name: c.slots for c in model.report.converted} == {
        "1": ("mask",),
        "3": ("in_scale",),
    }
    assert any("own dropout stays: 2" in note for note in model.report.notes)
    again = lb.collapse(model)
    assert [type(m) for m in again] == [nn.Linear, nn.Dropout, nn.AlphaDropout, nn.Linear]
    assert again[1].p == 0.3


def test_existing_false_leaves_them_and_a_rate_of_zero_is_no_dropout():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Dropout(0.0), nn.Linear(4, 2))
    model = lb.bayesianize(net, lb.MCDropout(existing=False), example=torch.ones(2, 4))
    assert [c.name for c in model.report.converted] == ["3"]
    net = lb.collapse(model)
    model = lb.bayesianize(net, lb.MCDropout(), example=torch.ones(2, 4))
    assert [c.name for c in model.report.converted] == ["1", "3"]


def test_the_last_layer_is_never_a_dropout_layer():
    net = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 4), nn.Linear(4, 2), nn.Dropout(0.3))
    for example in (None, torch.ones(2, 4)):
        model = lb.bayesianize(net, lb.MCDropout(), example=example)
        assert model.report.output == "2"
        net = lb.collapse(model)


def test_saved_and_loaded_masks_are_the_same(tmp_path):
    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.4), nn.Linear(9, 3))

    x = torch.randn(5, 6)
    model = lb.bayesianize(build(), lb.MCDropout(), example=x)
    lb.save(model, tmp_path / "saved")
    again = lb.load(build(), tmp_path / "saved")
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 2}
    assert torch.equal(lb.predict(again, x, **options).probs, lb.predict(model, x, **options).probs)


def test_a_rate_of_one_drops_everything_as_in_torch():
    model = lb.bayesianize(nn.Sequential(nn.Dropout(1.0)), lb.MCDropout(**SELECT_NOTHING))
    assert torch.equal(model.train()(torch.ones(2, 3)), torch.zeros(2, 3))
