"""`leanbayes compare`: prices, the best of a column, and tests against the point estimate."""

import json
import re

import numpy as np
import pytest
import torch
from scipy import stats

import leanbayes as lb
from leanbayes.cli.compare.kept import Kept
from leanbayes.cli.compare.runs import Outcome
from leanbayes.cli.compare.significance import significance
from leanbayes.cli.compare.table import table_of
from leanbayes.cli.row_scores import row_scores
from leanbayes.methods import partial

TABLE = ("compare", "sklearn_table-wine", "--methods", "map,mean_field", "--smoke")


def outcome(seed=0, rows=None, **figures):
    return Outcome(
        seed=seed,
        figures={"test": figures},
        seconds=1.0,
        training_seconds=0.5,
        parameters=3,
        parameters_added=0,
        config={},
        origin={},
        rows={} if rows is None else {"test": rows},
    )


def row(label, prices=None, **means):
    found = {name: {"mean": mean, "standard_error": 0.1} for name, mean in means.items()}
    more = {} if prices is None else {"prices": prices}
    counts = {"parameters": 10, "parameters_added": 0, "seconds": 1.0}
    return {"method": label, "figures": found, **counts, **more}


def test_every_row_has_its_price_and_the_table_tells_it(leanbayes, tmp_path):
    out = tmp_path / "c.json"
    result = leanbayes(*TABLE, "--out", out)
    assert result.code == 0, result.err
    point, field = (row["prices"] for row in json.loads(out.read_text())["rows"])
    assert point["flops_step_ratio"] == point["flops_predict_ratio"] == 1
    assert (point["samples"], field["samples"]) == (1, 2)  # as few as a smoke run can have
    assert field["flops_predict_ratio"] == 2
    assert field["parameters_added"] == 13 * 50 + 50 + 50 * 3 + 3
    assert field["predict_ratio_sample"] == field["predict_ratio"] / 2
    assert field["peak_memory_ratio"] is None
    lines = result.out.splitlines()
    head = next(line for line in lines if line.startswith("price"))
    names = ["added", "step", "step FLOPs", "prediction", "draws", "a draw", "activations"]
    assert re.split(r"\s{2,}", head)[1:-1] == names
    assert any(
        line.startswith("mean_field") and f"{field['step_ratio']:.2f}x" in line for line in lines
    )


def test_prices_are_left_out_on_request(leanbayes, tmp_path):
    out = tmp_path / "c.json"
    result = leanbayes(*TABLE, "--out", out, "--no-price")
    record = json.loads(out.read_text())
    assert "price" not in result.out
    assert all("prices" not in row for row in record["rows"])
    assert record["rows"][0]["command"].endswith("--smoke --no-price")
    # A file without them may be gone on with: what is missing is measured.
    result = leanbayes(*TABLE, "--out", out, "--resume", "--seeds", 2)
    assert "4 of 4 runs kept" in result.err
    rows = json.loads(out.read_text())["rows"]
    assert [row["prices"]["flops_predict_ratio"] for row in rows] == [1, 2]
    assert all("commit" not in row["prices"] for row in rows)  # the row's own
    assert [row["figures"] for row in rows] == [row["figures"] for row in record["rows"]]


def test_a_price_of_another_commit_says_so(leanbayes, tmp_path):
    out = tmp_path / "c.json"
    assert leanbayes(*TABLE, "--out", out, "--no-price").code == 0
    record = json.loads(out.read_text())
    own = record["rows"][0]["commit"]
    record["rows"][0]["commit"] = "an older one"
    out.write_text(json.dumps(record))
    assert leanbayes(*TABLE, "--out", out, "--resume").code == 0
    first, second = json.loads(out.read_text())["rows"]
    assert first["commit"] == "an older one"
    assert first["prices"]["commit"] == own
    assert "commit" not in second["prices"]


def test_a_price_that_cannot_be_had_does_not_lose_the_run(leanbayes, monkeypatch):
    def fail(*_args, **_options):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(lb, "price", fail)
    result = leanbayes(*TABLE, "--json")
    assert result.code == 0
    rows = json.loads(result.out)["rows"]
    assert rows[0]["prices"] == {"failed": "RuntimeError: out of memory"}
    assert rows[0]["figures"]["accuracy"]["mean"] >= 0


