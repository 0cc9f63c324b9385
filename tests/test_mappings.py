"""Inputs by keyword in a mapping that is no dict, as the `BatchEncoding` of a tokenizer."""

from collections import OrderedDict, UserDict

import pytest
import torch
from torch import nn

import leanbayes as lb

X, Y = torch.arange(48.0, dtype=torch.float64).reshape(12, 4).sin(), torch.arange(12) % 3


class Net(nn.Module):
    """As a classifier of transformers: inputs by keyword, labels that the logits do not mind."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3).double()

    def forward(self, features, scale=None, labels=None):
        assert labels is None or len(labels) == len(features)
        return {"logits": self.layer(features if scale is None else features * scale)}


class Keywords(dict):
    """A dict by its parent, which torch's pytrees take for a leaf."""


def model_of(method=None):
    torch.manual_seed(0)
    chosen = lb.MeanField(init_std=0.1) if method is None else method
    return lb.bayesianize(Net(), chosen, example={"features": X}, likelihood=lb.Categorical())


KINDS = pytest.mark.parametrize("kind", [UserDict, Keywords, OrderedDict])


@KINDS
def test_predict_takes_a_mapping(kind):
    model, plain = model_of(), {"features": X, "scale": X[:, :1]}
    wanted = lb.predict(model, plain, samples=3, seed=0).probs
    for options in ({}, {"chunk": 3}, {"memory": 2000}):  # the last cuts the rows
        found = lb.predict(model, kind(plain), samples=3, seed=0, **options).probs
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0.0)


@KINDS
def test_predict_takes_batches_that_are_mappings(kind):
    model = model_of()
    wanted = lb.predict(model, {"features": X}, samples=3, seed=0).probs
    batches = [
        kind({"features": x, "labels": y}) for x, y in zip(X.split(5), Y.split(5), strict=True)
    ]
    pairs = [(kind({"features": x}), None) for x in X.split(5)]
    for loader in (batches, iter(batches), pairs):
        found = lb.predict(model, loader, samples=3, seed=0).probs
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0.0)


@KINDS
def test_the_objective_takes_a_mapping(kind):
    model, losses = model_of().train(), []
    for inputs in ({"features": X}, kind({"features": X})):
        torch.manual_seed(1)
        batch = inputs, Y
        losses.append(lb.objective(model, batch, lb.Categorical(), num_data=12, samples=2).loss)
    assert torch.equal(*losses)


@KINDS
def test_conversion_takes_a_mapping_as_example(kind):
    model = lb.bayesianize(Net(), lb.MeanField(), example=kind({"features": X}))
    assert not any("no example" in note for note in model.report.notes)


@KINDS
def test_training_takes_mappings(kind):
    states = []
    for make in (dict, kind):
        model = model_of()
        batches = [(make({"features": x}), y) for x, y in zip(X.split(4), Y.split(4), strict=True)]
        config = lb.FitConfig(epochs=2, accumulate=2, progress=False)
        lb.fit(model, batches, lb.Categorical(), config=config)
        states.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*states)


def test_diversity_takes_a_mapping():
    model = model_of(lb.DeepEnsemble(members=2, init_std=1.0))
    found = [lb.diversity(model, make({"features": X}), Y).kl for make in (dict, UserDict)]
    assert found[0] == found[1] > 0


@KINDS
def test_a_pair_of_a_mapping_and_targets_is_data_and_an_evaluation(kind):
    """They were refused, and cut into batches with all inputs in each."""
    weights, figures = [], []
    for make in (dict, kind):
        model, pair = model_of(), (make({"features": X}), Y)
        config = lb.FitConfig(epochs=2, batch_size=4, progress=False)
        lb.fit(model, pair, lb.Categorical(), validation=pair, config=config)
        weights.append(model.net.layer.weight.detach())
        options = {"samples": 3, "batch_size": 5, "progress": False}
        found = lb.evaluate(model, lb.Suite.of(pair, "test"), **options)
        figures.append(found["splits"]["test"]["figures"])
    assert torch.equal(*weights)
    assert figures[0] == figures[1]


@KINDS
@pytest.mark.parametrize("passes", [1, 2])
def test_the_regulariser_takes_a_mapping(kind, passes):
    losses = []
    for make in (dict, kind):
        model, regularizer = model_of().train(), lb.OODRegularizer(passes=passes)
        torch.manual_seed(1)
        batch, strange = (make({"features": X}), Y), make({"features": X[:4] + 1})
        found = regularizer.objective(model, batch, strange, lb.Categorical(), num_data=12)
        losses.append(torch.stack([found.loss, regularizer(model, strange)]).detach())
    assert torch.equal(*losses)


@KINDS
def test_statistics_are_taken_of_mappings(kind):
    means = []
    for make in (dict, kind):
        torch.manual_seed(0)
        net = Net()
        net.layer = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
        model = lb.bayesianize(net, lb.MeanField(init_std=0.1), example={"features": X})
        lb.refresh_batchnorm(model, [(make({"features": X}), Y)], draws=True)
        means.append(net.layer[1].running_mean)
    assert torch.equal(*means)
