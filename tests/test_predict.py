"""Prediction: inputs of every kind, budgets, prefixes, weights of members, clear errors."""

import math
from inspect import signature
from typing import get_overloads, get_type_hints

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb
from leanbayes.noise import KeyedNoise, key_seed
from leanbayes.predict import Options, member_weights

F64 = torch.float64


def classifier(**options):
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(F64)
    return lb.bayesianize(net, lb.MeanField(init_std=0.3, **options), likelihood=lb.Categorical())


def test_loaders_tensors_and_slices_give_the_same_rows():
    model, x = classifier(), torch.randn(10, 4, dtype=F64)
    whole = lb.predict(model, x, seed=1)
    pairs = DataLoader(TensorDataset(x, torch.zeros(10)), batch_size=4)
    alone = DataLoader(TensorDataset(x), batch_size=3)
    listed = [(x[:7], None), (x[7:], None)]  # as lb.fit and lb.fit_posterior take batches
    for loader in (pairs, alone, listed, (x[i : i + 5] for i in (0, 5))):
        p = lb.predict(model, loader, seed=1)
        torch.testing.assert_close(p.probs, whole.probs, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(p.epistemic, whole.epistemic, rtol=1e-9, atol=1e-12)


def test_without_a_seed_all_batches_of_a_call_share_the_draws():
    model, x = classifier(), torch.randn(1, 4, dtype=F64).expand(6, 4).contiguous()
    p = lb.predict(model, DataLoader(TensorDataset(x), batch_size=2), samples=3)
    torch.testing.assert_close(p.probs, p.probs[:1].expand(6, 3), rtol=1e-12, atol=1e-12)


def test_a_small_memory_budget_changes_nothing_but_the_passes():
    model, x = classifier(), torch.randn(50, 4, dtype=F64)
    seen = []
    handle = model.net[0].register_forward_hook(lambda _m, i, _o: seen.append(len(i[0])))
    small = lb.predict(model, x, seed=2, samples=3, memory=4 * 6 * 8 * 7)
    passes = list(seen)
    handle.remove()
    assert max(passes) == 7
    assert len(passes) > 20
    whole = lb.predict(model, x, seed=2, samples=3)
    torch.testing.assert_close(small.probs, whole.probs, rtol=1e-12, atol=1e-12)


def test_samples_are_kept_only_when_asked_for():
    model, x = classifier(), torch.randn(5, 4, dtype=F64)
    assert lb.predict(model, x, samples=6).samples is None
    p = lb.predict(model, x, samples=6, seed=0, keep_samples=True)
    assert p.samples.shape == (6, 5, 3)
    torch.testing.assert_close(p.samples.mean(0), p.probs, rtol=1e-12, atol=1e-12)
    map_model = lb.bayesianize(nn.Linear(4, 3).to(F64), lb.MAP(), likelihood=lb.Categorical())
    kept = lb.predict(map_model, x, samples=6, keep_samples=True).samples
    assert kept.shape == (6, 5, 3)
    assert torch.equal(kept[0], kept[5])


def test_the_number_of_samples_is_the_number_of_draws_averaged():
    model, x = classifier(), torch.randn(5, 4, dtype=F64)
    first = lb.predict(model, x, samples=3, seed=9, keep_samples=True)
    more = lb.predict(model, x, samples=8, seed=9, keep_samples=True)
    torch.testing.assert_close(more.samples[:3], first.samples, rtol=1e-12, atol=1e-12)
    assert len(lb.predict(model, x).weights) == 20


def test_the_network_inside_is_not_left_with_the_draws_of_a_prediction():
    model, x = classifier(), torch.randn(5, 4, dtype=F64)
    before = model.eval().net(x)
    lb.predict(model, x, seed=0)
    assert torch.equal(model.net(x), before)
    with model.sampling(lb.Plan(noise=KeyedNoise(0, [0]))) as net:
        assert not torch.equal(net(x), before)
    assert torch.equal(model.net(x), before)


def counted(module):
    calls = []
    handle = module.register_forward_hook(lambda _m, i, _o: calls.append(len(i[0])))
    return calls, handle


def test_the_deterministic_beginning_of_a_sequential_runs_once():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).to(
        F64
    )
    model = lb.bayesianize(
        net, lb.MeanField(init_std=0.3, select=lb.select.output), likelihood=lb.Categorical()
    )
    x = torch.randn(5, 4, dtype=F64)
    calls, handle = counted(net[2])
    fast = lb.predict(model, x, samples=10, seed=0)
    handle.remove()
    assert sum(calls) <= 5 + 2  # once for the rows, and two rows to measure the memory
    total = 0
    model.eval()
    with torch.no_grad():
        for s in range(10):
            plan = lb.Plan(noise=KeyedNoise(0, [s]))
            total = total + torch.softmax(model(x, plan=plan), 1) / 10
    torch.testing.assert_close(fast.probs, total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reused", ["activation", "layer", "forward"])
def test_a_sequential_keeps_modules_at_two_places_and_a_forward_of_its_own(reused):
    layer, act = nn.Linear(4, 4), nn.Tanh()
    again = nn.Linear(4, 4) if reused == "activation" else layer
    net = nn.Sequential(layer, act, again, act, nn.Linear(4, 3)).to(F64)
    if reused == "forward":
        stock = net.forward
        net.forward = lambda x: stock(2 * x)
    head = lb.MeanField(init_std=0.0, select=lb.select.output)
    model, x = lb.bayesianize(net, head, likelihood=lb.Categorical()), torch.randn(5, 4, dtype=F64)
    expected = torch.softmax(model.eval()(x), 1)
    torch.testing.assert_close(lb.predict(model, x).probs, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("when", ["before", "after"])
def test_hooks_of_a_sequential_itself_act_in_a_prediction(when):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)).to(F64)
    if when == "before":
        net.register_forward_pre_hook(lambda _m, args: (2 * args[0],))
    else:
        net.register_forward_hook(lambda _m, _args, output: 2 * output)
    head = lb.MeanField(init_std=0.0, select=lb.select.output)
    model, x = lb.bayesianize(net, head, likelihood=lb.Categorical()), torch.randn(5, 4, dtype=F64)
    expected = torch.softmax(model.eval()(x), 1)
    torch.testing.assert_close(lb.predict(model, x).probs, expected, rtol=1e-12, atol=1e-12)


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Residual(Headed):
    """Uses its trunk twice: the first output comes too early for a shortcut."""

    def forward(self, x):
        return self.head(self.body(x) + self.body(2 * x))