def test_a_network_that_cannot_be_built_again_for_its_price_does_not_lose_the_run(
    leanbayes, tmp_path, monkeypatch
):
    out = tmp_path / "c.json"
    assert leanbayes(*TABLE, "--out", out, "--no-price").code == 0

    def fail(*_args, **_options):
        raise lb.ConversionError("no layers")

    monkeypatch.setattr(lb, "adapt", fail)
    result = leanbayes(*TABLE, "--out", out, "--resume")
    assert result.code == 0, result.err
    rows = json.loads(out.read_text())["rows"]
    assert {row["prices"]["failed"] for row in rows} == {"ConversionError: no layers"}
    assert all("nll" in row["figures"] for row in rows)


def test_a_price_does_not_wait_for_iterates_to_be_collected(leanbayes, tmp_path, monkeypatch):
    words = ("compare", "sklearn_table-wine", "--smoke", "--seeds", 1, "--methods", "swag")
    words += ("--set", "methods.swag.fitting.epochs=40", "--set", "methods.swag.fields.rank=4")
    words += ("--set", "fit.batch_size=32", "--out", tmp_path / "c.json")
    asked, fit = [], lb.SWAG.fit

    def noted(*args, **options):
        asked.append(options)
        return fit(*args, **options)

    monkeypatch.setattr(lb.SWAG, "fit", noted)
    assert leanbayes(*words, "--no-price").code == 0
    assert leanbayes(*words, "--resume").code == 0
    assert [options["epochs"] for options in asked] == [40, 1]  # 4 steps, an iterate each
    prices = json.loads((tmp_path / "c.json").read_text())["rows"][0]["prices"]
    assert prices["flops_step_ratio"] == 1


def test_a_price_alone_looks_at_a_few_batches(leanbayes, tmp_path, monkeypatch):
    """Weights do not matter there, so that scores of all data would be work for nothing."""
    seen, counted = [], lb.sensitivity

    def counting(net, data, *args, **options):
        batches = list(data)
        seen.append(sum(len(x) for x, _ in batches))
        return counted(net, batches, *args, **options)

    monkeypatch.setattr(partial, "sensitivity", counting)
    out = tmp_path / "c.json"
    words = ("compare", "sklearn_table-wine", "--methods", "partial", "--set", "fit.batch_size=4")
    words += ("--set", "fit.steps=1", "--seeds", 1, "--out", out)
    assert leanbayes(*words, "--no-price").code == 0
    assert leanbayes(*words, "--resume").code == 0
    assert seen[0] > 100
    assert seen[1] == 8 * 4
    assert json.loads(out.read_text())["rows"][0]["prices"]["step_ratio"] > 0


def test_the_best_of_a_column_has_a_star_or_bold_letters():
    rows = [row("a", nll=0.5, accuracy=0.9, seconds=1), row("b", nll=0.25, accuracy=0.9, seconds=2)]
    plain = table_of(rows, ["test"])
    assert "0.2500 +- 0.1000*" in plain
    assert "0.5000 +- 0.1000 " in plain
    assert plain.count("0.9000 +- 0.1000*") == 2
    assert "2.0000 +- 0.1000*" not in plain  # nobody can say whether more is better
    bold = table_of(rows, ["test"], bold=True)
    assert "*" not in bold
    assert "\033[1m0.2500 +- 0.1000\033[0m " in bold
    assert re.sub(r"\033\[\dm", "", bold) == plain.replace("*", " ")
    assert "*" not in table_of(rows[:1], ["test"])


def test_several_seeds_are_tested_in_pairs():
    own, base = [0.30, 0.28, 0.35, 0.31], [0.36, 0.33, 0.37, 0.34]
    found = significance(
        [outcome(seed, nll=value, total=value) for seed, value in enumerate(own)],
        [outcome(seed, nll=value, total=value) for seed, value in enumerate([*base, 9.0])],
        "test",
    )
    expected = stats.ttest_rel(own, base)
    assert found.keys() == {"nll"}
    assert found["nll"]["p"] == pytest.approx(expected.pvalue)
    assert found["nll"]["difference"] == pytest.approx(np.mean(own) - np.mean(base))
    assert found["nll"]["standard_error"] == pytest.approx(
        np.std(np.subtract(own, base), ddof=1) / 2
    )
    assert (found["nll"]["better"], found["nll"]["over"], found["nll"]["count"]) == (
        True,
        "seeds",
        4,
    )


