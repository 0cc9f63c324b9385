import json
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


def rows_of(text):
    """The cells of every row of the printed table."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("method "))
    end = lines.index("", start)
    return [line.split() for line in lines[start + 2 : end]]


def test_the_table_shows_the_figures_of_the_file(demo, figures):
    rows = rows_of(demo[0].stdout)
    assert len(rows) == len(figures["methods"])
    for cells, m in zip(rows, figures["methods"], strict=True):
        epistemic = m["ood_auroc_epistemic"]
        assert cells == [
            m["method"],
            f"{m['accuracy']:.4f}",
            f"{m['nll']:.4f}",
            f"{m['ece']:.4f}",
            f"{m['ood_auroc_total']:.4f}",
            "-" if epistemic is None else f"{epistemic:.4f}",
            f"{m['parameters_added']:,}",
            f"{m['seconds']:.1f}",
        ]


def test_every_method_takes_part_or_says_why_not_and_map_comes_first(figures):
    names = [m["method"] for m in figures["methods"]]
    assert names[:2] == ["map", "mean_field"]
    assert names[1:] == sorted(names[1:])
    own = {n for n, m in lb.methods().items() if m.__module__.startswith("leanbayes.")}
    assert own == set(names) | set(figures["left_out"])
    assert all(figures["left_out"].values())


def test_every_method_is_far_above_chance(figures):
    for m in figures["methods"]:
        assert m["accuracy"] > 0.4, m["method"]
        assert 0 < m["nll"] < 2.0, m["method"]
        assert 0 <= m["ece"] < 0.4, m["method"]


def test_only_the_point_estimate_has_no_epistemic_score_and_adds_nothing(figures):
    by_name = {m["method"]: m for m in figures["methods"]}
    assert by_name["map"]["ood_auroc_epistemic"] is None
    assert by_name["map"]["parameters_added"] == 0
    assert 0 < by_name["mean_field"]["ood_auroc_epistemic"] <= 1
    assert by_name["mean_field"]["parameters_added"] == figures["parameters"] == 41_806


def test_the_file_holds_settings_versions_and_seconds(figures):
    assert figures["settings"]["seed"] == 3
    assert figures["settings"]["weight_decay"] == 1 / figures["settings"]["train_images"]
    assert figures["versions"]["leanbayes"] == lb.__version__
    parts = [figures["training_seconds"], *(m["seconds"] for m in figures["methods"])]
    assert 0 < sum(parts) <= figures["seconds"]


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
    last = result.stdout.strip().splitlines()[-1]
    assert str(out / "certain.png") in last
    assert str(out / "demo.json") in last


def test_without_a_terminal_every_stage_is_one_line_on_stderr(demo):
    lines = demo[0].stderr.splitlines()
    assert [line.partition(":")[0] for line in lines][:3] == [
        "training",
        "map",
        "mean_field",
    ]
    assert all(line.endswith(" s") for line in lines)


def test_json_goes_to_stdout_alone(bare):
    result, out = bare
    assert json.loads(result.stdout) == json.loads((out / "demo.json").read_text(encoding="utf-8"))


def test_without_matplotlib_the_rest_works_and_says_what_to_install(bare):
    result, out = bare
    assert "pip install 'leanbayes[report]'" in result.stderr
    assert json.loads(result.stdout)["picture"] is None
    assert sorted(path.name for path in out.iterdir()) == ["demo.json"]


def test_the_same_seed_gives_the_same_figures(bare, figures):
    other = json.loads(bare[0].stdout)
    for a, b in zip(figures["methods"], other["methods"], strict=True):
        timed = {"seconds", "tuning_seconds", "prediction_seconds"}
        assert {k: v for k, v in a.items() if k not in timed} == {
            k: v for k, v in b.items() if k not in timed
        }


@pytest.fixture(scope="session")
def bare(python, tmp_path_factory):
    """`demo --smoke --json` where matplotlib cannot be imported."""
    out = tmp_path_factory.mktemp("bare")
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
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


def test_the_demo_leaves_pyplot_threads_and_random_numbers_alone(leanbayes, monkeypatch, tmp_path):
    import torch

    from leanbayes.cli import setting

    monkeypatch.setattr(
        setting,
        "smoke_settings",
        lambda seed: setting.Settings(
            seed=seed,
            width=1,
            train_images=32,
            test_images=20,
            ood_images=10,
            epochs=1,
            tuning_epochs=1,
            batch=16,
            samples=2,
        ),
    )
    monkeypatch.setattr(lb, "methods", lambda: {"mean_field": lb.MeanField, "map": lb.MAP})
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
def test_the_full_demo_shows_mean_field_better_calibrated_within_two_minutes(python, tmp_path):
    result = python("-m", "leanbayes", "demo", "--json", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    by_name = {m["method"]: m for m in figures["methods"]}
    point, bayes = by_name["map"], by_name["mean_field"]
    assert bayes["nll"] < point["nll"]
    assert bayes["ece"] < point["ece"]
    assert bayes["ood_auroc_total"] > point["ood_auroc_total"] > 0.8
    assert min(point["accuracy"], bayes["accuracy"]) > 0.85
    assert figures["seconds"] < 120
