"""`leanbayes evaluate`, `info`, `models`, `data`: figures and facts of what is there."""

import json
import shutil

import pytest
import torch

import leanbayes as lb
from leanbayes.cli.card import Card
from leanbayes.cli.figures import Judge
from leanbayes.cli.readers import DATA
from leanbayes.cli.words import explained, options
from leanbayes.prediction import BinaryClassification, Classification


def test_figures_are_those_of_the_metrics(leanbayes, finished):
    result = leanbayes("evaluate", finished, "--ood", "digits", "--samples", 5, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    data = lb.data.fashion_mini()
    net = lb.models.create("mlp", inputs=784, hidden=[8], outputs=10)
    model = lb.load(net, finished / "model")
    p = lb.predict(model, data.x_test, samples=5, seed=0)
    foreign = lb.predict(model, lb.data.digits_28()[-597:], samples=5, seed=0)
    for name in ("accuracy", "nll", "ece", "brier"):
        figure = getattr(lb.metrics, name)(p.probs, data.y_test)
        assert found[name] == pytest.approx(float(figure), rel=1e-4)
    for name in ("total", "epistemic"):
        area = lb.metrics.auroc(getattr(p, name), getattr(foreign, name))
        assert found[f"auroc_{name}"] == pytest.approx(float(area), abs=1e-3)
    assert (found["data"], found["part"], found["count"]) == ("fashion_mini", "test", 2000)


def test_the_data_of_the_run_are_read_with_its_own_options(leanbayes, finished):
    found = json.loads(leanbayes("evaluate", finished, "--part", "validation", "--json").out)
    report = json.loads((finished / "report.json").read_text())["figures"]
    assert found["count"] == 20
    assert found["nll"] == pytest.approx(report["nll"], rel=1e-4)
    changed = ["--part", "validation", "--set", "held_out=30", "--json"]
    assert json.loads(leanbayes("evaluate", finished, *changed).out)["count"] == 30


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--data", "fashon_mini"], 2, "did you mean 'fashion_mini'"),
        (["--ood", "digitz"], 2, "did you mean 'digits'"),
        (["--part", "tset"], 2, "did you mean 'test'"),
        (["--set", "imagez=3"], 2, "imagez: unknown; did you mean 'images'"),
        (["--data", "npz", "--root", "nowhere.npz"], 5, "nowhere.npz"),
    ],
)
def test_wrong_names_and_paths_are_said(leanbayes, finished, arguments, code, words):
    result = leanbayes("evaluate", finished, *arguments)
    assert (result.code, result.out) == (code, "")
    assert words in result.err


def test_data_of_other_classes_are_told_of(leanbayes, finished):
    result = leanbayes("evaluate", finished, "--data", "digits", "--json")
    assert (result.code, json.loads(result.out)["count"]) == (0, 597)
    assert "classes of digits (0, 1, 2, ...) are not those of the run (T-shirt" in result.err
    assert leanbayes("evaluate", finished, "--json").err == ""


def test_labels_outside_the_classes_exit_with_5(leanbayes, finished, tmp_path):
    import numpy as np

    x, y = torch.rand(20, 28, 28).numpy(), torch.arange(20).numpy()
    np.savez(tmp_path / "many.npz", x=x, y=y)
    options = ["--data", "npz", "--root", tmp_path / "many.npz", "--part", "train"]
    result = leanbayes("evaluate", finished, *options)
    assert (result.code, "label 1" in result.err) == (5, True)


def test_data_whose_name_is_not_their_readers_are_found_again(leanbayes, tmp_path):
    pytest.importorskip("sklearn")
    flags = ["--data", "sklearn_table", "--set", "data.options.name=iris", "--method", "map"]
    net = ["--model", "mlp", "--set", "model.options={inputs=4, hidden=[4], outputs=3}"]
    result = leanbayes("train", *flags, *net, "--epochs", 1, "--folder", tmp_path / "one")
    assert result.code == 0, result.err
    found = json.loads(leanbayes("evaluate", tmp_path / "one", "--json").out)
    assert (found["data"], found["count"]) == ("sklearn_table", 15)


