"""Laws that are fitted after training say so where they predict before it, and never after."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import leanbayes as lb

METHODS = {
    "laplace": lb.Laplace(prior_std=0.1),
    "linearised": lb.Laplace(prior_std=0.1, predictive="linearised"),
    "kronecker": lb.Laplace(structure="kronecker", prior_std=0.1),
    "swag": lb.SWAG(rank=2),
    "swag_diagonal": lb.SWAG(rank=0),
    "swag_draws": lb.SWAG(rank=2, draws=3),
}
X, Y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


def _model(method: lb.Method) -> lb.BayesianModel:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return lb.bayesianize(net.eval(), method, example=X)


def _predict(model: nn.Module) -> None:
    lb.predict(model, X, likelihood=lb.Categorical(), samples=3, seed=0)


@pytest.fixture
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("name", METHODS)
def test_a_prediction_before_the_fit_says_what_to_write(name):
    model = _model(METHODS[name])
    with pytest.warns(lb.NotFitted, match=r"not been fitted.*init_std=0.005.*lb.fit_posterior"):
        _predict(model)


def _told(recwarn) -> list[str]:
    return [str(found.message) for found in recwarn if found.category is lb.NotFitted]


@pytest.mark.parametrize("name", METHODS)
def test_none_after_it_nor_in_the_loaded_model(name, tmp_path, recwarn):
    model = _model(METHODS[name])
    options = {"lr": 0.01, "epochs": 3} if name.startswith("swag") else {}
    lb.fit_posterior(model, [(X, Y)], lb.Categorical(), **options)
    _predict(model)
    lb.save(model, tmp_path / "m.safetensors")
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    _predict(lb.load(net, tmp_path / "m.safetensors"))
    assert _told(recwarn) == []


@pytest.mark.usefixtures("strict")
def test_features_say_so_and_a_price_does_not():
    model = _model(lb.Laplace())
    plain = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    lb.price(model, plain, (X, Y), likelihood=lb.Categorical(), samples=2, rounds=1, seconds=0.01)
    with pytest.raises(lb.NotFitted):
        lb.predict_features(model, X, samples=2, seed=0)


def test_a_padding_row_has_no_spread_in_any_case():
    net = nn.Sequential(nn.Embedding(5, 2, padding_idx=0), nn.Flatten(), nn.Linear(6, 40))
    model = lb.bayesianize(net, lb.Laplace())
    words = torch.tensor([[0, 1, 2], [3, 4, 0]])
    with pytest.warns(lb.NotFitted):
        lb.predict(model, words, likelihood=lb.Categorical(), samples=2)


def test_methods_that_learn_in_training_say_nothing(recwarn):
    for method in (lb.MAP(), lb.MeanField(), lb.DeepEnsemble(members=2)):
        _predict(_model(method))
    assert _told(recwarn) == []
