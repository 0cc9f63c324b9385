"""Numbers, yes and no, labels by pixel, and models that were calibrated."""

import pytest
import torch
from evaluation_cases import data, evaluate, images, trained
from torch import nn

import leanbayes as lb
from leanbayes import metrics


def close(value):
    return pytest.approx(float(value), rel=1e-6, abs=1e-9)


def numbers(rows=45, targets=2):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(rows, 3, generator=generator)
    noise = torch.randn(rows, targets, generator=generator)
    return x, x[:, :targets] * 2 + 0.3 * noise


def regressor(targets=2):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, targets))
    likelihood = lb.Gaussian(precision=2.0)
    return lb.bayesianize(net, lb.MeanField(init_std=0.2), likelihood=likelihood)


def test_regression():
    model, (x, y) = regressor(), numbers()
    suite = lb.Suite.of((x, y), "test,noise:0.5", rows=20, sweep=True)
    result = evaluate(model, suite)
    split = result["splits"]["test"]
    p = lb.predict(model, x, samples=4, seed=5, keep_samples=True)
    means, noise = p.samples.unbind(-1)
    expected = {
        "rmse": metrics.rmse(p.mean, y.double()),
        "lpd": metrics.log_predictive_density(means, y.double(), noise),
        "coverage_95": metrics.interval_coverage(*p.interval(0.95), y.double()),
        "crps": metrics.crps_mixture(means, y.double(), noise),
        "total": p.total.mean(),
        "aleatoric": p.aleatoric.mean(),
        "epistemic": p.epistemic.mean(),
    }
    assert split["figures"].keys() == expected.keys()
    for name, value in expected.items():
        assert split["figures"][name] == close(value), name
    assert result["task"] == "regression"
    assert result["summary"]["rmse"] == split["figures"]["rmse"]
    shifted = lb.predict(model, lb.shifts.mix_noise(x[:20], 0.5, seed=5), samples=4, seed=5)
    found = result["splits"]["noise/0.5"]["figures"]["rmse"]
    assert found == close(metrics.rmse(shifted.mean, y[:20].double()))


def test_observed_coverage_is_that_of_the_intervals():
    model, (x, y) = regressor(), numbers()
    curve = evaluate(model, lb.Suite.of((x, y), "test"))["splits"]["test"]["curves"]["coverage"]
    p = lb.predict(model, x, samples=4, seed=5, keep_samples=True)
    for level, share in zip(curve["nominal"], curve["observed"], strict=True):
        assert share == close(metrics.interval_coverage(*p.interval(level), y.double()))
    assert curve["observed"] == sorted(curve["observed"])


def test_the_sweep_of_a_regression_is_that_of_fewer_samples():
    model, (x, y) = regressor(1), numbers(targets=1)
    found = evaluate(model, lb.Suite.of((x, y), "test", sweep=True), samples=5)
    curve = found["splits"]["test"]["curves"]["samples"]
    assert curve["samples"] == [1, 2, 4, 5]
    for at, count in enumerate(curve["samples"]):
        p = lb.predict(model, x, samples=count, seed=5, keep_samples=True)
        assert curve["rmse"][at] == close(metrics.rmse(p.mean, y.double()))
        assert curve["lpd"][at] == close(p.log_prob(y).mean())


def test_members_of_unequal_weight_have_no_crps():
    torch.manual_seed(0)
    model = lb.bayesianize(
        nn.Linear(3, 1), lb.BatchEnsemble(members=3), likelihood=lb.Gaussian(precision=1.0)
    )
    x, y = numbers(targets=1)
    figures = evaluate(model, lb.Suite.of((x, y), "test"), samples=4)["summary"]
    assert "crps" not in figures
    p = lb.predict(model, x, samples=4, seed=5, keep_samples=True)
    assert figures["lpd"] == close(p.log_prob(y).mean())


def test_yes_and_no():
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Linear(3, 1), lb.MeanField(init_std=0.5), likelihood=lb.Bernoulli())
    x, y = numbers()[0], numbers()[1][:, 0].gt(0.2).long()
    result = evaluate(model, lb.Suite.of((x, y), "test", sweep=True))
    p = lb.predict(model, x, samples=4, seed=5)
    probs = torch.stack([1 - p.probs, p.probs], -1).reshape(-1, 2)
    figures = result["splits"]["test"]["figures"]
    assert result["task"] == "binary"
    for name in ("accuracy", "nll", "ece", "brier", "classwise_ece"):
        assert figures[name] == close(getattr(metrics, name)(probs, y)), name
    area = metrics.average_precision(probs[y == 0, 1], probs[y == 1, 1])
    assert figures["auc_pr"] == close(area)
    assert result["splits"]["test"]["curves"]["samples"]["nll"][-1] == close(figures["nll"])


