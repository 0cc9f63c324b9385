"""Log-probabilities against torch.distributions, shapes, and errors in words."""

import copy
import warnings
from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch

import leanbayes as lb
from leanbayes.likelihood import tensor_of

D = torch.distributions
F64 = torch.float64


def test_categorical_is_the_log_softmax_at_the_label():
    logits, y = torch.randn(7, 4, dtype=F64), torch.randint(0, 4, (7,))
    expected = D.Categorical(logits=logits).log_prob(y)
    torch.testing.assert_close(lb.Categorical().log_prob(logits, y), expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool])
def test_labels_of_any_whole_type_are_labels(dtype):
    x, y = torch.randn(60, 4), torch.randint(0, 2, (60,))
    likelihood = lb.Categorical(class_weights=[1.0, 3.0])
    model = lb.bayesianize(torch.nn.Linear(4, 2), lb.Implicit(members=2), likelihood=likelihood)

    def figures(labels):
        torch.manual_seed(0)
        loss = lb.objective(model, (x, labels), likelihood, num_data=60).loss
        log_prob = lb.predict(model, x, samples=2, seed=0).log_prob(labels).sum()
        temperature = lb.calibrate(model, (x, labels), samples=2, seed=0).temperature
        model.calibration = None
        members = lb.diversity(model, x, labels).ensemble_nll
        return loss.item(), log_prob.item(), temperature, members

    assert figures(y.to(dtype)) == figures(y)


def test_bytes_hold_the_labels_of_256_classes():
    """-100, the label that is none, is 156 among bytes, and 256, the number of classes, is 0."""
    x, y = torch.randn(60, 4), torch.randint(0, 256, (60,))
    y[:20] = 156
    likelihood = lb.Categorical()
    config = lb.FitConfig(steps=2, batch_size=30, progress=False)

    def figures(labels):
        torch.manual_seed(0)
        part, draws = (x, labels), {"samples": 2, "seed": 0}
        method = lb.Implicit(members=2)
        model = lb.bayesianize(torch.nn.Linear(4, 256), method, likelihood=likelihood)
        found = {
            "loss": lb.objective(model, part, likelihood, num_data=60).loss.item(),
            "log_prob": lb.predict(model, x, **draws).log_prob(labels).tolist(),
            "suite": lb.evaluate(model, lb.Suite.of(part, "test"), **draws, progress=False)[
                "summary"
            ],
            "members": lb.diversity(model, x, labels),
            "plane": lb.landscape(model, part, points=2),
            "attack": lb.attacks.pgd(
                model, x.sigmoid(), labels, eps=0.1, steps=2, **draws
            ).tolist(),
            "fit": lb.fit(model, part, likelihood, validation=part, config=config).history,
            "temperature": lb.calibrate(model, part, **draws).temperature,
        }
        for structure, options in {"diagonal": {"seed": 0}, "kronecker": {}}.items():
            net = lb.collapse(copy.deepcopy(model))
            laplace = lb.bayesianize(net, lb.Laplace(structure=structure))
            found[structure] = lb.fit_posterior(laplace, [part], likelihood, **options)
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert figures(y.to(torch.uint8)) == figures(y)


def test_dense_categorical_leaves_ignored_labels_out_of_sum_and_count():
    logits, y = torch.randn(2, 3, 4, 5, dtype=F64), torch.randint(0, 3, (2, 4, 5))
    y[0, :2] = 255
    likelihood = lb.Categorical(ignore_index=255)
    log_prob = likelihood.log_prob(logits, y)
    assert (log_prob[0, :2] == 0).all()
    assert likelihood.count(log_prob, y) == 2 * 20 - 10
    kept = torch.nn.functional.cross_entropy(logits, y, ignore_index=255)
    torch.testing.assert_close(-log_prob.sum() / likelihood.count(log_prob, y), kept)


def test_bernoulli_and_gaussian_equal_torch_distributions():
    output, y = torch.randn(6, 2, dtype=F64), torch.randint(0, 2, (6, 2)).to(F64)
    torch.testing.assert_close(
        lb.Bernoulli().log_prob(output, y), D.Bernoulli(logits=output).log_prob(y)
    )
    target = torch.randn(6, 2, dtype=F64)
    expected = D.Normal(output, 0.25**0.5).log_prob(target).sum(1)
    torch.testing.assert_close(lb.Gaussian(precision=4.0).log_prob(output, target), expected)


def test_a_column_and_a_vector_of_targets_are_the_same_thing():
    output, y = torch.randn(6, 1), torch.randn(6)
    likelihood = lb.Gaussian(precision=2.0)
    assert torch.equal(likelihood.log_prob(output, y), likelihood.log_prob(output, y[:, None]))


def test_learnt_precision_ends_at_the_reciprocal_variance():
    torch.manual_seed(0)
    likelihood = lb.Gaussian(precision=1.0, learn=True)
    target = 0.5 * torch.randn(4000, 1, dtype=F64)
    optimizer = torch.optim.LBFGS(likelihood.parameters(), max_iter=50)

    def closure():
        optimizer.zero_grad()
        loss = -likelihood.log_prob(torch.zeros_like(target), target).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert abs(likelihood.log_precision.exp() * target.square().mean() - 1) < 1e-3


@pytest.mark.parametrize(
    ("likelihood", "output", "target", "words"),
    [
        (lb.Categorical(), torch.zeros(2, 3), torch.tensor([0, 3]), "label 3 is outside the 3"),
        (lb.Categorical(), torch.zeros(2, 3), torch.tensor([-1, 0]), "label -1 is outside"),
        (lb.Categorical(), torch.zeros(2, 3), torch.zeros(2), "whole-number labels"),
        (lb.Categorical(), torch.zeros(2, 3), torch.zeros(2, 3).long(), "whole-number labels"),
        (lb.Gaussian(), torch.zeros(2, 3), torch.zeros(2, 2), "do not fit outputs"),
        (lb.Bernoulli(), torch.zeros(2, 3), torch.zeros(6), "do not fit outputs"),
        # As many numbers, in another order: they were read as they lay.
        (lb.Bernoulli(), torch.zeros(2, 1, 3, 4), torch.zeros(2, 4, 3), "do not fit outputs"),
        (lb.Gaussian(), torch.zeros(2, 2, 3, 3), torch.zeros(2, 3, 3, 2), "do not fit outputs"),
    ],
)
def test_targets_that_do_not_fit_are_refused(likelihood, output, target, words):
    with pytest.raises(lb.ConfigError, match=words):
        likelihood.log_prob(output, target)


@pytest.mark.parametrize("precision", [0.0, -1.0, float("inf"), float("nan")])
def test_precision_must_be_positive(precision):
    with pytest.raises(lb.ConfigError, match="precision must be a positive number"):
        lb.Gaussian(precision=precision)


LOGITS = torch.zeros(2, 3)
OUTPUTS = {
    "tensor": LOGITS,
    "object": SimpleNamespace(loss=torch.ones(()), logits=LOGITS),
    "transformers": OrderedDict(loss=torch.ones(()), logits=LOGITS),
    "torchvision": OrderedDict(out=LOGITS, aux=torch.ones(2, 3)),
}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_the_tensor_of_richer_outputs_is_found(output):
    assert tensor_of(output) is LOGITS


@pytest.mark.parametrize("output", [(LOGITS, LOGITS), {"aux": LOGITS}, {"out": None}, None])
def test_outputs_without_one_are_told_what_to_return(output):
    with pytest.raises(lb.ConfigError, match=f"returned {type(output).__name__}; expected a tens"):
        tensor_of(output)