def test_a_named_trunk_runs_once_and_gives_the_same_numbers():
    net = Headed().to(F64)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3, select=lb.select.by_name("head")))
    x = torch.randn(5, 4, dtype=F64)
    options = {"likelihood": lb.Categorical(), "samples": 12, "seed": 0}
    plain = lb.predict(model, x, **options)
    calls, handle = counted(net.body[0])
    fast = lb.predict(model, x, trunk="body", chunk=4, **options)
    handle.remove()
    assert len(calls) <= 3
    torch.testing.assert_close(fast.probs, plain.probs, rtol=1e-12, atol=1e-12)
    assert "forward" not in net.body.__dict__


def test_a_trunk_keeps_a_forward_of_its_own():
    """Libraries that place or trace layers replace `forward` on the object."""
    net = Headed().to(F64)
    stock = net.body.forward
    net.body.forward = doubled = lambda x: 2 * stock(x)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3, select=lb.select.by_name("head")))
    x = torch.randn(5, 4, dtype=F64)
    options = {"likelihood": lb.Categorical(), "samples": 3, "seed": 0}
    plain = lb.predict(model, x, **options)
    fast = lb.predict(model, x, trunk="body", **options)
    torch.testing.assert_close(fast.probs, plain.probs, rtol=1e-12, atol=1e-12)
    assert net.body.forward is doubled