def scenes(rows=12):
    generator = torch.Generator().manual_seed(6)
    x = torch.rand(rows, 3, 8, 8, generator=generator)
    y = (x[:, 0] * 2.999).long()
    y[:, 0] = 255
    return x, y


def test_labels_by_pixel():
    torch.manual_seed(2)
    net = nn.Conv2d(3, 4, 3, padding=1)
    likelihood = lb.Categorical(ignore_index=255)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3), likelihood=likelihood)
    x, y = scenes()
    names = ("sky", "road", "tree", "never")
    whole = lb.data.Data(
        name="scenes",
        task="segmentation",
        train=None,
        test=(x, y),
        classes=names,
        ignore_index=255,
        extra={"grey": (torch.full_like(x[:5], 0.5), y[:5])},
    )
    suite = lb.Suite.of(whole, "test,corrupted:fog/2,ood", sweep=True, examples=True)
    result = evaluate(model, suite, batch_size=5)
    split = result["splits"]["test"]
    p = lb.predict(model, x, samples=4, seed=5)
    known = y != 255
    probs, labels, total = p.probs.movedim(1, -1)[known], y[known], p.total[known]
    right = probs.argmax(1) == labels
    for name in ("accuracy", "nll", "ece", "brier", "mean_iou"):
        assert split["figures"][name] == close(getattr(metrics, name)(probs, labels)), name
    area = metrics.auroc(total[right], total[~right])
    assert split["figures"]["error_auroc"] == pytest.approx(float(area), abs=1e-3)
    overlaps = metrics.class_iou(probs, labels)
    for name, value in zip(names[:3], overlaps.tolist(), strict=False):
        assert split["figures"][f"iou_{name}"] == close(value)
    assert result["task"] == "segmentation"
    foreign = lb.predict(model, whole.extra["grey"][0], samples=4, seed=5)
    apart = metrics.auroc(p.total.flatten(1).mean(1), foreign.total.flatten(1).mean(1))
    assert result["splits"]["ood/grey"]["figures"]["auroc_total"] == close(apart)
    assert split["curves"]["samples"]["nll"][-1] == close(split["figures"]["nll"])
    assert "examples" not in split


def test_a_model_with_a_temperature_is_evaluated_with_it():
    from copy import deepcopy

    model = deepcopy(trained())
    plain = evaluate(model, lb.Suite.of(data(), "test"))
    x, y = images(80, seed=9)
    held = (data().normalize(x), y)
    lb.calibrate(model, held, samples=4, seed=5)
    assert model.calibration.temperature != pytest.approx(1, abs=0.01)
    result = evaluate(model, lb.Suite.of(data(), "test", sweep=True))
    split = result["splits"]["test"]
    inputs, labels = data().test
    p = lb.predict(model, inputs, samples=4, seed=5)
    assert split["figures"]["nll"] == close(metrics.nll(p.probs, labels))
    assert split["figures"]["total"] == close(p.total.mean())
    assert split["curves"]["samples"]["nll"][-1] == close(split["figures"]["nll"])
    assert split["curves"]["samples"]["ece"][-1] == close(split["figures"]["ece"])
    assert split["figures"]["nll"] != close(plain["summary"]["nll"])
    assert (plain["settings"]["calibrated"], result["settings"]["calibrated"]) == (False, True)


def test_conformal_intervals_are_the_ones_that_are_counted():
    model, (x, y) = regressor(1), numbers(60, targets=1)
    lb.calibrate(model, (x[:30], y[:30]), method="conformal", samples=4, seed=5)
    found = evaluate(model, lb.Suite.of((x[30:], y[30:]), "test"))["splits"]["test"]
    p = lb.predict(model, x[30:], samples=4, seed=5)
    curve = found["curves"]["coverage"]
    at = curve["nominal"].index(0.9)
    held = metrics.interval_coverage(*p.interval(0.9), y[30:].double())
    assert curve["observed"][at] == close(held)
    assert found["figures"]["coverage_95"] >= curve["observed"][at]


def test_label_maps_on_their_side_are_refused():
    model = lb.bayesianize(nn.Conv2d(3, 4, 1), lb.MAP(), likelihood=lb.Categorical())
    x, y = torch.rand(2, 3, 4, 6), torch.zeros(2, 6, 4).long()
    with pytest.raises(lb.DataError, match="labels 4x6 elements a row, the data have 6x4"):
        evaluate(model, lb.Suite.of((x, y), "test"))
