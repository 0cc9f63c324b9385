"""The best and the last weights of a run, in a model that never saw it."""

import copy

import pytest
import torch
from fit_cases import At, digest, model_of, problem, settings
from torch import nn

import leanbayes as lb


class Kept(lb.Callback):
    """Weights at every evaluation."""

    def __init__(self, model):
        self.model, self.states = model, {}

    def on_evaluate(self, run, _figures):
        self.states[run.step] = copy.deepcopy(self.model.state_dict())


@pytest.mark.parametrize("ema", [None, 0.8])
def test_the_best_checkpoint_predicts_as_the_figures_said(ema, tmp_path):
    model, validation = model_of(), problem(60, seed=1)
    config = settings(
        steps=24, lr=0.3, evaluate_every=3, folder=str(tmp_path / "run"), ema=ema, keep=1
    )
    kept = Kept(model)
    result = lb.fit(
        model, problem(24), lb.Categorical(), validation=validation, config=config, callbacks=[kept]
    )
    fresh = model_of()
    assert lb.restore(fresh, tmp_path / "run") == result.best_step
    found = lb.predict(fresh, validation[0], likelihood=lb.Categorical(), seed=config.seed)
    assert -found.log_prob(validation[1]).mean().item() == pytest.approx(result.best, rel=1e-6)
    if ema is None:
        for name, value in fresh.state_dict().items():
            assert torch.equal(value, kept.states[result.best_step][name]), name
    assert lb.restore(fresh, tmp_path / "run", "last") == 24
    assert digest(fresh) == digest(model)


def test_any_checkpoint_that_is_kept_can_be_restored_by_its_step(tmp_path):
    model, folder = model_of(), tmp_path / "run"
    config = settings(steps=12, evaluate_every=3, save_every=3, folder=str(folder), keep=3)
    kept = Kept(model)
    options = {"validation": problem(60, seed=1), "config": config, "callbacks": [kept]}
    lb.fit(model, problem(24), lb.Categorical(), **options)
    fresh = model_of()
    for step in (6, 9, 12):
        assert lb.restore(fresh, folder, step) == step
        for name, value in fresh.state_dict().items():
            assert torch.equal(value, kept.states[step][name]), name
    with pytest.raises(lb.CheckpointError, match=r"no checkpoint 7; it keeps .*6, 9, 12"):
        lb.restore(fresh, folder, 7)


def test_what_cannot_be_restored_says_why_and_changes_nothing(tmp_path):
    model = model_of()
    lb.fit(model, problem(), lb.Categorical(), config=settings(folder=str(tmp_path / "run")))
    with pytest.raises(lb.CheckpointError, match="validation="):
        lb.restore(model_of(), tmp_path / "run")
    other = model_of(lb.RankOne())
    before = digest(other)
    with pytest.raises(lb.CheckpointError, match="another model"):
        lb.restore(other, tmp_path / "run", "last")
    assert digest(other) == before
    with pytest.raises(lb.ConfigError, match="best"):
        lb.restore(model, tmp_path / "run", "first")


class Tied(nn.Module):
    """Two names for one matrix."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).tanh())[:, :1]


def regression(**options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(32, 4)
        model = lb.bayesianize(Tied(), lb.MeanField(), example=x)
    often = {"evaluate_every": 2, "save_every": 4, "log_every": 1}
    return model, (x, x[:, :1].sin()), settings(lr=0.3, **often, **options)


@pytest.mark.parametrize("ema", [None, 0.8])
def test_learnt_noise_is_that_of_the_checkpoint(ema, tmp_path):
    """A likelihood in the model, and a tensor of two names, were taken for another model's."""
    model, data, config = regression(folder=str(tmp_path), ema=ema)
    noise = lb.Gaussian(learn=True)
    result = lb.fit(model, data, noise, validation=data, config=config)
    last = noise.log_precision.item()
    assert result.best_step < result.steps
    for again in (model, regression()[0]):
        again.likelihood = again.likelihood or lb.Gaussian(learn=True)
        assert lb.restore(again, tmp_path) == result.best_step
        assert again.likelihood.log_precision.item() != last
        found = lb.predict(again, data[0], seed=config.seed, keep_samples=True)
        nll = -found.log_density(data[1]).mean().item()
        assert nll == pytest.approx(result.best, rel=1e-6)
    with pytest.warns(UserWarning, match=r"log_precision.*before lb\.restore"):
        lb.restore(regression()[0], tmp_path)


def test_noise_that_does_not_fit_changes_nothing(tmp_path):
    model, data, config = regression(folder=str(tmp_path))
    lb.fit(model, data, lb.Gaussian(learn=True), validation=data, config=config)
    model.likelihood, before = lb.Categorical(), digest(model.net)
    with pytest.raises(lb.CheckpointError, match=r"likelihood\.log_precision"):
        lb.restore(model, tmp_path)
    assert digest(model.net) == before


def test_a_calibration_of_other_weights_goes(tmp_path):
    model, data = model_of(), problem()
    config = settings(folder=str(tmp_path))
    lb.fit(model, data, lb.Categorical(), validation=data, config=config)
    lb.calibrate(model, data, samples=2, seed=0)
    lb.restore(model, tmp_path, "last")
    assert model.calibration is None


def test_the_average_of_a_model_that_keeps_a_likelihood_is_that_of_the_network(tmp_path):
    """Cut off in the second run of a model, a new process could not go on."""
    model, data, config = regression(folder=str(tmp_path), ema=0.8)
    model.likelihood = lb.Gaussian(learn=True)
    with pytest.raises(KeyboardInterrupt):
        lb.fit(model, data, model.likelihood, config=config, callbacks=[At(8, interrupt)])
    assert lb.fit(regression()[0], data, lb.Gaussian(learn=True), config=config).steps == 10


def interrupt():
    raise KeyboardInterrupt