def test_figures_of_dense_labels_leave_ignored_elements_out():
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(2, 3, 4, 5, generator=generator).double().softmax(1)
    target = torch.randint(0, 3, (2, 4, 5), generator=generator)
    target[0, 0] = 9
    found = Classification(None, torch.ones(1), probs, torch.zeros(2, 4, 5).double())
    card = Card({}, {"classes": ["sky", "road", "tree"]}, {"shape": [3, 4, 5]})
    figures = Judge(card, None, 1, {}).figures(found, target, ignore_index=9)
    known = target != 9
    right = (probs.argmax(1) == target)[known]
    assert figures["accuracy"] == pytest.approx(right.double().mean().item())
    total = found.total[known]
    pairs = (total[~right][:, None] > total[right]).double().mean().item()
    assert figures["error_auroc"] == pytest.approx(pairs, abs=0.01)  # a histogram
    ious = [figures[f"iou_{name}"] for name in card.classes]
    assert figures["mean_iou"] == pytest.approx(sum(ious) / 3)


@pytest.mark.parametrize("questions", [1, 3])
def test_figures_of_yes_or_no_tell_how_well_errors_are_found(questions):
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(40, questions, generator=generator).double()
    target = (torch.rand(40, questions, generator=generator) < probs).long()
    found = BinaryClassification(None, torch.ones(1), probs, torch.zeros_like(probs))
    figures = Judge(Card({}, {}, {}), None, 1, {}).figures(found, target, ignore_index=-100)
    right = ((probs > 0.5) == target).flatten()
    nearness = -(probs - 0.5).abs().flatten()  # in the order of the entropy
    pairs = (nearness[~right][:, None] > nearness[right]).double().mean().item()
    assert figures["error_auroc"] == pytest.approx(pairs)
    assert figures["accuracy"] == pytest.approx(right.double().mean().item())


def test_info_tells_what_a_run_is_and_checks_the_hashes(leanbayes, finished, tmp_path):
    found = json.loads(leanbayes("info", finished, "--json").out)
    assert found["model"]["name"] == "mlp"
    assert (found["method"]["name"], found["likelihood"]["name"]) == ("mean_field", "Categorical")
    assert found["numbers"] == {"network": 6370, "posterior": 6370}
    assert found["hashes"] == "valid"
    assert "mean_field" in leanbayes("info", finished / "model").out
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    file = copy / "model" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    result = leanbayes("info", copy)
    assert (result.code, "damaged" in result.err) == (5, True)
    shutil.rmtree(copy / "model")
    (copy / "card.json").unlink()
    assert "has not finished" in leanbayes("info", copy).err
    assert leanbayes("info", "nowhere").code == 5


@pytest.mark.parametrize(("command", "known"), [("models", lb.models.MODELS), ("data", DATA)])
def test_a_listing_names_everything_and_a_name_gives_its_options(leanbayes, command, known):
    found = json.loads(leanbayes(command, "--json").out)
    assert [entry["name"] for entry in found] == sorted(known)
    assert all(entry["about"] for entry in found)
    text = leanbayes(command).out
    for name, make in known.items():
        assert f"\n{name} " in f"\n{text}"
        one = leanbayes(command, name).out
        for option in options(make):
            assert f"  {option['name']}: {option['type']}" in " ".join(f" {one}".split(" "))


@pytest.mark.parametrize(("command", "wrong"), [("models", "resnet19"), ("data", "fashon")])
def test_an_unknown_name_gets_the_nearest(leanbayes, command, wrong):
    result = leanbayes(command, wrong)
    assert (result.code, "did you mean" in result.err) == (2, True)


def test_help_on_a_method_says_what_its_docstring_says(leanbayes):
    text = " ".join(leanbayes("train", "--help-method", "mean_field").out.split())
    for name, words in explained(lb.MeanField).items():
        assert f" {name}: " in text
        assert " ".join(words.split()) in text
    assert "'shared'" in text
    assert leanbayes("methods", "mean_field").out.endswith(
        leanbayes("adapt", "--help-method", "mean_field").out
    )
    fields = json.loads(leanbayes("methods", "mean_field", "--json").out)["fields"]
    assert {"name": "prior_std", "type": "float | None", "default": "none"}.items() <= next(
        f for f in fields if f["name"] == "prior_std"
    ).items()
    assert leanbayes("train", "--help-method", "mean_feld").code == 2