def test_a_wrong_trunk_is_refused():
    method = lb.MeanField(init_std=0.3, select=lb.select.by_name("head"))
    x = torch.randn(5, 4, dtype=F64)
    model = lb.bayesianize(Headed().to(F64), method, likelihood=lb.Categorical())
    with pytest.raises(lb.ConfigError, match="holds random layers"):
        lb.predict(model, x, trunk="head")
    with pytest.raises(lb.ConfigError, match="no submodule 'spine'"):
        lb.predict(model, x, trunk="spine")
    late = nn.Sequential(nn.Linear(4, 4), Headed()).to(F64)
    everything = lb.MeanField(init_std=0.3, select=~lb.select.by_name("1.body.*"))
    model = lb.bayesianize(late, everything, likelihood=lb.Categorical())
    with pytest.raises(lb.ConfigError, match=r"changes the result.*something random comes before"):
        lb.predict(model, x, trunk="1.body")
    twice = lb.bayesianize(Residual().to(F64), method, likelihood=lb.Categorical())
    with pytest.raises(lb.ConfigError, match="runs 2 times"):
        lb.predict(twice, x, trunk="body")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"samples": -3}, "samples must be a whole number of at least 1"),
        ({"samples": 2.5}, "samples must be a whole number of at least 1"),
        ({"samples": 3.0}, r"whole number of at least 1, found 3.0 \(a float\)"),
        ({"samples": True}, "whole number of at least 1, found True"),
        ({"samples": "3"}, "whole number of at least 1, found '3'"),
        ({"chunk": 0}, "chunk must be a whole number of at least 1, found 0"),
        ({"chunk": 1.5}, "chunk must be a whole number of at least 1, found 1.5"),
    ],
)
def test_bad_numbers_are_refused(options, words):
    with pytest.raises(lb.ConfigError, match=words):
        lb.predict(classifier(), torch.randn(2, 4, dtype=F64), **options)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
def test_counts_may_be_integers_of_other_libraries(kind):
    model, x = classifier(), torch.randn(2, 4, dtype=F64)
    found = lb.predict(model, x, samples=kind(4), chunk=kind(3), seed=0)
    assert torch.equal(found.probs, lb.predict(model, x, samples=4, chunk=3, seed=0).probs)


def test_the_likelihood_is_never_guessed():
    model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField())
    with pytest.raises(lb.ConfigError, match=r"likelihood=lb\.Categorical\(\)"):
        lb.predict(model, torch.randn(2, 4))


def test_nothing_to_predict_is_said():
    with pytest.raises(lb.ConfigError, match="no batch"):
        lb.predict(classifier(), DataLoader(TensorDataset(torch.zeros(0, 4, dtype=F64))))
    with pytest.raises(lb.ConfigError, match="found int"):
        lb.predict(classifier(), 5)


def test_an_output_without_logits_is_named_and_one_with_them_is_read():
    class Wrapped(nn.Module):
        def __init__(self, key):
            super().__init__()
            self.fc, self.key = nn.Linear(4, 3), key

        def forward(self, x):
            return {self.key: self.fc(x)}

    x = torch.randn(2, 4)
    good = lb.bayesianize(Wrapped("logits"), lb.MAP(), likelihood=lb.Categorical())
    torch.testing.assert_close(
        lb.predict(good, x).probs, torch.softmax(good.net.fc(x).double(), 1), rtol=1e-6, atol=1e-7
    )
    bad = lb.bayesianize(Wrapped("hidden"), lb.MAP(), likelihood=lb.Categorical())
    with pytest.raises(lb.ConfigError, match="returned dict"):
        lb.predict(bad, x)