@pytest.mark.parametrize(
    ("name", "sign", "answer"), [("accuracy", 1, True), ("accuracy", -1, False), ("nll", 1, False)]
)
def test_better_is_what_the_figure_says(name, sign, answer):
    own = [outcome(s, **{name: 0.5 + sign * 0.1 + 1e-3 * s}) for s in range(3)]
    base = [outcome(s, **{name: 0.5}) for s in range(3)]
    assert significance(own, base, "test")[name]["better"] is answer


def test_one_seed_is_tested_by_its_rows_or_not_at_all():
    g = np.random.default_rng(0)
    base = g.exponential(size=200).astype("float32")
    own = base - 0.1 + 0.2 * g.normal(size=200).astype("float32")
    with_rows = [
        outcome(rows={"nll": values}, nll=float(values.mean()), ece=0.1) for values in (own, base)
    ]
    found = significance(with_rows[:1], with_rows[1:], "test")
    assert found["nll"]["p"] == pytest.approx(stats.ttest_rel(own, base).pvalue, rel=1e-3)
    assert (found["nll"]["over"], found["nll"]["count"], found["nll"]["better"]) == (
        "rows",
        200,
        True,
    )
    assert (found["ece"]["p"], found["ece"]["better"], found["ece"]["difference"]) == (
        None,
        None,
        0,
    )
    bare = significance([outcome(nll=0.5)], [outcome(nll=0.75)], "test")["nll"]
    assert (bare["difference"], bare["p"], bare["better"]) == (-0.25, None, None)
    assert significance([outcome(seed=1, nll=0.5)], [outcome(nll=0.75)], "test") == {}


def test_scores_of_rows_have_the_figures_as_their_mean():
    g = torch.Generator().manual_seed(0)
    model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MAP())
    x, y = torch.randn(50, 4, generator=g), torch.randint(0, 3, (50,), generator=g)
    found = lb.predict(model, x, likelihood=lb.Categorical())
    y[:5] = -100
    scores = row_scores(found, y, -100)
    for name in ("accuracy", "nll", "brier"):
        expected = getattr(lb.metrics, name)(found.probs[5:], y[5:])
        assert float(scores[name].mean()) == pytest.approx(float(expected), rel=1e-9)
        assert len(scores[name]) == 45


def test_a_comparison_of_one_seed_is_tested_by_rows_that_a_folder_keeps(leanbayes, tmp_path):
    out, keep = tmp_path / "c.json", tmp_path / "kept"
    flags = ("--seeds", 1, "--no-price", "--out", out, "--keep", keep)
    leanbayes(*TABLE, *flags, "--methods", "map")
    assert [path.name for path in (keep / "rows").iterdir()] == ["map-0.npz"]
    result = leanbayes(*TABLE, *flags, "--resume")
    assert "1 of 2 runs kept" in result.err
    tested = json.loads(out.read_text())["rows"][1]["significance"]
    assert tested["nll"]["over"] == "rows"
    assert 0 <= tested["nll"]["p"] <= 1
    assert "nll against the point estimate" in result.out
    assert f"over {tested['nll']['count']} rows." in " ".join(result.out.split())


def test_the_record_says_how_methods_differ_from_the_point_estimate(leanbayes):
    words = ("--methods", "implicit,point=map,mean_field", "--part", "train,test", "--json")
    rows = json.loads(leanbayes(*TABLE, "--no-price", *words).out)["rows"]
    assert "significance" not in rows[1]
    for at in (0, 2):
        tested = rows[at]["significance"]["test"]["nll"]
        pairs = [
            (a["figures"]["test"]["nll"], b["figures"]["test"]["nll"])
            for a, b in zip(rows[at]["runs"], rows[1]["runs"], strict=True)
        ]
        assert tested["difference"] == pytest.approx(np.mean([a - b for a, b in pairs]))
        assert tested["count"] == 2
    alone = json.loads(leanbayes(*TABLE, "--no-price", "--methods", "implicit", "--json").out)
    assert "significance" not in alone["rows"][0]


def test_kept_rows_come_back_under_any_label(tmp_path):
    kept, rows = Kept(tmp_path), {"test": {"nll": np.arange(3, dtype="float32")}}
    kept.save("a/b ..", 7, rows)
    assert kept.rows("a/b ..", 7)["test"]["nll"].tolist() == [0, 1, 2]
    assert kept.rows("a/b ..", 8) == {}
    assert [path.parent.name for path in tmp_path.rglob("*.npz")] == ["rows"]
    Kept(None).save("a", 0, rows)
    assert Kept(None).rows("a", 0) == {}
