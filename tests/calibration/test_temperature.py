"""The temperature: the optimum, of the averaged predictive, and never a loss."""

from dataclasses import replace

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

import leanbayes as lb
from leanbayes.calibration import fit_temperature, tempered
from leanbayes.prediction import BinaryClassification, Classification, entropy


def nll(log_probs, y, temperature):
    scaled = torch.log_softmax(log_probs / temperature, 1)
    return float(nn.functional.nll_loss(scaled, y))


@pytest.mark.parametrize("case", range(40))
def test_it_is_the_optimum_that_scipy_finds(case):
    generator = torch.Generator().manual_seed(case)
    rows, classes = 20 + 10 * case, 2 + case % 9
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    truth = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    log_probs = torch.log_softmax(logits * 4 ** ((case % 5) - 2), 1)
    found = fit_temperature(log_probs, truth)
    best = minimize_scalar(
        lambda t: nll(log_probs, truth, 2.718281828459045**t),
        bounds=(-4.605, 4.605),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert nll(log_probs, truth, found) <= best.fun + 1e-13
    assert found == pytest.approx(2.718281828459045**best.x, rel=1e-5)
    assert nll(log_probs, truth, found) <= nll(log_probs, truth, 1.0)


def test_two_outcomes_have_a_closed_form():
    """p = 3/4 of the cases are right: the logit l / T has to be ln 3."""
    p = torch.tensor(0.9, dtype=torch.float64)
    probs = torch.stack([p, 1 - p]).repeat(8, 1)
    y = torch.tensor([0, 0, 0, 1] * 2)
    expected = float(torch.logit(p)) / float(torch.logit(torch.tensor(0.75).double()))
    assert fit_temperature(probs.log(), y) == pytest.approx(expected, rel=1e-12)


def test_the_ends_are_warned_of():
    right = torch.tensor([[0.6, 0.4]]).log().repeat(5, 1)
    with pytest.warns(UserWarning, match="beyond 0.01"):
        assert fit_temperature(right, torch.zeros(5, dtype=torch.long)) == pytest.approx(0.01)
    with pytest.warns(UserWarning, match="beyond 100"):
        assert fit_temperature(right, torch.ones(5, dtype=torch.long)) == pytest.approx(100)
    even = torch.full((4, 3), 1 / 3).log()
    assert fit_temperature(even, torch.tensor([0, 1, 2, 0])) == 1.0
    with pytest.raises(lb.DataError, match="no labels"):
        fit_temperature(even[:0], torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_uncertainty_keeps_its_shares(temperature):
    probs = torch.softmax(3 * torch.randn(6, 5, 4, dtype=torch.float64), 2)
    mean, inner = probs.mean(0), entropy(probs, 2).mean(0)
    before = Classification(None, torch.full((6,), 1 / 6), mean, inner)
    after = tempered(before, temperature)
    expected = mean ** (1 / temperature)
    expected = expected / expected.sum(1, keepdim=True)
    torch.testing.assert_close(after.probs, expected)
    torch.testing.assert_close(after.epistemic / after.total, before.epistemic / before.total)
    assert (after.epistemic >= 0).all()
    assert torch.equal(after.label, before.label)


def test_certainty_and_zeros_survive():
    probs = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    after = tempered(Classification(None, torch.ones(1), probs, torch.zeros(2).double()), 2.0)
    torch.testing.assert_close(after.probs, probs)
    assert after.aleatoric.isfinite().all()
    binary = BinaryClassification(None, torch.ones(1), probs[:, 0], torch.zeros(2).double())
    torch.testing.assert_close(tempered(binary, 2.0).probs, probs[:, 0])


def test_one_output_is_tempered_as_two_where_it_is_almost_sure():
    """P(no) = exp(-40) cannot be had from P(yes) = 1 in floating numbers."""
    torch.manual_seed(0)
    x = 40 * torch.randn(400, 1)
    y = (torch.rand(400, 1) < torch.sigmoid(x / 20)).long()
    one, two = nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        one.weight.fill_(1.0)
        two.weight.copy_(torch.tensor([[0.0], [1.0]]))
    binary = lb.bayesianize(one, lb.MAP(), likelihood=lb.Bernoulli())
    classes = lb.bayesianize(two, lb.MAP(), likelihood=lb.Categorical())
    found, wanted = lb.calibrate(binary, (x, y)), lb.calibrate(classes, (x, y.flatten()))
    assert wanted.temperature == pytest.approx(20, rel=0.25)
    assert found.temperature == pytest.approx(wanted.temperature)
    both = lb.predict(binary, x).both.squeeze(1)
    torch.testing.assert_close(both, lb.predict(classes, x).probs)


def overconfident(outputs=3, likelihood=None):
    torch.manual_seed(1)
    net = nn.Linear(4, outputs)
    with torch.no_grad():
        net.weight.mul_(12)
    chosen = lb.Categorical() if likelihood is None else likelihood
    return lb.bayesianize(net, lb.MeanField(init_std=1.0), likelihood=chosen)


def labels(model, x):
    """By probabilities that are less sure than those of the mean network."""
    with torch.no_grad():
        return torch.multinomial(torch.softmax(model.net(x) / 6, 1), 1).squeeze(1)


def test_it_is_fitted_to_the_mean_of_the_samples_and_used_by_predict():
    model = overconfident()
    x = torch.randn(200, 4)
    y = labels(model, x)
    raw = lb.predict(model, x, samples=8, seed=2, keep_samples=True)
    found = lb.calibrate(model, (x, y), samples=8, seed=2)
    expected = fit_temperature(raw.samples.mean(0).log(), y)
    assert found.temperature == pytest.approx(expected, rel=1e-9)
    assert found.temperature > 1.2
    p = lb.predict(model, x, samples=8, seed=2, keep_samples=True)
    torch.testing.assert_close(p.probs, torch.softmax(raw.probs.log() / found.temperature, 1))
    assert torch.equal(p.samples, raw.samples)
    assert -p.log_prob(y).mean() < -raw.log_prob(y).mean()
    again = lb.predict(model, x, samples=8, seed=2, keep_samples=True, calibrated=False)
    assert torch.equal(again.probs, raw.probs)
    assert torch.equal(again.aleatoric, raw.aleatoric)
    assert (found.kind, found.samples, found.seed) == ("classes", 8, 2)


def test_a_second_call_fits_the_raw_predictive_again():
    model = overconfident()
    x = torch.randn(60, 4)
    y = labels(model, x)
    first = lb.calibrate(model, (x, y), samples=4, seed=2)
    assert lb.calibrate(model, (x, y), samples=4, seed=2).temperature == first.temperature


def test_loaders_datasets_and_labels_that_mean_none():
    model = overconfident()
    x = torch.randn(90, 4)
    y = labels(model, x)
    whole = lb.calibrate(model, (x, y), samples=4, seed=2).temperature
    batches = [(x[i : i + 40], y[i : i + 40]) for i in range(0, 90, 40)]
    data = torch.utils.data.TensorDataset(x, y)
    for given in (batches, torch.utils.data.DataLoader(data, 7), data):
        found = lb.calibrate(model, given, samples=4, seed=2).temperature
        assert found == pytest.approx(whole, rel=1e-6)
    extra = torch.cat([x, torch.randn(5, 4)]), torch.cat([y, torch.full((5,), -100)])
    found = lb.calibrate(model, extra, samples=4, seed=2).temperature
    assert found == pytest.approx(whole, rel=1e-6)
    with pytest.raises(lb.ConfigError, match="label -1 is none"):
        lb.calibrate(model, (x, torch.full((90,), -1)))


def test_dense_and_binary_labels():
    torch.manual_seed(0)
    net = nn.Conv2d(2, 3, 1)
    with torch.no_grad():
        net.weight.mul_(20)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.5), likelihood=lb.Categorical())
    x = torch.randn(6, 2, 4, 4)
    y = torch.where(torch.rand(6, 4, 4) < 0.6, net(x).argmax(1), torch.randint(0, 3, (6, 4, 4)))
    raw = lb.predict(model, x, samples=3, seed=0)
    found = lb.calibrate(model, (x, y), samples=3, seed=0).temperature
    rows = raw.probs.permute(0, 2, 3, 1).reshape(-1, 3)
    assert found == fit_temperature(rows.log(), y.flatten())
    assert -lb.predict(model, x, samples=3, seed=0).log_prob(y).mean() < -raw.log_prob(y).mean()

    model = overconfident(2, lb.Bernoulli())
    x = torch.randn(80, 4)
    y = (torch.rand(80, 2) < torch.sigmoid(model.net(x) / 6)).float()
    raw = lb.predict(model, x, samples=3, seed=0)
    found = lb.calibrate(model, (x, y), samples=3, seed=0)
    expected = torch.sigmoid(torch.logit(raw.probs) / found.temperature)
    p = lb.predict(model, x, samples=3, seed=0)
    torch.testing.assert_close(p.probs, expected)
    assert found.kind == "binary"
    assert -p.log_prob(y).mean() < -raw.log_prob(y).mean()


