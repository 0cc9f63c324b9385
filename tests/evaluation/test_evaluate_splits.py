"""Figures of every kind of split are those of lb.metrics on what lb.predict gives."""

import json

import pytest
import torch
from evaluation_cases import CLASSES, SCALE, data, evaluate, images, timeless, trained

import leanbayes as lb
from leanbayes import metrics
from leanbayes.evaluation import Attack
from leanbayes.noise import key_seed

ROWS = 40
NAMES = "test,corrupted:fog/3,corrupted:shot_noise/2,noise:0.4,salt_and_pepper:0.2,rotated:30"


def predicted(x):
    """All rows in one go, where the evaluation goes in batches of 16."""
    return lb.predict(trained(), x, samples=4, seed=5)


def labelled(p, y):
    """The figures of labelled rows, straight from their definitions."""
    right = p.label == y
    found = {
        "accuracy": metrics.accuracy(p.probs, y),
        "nll": metrics.nll(p.probs, y),
        "ece": metrics.ece(p.probs, y),
        "mce": metrics.mce(p.probs, y),
        "brier": metrics.brier(p.probs, y),
        "adaptive_ece": metrics.adaptive_ece(p.probs, y),
        "classwise_ece": metrics.classwise_ece(p.probs, y),
        "total": p.total.mean(),
        "aleatoric": p.aleatoric.mean(),
        "epistemic": p.epistemic.mean(),
        "total_right": p.total[right].mean(),
        "total_wrong": p.total[~right].mean(),
        "error_auroc": metrics.auroc(p.total[right], p.total[~right]),
        "aurc": metrics.aurc(p.probs, y, p.total),
    }
    for share in (80, 90, 95):
        figure = metrics.accuracy_at_coverage(p.probs, y, share / 100, p.total)
        found[f"accuracy_at_{share}"] = figure
    return found


def apart(own, strange):
    return {
        f"{name}_{kind}": score(getattr(own, kind), getattr(strange, kind))
        for kind in ("total", "epistemic")
        for name, score in {
            "auroc": metrics.auroc,
            "ap": metrics.average_precision,
            "fpr95": metrics.fpr95,
        }.items()
    }


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(float(value), rel=1e-5, abs=1e-7), name


@pytest.fixture(scope="module")
def found():
    strange = {"digits": lb.data.read("digits")}
    strange["digits"] = lb.data.Data(
        name="digits",
        task="classification",
        train=None,
        test=(strange["digits"].test[0][:50, :, 9:18, 9:18], torch.zeros(50).long()),
    )
    suite = lb.Suite.of(data(), f"{NAMES},ood:digits,pgd,fgsm", rows=ROWS, foreign=strange)
    return evaluate(trained(), suite), strange["digits"].test[0]


def test_the_clean_split(found):
    x, y = data().test
    split = found[0]["splits"]["test"]
    assert (split["kind"], split["count"]) == ("clean", 70)
    p = lb.predict(trained(), x, samples=4, seed=5, keep_samples=True)
    assert 0.6 < float(metrics.accuracy(p.probs, y)) < 1
    draws = {
        "disagreement": metrics.disagreement(p.samples),
        "disagreement_normalised": metrics.normalised_disagreement(p.samples, y),
        "draw_accuracy": (p.samples.argmax(2) == y).double().mean(),
    }
    assert_equal(split["figures"], {**labelled(p, y), **draws})


def test_corrupted_and_shifted_rows_are_the_first_ones_made_on_pixels(found):
    x, y = (part[:ROWS] for part in data().test)
    pixels = SCALE.undo(x)
    made = {
        "corrupted/fog/3": SCALE(lb.shifts.corrupt(pixels, "fog", 3, seed=5)),
        "corrupted/shot_noise/2": SCALE(lb.shifts.corrupt(pixels, "shot_noise", 2, seed=5)),
        "noise/0.4": lb.shifts.mix_noise(x, 0.4, seed=5),
        "salt_and_pepper/0.2": SCALE(lb.shifts.salt_and_pepper(pixels, 0.2, seed=5)),
        "rotated/30": SCALE(lb.shifts.rotate(pixels, 30.0)),
    }
    for name, inputs in made.items():
        split = found[0]["splits"][name]
        assert (split["count"], split["of"]) == (ROWS, "test")
        assert "curves" not in split
        assert_equal(split["figures"], labelled(predicted(inputs), y))
    shifts = [found[0]["splits"][name]["shift"] for name in list(made)[1:3]]
    assert shifts == [{"name": "shot_noise", "severity": 2}, {"name": "mix_noise", "level": 0.4}]


def test_foreign_rows_are_brought_to_the_scale_of_the_network_and_told_from_all_clean_ones(found):
    result, raw = found
    split = result["splits"]["ood/digits"]
    own, strange = predicted(data().test[0]), predicted(SCALE(raw))
    uncertainty = {k: getattr(strange, k).mean() for k in ("total", "aleatoric", "epistemic")}
    assert_equal(split["figures"], {**uncertainty, **apart(own, strange)})
    assert (split["kind"], split["count"], split["of"]) == ("foreign", 50, "test")
    assert list(split["curves"]) == ["histogram"]


