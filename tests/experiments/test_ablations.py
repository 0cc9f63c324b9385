"""The ablations of the papers: every row is what its setting says, and stands by itself."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.experiments import Ablations
from leanbayes.experiments.ablations import ABLATIONS
from leanbayes.experiments.ablations_bench import Bench
from leanbayes.experiments.ablations_courses import course
from leanbayes.experiments.ablations_training import method_of, tuning

FIGURES = ("accuracy", "nll", "ece", "brier", "mutual_information")
COUNTS = {
    "start": 1,
    "factors": 3,
    "curve": 3,
    "samples": 20,  # four methods: three numbers of draws, single draws, mean network
    "likelihood": 2,
    "rate": 4,
    "gamma": 3,
    "scratch": 6,
    "members": 6,
    "rank": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ablations")


@pytest.fixture(scope="module")
def rows(folder):
    words = ["experiment", "ablations", "--smoke", "--out", str(folder / "out.json")]
    words += ["--picture", str(folder / "out.png")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    found = json.loads((folder / "out.json").read_text())["rows"]
    return {row["label"]: row for row in found}


@pytest.fixture(scope="module")
def bench():
    return Bench(Ablations(smoke=True))


def of(rows, ablation):
    return [row for row in rows.values() if row["ablation"] == ablation]


def timeless(row):
    return {key: value for key, value in row.items() if "seconds" not in key}


def test_every_ablation_has_its_rows_of_whole_figures(rows):
    assert {name: len(of(rows, name)) for name in COUNTS} == COUNTS
    assert len(rows) == sum(COUNTS.values())
    assert list(dict.fromkeys(row["ablation"] for row in rows.values())) == ["start", *ABLATIONS]
    for row in rows.values():
        assert all(math.isfinite(row[key]) for key in FIGURES)
        assert row["seconds"] >= 0
        assert {"series", "x", "method", "config", "training_seconds", "command"} <= row.keys()


def test_rows_say_which_network_they_go_on_from(rows, bench):
    """Those from scratch say none, unless it has chosen their mask."""
    own = [label for label, row in rows.items() if row["start"] is None]
    assert {row["start"] for row in rows.values()} == {None, bench.start.mark}
    assert own == [label for label in rows if "from scratch" in label]


def test_a_picture_a_piece_lies_beside_the_named_file(rows, folder):  # noqa: ARG001
    names = {path.name for path in folder.glob("*.png")}
    assert names == {f"out_{name}.png" for name in ABLATIONS}
    for name in names:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["mean_field", "emp", "mc_dropout"])
def test_so_many_draws_are_what_predict_gives(rows, bench, name):
    """The first draws of many are the prediction with few; the mean network is that of eval()."""
    model = bench.trained(method_of(name, bench.num_data), tuning(bench.plan, name)).model
    x, y = bench.data.test
    for count in (1, 3):
        found = lb.predict(model, x, samples=count, seed=0, likelihood=lb.Categorical())
        row = rows[f"samples: {name} {count}"]
        assert row["x"] == row["draws"] == count
        for key in ("accuracy", "nll", "ece", "brier"):
            expected = getattr(lb.metrics, key)(found.probs, y).item()
            assert row[key] == pytest.approx(expected, rel=1e-6)
        mean = found.epistemic.mean().item()
        assert row["mutual_information"] == pytest.approx(mean, rel=1e-3, abs=1e-9)
    with torch.no_grad():
        probs = model.eval()(x).softmax(1)
    expected = lb.metrics.nll(probs, y).item()
    assert rows[f"samples: {name} mean network"]["nll"] == pytest.approx(expected, rel=1e-5)


def test_single_draws_have_mean_and_spread(rows, bench):
    model = bench.trained(method_of("ecmp", bench.num_data), tuning(bench.plan, "ecmp")).model
    x, y = bench.data.test
    found = lb.predict(
        model, x, samples=2, seed=0, likelihood=lb.Categorical(), keep_samples=True
    ).samples
    values = [lb.metrics.nll(probs, y).item() for probs in found]
    row = rows["samples: ecmp single draws"]
    assert row["nll"] == pytest.approx(np.mean(values), rel=1e-6)
    assert row["nll_sd"] == pytest.approx(np.std(values, ddof=1), rel=1e-3)
    assert row["nll_sd"] > 0
    assert row["mutual_information"] == 0


def test_one_mask_serves_trained_and_random_weights(bench):
    """What is random was chosen on the trained network, wherever the weights start."""
    method = method_of("partial_5", bench.num_data, rate=0.05)
    models = [course(bench, method, scratch=s, masked=True).model for s in (False, True)]
    masks = [
        {q.noise_key: q.entries.tolist() for _, _, q, _ in model.posteriors()} for model in models
    ]
    assert masks[0] == masks[1]
    candidates = sum(p.numel() for p in bench.net().parameters())
    assert sum(map(len, masks[0].values())) == round(0.05 * candidates)
    scores = bench.scores("output_jacobian")
    untrained = lb.FitConfig(epochs=0, device="cpu", progress=False)
    for scratch, net in ((False, bench.trained_net()), (True, bench.net())):
        found = bench.trained(method, untrained, scratch=scratch, scores=scores).model
        assert torch.equal(found.net.fc.weight, net.fc.weight)
    assert not torch.equal(bench.trained_net().fc.weight, bench.net().fc.weight)


def test_a_curve_has_a_point_an_epoch(rows):
    found = of(rows, "curve")
    assert [row["epochs_before"] for row in found] == [2, 0, 0]
    for row, epochs in zip(found, (1, 2, 2), strict=True):
        assert row["x"] == epochs
        assert row["curve"]["epoch"] == list(range(1, epochs + 1))
        assert len(row["curve"]["nll"]) == len(row["curve"]["accuracy"]) == epochs
        assert row["config"]["evaluate_samples"] == 5
    assert found[1]["curve"]["nll"] != found[2]["curve"]["nll"]
    assert found[1]["method"]["name"] == "partial"
    assert found[2]["method"]["name"] == "mean_field"


def test_the_margin_changes_the_regulariser_and_not_the_budget(rows):
    found = {row["x"]: row for row in of(rows, "gamma")}
    assert list(found) == [0.0, 0.25, None]
    assert [row["steps"] for row in found.values()] == [2, 2, 2]
    assert "regularizer" not in found[0.0]["config"]
    for gamma in (0.25, None):
        config = found[gamma]["config"]
        assert config["regularizer"]["gamma"] == gamma
        assert config["batch_size"] == 8  # and four noisy images with two draws
    assert found[0.0]["config"]["batch_size"] == 16
    assert found[0.0]["nll"] != found[0.25]["nll"]


def test_attacked_images_are_ranked_by_mutual_information(rows, bench):
    plan = bench.plan
    method = method_of("mean_field", bench.num_data, init_log_std=plan.reg_log_std)
    rates = {"lr": 3e-2, "posterior_lr": 1.0, "schedule": "cosine", "floor": 0.0}
    model = bench.trained(method, tuning(plan, "mean_field", **rates)).model
    x, y = (part[:8] for part in bench.data.test)
    options = {"seed": 0, "likelihood": lb.Categorical()}
    budget = {"eps": 0.031, "step_size": 0.003, "steps": 2, "samples": 2}
    attacked = lb.attacks.pgd(model, x, y, **budget, **options)
    clean, found = (lb.predict(model, images, **options) for images in (x, attacked))
    row = rows["gamma: mean_field 0.0"]
    expected = lb.metrics.average_precision(clean.epistemic, found.epistemic).item()
    assert row["ap_pgd_epistemic"] == pytest.approx(expected, rel=1e-6)
    expected = lb.metrics.accuracy(found.probs, y).item()
    assert row["accuracy_pgd"] == pytest.approx(expected)


def test_likelihoods_differ_in_nothing_else(rows):
    average, mixture = of(rows, "likelihood")
    assert (average["x"], mixture["x"]) == ("average", "mixture")
    assert average["method"] == mixture["method"]
    assert average["method"]["fields"]["assign"] == "tile"  # every example trains every member
    configs = [dict(row["config"]) for row in (average, mixture)]
    assert [config.pop("likelihood_of") for config in configs] == ["average", "mixture"]
    assert configs[0] == configs[1]
    assert average["nll"] != mixture["nll"]


def test_factors_are_seen_clean_and_corrupted(rows, bench):
    found = of(rows, "factors")
    assert [row["method"]["fields"]["stochastic"] for row in found] == ["in", "out", "both"]
    config = tuning(bench.plan, "rank_one")
    model = bench.trained(method_of("rank_one", bench.num_data, stochastic="out"), config).model
    x, y = (part[:8] for part in bench.data.test)
    images = {"clean": x, "fog": lb.shifts.corrupt(x, "fog", 3, seed=0)}
    corrupted = found[1]["corrupted"]
    assert list(corrupted) == ["clean", "gaussian_noise", "defocus_blur", "fog"]
    for name, inputs in images.items():
        probs = lb.predict(model, inputs, samples=4, seed=0, likelihood=lb.Categorical()).probs
        for key in ("nll", "ece"):
            expected = getattr(lb.metrics, key)(probs, y).item()
            assert corrupted[name][key] == pytest.approx(expected, rel=1e-5)


def test_random_parameters_are_counted_and_ranked_both_ways(rows, bench):
    candidates = sum(p.numel() for p in bench.net().parameters())
    found = of(rows, "rate")
    assert [row["x"] for row in found] == [1.0, 50.0, 1.0, 50.0]
    assert [row["added"] for row in found] == [
        round(share * candidates) for share in (0.01, 0.5, 0.01, 0.5)
    ]
    assert [row["method"]["fields"]["criterion"] for row in found] == ["loss_grad"] * 2 + [
        "output_jacobian"
    ] * 2
    assert found[0]["nll"] != found[2]["nll"]


def test_members_and_ranks_are_those_of_the_row(rows):
    found = of(rows, "members")
    assert [(row["series"], row["x"]) for row in found] == [
        (name, count)
        for name, counts in (
            ("rank_one", (1, 2)),
            ("implicit", (1, 2)),
            ("shared_ensemble", (2, 4)),
        )
        for count in counts
    ]
    for row in found:
        assert row["method"]["fields"]["members"] == row["x"]
        assert row["draws"] == row["x"] * (5 if row["series"] == "implicit" else 1)
    one, two = (row["added"] for row in of(rows, "rank"))
    assert two == 2 * one
    assert all(row["method"]["fields"]["per_channel"] for row in of(rows, "rank"))


def test_training_from_scratch_has_rows_of_equal_total_epochs(rows):
    found = of(rows, "scratch")
    tuned = [row for row in found if row["series"].endswith("fine-tuned")]
    fresh = [row for row in found if row["series"].endswith("from scratch")]
    assert [row["total_epochs"] for row in tuned] == [3, 3]
    assert [row["total_epochs"] for row in fresh] == [2, 2, 3, 3]
    assert [row["steps"] for row in fresh] == [4, 4, 6, 6]
    assert [row["config"]["posterior_lr"] for row in fresh[:2]] == pytest.approx([0.2, 0.02])
    assert all(row["training_seconds"] > 0 for row in found)


def test_a_row_stands_by_itself(rows):
    """It needs no other before it: parts may run in any process, and a run may be cut off."""
    for label in ("members: implicit 2", "samples: emp 3"):
        alone = dict(Ablations(smoke=True).parts())[label]()
        stored = rows[label]
        assert {k: stored[k] for k in timeless(alone)} == timeless(alone)
