"""What evaluate makes of rows and labels that say less, or other things, than the likelihood."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.errors import ConfigError, DataError

X, Y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


def _model(likelihood: lb.Likelihood, outputs: int = 3) -> lb.BayesianModel:
    torch.manual_seed(0)
    return lb.bayesianize(nn.Linear(4, outputs), lb.MeanField(init_std=0.3), likelihood=likelihood)


def _summary(model: nn.Module, y: torch.Tensor, **options: object) -> dict[str, float]:
    suite = lb.Suite.of((X, y), "test", **options)
    return lb.evaluate(model, suite, samples=4, progress=False)["summary"]


@pytest.mark.parametrize("rows", [50, 60])
def test_as_many_targets_as_inputs(rows):
    part = (X[:50], Y) if rows == 50 else ({"x": X}, Y[:50])
    with pytest.raises(DataError, match=rf"{rows} rows of inputs and \d+ targets"):
        lb.Suite.of(part, "test")


@pytest.mark.parametrize("ignored", [0, 255])
def test_labels_that_the_likelihood_leaves_out_do_not_count(ignored):
    model = _model(lb.Categorical(ignore_index=ignored))
    y = torch.where(Y == 0, ignored, Y)
    found, p = _summary(model, y), lb.predict(model, X, samples=4, seed=0)
    keep = y != ignored
    assert found["accuracy"] == pytest.approx((p.label == y)[keep].double().mean().item())
    nll = -p.log_prob(torch.where(keep, y, 1))[keep].mean().item()
    assert found["nll"] == pytest.approx(nll, rel=1e-6)


def test_two_labels_that_are_left_out_are_one_too_many():
    suite = lb.Suite.of(
        lb.data.Data(name="d", task="classification", train=None, test=(X, Y), ignore_index=2),
        "test",
    )
    with pytest.raises(ConfigError, match=r"leaves out label 1 and the suite label 2: write lb\."):
        lb.evaluate(_model(lb.Categorical(ignore_index=1)), suite, progress=False)


def test_answers_in_floats_have_the_figures_of_whole_ones():
    model, y = _model(lb.Bernoulli(), 1), Y % 2
    whole, floats = _summary(model, y), _summary(model, y.float())
    assert whole == floats
    assert {"disagreement", "draw_accuracy"} <= floats.keys()


def test_levels_of_an_unknown_shift_are_refused():
    with pytest.raises(ConfigError, match=r"levels: no split is called 'rotatd'.*rotated"):
        lb.Suite.of((torch.rand(9, 1, 8, 8), Y[:9]), "test,rotated", levels={"rotatd": (10.0,)})


def test_predictions_of_other_draws_are_not_joined():
    model = _model(lb.Categorical())
    kept, plain, more = (
        lb.predict(model, X[:4], seed=0, samples=s, keep_samples=k)
        for s, k in ((4, True), (4, False), (8, True))
    )
    for parts in ([kept, plain], [kept, more], []):
        with pytest.raises(ConfigError, match="cat joins"):
            type(kept).cat(parts)
    assert type(kept).cat([kept, kept]).samples.shape == (4, 8, 3)


def test_confusion_wants_classes():
    ok = torch.tensor([0, 1])
    for predicted, target in ((torch.tensor([0, 4]), ok), (ok, torch.tensor([0, -1]))):
        with pytest.raises(DataError, match="expected classes 0 to 2"):
            lb.metrics.confusion(predicted, target, 3)
    with pytest.raises(DataError, match="two vectors"):
        lb.metrics.confusion(ok, torch.tensor([0]), 3)
