import json
import re
import sys
from pathlib import Path

import pytest

import leanbayes as lb

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def demo(python, tmp_path_factory):
    """The finished process of `demo --smoke` and its folder."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    result = python("-m", "leanbayes", "demo", "--smoke", "--seed", 3, "--out", out)
    assert result.returncode == 0, result.stderr
    return result, out


@pytest.fixture(scope="session")
def figures(demo):
    return json.loads((demo[1] / "demo.json").read_text(encoding="utf-8"))


def rows_of(text, head):
    """The cells of every row of the printed table whose first column is called so."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{head} "))
    end = lines.index("", start)
    return [re.split(r" {2,}", line.strip()) for line in lines[start + 2 : end]]


METRICS = ("accuracy", "nll", "ece", "brier", "ood_auroc_total", "ood_auroc_epistemic")


def test_the_table_shows_the_figures_of_the_file_and_marks_the_best(demo, figures):
    rows = rows_of(demo[0].stdout, "method")
    assert len(rows) == len(figures["methods"])
    means = {m: [row[m]["mean"] for row in figures["methods"]] for m in METRICS}
    for column, metric in enumerate(METRICS, start=1):
        found = [v for v in means[metric] if v is not None]
        best = min(found) if metric in ("nll", "ece", "brier") else max(found)
        for cells, mean in zip(rows, means[metric], strict=True):
            text = "-" if mean is None else f"{mean:.4f}" + "*" * (mean == best)
            assert cells[column].strip() == text
    assert [cells[0] for cells in rows] == [m["label"] for m in figures["methods"]]


def test_the_price_is_measured_against_map_in_the_same_run(demo, figures):
    rows = rows_of(demo[0].stdout, "price")
    scores = figures["by_seed"][0]["methods"]
    base, start = scores[0], figures["by_seed"][0]["training_seconds"]

    def training(score):
        return start + score["tuning_seconds"] + score["fitting_seconds"]

    for cells, m, score in zip(rows, figures["methods"], scores, strict=True):
        step = score["tuning_seconds"] / score["tuning_steps"]
        ratio = step / (base["tuning_seconds"] / base["tuning_steps"])
        assert m["step_ratio"] == pytest.approx(ratio)
        assert m["training_ratio"] == pytest.approx(training(score) / training(base))
        predict = score["prediction_seconds"] / base["prediction_seconds"]
        assert m["predict_ratio"] == pytest.approx(predict)
        assert cells == [
            m["label"],
            f"{m['parameters_added']:,}",
            f"{m['step_ratio']:.2f}x",
            f"{m['training_ratio']:.2f}x",
            f"{m['predict_ratio']:.1f}x",
            f"{m['samples']}",
            f"{m['seconds']:.1f}",
        ]


def test_every_method_of_the_library_takes_part_and_map_comes_first(figures):
    assert figures["methods"][0]["label"] == "map"
    own = {n for n, m in lb.methods().items() if m.__module__.startswith("leanbayes.")}
    assert own == {m["method"] for m in figures["methods"]}
    assert figures["left_out"] == {}
    labels = [m["label"] for m in figures["methods"]]
    assert len(set(labels)) == len(labels) == 17


def test_every_method_is_far_above_chance(figures):
    for m in figures["methods"]:
        assert m["accuracy"]["mean"] > 0.4, m["label"]
        assert 0 < m["nll"]["mean"] < 2.0, m["label"]
        assert 0 <= m["ece"]["mean"] < 0.4, m["label"]
        assert 0 < m["brier"]["mean"] < 0.9, m["label"]


def test_only_the_point_estimate_has_no_epistemic_score(figures):
    by_label = {m["label"]: m for m in figures["methods"]}
    without = [k for k, m in by_label.items() if m["ood_auroc_epistemic"]["mean"] is None]
    assert without == ["map"]
    assert 0 < by_label["mean_field"]["ood_auroc_epistemic"]["mean"] <= 1


def test_the_parameters_added_are_those_of_the_methods(figures):
    added = {m["label"]: m["parameters_added"] for m in figures["methods"]}
    n, members = figures["parameters"], figures["settings"]["choices"]["ensemble_members"]
    assert n == 41_806
    assert added["map"] == added["mc_dropout"] == added["drop_connect"] == 0
    assert added["mean_field"] == added["laplace diagonal"] == n
    assert added["partial"] == round(figures["settings"]["choices"]["partial_rate"] * n)
    assert added["swag"] == (20 + 1) * n
    assert added["deep_ensemble"] == (members - 1) * n


def test_the_verdict_names_every_other_method_once_on_the_side_of_its_sign(demo, figures):
    text = " ".join(demo[0].stdout.split()).partition("NLL, beats map: ")[2]
    better, _, worse = text.partition("NLL, worse than map: ")
    for m in figures["methods"][1:]:
        gain = m["minus_baseline"]["nll"]["mean"]
        shown = f"{m['label']} ({gain:+.4f})"
        assert (shown in better, shown in worse) == (gain < 0, gain >= 0), shown


def test_the_file_holds_settings_versions_and_seconds(figures):
    assert figures["settings"]["seed"] == 3
    assert figures["settings"]["weight_decay"] == 1 / figures["settings"]["train_images"]
    assert figures["seeds"] == [3]
    assert figures["command"] == "leanbayes demo --seed 3 --seeds 1 --smoke"
    assert figures["versions"]["leanbayes"] == lb.__version__
    run = figures["by_seed"][0]
    parts = [run["training_seconds"], *(m["seconds"] for m in run["methods"])]
    assert 0 < sum(parts) <= figures["seconds"]
    assert figures["methods"][0]["nll"] == {
        "mean": run["methods"][0]["nll"],
        "standard_error": None,
    }