def test_numbers_have_no_temperature():
    model = lb.bayesianize(nn.Linear(4, 1), lb.MAP(), likelihood=lb.Gaussian())
    with pytest.raises(lb.ConfigError, match="method='conformal'"):
        lb.calibrate(model, (torch.randn(9, 4), torch.randn(9, 1)))
    assert model.calibration is None


def test_training_drops_it():
    model = overconfident()
    x = torch.randn(30, 4)
    y = labels(model, x)
    lb.calibrate(model, (x, y), samples=2, seed=0)
    config = lb.FitConfig(epochs=1, batch_size=10, seed=0)
    with pytest.raises(lb.ConfigError, match="patience"):  # refused: nothing was trained
        lb.fit(model, (x, y), lb.Categorical(), config=replace(config, patience=2))
    assert model.calibration is not None
    lb.fit(model, (x, y), lb.Categorical(), config=config)
    assert model.calibration is None


@pytest.mark.parametrize("method", ["temperature", "conformal"])
def test_missing_values_are_no_evidence(method):
    model = overconfident()
    x = torch.randn(30, 4)
    y = labels(model, x)
    x[7, 1] = torch.nan
    with pytest.raises(lb.DataError, match=r"predictions of 1 of 30 .* the first is example 7"):
        lb.calibrate(model, (x, y), method=method, samples=2, seed=0)
    assert model.calibration is None
    numbers = lb.bayesianize(nn.Linear(4, 1), lb.MAP(), likelihood=lb.Gaussian())
    held_out = torch.randn(30, 4), torch.full((30,), torch.inf)
    with pytest.raises(lb.DataError, match="targets of 30 of 30"):
        lb.calibrate(numbers, held_out, method="conformal")
