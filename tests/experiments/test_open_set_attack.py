"""Adversarial images: within the budget, and against the average of the draws."""

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.attacks.victim import Victim
from leanbayes.experiments.open_set_data import Budget, OpenSetData
from leanbayes.experiments.verification_attack import STEP, pgd

SCALE = lb.data.Normalize(mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))


def made(rows=12):
    generator = torch.Generator().manual_seed(0)
    x = SCALE(torch.rand(rows, 3, 4, 4, generator=generator))
    y = torch.arange(rows) % 3
    return OpenSetData(train=(x, y), test=(x, y), others=(x, y), normalize=SCALE)


def linear(method):
    torch.manual_seed(1)
    return lb.bayesianize(nn.Sequential(nn.Flatten(), nn.Linear(48, 3)), method)


def log_mean(model, x, y, samples, *, key):
    return Victim.of(model, lb.Categorical(), samples, key).log_prob(x, y)


def test_a_linear_classifier_is_taken_to_the_edge_of_the_budget():
    """Of two classes: the gradient of the loss never changes its sign."""
    data = made()
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    y = data.test[1] % 2
    data = OpenSetData(
        train=data.train, test=(data.test[0], y), others=data.others, normalize=SCALE
    )
    model = lb.bayesianize(net, lb.MAP())
    found = SCALE.undo(pgd(model, data, Budget(eps=0.02, samples=5, seed=0)))
    weight = net[1].weight.detach()
    away = (weight[1 - y] - weight[y]).reshape(-1, 3, 4, 4).sign()
    expected = (SCALE.undo(data.test[0]) + 0.02 * away).clamp(0, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert Budget(eps=0.02, samples=5, seed=0).steps * STEP > 2 * 0.02


@pytest.mark.parametrize(
    "method", [lb.MeanField(init_std=0.3), lb.SharedEnsemble(members=4, init_std=0.5)]
)
def test_the_attack_stays_in_its_budget_and_hurts_the_average(method):
    data, model = made(), linear(method)
    before = torch.random.get_rng_state()
    model.train()
    found = pgd(model, data, Budget(eps=0.05, samples=4, seed=0, most=9))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(module.training for module in model.modules())
    pixels, clean = (SCALE.undo(x) for x in (found, data.test[0][:9]))
    assert (pixels - clean).abs().max() <= 0.05 + 1e-6
    assert -1e-6 <= pixels.min() <= pixels.max() <= 1 + 1e-6
    y = data.test[1][:9]
    model.eval()
    scores = [log_mean(model, x, y, 50, key=99) for x in (found, data.test[0][:9])]
    assert (scores[0] < scores[1]).all()


def test_the_loss_is_that_of_the_mean_of_what_predict_averages():
    data, model = made(), linear(lb.MeanField(init_std=0.3))
    model.eval()
    x, y = data.test
    probs = lb.predict(model, x, likelihood=lb.Categorical(), samples=6, seed=3).probs
    expected = probs.gather(1, y.unsqueeze(1)).squeeze(1).log()
    found = log_mean(model, x, y, 6, key=3)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