def test_the_picture_is_a_png_of_two_rows(demo, figures):
    from matplotlib.image import imread

    assert figures["picture"] == "certain.png"
    pixels = imread(demo[1] / "certain.png")
    height, width = pixels.shape[:2]
    assert width > 2 * height > 1000
    for half in (pixels[: height // 2], pixels[height // 2 :]):
        assert (half[..., :3].mean(-1) < 0.5).mean() > 0.02  # ink in both rows


def test_the_end_says_where_the_files_are(demo):
    result, out = demo
    *_, files, _, last = result.stdout.strip().splitlines()
    assert str(out / "certain.png") in files
    assert str(out / "demo.json") in files
    assert last == f"Report: {out / 'report.html'}"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert all(label in page for label in ("rank_one cauchy", "deep_ensemble"))


def test_every_row_has_an_evaluation_whose_figures_are_those_of_the_table(figures):
    """The same draws: curves, examples, corrupted images and digits beside them."""
    for row in figures["methods"]:
        found = row["evaluation"]
        clean = found["splits"]["test"]
        for name in ("accuracy", "nll", "ece", "brier"):
            assert clean["figures"][name] == pytest.approx(row[name]["mean"], rel=1e-6), name
        digits = found["splits"]["ood/digits"]["figures"]
        assert digits["auroc_total"] == pytest.approx(row["ood_auroc_total"]["mean"], rel=1e-6)
        assert found["settings"]["samples"] == row["samples"]
        assert clean["curves"]["samples"]["samples"][-1] == row["samples"]
        assert len(clean["examples"]["certain"]) == 8
        kinds = [name for name, split in found["splits"].items() if split["kind"] == "corrupted"]
        assert len(kinds) == 9
        assert kinds[0] == "corrupted/gaussian_noise/1"


def test_without_a_terminal_every_stage_is_one_line_on_stderr(demo, figures):
    lines = demo[0].stderr.splitlines()
    stages = [line.partition(":")[0] for line in lines]
    assert stages == ["training", *(m["label"] for m in figures["methods"])]
    assert all(line.endswith(" s") for line in lines)


def test_json_goes_to_stdout_alone(bare):
    result, out = bare
    assert json.loads(result.stdout) == json.loads((out / "demo.json").read_text(encoding="utf-8"))


def test_without_matplotlib_the_rest_works_and_says_what_to_install(bare):
    result, out = bare
    assert "pip install matplotlib" in result.stderr
    assert json.loads(result.stdout)["picture"] is None
    assert sorted(path.name for path in out.iterdir()) == ["demo.json", "report.html"]


def test_the_same_seed_gives_the_same_figures_whatever_else_takes_part(bare, figures):
    other = json.loads(bare[0].stdout)
    one, two = ({m["label"]: m for m in run["by_seed"][0]["methods"]} for run in (figures, other))
    assert set(two) == set(SOME)
    for label, b in two.items():
        assert {k: v for k, v in one[label].items() if "seconds" not in k} == {
            k: v for k, v in b.items() if "seconds" not in k
        }


SOME = ("map", "mean_field", "implicit", "mc_dropout", "swag", "deep_ensemble")


@pytest.fixture(scope="session")
def bare(python, tmp_path_factory):
    """`demo --smoke --json` of some methods where matplotlib cannot be imported."""
    out = tmp_path_factory.mktemp("bare")
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        f"import leanbayes as lb; known = lb.methods(); some = {SOME}\n"
        "lb.methods = lambda: {name: known[name] for name in some}\n"
        f"sys.argv[1:] = ['demo', '--smoke', '--json', '--seed', '3', '--out', {str(out)!r}]\n"
        "from leanbayes.cli import main; main()"
    )
    result = python("-c", program)
    assert result.returncode == 0, result.stderr
    return result, out


def test_a_folder_that_cannot_be_made_is_one_line_before_any_training(leanbayes, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = leanbayes("demo", "--out", tmp_path / "file")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert result.err.startswith("leanbayes: --out must be a folder")


def test_the_demo_leaves_pyplot_threads_and_random_numbers_alone(leanbayes, tiny, tmp_path):
    import torch

    tiny("map", "mean_field")
    pyplot = "matplotlib.pyplot" in sys.modules
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    assert leanbayes("demo", "--smoke", "--out", tmp_path).code == 0
    assert ("matplotlib.pyplot" in sys.modules) == pyplot
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_the_quick_start_runs(python):
    result = python(EXAMPLES / "01_quickstart.py", "--smoke")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert float(lines[0].removeprefix("accuracy ")) > 0.4
    assert lines[1].startswith("surest: ")
    assert lines[2].startswith("least sure: ")
    totals = [float(line.partition("total ")[2].split()[0]) for line in lines[1:3]]
    assert totals[0] < totals[1]


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_the_full_demo_shows_mean_field_better_calibrated_within_five_minutes(python, tmp_path):
    result = python("-m", "leanbayes", "demo", "--json", "--out", tmp_path, timeout=330)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    by_label = {m["label"]: m for m in figures["methods"]}
    for label in ("mean_field", "deep_ensemble"):
        change = by_label[label]["minus_baseline"]
        assert change["nll"]["mean"] < 0, label
        assert change["ece"]["mean"] < 0, label
        assert change["ood_auroc_total"]["mean"] > 0, label
    for label in ("map", "mean_field", "deep_ensemble"):
        assert by_label[label]["accuracy"]["mean"] > 0.84, label
        assert by_label[label]["ood_auroc_total"]["mean"] > 0.8, label
    assert figures["seconds"] < 300