def test_weights_are_equal_by_member_and_then_by_draw():
    assert torch.equal(member_weights(6, 3), torch.full((6,), 1 / 6, dtype=F64))
    weights = member_weights(5, 3)  # members 0 1 2 0 1
    torch.testing.assert_close(weights, torch.tensor([1, 1, 2, 1, 1], dtype=F64) / 6)
    assert math.isclose(weights.sum(), 1)
    with pytest.warns(UserWarning, match="only the first 2 members"):
        assert torch.equal(member_weights(2, 4), torch.full((2,), 0.5, dtype=F64))


def test_keys_do_not_collide():
    seeds = {key_seed(s, k, t) for s in range(20) for k in ("a", "b", "a.b") for t in range(50)}
    assert len(seeds) == 20 * 3 * 50


def test_module_order_does_not_matter():
    class Forwards(nn.Module):
        def __init__(self, flip):
            super().__init__()
            names = ["one", "two"]
            for name in reversed(names) if flip else names:
                self.add_module(name, nn.Linear(3, 3).to(F64))

        def forward(self, x):
            return self.two(torch.tanh(self.one(x)))

    a, b = Forwards(False), Forwards(True)
    b.load_state_dict(a.state_dict())
    method, x = lb.MeanField(init_std=0.3), torch.randn(4, 3, dtype=F64)
    first, second = (
        lb.predict(lb.bayesianize(net, method), x, likelihood=lb.Categorical(), seed=5).probs
        for net in (a, b)
    )
    assert torch.equal(first, second)


def test_sequence_first_attention_predicts_sample_by_sample():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0).to(F64)  # batch_first=False
    model = lb.bayesianize(
        layer, lb.MeanField(init_std=0.1), example=torch.randn(5, 2, 8, dtype=F64)
    )
    x = torch.randn(5, 2, 8, dtype=F64)
    assert "batch_first=False" in str(model.report)
    assert model.train()(x).shape == x.shape
    with pytest.raises(lb.PlanError, match="batch_first=False"):
        model(x, plan=lb.Plan(groups=5))
    p = lb.predict(model, x, likelihood=lb.Gaussian(), samples=4, seed=0)
    assert (p.epistemic > 0).all()


def test_a_norm_without_running_statistics_keeps_its_rows_together():
    net = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)
    ).to(F64)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3), likelihood=lb.Categorical())
    x = torch.randn(8, 4, dtype=F64)
    whole = lb.predict(model, x, seed=0, samples=4)
    for options in ({"chunk": 4}, {"memory": 1}):
        p = lb.predict(model, x, seed=0, samples=4, **options)
        torch.testing.assert_close(p.probs, whole.probs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", [lb.MeanField(init_std=0.5), lb.RankOne(), lb.MCDropout()])
def test_a_keyed_plan_is_a_sample_of_predict_at_every_call(method):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(3, 4)
    model = lb.bayesianize(net, method, example=x).eval()
    plan = model.method.prediction_plan([2], KeyedNoise(0, [2]))
    with model.sampling(plan) as inner:
        outputs = [inner(x) for _ in range(2)]
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 0, "keep_samples": True}
    expected = lb.predict(model, x, **options).samples[2]
    assert torch.equal(*outputs)
    torch.testing.assert_close(outputs[0].to(F64).softmax(-1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("likelihood", [lb.Categorical(), lb.Bernoulli(), lb.Gaussian()])
def test_checkers_of_types_know_what_a_likelihood_predicts(likelihood):
    """What the overloads promise to mypy is what comes back, and they miss no option."""
    hints = [get_type_hints(f) for f in get_overloads(lb.predict)]
    promised = next(h["return"] for h in hints if isinstance(likelihood, h["likelihood"]))
    model = lb.bayesianize(nn.Linear(4, 2), lb.MeanField())
    assert type(lb.predict(model, torch.randn(3, 4), likelihood=likelihood, samples=2)) is promised
    taken = {
        name for name, p in signature(lb.predict).parameters.items() if p.kind is p.KEYWORD_ONLY
    }
    assert taken == {"likelihood", *Options.__annotations__}