@pytest.mark.parametrize("name", ["pgd", "fgsm"])
def test_adversarial_rows_are_told_from_the_same_clean_ones(found, name):
    x, y = (part[:ROWS] for part in data().test)
    options = {"eps": 0.031, "samples": 4, "seed": key_seed(5, name, 0) >> 1, "normalize": SCALE}
    if name == "pgd":
        options |= {"step_size": 0.003, "steps": 20, "first": 0}
    moved = getattr(lb.attacks, name)(trained(), x, y, **options)
    own, strange = predicted(x), predicted(moved)
    split = found[0]["splits"][name]
    assert_equal(split["figures"], {**labelled(strange, y), **apart(own, strange)})
    assert split["figures"]["nll"] > float(metrics.nll(own.probs, y)) + 0.02
    assert split["attack"]["eps"] == 0.031


def test_the_summary_is_flat_and_the_whole_is_plain_data(found):
    result = found[0]
    splits, summary = result["splits"], result["summary"]
    clean = splits["test"]["figures"]
    assert {summary[name] == clean[name] for name in ("accuracy", "nll", "aurc")} == {True}
    assert "mce" not in summary
    both = [splits[f"corrupted/{name}"]["figures"]["nll"] for name in ("fog/3", "shot_noise/2")]
    assert summary["corrupted_nll"] == pytest.approx(sum(both) / 2, rel=1e-12)
    for name in ("auroc_total", "auroc_epistemic", "ap_total", "ap_epistemic"):
        assert summary[f"{name}_digits"] == splits["ood/digits"]["figures"][name]
        assert summary[f"{name}_pgd"] == splits["pgd"]["figures"][name]
    assert summary["accuracy_pgd"] == splits["pgd"]["figures"]["accuracy"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["suite"]["data"] == "stripes"
    assert result["classes"] == list(CLASSES)
    assert result["task"] == "classification"
    assert result["settings"]["samples"] == 4
    assert list(splits) == [*NAMES.replace(":", "/").split(","), "ood/digits", "pgd", "fgsm"]


def test_no_row_depends_on_the_batch_it_is_in():
    suite = lb.Suite.of(data(), "test,corrupted:glass_blur/4,noise:0.3,pgd", rows=30)
    one, other = (evaluate(trained(), suite, batch_size=size)["splits"] for size in (7, 64))
    for name, split in one.items():
        assert_equal(split["figures"], other[name]["figures"])


def test_a_dataset_and_a_pair_of_tensors_give_the_same():
    x, y = data().test
    names = "test,corrupted:contrast/2,pgd"
    given = {"rows": 20, "normalize": SCALE}
    pair = lb.Suite.of(data(), names, **given)
    rows = torch.utils.data.TensorDataset(x, y)
    whole = lb.data.Data(
        name="stripes",
        task="classification",
        train=None,
        test=rows,
        normalize=SCALE,
        classes=CLASSES,
    )
    again = lb.Suite.of(whole, names, **given)
    found, expected = (timeless(evaluate(trained(), suite)) for suite in (again, pair))
    assert found == expected


def test_a_model_that_is_not_random_has_no_epistemic_scores():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(81, 3))
    model = lb.bayesianize(net, lb.MAP(), likelihood=lb.Categorical())
    foreign = {"noise": torch.rand(20, 1, 9, 9)}
    suite = lb.Suite.of(images(30), "test,ood:noise", foreign=foreign, sweep=True)
    found = evaluate(model, suite)["splits"]
    assert not [name for name in found["ood/noise"]["figures"] if name.endswith("_epistemic")]
    assert found["ood/noise"]["figures"]["epistemic"] == pytest.approx(0, abs=1e-12)
    assert found["test"]["curves"]["samples"]["samples"] == [1]


def test_an_attack_of_other_strength_moves_further():
    suites = [
        lb.Suite.of(data(), "test,pgd", rows=20, attack=Attack(eps=eps, steps=5, step_size=0.02))
        for eps in (0.01, 0.1)
    ]
    weak, strong = (evaluate(trained(), s)["splits"]["pgd"]["figures"]["nll"] for s in suites)
    assert strong > weak + 0.05


def test_rows_without_a_label_count_as_rows_only():
    x, y = data().test
    hidden = y.clone()
    hidden[::3] = -100
    found = evaluate(trained(), lb.Suite.of((x, hidden), "test"))["splits"]["test"]
    known, p = hidden != -100, predicted(x)
    expected = float(metrics.nll(p.probs[known], y[known]))
    assert found["figures"]["nll"] == pytest.approx(expected, rel=1e-6)
    assert found["figures"]["total"] == pytest.approx(float(p.total.mean()), rel=1e-6)
    assert sum(found["curves"]["histogram"]["total"]) == 70
    assert sum(found["curves"]["reliability"]["count"]) == int(known.sum())
    with pytest.raises(lb.DataError, match="no element has a label"):
        evaluate(trained(), lb.Suite.of((x, torch.full_like(y, -100)), "test"))


def test_five_of_many_classes_and_the_area_of_two():
    torch.manual_seed(0)
    x = torch.rand(40, 6)
    for classes, name in ((7, "accuracy_top5"), (2, "auc_pr")):
        y = torch.arange(40) % classes
        model = lb.bayesianize(
            torch.nn.Linear(6, classes), lb.MeanField(), likelihood=lb.Categorical()
        )
        found = evaluate(model, lb.Suite.of((x, y), "test"))["summary"]
        p = lb.predict(model, x, samples=4, seed=5)
        expected = (
            metrics.accuracy(p.probs, y, top=5)
            if classes == 7
            else metrics.average_precision(p.probs[y == 0, 1], p.probs[y == 1, 1])
        )
        assert found[name] == pytest.approx(float(expected), rel=1e-6)
