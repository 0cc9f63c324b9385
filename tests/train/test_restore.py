"""The best and the last weights of a run, in a model that never saw it."""

import copy

import pytest
import torch
from fit_cases import digest, model_of, problem, settings

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
