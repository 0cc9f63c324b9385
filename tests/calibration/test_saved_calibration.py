"""Calibration travels with a model, and a damaged one is refused."""

import json
from copy import deepcopy

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.storage import read_directory, write_directory

CASES = {
    "temperature": (lb.Categorical, 3, [{"method": "temperature"}]),
    "lac": (lb.Categorical, 3, [{"method": "conformal", "alpha": 0.2}]),
    "both": (
        lb.Categorical,
        3,
        [{"method": "temperature"}, {"method": "conformal", "score": "aps", "randomised": True}],
    ),
    "binary": (lb.Bernoulli, 1, [{"method": "conformal"}]),
    "numbers": (lb.Gaussian, 2, [{"method": "conformal"}]),
}


def calibrated(name):
    torch.manual_seed(0)
    likelihood, outputs, calls = CASES[name]
    model = lb.bayesianize(nn.Linear(4, outputs), lb.MeanField(), likelihood=likelihood())
    x = torch.randn(40, 4)
    y = torch.randn(40, 2) if outputs == 2 else torch.randint(0, max(outputs, 2), (40,))
    if outputs == 3:  # not far from what the network says, so that there is a temperature
        y[:25] = model.net(x[:25]).argmax(1)
    for options in calls:
        lb.calibrate(model, (x, y), samples=3, seed=1, **options)
    return model, x, outputs


def answers(model, x):
    p = lb.predict(model, x, samples=3, seed=1)
    return [p.total, *(p.interval() if hasattr(p, "interval") else [p.probs, p.sets(seed=0)])]


@pytest.mark.parametrize("name", [n for n in sorted(CASES) if n != "temperature"])
def test_a_saved_model_covers_the_same(name, tmp_path):
    model, x, outputs = calibrated(name)
    lb.save(model, tmp_path / "model")
    again = lb.load(nn.Linear(4, outputs), tmp_path / "model")
    for copy in (again, deepcopy(model)):
        assert copy.calibration.to_json() == model.calibration.to_json()
        pairs = zip(answers(copy, x), answers(model, x), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_a_saved_temperature_is_the_same_number(tmp_path):
    model, x, outputs = calibrated("temperature")
    lb.save(model, tmp_path / "model", posterior_only=False)
    again = lb.load(nn.Linear(4, outputs), tmp_path / "model")
    assert again.calibration.temperature == model.calibration.temperature
    p, q = (lb.predict(m, x, samples=3, seed=1).probs for m in (model, again))
    assert torch.equal(p, q)


def test_without_calibration_files_and_predictions_are_as_ever(tmp_path):
    model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField(), likelihood=lb.Categorical())
    lb.save(model, tmp_path / "model")
    description = json.loads((tmp_path / "model" / "leanbayes.json").read_text())
    assert "calibration" not in description
    assert lb.load(nn.Linear(4, 3), tmp_path / "model").calibration is None
    assert lb.predict(model, torch.randn(2, 4)).conformal is None


def changed(path, change):
    """The description with an entry changed, and hashes that agree with it."""
    files = read_directory(path)
    description = json.loads(files["leanbayes.json"])
    entry = description["calibration"]
    given = change(entry)
    description["calibration"] = given if isinstance(given, list) else entry
    write_directory(path, {**files, "leanbayes.json": json.dumps(description).encode()})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: [c], "must hold"),
        (lambda c: c.update(kind="pictures"), "kind is one of"),
        (lambda c: c.update(kind="numbers"), "for numbers"),
        (lambda c: c.pop("seed"), "must hold"),
        (lambda c: c.update(more=1), "must hold"),
        (lambda c: c.update(samples="3"), "samples must be whole"),
        (lambda c: c.update(temperature=0), "temperature must lie"),
        (lambda c: c.update(temperature="hot"), "temperature must lie"),
        (lambda c: c.update(temperature=float("nan")), "temperature must lie"),
        (lambda c: c.update(conformal=7), "conformal must hold"),
        (lambda c: c["conformal"].update(alpha=2), "alpha must lie"),
        (lambda c: c["conformal"].update(score="scaled"), "only score='aps'"),
        (lambda c: c["conformal"].update(score=["aps"]), "score is one of"),
        (lambda c: c["conformal"].update(randomised=1), "true or false"),
        (lambda c: c["conformal"].update(scores=[]), "scores: expected"),
        (lambda c: c["conformal"].update(scores="many"), "list of scores"),
        (lambda c: c["conformal"].update(scores=[0.1, "x"]), "no numbers"),
        (lambda c: c["conformal"].update(scores=[0.1, [0.2]]), "no numbers"),
        (lambda c: c["conformal"].update(scores=[0.3, 0.2]), "do not rise"),
        (lambda c: c["conformal"].update(scores=[0.3, float("inf")]), "finite"),
        (lambda c: c["conformal"].update(scores=[-0.3, 0.1]), "not negative"),
    ],
)
def test_a_damaged_entry_is_refused_and_the_network_stays(change, words, tmp_path):
    model, _, outputs = calibrated("both")
    lb.save(model, tmp_path / "model")
    changed(tmp_path / "model", change)
    net = nn.Linear(4, outputs)
    with pytest.raises(lb.CheckpointError, match=f"(?s)damaged in 'calibration'.*{words}"):
        lb.load(net, tmp_path / "model")
    assert type(net) is nn.Linear


def test_the_samples_kept_are_those_asked_for_where_each_averages_all_heads():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))
    method = lb.Patching(where="norm+output", exact_output=True)
    model = lb.bayesianize(net, method, likelihood=lb.Categorical())
    x = torch.randn(40, 4)
    y = lb.predict(model, x, samples=6, seed=0).label
    assert lb.calibrate(model, (x, y), method="conformal", samples=6, seed=0).samples == 6
