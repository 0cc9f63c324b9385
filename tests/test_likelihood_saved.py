"""Every likelihood survives JSON and a checkpoint, and trains by `lb.fit`."""

import json
from copy import deepcopy

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.likelihood import likelihood_from_json

CASES = {
    "categorical": (lambda: lb.Categorical(ignore_index=7), 4),
    "weighted": (lambda: lb.Categorical(class_weights=(0.3, 1.0, 2.0, 0.1)), 4),
    "bernoulli": (lambda: lb.Bernoulli(), 4),
    "gaussian": (lambda: lb.Gaussian(precision=0.3), 4),
    "learnt": (lambda: lb.Gaussian(learn=True, target_mean=3.0, target_std=(0.1, 2, 3, 4)), 4),
    "by_target": (lambda: lb.Gaussian(precision=[1, 2, 3, 4.5], target_mean=(1, 2, 3, 4)), 4),
    "heteroscedastic": (lambda: lb.HeteroscedasticGaussian((1.0, 2.0), (0.1, 5.0), bound=6.0), 4),
}
NAMES = sorted(CASES)


def target_for(likelihood, rows=12):
    match likelihood:
        case lb.Categorical():
            return torch.randint(0, 4, (rows,))
        case lb.Bernoulli():
            return torch.randint(0, 2, (rows, 4)).float()
        case lb.Gaussian():
            return torch.randn(rows, 4)
        case _:
            return torch.randn(rows, 2)


@pytest.mark.parametrize("name", NAMES)
def test_settings_rebuild_the_likelihood_through_json(name):
    make, outputs = CASES[name]
    likelihood = make()
    text = json.dumps({"name": type(likelihood).__name__, "settings": likelihood.settings()})
    again = likelihood_from_json(json.loads(text))
    assert again.settings() == likelihood.settings()
    output, target = torch.randn(12, outputs), target_for(likelihood)
    assert torch.equal(again.log_prob(output, target), likelihood.log_prob(output, target))


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_predicts_the_same_by_its_own_likelihood(name, tmp_path):
    make, outputs = CASES[name]
    likelihood = make()
    model = lb.bayesianize(nn.Linear(3, outputs), lb.MeanField(), likelihood=likelihood)
    if name == "learnt":
        with torch.no_grad():
            likelihood.log_precision.add_(torch.arange(4) / 10)
    x, y = torch.randn(12, 3), target_for(likelihood)
    before = lb.predict(model, x, samples=3, seed=0, keep_samples=True)
    lb.save(model, tmp_path / "model")
    again = lb.load(nn.Linear(3, outputs), tmp_path / "model")
    after = lb.predict(again, x, samples=3, seed=0, keep_samples=True)
    assert type(after) is type(before)
    assert torch.equal(after.samples, before.samples)
    assert torch.equal(after.total, before.total)
    assert torch.equal(after.log_prob(y), before.log_prob(y))


@pytest.mark.parametrize("name", NAMES)
def test_training_improves_the_validation_figures(name):
    make, outputs = CASES[name]
    likelihood = make()
    x = torch.randn(64, 3)
    y = target_for(likelihood, 64)
    y = (x[:, :1] > 0).expand(64, 4).float() if name == "bernoulli" else y
    y = x[:, 0].gt(0).long() if y.dim() == 1 else y
    net = nn.Linear(3, outputs)
    before = score(lb.bayesianize(deepcopy(net), lb.MAP(), likelihood=likelihood), x, y)
    config = lb.FitConfig(epochs=5, lr=0.05, batch_size=16, seed=0, evaluate_samples=4)
    done = lb.adapt(
        net, lb.MeanField(), (x, y), validation=(x, y), likelihood=likelihood, config=config
    )
    assert done.figures["nll"] < before - 0.01
    assert done.figures["nll"] == pytest.approx(score(done.model, x, y, samples=4), rel=1e-6)


def score(model, x, y, samples=1):
    """-ln p of the predictive: of a row where targets are numbers, else of a label."""
    p = lb.predict(model, x, samples=samples, seed=0, keep_samples=True)
    found = p.log_density(y) if hasattr(p, "log_density") else p.log_prob(y)
    return -found.mean().item()


def test_an_unknown_name_is_refused_with_those_known():
    with pytest.raises(lb.ConfigError, match=r"'Poisson'.*HeteroscedasticGaussian"):
        likelihood_from_json({"name": "Poisson", "settings": {}})


class Smoothed(lb.Categorical):
    """A likelihood of a user's own, with a setting of its own."""

    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def settings(self):
        return {"smoothing": self.smoothing}


def test_a_likelihood_of_ones_own_is_read_back(tmp_path):
    model = lb.bayesianize(nn.Linear(3, 4), lb.MeanField(), likelihood=Smoothed(0.1))
    lb.save(model, tmp_path / "model")
    again = lb.load(nn.Linear(3, 4), tmp_path / "model").likelihood
    assert type(again) is Smoothed
    assert again.smoothing == 0.1
    with pytest.raises(lb.ConfigError, match=r"'Unseen'.*Import the module"):
        likelihood_from_json({"name": "Unseen", "settings": {}})
