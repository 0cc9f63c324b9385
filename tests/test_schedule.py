"""KL schedules: the papers' values at given steps, and the two places that take them."""

import json
import pickle

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.schedule import annealed, constant, from_json, linear_warmup, tempered

ALL = [
    constant(0.3),
    linear_warmup(steps=10, weight=2.0),
    linear_warmup(epochs=200, steps_per_epoch=391),
    annealed(steps=50),
    annealed(0.4, 0.1, epochs=5, steps_per_epoch=7, reading="printed"),
    tempered(linear_warmup(steps=10), 0.1),
]


def test_ibnn_weights_by_epoch_from_zero():
    """min(1, epoch / 200), stepped once an epoch: off in epoch 0, one half in epoch 100."""
    weight = linear_warmup(epochs=200, steps_per_epoch=391)
    assert [weight(s) for s in (0, 390, 391, 391 * 100, 391 * 101 - 1)] == [
        0.0,
        0.0,
        1 / 200,
        0.5,
        0.5,
    ]
    assert weight(391 * 200) == weight(391 * 299) == 1.0
    by_epoch = linear_warmup(epochs=200, steps_per_epoch=1)
    assert [by_epoch(e) for e in (0, 1, 100, 200, 299)] == [0.0, 1 / 200, 0.5, 1.0, 1.0]


def test_rank_one_weights_by_step_are_never_zero():
    """min(1, (it + 1) / (steps_per_epoch * E_kl)) with 390 steps and 200 epochs."""
    weight = linear_warmup(steps=390 * 200)
    assert weight(0) == 1 / 78000
    assert weight(390 * 100 - 1) == 0.5
    assert weight(78000 - 2) < 1.0 == weight(78000 - 1) == weight(10**6)


def test_the_text_of_pbn_anneals_down_and_its_formula_up():
    text, printed = (annealed(steps=100, reading=r) for r in ("text", "printed"))
    assert [text(0), text(100), text(500)] == pytest.approx([0.2, 0.01, 0.01], abs=1e-15)
    assert [printed(0), printed(100)] == pytest.approx([0.01, 0.2], abs=1e-15)
    for i in (0, 13, 50, 99):  # the formula as it stands in the paper
        assert printed(i) == pytest.approx(0.01 - (0.01 - 0.2) * i / 100, abs=1e-15)
        assert text(i) == pytest.approx(0.2 + (0.01 - 0.2) * i / 100, abs=1e-15)


def test_annealing_by_epoch_stays_within_an_epoch():
    weight = annealed(epochs=10, steps_per_epoch=4)
    assert len({weight(s) for s in (20, 21, 22, 23)}) == 1
    assert weight(20) == pytest.approx(0.105)


def test_a_constant_stays():
    assert {constant(0.25)(s) for s in (0, 1, 10**9)} == {0.25}


def test_temperature_multiplies_the_kl_in_the_loss():
    model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField(init_std=0.0)).train()
    batch = torch.randn(6, 4), torch.arange(6) % 3
    weight = tempered(1.0, 0.1)
    result = lb.objective(model, batch, lb.Categorical(), num_data=20, kl_weight=weight(0))
    expected = result.nll.detach().double() + 0.1 * model.kl().detach() / 20
    torch.testing.assert_close(result.loss.detach().double(), expected, rtol=1e-6, atol=0)
    assert tempered(linear_warmup(steps=4), 0.1)(1) == 0.1 * 0.5


def test_the_gradient_edit_follows_a_schedule():
    """Steps of SGD on a frozen posterior: each adds schedule(step) times the same gradient."""
    torch.manual_seed(3)
    model = lb.bayesianize(nn.Linear(3, 2).double(), lb.MeanField())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    handle = lb.attach_kl(optimizer, model, num_data=10)
    handle.kl_weight = linear_warmup(steps=4)
    (full,) = torch.autograd.grad(model.kl(), [model.net.weight])
    for step in range(6):
        optimizer.zero_grad()
        optimizer.step()
        weight = min(1.0, (step + 1) / 4)
        torch.testing.assert_close(model.net.weight.grad, weight * full / 10)


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
def test_schedules_survive_pickle_and_json(schedule):
    again = from_json(json.loads(json.dumps(schedule.to_json())))
    assert pickle.loads(pickle.dumps(schedule)) == schedule == again
    assert [again(s) for s in range(0, 100, 7)] == [schedule(s) for s in range(0, 100, 7)]
    assert hash(schedule) == hash(again)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: constant(-1.0), "weight must be a finite number of at least 0"),
        (lambda: constant(float("nan")), "weight must be a finite number"),
        (lambda: linear_warmup(), "steps or in epochs"),
        (lambda: linear_warmup(steps=3, epochs=2, steps_per_epoch=1), "steps or in epochs"),
        (lambda: linear_warmup(epochs=200), r"steps_per_epoch=len\(loader\)"),
        (lambda: linear_warmup(steps=3, steps_per_epoch=2), "go together"),
        (lambda: linear_warmup(steps=0), "steps must be a whole number of at least 1"),
        (lambda: linear_warmup(steps=2.5), "steps must be a whole number"),
        (lambda: linear_warmup(epochs=True, steps_per_epoch=1), "epochs must be a whole number"),
        (lambda: annealed(steps=5, reading="code"), "'text' or 'printed'"),
        (lambda: annealed(start="high", steps=5), "start must be a finite number"),
        (lambda: tempered(constant(), -0.1), "temperature must be a finite number"),
        (lambda: tempered(abs, 0.5), r"lb\.schedule\.tempered"),
        (lambda: constant()(-1), "counts steps from 0"),
        (lambda: from_json({"name": "Cosine", "fields": {}}), "unknown schedule 'Cosine'"),
    ],
)
def test_bad_settings_are_refused(make, words):
    with pytest.raises(lb.ConfigError, match=words):
        make()
