"""Sections of an evaluation: every number on the page is one of the file's."""

import json
import re
from itertools import pairwise
from pathlib import Path
from statistics import fmean, quantiles

import pytest

import made_files
import made_results
from leanbayes.reporting import build, page, read
from leanbayes.reporting.forms import parsed
from leanbayes.reporting.looks import Look
from leanbayes.reporting.sections.severity import line

TITLES = (
    *("Summary", "Methods", "Quality against price", "Reliability", "Known and foreign data"),
    *("Corrupted data", "Right and wrong predictions", "Kinds of corruption", "Other shifts"),
    *("Two kinds of uncertainty", "Refusing the uncertain", "Number of draws", "Layers"),
    *("Examples", "Settings", "Commands and versions"),
)


@pytest.fixture(scope="module")
def compared():
    return made_files.compared(("map", "mean_field", "ensemble"), kinds=made_results.KINDS[:4])


@pytest.fixture(scope="module")
def sections(compared, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "compare.json"
    path.write_text(json.dumps(compared))
    return {section.title: section for section in build([read(path)])}


def made(tmp_path, *files):
    paths = []
    for at, data in enumerate(files):
        paths.append(tmp_path / f"{at}.json")
        paths[-1].write_text(json.dumps(data))
    return {section.title: section for section in build([read(path) for path in paths])}


def runs(data, label):
    row = next(row for row in data["rows"] if row["method"] == label)
    return [run["evaluation"] for run in row["runs"]]


def chart(section, words):
    (found,) = [c for c in section.charts if words in c.title]
    return found


def over_seeds(data, label, split, name):
    return fmean(run["splits"][split]["figures"][name] for run in runs(data, label))


def test_a_full_comparison_has_every_section_once(sections):
    assert tuple(sections) == TITLES


def test_reliability_has_the_bins_of_the_first_seed(compared, sections):
    about = chart(sections["Reliability"], "of ensemble").description
    split = runs(compared, "ensemble")[0]["splits"]["test"]
    bins = split["curves"]["reliability"]
    assert about.startswith(f"ECE {split['figures']['ece']:.4f}")
    told = re.findall(r"at ([\d.]+): ([\d.]+) of (\d+)", about)
    wanted = [
        (f"{c:.3f}", f"{a:.3f}", str(n))
        for c, a, n in zip(bins["confidence"], bins["accuracy"], bins["count"], strict=True)
        if n
    ]
    assert told == wanted


def test_histograms_have_the_aurocs_and_means_of_the_file(compared, sections):
    section = sections["Known and foreign data"]
    splits = runs(compared, "mean_field")[0]["splits"]
    for part in ("total", "epistemic"):
        found = chart(section, f"{part.capitalize()} uncertainty of mean_field")
        scores = [splits[name]["figures"][f"auroc_{part}"] for name in ("ood/digits", "pgd")]
        assert f"AUROC {scores[0]:.3f}, {scores[1]:.3f}" in found.inside
        histogram = splits["ood/digits"]["curves"]["histogram"]
        edges = histogram["epistemic_edges" if part == "epistemic" else "edges"]
        counts = histogram[part]
        middle = [(a + b) / 2 for a, b in pairwise(edges)]
        mean = sum(c * m for c, m in zip(counts, middle, strict=True)) / sum(counts)
        assert f"digits: mean {mean:.3g}" in found.description
    random = {c.title for c in section.charts if c.title.startswith("Epistemic")}
    assert not any("of map" in title for title in random)  # a point has no epistemic part


def test_severity_is_the_mean_over_kinds_and_seeds_with_quartiles(compared, sections):
    found = chart(sections["Corrupted data"], "NLL against severity")
    worst = [
        over_seeds(compared, "map", f"corrupted/{kind}/5", "nll") for kind in made_results.KINDS[:4]
    ]
    clean = over_seeds(compared, "map", "test", "nll")
    assert f"map: from {clean:.4g} at 0 to {fmean(worst):.4g} at 5" in found.description
    row = read_row(compared, "map")
    series = line(row, "nll", Look("", "map", 0))
    low, _, high = quantiles(worst, n=4, method="inclusive")
    assert series.x == [0, 1, 2, 3, 4, 5]
    assert (series.low[-1], series.high[-1]) == pytest.approx((low, high))
    assert series.low[0] == series.high[0] == pytest.approx(clean)


def read_row(data, label):
    rows = parsed(json.loads(json.dumps(data)), Path("x.json")).rows
    return next(row for row in rows if row.label == label)


def test_uncertainty_of_right_and_wrong_predictions_is_the_files(compared, sections):
    section = sections["Right and wrong predictions"]
    for word in ("right", "wrong"):
        clean = over_seeds(compared, "ensemble", "test", f"total_{word}")
        about = chart(section, f"{word} predictions").description
        assert f"ensemble: from {clean:.4g} at 0" in about


def test_the_table_of_corruptions_has_each_error_and_the_mean_corruption_error(compared, sections):
    body = sections["Kinds of corruption"].body
    kinds = made_results.KINDS[:4]

    def errors(label, kind):
        names = [f"corrupted/{kind}/{at}" for at in range(1, 6)]
        return [1 - over_seeds(compared, label, name, "accuracy") for name in names]

    for kind in kinds:
        assert f">{100 * fmean(errors('mean_field', kind)):.1f}<" in body
    ratios = [sum(errors("mean_field", k)) / sum(errors("map", k)) for k in kinds]
    assert f">{100 * fmean(ratios):.1f}<" in body
    assert "mCE against map" in body
    assert "gaussian noise" in body


def test_shifts_and_the_two_parts_are_the_files(compared, sections):
    values = [over_seeds(compared, "map", f"noise/{at}", "nll") for at in made_results.LEVELS]
    about = chart(sections["Other shifts"], "NLL against level of mixed-in noise").description
    assert f"map: from {values[0]:.4g} at 0 to {values[-1]:.4g} at 1" in about
    found = sections["Two kinds of uncertainty"].charts
    assert [c.title.split(" of ")[1].split(",")[0] for c in found[:2]] == ["map", "ensemble"]
    for at in made_results.LEVELS:
        parts = [over_seeds(compared, "ensemble", f"noise/{at}", n)
                 for n in ("aleatoric", "epistemic")]  # fmt: skip
        told = f"at {at:g}: aleatoric {parts[0]:.4f}, epistemic {parts[1]:.4f}"
        assert told in found[1].description


def test_rejection_and_draws_are_the_curves_of_the_first_seed(compared, sections):
    curves = runs(compared, "ensemble")[0]["splits"]["test"]["curves"]
    about = chart(sections["Refusing the uncertain"], "Accuracy").description
    first, last = curves["rejection"]["accuracy"][0], curves["rejection"]["accuracy"][-1]
    assert f"ensemble: from {first:.4g} at 0.05 to {last:.4g} at 1" in about
    about = chart(sections["Number of draws"], "NLL").description
    nll = curves["samples"]["nll"]
    assert f"ensemble: from {nll[0]:.4g} at 1 to {nll[-1]:.4g} at 32" in about


def test_layers_have_shares_and_spread(sections):
    about = chart(sections["Layers"], "of mean_field").description
    for layer in made_results.layers("mean_field"):
        assert f"{layer['share']:.1%} of {layer['parameters']} random" in about
        spread = ", ".join(f"{v:.3g}" for v in layer["std"].values())
        assert f"standard deviation {spread}" in about
    assert not [c for c in sections["Layers"].charts if "of map" in c.title]  # nothing is random


def test_examples_are_shown_with_answer_truth_and_uncertainty(compared, sections):
    body = sections["Examples"].body
    examples = runs(compared, "map")[0]["splits"]["test"]["examples"]
    for example in (*examples["certain"], *examples["uncertain"]):
        assert example["image"] in body
        assert f"{max(example['total'], 0):.3f} nats" in body
    wrong = next(e for e in examples["uncertain"] if e["label"] != e["target"])
    assert f"truth: {wrong['target']}" in body
    assert 'alt="Test image, answer ' in body


def test_the_table_marks_what_is_clearly_better_or_worse(compared, sections):
    body = sections["Methods"].body
    row = next(row for row in compared["rows"] if row["method"] == "ensemble")
    better = [k for k, v in row["significance"].items() if v["better"] is True]
    assert better
    gap = row["significance"][better[0]]
    assert f"clearly better: {gap['difference']:+.4f}, p = 0.01" in body
    assert body.count('class="mark') == sum(
        found["better"] is not None
        for row in compared["rows"]
        for found in row.get("significance", {}).values()
    )


def test_the_summary_says_what_is_best_and_what_is_cheap(compared, sections):
    body = sections["Summary"].body
    means = {row["method"]: row["figures"]["nll"]["mean"] for row in compared["rows"]}
    best = min(means, key=means.get)
    assert f"{best} has the best NLL, {means[best]:.4f}" in body
    gap = (means["map"] - means[best]) / means["map"]
    assert f"{gap:.1%} lower than map" in body
    rows = {row["method"]: row for row in compared["rows"]}
    error = rows[best]["figures"]["nll"]["standard_error"]
    near = [label for label in rows if abs(means[label] - means[best]) <= error]
    cheapest = min(near, key=lambda label: rows[label]["prices"]["step_ratio"])
    words = (
        f"{cheapest} is the cheapest within" if cheapest != best else "Nothing cheaper is within"
    )
    assert f"{words} one standard error of that" in body
    assert "tells digits from the test data best, by" in body
    assert "On corrupted data" in body


def test_a_landscape_a_trajectory_and_coverage_have_sections(tmp_path):
    plane, path = made_files.landscape(), made_files.trajectory()
    files = [plane, path, made_files.regressed("map"), made_files.regressed("mean_field")]
    found = made(tmp_path, *files)
    loss = [v for row in plane["landscape"]["loss"] for v in row]
    about = found["Loss landscape"].charts[0].description
    assert f"loss from {min(loss):.4g} to {max(loss):.4g}" in about
    assert "member 1 at 0.9, -0.4" in about
    assert "61% of the variance" in found["Loss landscape"].charts[0].inside
    about = chart(found["Disagreement in training"], "NLL against").description
    assert "ensemble: from 0.5 at 0.4 to 0.43 at 0.47" in about
    about = found["Coverage of intervals"].charts[0].description
    assert "map: from 0.08 at 0.1 to 0.72 at 0.9" in about
    assert "mean_field: from 0.097 at 0.1" in about


def test_a_landscape_alone_has_no_empty_sections(tmp_path):
    assert list(made(tmp_path, made_files.landscape())) == [
        *("Loss landscape", "Commands and versions"),
    ]


def test_evaluations_of_one_suite_are_methods_of_one_comparison(tmp_path):
    files = [made_results.evaluated(label, kinds=()) for label in ("map", "mean_field", "map")]
    found = made(tmp_path, *files)
    body = found["Methods"].body
    assert body.count("<table") == 1
    for label in ("mean_field", "map (0.json)", "map (2.json)"):
        assert f">{label}</th>" in body
    nll = files[1]["evaluation"]["summary"]["nll"]
    assert f"{nll:.4f}" in body
    assert len(found["Reliability"].charts) == 3


def test_a_demo_with_evaluations_has_their_sections(tmp_path):
    found = made(tmp_path, made_files.demo(("map", "ensemble"), kinds=made_results.KINDS[:2]))
    assert set(TITLES) - set(found) == {"Layers"}
    text = page("t", list(found.values()), "about")
    assert "by more than two standard errors" in text


def test_prices_are_those_of_the_plain_network_whatever_comes_first(tmp_path):
    """A comparison without a point estimate has no row to whom they are ratios."""
    file = tmp_path / "compare.json"
    file.write_text(json.dumps(made_files.compared(("ensemble", "rank_one", "mean_field"))))
    text = page("A report", build([read(file)]), "about")
    assert "price of a training step (plain network: 1)" in text
    assert "times ensemble" not in text
