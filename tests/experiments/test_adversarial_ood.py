"""Adversarial inputs: who notices them, before and after the regulariser."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.data import fashion_mini
from leanbayes.experiments import EXPERIMENTS, AdversarialOOD
from leanbayes.experiments.adversarial_ood import Bench
from leanbayes.experiments.adversarial_ood_scores import Seen, histograms, over_seeds, scores
from leanbayes.experiments.adversarial_ood_training import METHODS, method_named, tuning
from leanbayes.prediction import Classification

STORED = Path(__file__).parents[2] / "results" / "adversarial_ood.json"
FOREIGN = ("digits", "noise", "pgd", "noise_small", "pgd_small")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adversarial")
    words = ["experiment", "adversarial-ood", "--smoke", "--out", str(folder / "out.json")]
    words += ["--picture", str(folder / "out.png")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")
    return json.loads((folder / "out.json").read_text())["rows"]


def answer(probs, epistemic):
    """A prediction with these averages."""
    probs = torch.tensor(probs).double()
    total = -torch.xlogy(probs, probs).sum(1)
    aleatoric = total - torch.tensor(epistemic).double()
    return Classification(None, torch.ones(1).double(), probs, aleatoric)


def seen(*, random=True):
    sure, even = [[1.0, 0.0], [0.9, 0.1]], [[0.5, 0.5], [0.4, 0.6]]
    clean = answer(sure, [0.0, 0.02])
    foreign = {"pgd": answer(even, [0.01, 0.6]), "noise": answer(even, [0.5, 0.6])}
    y = torch.tensor([0, 0])
    return Seen(clean, y, clean, foreign, {"pgd": y}, random=random)


def test_every_method_has_a_row_of_whole_figures(rows):
    assert [row["label"] for row in rows] == list(METHODS)
    for row in rows:
        assert row["seeds"] == [0, 1]
        point = row["label"] == "map"
        for name in FOREIGN:
            for kind in ("ap", "auroc"):
                assert (row[f"{kind}_{name}_epistemic"] is None) == point
                assert 0 <= row[f"{kind}_{name}_total"]["mean"] <= 1
            assert (f"accuracy_{name}" in row) == (name != "digits")
        assert (row["histograms"] is None) == point
        assert (
            row["regularised"] == row["label"].endswith("_reg") == ("regularizer" in row["config"])
        )
        values = row["nll"]["by_seed"]
        assert row["nll"]["mean"] == pytest.approx(np.mean(values))
        assert values[0] != values[1]


def test_histograms_count_every_image_once(rows):
    for row in rows[1:]:
        found = row["histograms"]
        assert found["edges"][0] == 0
        assert found["edges"][-1] == pytest.approx(math.log(3))
        assert [sum(found[name]) for name in ("clean", "noise", "pgd")] == [12, 12, 12]


def test_figures_of_known_answers():
    row = scores(seen())
    assert row["accuracy"] == 1.0
    assert row["nll"] == pytest.approx(-math.log(0.9) / 2)
    assert row["epistemic"] == pytest.approx(0.01)
    # Mutual information of PGD images: 0.6 above both clean ones, 0.01 above one of two.
    assert row["ap_pgd_epistemic"] == pytest.approx((1 + 2 / 3) / 2)
    assert row["auroc_pgd_epistemic"] == pytest.approx(3 / 4)
    assert row["ap_noise_epistemic"] == row["ap_pgd_total"] == row["auroc_noise_total"] == 1.0
    assert row["epistemic_pgd"] == pytest.approx(0.305)
    assert row["accuracy_pgd"] == 0.5
    assert "accuracy_noise" not in row


def test_a_point_has_no_mutual_information():
    row = scores(seen(random=False))
    assert row["epistemic"] is None
    assert row["ap_pgd_epistemic"] is None
    assert row["ap_pgd_total"] == 1.0
    assert histograms([seen(random=False)], 10) is None


def test_seeds_are_averaged_and_what_is_missing_stays_so():
    found = over_seeds([{"a": 0.1, "b": None}, {"a": 0.3, "b": None}])
    assert found["a"]["mean"] == pytest.approx(0.2)
    assert found["a"]["error"] == pytest.approx(0.1)
    assert found["b"] is None


def test_a_step_has_the_same_rows_with_and_without_the_regulariser():
    plan = AdversarialOOD()
    before, after = (tuning(plan, f"mean_field{end}", 3) for end in ("", "_reg"))
    assert (before.batch_size, after.batch_size) == (128, 64)
    assert after.regularizer == lb.OODRegularizer(alpha=3.0, gamma=0.5, samples=2)
    assert (before.seed, before.steps, before.lr) == (after.seed, after.steps, after.lr)
    noisy = plan.batch_size // 4
    assert after.batch_size + noisy * after.regularizer.samples == before.batch_size
    assert method_named(plan, "mean_field", 5000) == method_named(plan, "mean_field_reg", 5000)


def test_settings_are_chosen_without_a_test_image():
    full = fashion_mini()
    held, whole = (Bench(AdversarialOOD(held_out=flag)).data for flag in (True, False))
    assert torch.equal(held.train[0], full.x_train[:5000])
    assert torch.equal(held.test[0], full.x_train[5000:])
    assert torch.equal(whole.test[0], full.x_test)
    assert torch.equal(whole.train[0], held.train[0])


def test_the_network_under_test_is_attacked_within_its_budget():
    bench = Bench(AdversarialOOD(seed=5, attacked=30))
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    model = lb.bayesianize(net, lb.MeanField(init_std=0.05))
    rows = bench._chosen(2000, 6)
    assert rows.tolist() == list(range(30, 60))  # other images than the first run's
    x, y = (part[rows] for part in bench.data.test)
    found = bench._attacked(model, (x, y), 0.1, 0)
    assert (found - x).abs().max() <= 0.1 + 1e-6
    assert 0 <= found.min() <= found.max() <= 1
    losses = [lb.metrics.nll(bench._predicted(model, v, 1).probs, y) for v in (x, found)]
    assert losses[1] > losses[0] + 0.5


def test_a_row_is_the_same_whether_or_not_others_came_before_it():
    plan = AdversarialOOD(smoke=True)
    together = dict(plan.parts())
    together["map"]()
    label = "mean_field_reg"
    assert dict(plan.parts())[label]() == together[label]()


def test_the_stored_run_shows_what_the_regulariser_does():
    """Both variationals, by mutual information; all runs stand on whole settings."""
    stored = json.loads(STORED.read_text())
    assert not stored["settings"]["smoke"]
    assert not stored["settings"]["held_out"]
    rows = {row["label"]: row for row in stored["rows"]}
    assert list(rows) == list(METHODS)
    for name in ("mean_field", "shared_ensemble"):
        before, after = (rows[label]["ap_pgd_epistemic"] for label in (name, f"{name}_reg"))
        assert min(after["by_seed"]) > 0.9
        assert max(before["by_seed"]) < 0.75
    assert rows["shared_ensemble"]["ap_pgd_epistemic"]["mean"] < 0.5


def test_what_is_not_there_is_refused():
    assert EXPERIMENTS["adversarial-ood"] is AdversarialOOD
    with pytest.raises(lb.ConfigError, match="methods: no 'vi'"):
        AdversarialOOD(methods=("vi",))
    with pytest.raises(lb.ConfigError, match="batch_size is a multiple of 4"):
        AdversarialOOD(batch_size=66)
