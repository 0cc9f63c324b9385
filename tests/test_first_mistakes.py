"""What a newcomer writes by mistake: the error says what to write instead."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb

X, Y = torch.randn(12, 4), torch.arange(12) % 3


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x).relu())


class Two(Named):
    def forward(self, a, b):
        return super().forward(a + b)


def model_of(net, **options):
    return lb.bayesianize(net, lb.MeanField(), likelihood=lb.Categorical(), **options)


def wrong(words):
    return pytest.raises((lb.LeanBayesError, ValueError), match=words)


def test_a_class_instead_of_a_network():
    with wrong(r"found the class Named\. Write Named\(\)"):
        lb.bayesianize(Named, lb.MeanField())
    with wrong(r"expected a network \(nn.Module\), found a dict"):
        lb.bayesianize({}, lb.MeanField())


@pytest.mark.parametrize(
    ("select", "write"),
    [
        ("head", r"found 'head'\. Write lb\.select\.by_name\('head'\)"),
        (nn.Linear, r"found the class Linear\. Write .*by_type\('Linear'\)"),
        (["head"], r"a selector of layers, found \['head'\]"),
    ],
)
def test_a_name_or_a_class_instead_of_a_selector(select, write):
    with wrong(write):
        lb.bayesianize(Named(), lb.MeanField(select=select))


def test_parts_of_a_composition_without_selectors():
    with wrong(r"found a Patching. Write lb.Compose\(\[\(lb.select.norms"):
        lb.Compose([lb.Patching(), lb.MeanField()])
    with wrong(r"by_name\('head'\)"):
        lb.Compose([("head", lb.MeanField())])


def test_a_selector_without_layers_names_those_there_are():
    with wrong(r"\(Linear; by name body, head\): select=name\(fc\)"):
        lb.bayesianize(Named(), lb.MeanField(select=lb.select.by_name("fc")))


def test_method_and_data_in_each_others_place():
    with wrong(r"^expected a method with its settings, found a tuple\. Write lb\.MeanField"):
        lb.adapt(Named(), (X, Y), lb.MeanField())


def test_inputs_with_targets_or_without_their_fellows():
    model, two = model_of(Named()), model_of(Two())
    with wrong(r"takes \(x\) and got 2 positional: .*of a pair \(x, y\) give x alone"):
        lb.predict(model, (X, Y))
    with wrong(r"takes \(a, b\) and got 1 positional: .*\(\(a, b\), targets\)"):
        lb.predict(two, DataLoader(TensorDataset(X, X, Y), 5))
    with wrong(r"got the keywords \['ids'\]"):
        lb.predict(model, {"ids": X})
    with wrong(r"takes \(x\) and got 2 positional"):
        model_of(Named(), example=(X, Y))
    with wrong(r"takes \(a, b\) and got 1 positional"):
        lb.predict_features(two, X)


def test_a_type_error_of_the_network_itself_is_left_alone():
    class Broken(Named):
        def forward(self, x):
            return self.head(self.body(x) + "1")

    with pytest.raises(TypeError, match="str"):
        lb.predict(model_of(Broken()), X)


def test_a_dataset_to_predict():
    with wrong(r"found TensorDataset\. Of a Dataset write torch\.utils\.data\.DataLoader"):
        lb.predict(model_of(Named()), TensorDataset(X, Y))


def test_a_dataset_of_examples_instead_of_batches():
    """Single examples would run as batches: of some networks without a word."""
    data, labels = TensorDataset(X, Y), lb.Categorical()
    few = r"found a TensorDataset, which holds single examples\. Write torch\..*DataLoader"
    with wrong(few):
        lb.bayesianize(Named(), lb.Partial(rate=0.1), data=data, likelihood=labels)
    for method in (lb.Laplace(), lb.Laplace(structure="kronecker"), lb.SWAG(rank=2)):
        with wrong(few):
            lb.fit_posterior(lb.bayesianize(Named(), method), data, labels)
    norms = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with wrong(few):
        lb.refresh_batchnorm(lb.bayesianize(norms, lb.MeanField()), data)


@pytest.mark.parametrize("data", [X, [X], DataLoader(TensorDataset(X), 4)])
def test_calibration_without_targets(data):
    with wrong(r"calibrate takes \(inputs, targets\).*found a (Tensor|list)"):
        lb.calibrate(model_of(Named()), data, samples=2)


def test_data_with_parts_instead_of_a_part():
    config = lb.FitConfig(steps=1, progress=False)
    with wrong(r"are a Data \(write data\.train\)"):
        lb.fit(model_of(Named()), lb.data.read("digits"), lb.Categorical(), config=config)
    with wrong(r"are a ImageSplits \(write \(data\.x_train, data\.y_train\)\)"):
        lb.fit(model_of(Named()), lb.data.fashion_mini(), lb.Categorical(), config=config)


def test_a_prediction_instead_of_its_probabilities():
    p = lb.predict(model_of(Named()), X, samples=2, seed=0)
    with wrong(r"probs is a Classification; expected a tensor\. Write: p\.probs"):
        lb.metrics.accuracy(p, Y)


def test_several_questions_a_row_scored_as_classes():
    probs, answers = torch.rand(5, 3), torch.randint(0, 2, (5, 3))
    write = r"torch\.stack\(\[1 - probs, probs\], dim=1\) if each is a yes or no"
    with wrong(write):
        lb.metrics.accuracy(probs, answers)
    found = lb.metrics.accuracy(torch.stack([1 - probs, probs], dim=1), answers)
    assert torch.isclose(found, ((probs > 0.5) == answers).double().mean())


@pytest.mark.parametrize("pair", [3, (-6.0,), ("a", "b")])
def test_one_number_instead_of_a_pair(pair):
    with wrong("init_log_std is a pair of numbers"):
        lb.MeanField(init_log_std=pair)
    with wrong("init_rho is a pair of numbers"):
        lb.Partial(init_rho=pair)
