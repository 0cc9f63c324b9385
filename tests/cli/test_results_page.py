"""The page of Markdown: figures and prices of a record, claims that hold, rows that are open."""

import json
from pathlib import Path

import pytest
import torch

import leanbayes as lb
from leanbayes.cli.report_command import markdown_of
from leanbayes.cli.results.claims import verdicts
from leanbayes.cli.results.starts import by_draws
from leanbayes.recipes.cifar10_wrn_claims import CLAIMS, Check, Claim
from leanbayes.recipes.tables import table

ROOT = Path(__file__).resolve().parents[2]
JSON, PAGE = ROOT / "results" / "cifar10_wrn.json", ROOT / "docs" / "results.md"


def run(seed, jobs=1, start=None, **figures):
    more = {} if jobs == 1 else {"jobs": jobs}
    return {"seed": seed, "figures": figures, **more, **({} if start is None else {"start": start})}


def row(label, *, runs=1, prices=(), jobs=1, **figures):
    error = None if runs == 1 else 0.001
    named = {name: {"mean": v, "standard_error": error} for name, v in figures.items()}
    return {
        "method": label,
        "command": f"leanbayes compare npz --methods {label}",
        "commit": "0123456789abcdef",
        "environment": {"device": "GPU", "torch": "2.13"},
        "figures": named,
        "parameters": 1000,
        "parameters_added": 50,
        "training_seconds": 60.0 * runs,
        "runs": [run(seed, jobs) for seed in range(runs)],
        **({} if prices is None else {"prices": dict(prices)}),
    }


def record(*rows, **more):
    start = {"seed": 0, "seconds": 293.4, "steps": 11760, "hash": "ab" * 32}
    begin = {"config": {}, "seeds": [start]}
    head = {"command": "", "data": "npz", "table": "cifar10-wrn", "seeds": [0, 1, 2]}
    return {**head, "start": begin, "rows": list(rows), **more}


def written(tmp_path, found):
    path = tmp_path / "found.json"
    path.write_text(json.dumps(found))
    return markdown_of([path], Path("docs/results.md"))


def line(text, begin):
    return next(line for line in text.splitlines() if line.startswith(begin))


def test_quality_and_price_stand_in_tables_with_their_errors(tmp_path):
    prices = {"step_ratio": 2.456, "samples": 20, "predict_ratio_sample": 1.1, "predict_ratio": 22}
    figures = {"accuracy": 0.9626, "nll": 0.11874, "ece": 0.0063, "ap_epistemic_pgd": 0.32}
    text = written(
        tmp_path, record(row("map", accuracy=0.9616), row("emp", runs=3, prices=prices, **figures))
    )
    assert "| map | 0 | 96.16 | - |" in text
    assert (
        "| emp | 0, 1, 2 | 96.26 ± 0.10 | - | 0.1187 ± 0.0010 | - | 0.0063 ± 0.0010 | - |" in text
    )
    assert "| emp | 50 (5.0%) | 2.46x | 20 | 1.10x | 22.00x | - | 60 |" in text
    assert line(text, "| emp | -").endswith("| 0.320 ± 0.001 |")
    assert "11,760 steps, 293 s, weights `abababababababab`" in text
    assert "- emp: `leanbayes compare npz --methods emp`" in text


def test_the_sign_of_the_calibration_is_mean_confidence_less_accuracy(tmp_path):
    """From the bins of the file, the empty ones too; against the probabilities themselves."""
    found, expected = row("ecmp", runs=2, ece=0.1), []
    for seed, own in enumerate(found["runs"]):
        probs = torch.randn(300, 4, generator=torch.Generator().manual_seed(seed)).mul(3).softmax(1)
        y = torch.arange(300) % 4
        sure, label = probs.double().max(1)
        expected.append((sure.mean() - (label == y).double().mean()).item())
        bins = {k: v.tolist() for k, v in vars(lb.metrics.reliability(probs, y)).items()}
        assert 0 in bins["count"]
        text = json.dumps(bins).replace("NaN", "null")  # as the file has it
        curves = {"reliability": json.loads(text)}
        own["evaluation"] = {"splits": {"test": {"curves": curves}}}
    text = written(tmp_path, record(row("map"), found))
    assert f"| 0.1000 ± 0.0010 | - | {sum(expected) / 2:+.4f} |" in line(text, "| ecmp")
    assert sum(expected) > 0.5


def test_a_start_that_shared_the_device_says_so(tmp_path):
    found = record(row("map"))
    found["start"]["seeds"][0]["jobs"] = 3
    assert "293 s (3 runs at a time), weights" in written(tmp_path, found)


def test_rows_and_seeds_that_are_missing_are_open(tmp_path):
    failed = {"method": "swag", "failed": "out of memory", "command": "", "commit": ""}
    text = written(tmp_path, record(row("map", runs=3), row("emp"), row("laplace"), failed))
    opened = text[text.index("## Open") : text.index("## Commands")]
    known = set(table("cifar10-wrn")["methods"])
    assert opened.count("not run yet") == len(known) - 4
    assert "- emp: 1 of 3 seeds" in opened
    assert "- swag: failed, out of memory" in opened
    assert "- map:" not in opened
    assert "- laplace:" not in opened


def test_a_row_without_a_price_is_open_and_seconds_say_what_they_shared(tmp_path):
    text = written(tmp_path, record(row("map", runs=3), row("emp", runs=3, prices=None, jobs=2)))
    assert "- emp: no price yet" in text
    assert "- map: no price" not in text
    assert line(text, "| emp | 50").endswith("| - | 60 (2 runs at a time) |")
    found = row("map", runs=3) | {"config": {"fit": {"compile": True}}}
    assert line(written(tmp_path, record(found)), "| map | 50").endswith("| - | 60 (compiled) |")
    text = written(tmp_path, record(row("map", runs=3, prices={"failed": "out of memory"})))
    assert "- map: no price, out of memory" in text


def test_limits_of_the_splits_are_told(tmp_path):
    found = row("map", runs=3)
    found["config"] = {
        "suite": {"rows": {"corrupted": 2000, "pgd": 1000}, "samples": {"corrupted": 5}}
    }
    words = line(written(tmp_path, record(found)), "Corrupted: 15")
    assert "are the first 2,000 test images, with 5 draws; attacked images are the first" in words
    assert "1,000 test images. Foreign" in words


def test_figures_of_the_first_seed_alone_are_told(tmp_path):
    found = row("map", runs=3, nll=0.1, corrupted_nll=1.25)
    words = "Without an error a figure is that of one seed"
    assert words not in written(tmp_path, record(found))
    found["figures"]["corrupted_nll"] = {"mean": 1.25, "standard_error": None, "runs": 1}
    text = written(tmp_path, record(found))
    assert words in text
    assert "| map | - | 1.250 | - |" in text


def test_all_rows_leave_nothing_open(tmp_path):
    known = table("cifar10-wrn")["methods"]
    rows = [row(label, runs=entry.get("seeds", 3)) for label, entry in known.items()]
    assert "## Open\nNothing: every row is there." in written(tmp_path, record(*rows))


def begun(label, *runs, nll):
    """A row with these runs; `nll` is the mean that its table shows."""
    return row(label, nll=nll) | {"runs": list(runs)}


def test_rows_are_compared_start_by_start():
    point = begun("map", run(0, start="a", nll=0.2), run(1, start="b", nll=0.3), nll=0.25)
    both = begun("one", run(0, start="a", nll=0.19), run(1, start="b", nll=0.25), nll=0.22)
    late = begun("two", run(1, start="b", nll=0.26), nll=0.26)
    early = begun("three", run(0, start="a", nll=0.1875), nll=0.1875)
    rows = {found["method"]: found for found in (point, both, late, early)}

    def verdict(one, other):
        return verdicts([Claim("words", (Check("nll", one, other),))], rows)[0]

    assert verdict("one", "map") == "**Holds.** words: nll 0.22 against 0.25."
    # Alone, its start is the worse one: against the mean of both it would not hold.
    assert verdict("two", "map").startswith("**Holds.** words: nll 0.26 against 0.3 (over 1 ")
    assert verdict("two", "one").startswith("**Does not hold.** words: nll 0.26 against 0.25")
    found = verdict("two", "three")
    assert found.startswith("**Holds.** words: nll -0.04 against -0.0125 (differences to MAP")


def test_a_row_is_told_against_its_own_start(tmp_path):
    first, second = run(0, start="a", nll=0.2), run(1, start="b", nll=0.3, accuracy=0.95)
    point = begun("map", first, second, nll=0.25)
    late = begun("emp", run(1, start="b", nll=0.26, accuracy=0.9475), nll=0.26)
    strange = begun("ecmp", run(1, start="c", nll=0.26), nll=0.26)
    text = written(tmp_path, record(point, late, strange))
    assert "| emp | 1 | - | -0.25 | 0.2600 | -0.0400 |" in text
    assert "| ecmp | 1 | - | - | 0.2600 | - |" in text
    assert "| map | 0, 1 | - | - | 0.2500 | - |" in text


def trained(found, *, epochs, step):
    return {**found, "config": {"fit": {"epochs": epochs}}, "prices": {"step_ratio": step}}


def test_a_claim_holds_in_part_not_at_all_or_is_open():
    rows = {
        "a": trained(row("a", nll=0.1, ece=0.02, accuracy=0.9), epochs=12, step=1.25),
        "b": trained(row("b", nll=0.2, ece=0.01), epochs=60, step=1.5),
    }
    claims = [
        Claim("one", (Check("nll", "a", "b"),)),
        Claim("two", (Check("nll", "a", "b"), Check("ece", "a", "b"))),
        Claim("three", (Check("ece", "a", "b"),)),
        Claim("four", (Check("nll", "a", "c"),)),
        Claim("five", (Check("accuracy", "a", "b"),)),
        Claim("six", (Check("accuracy", "a", 0.9),)),
        Claim("seven", (Check("training_work", "a", "b", 0.1),)),
        Claim("eight", (Check("added_share", "a", 0.07),)),
    ]
    found = [text.split(".** ")[0].strip("*") for text in verdicts(claims, rows)]
    assert found == [
        *("Holds", "In part", "Does not hold", "Open", "Open", "Holds", "Does not hold", "Holds"),
    ]
    # Epochs times the price of a step, and not the seconds of runs that shared a device.
    assert verdicts(claims[6:7], rows)[0].endswith("training_work 15 against 9 (0.1 times 90).")
    del rows["b"]["prices"]
    assert verdicts(claims[6:7], rows) == ["**Open.** seven: no training_work yet."]


def test_every_claim_speaks_of_rows_of_the_table():
    known = table("cifar10-wrn")["methods"]
    for check in (check for claim in CLAIMS for check in claim.checks):
        assert check.one in known
        assert check.other in known or isinstance(check.other, float)
    for claim in CLAIMS:
        assert set(claim.rivals) <= {check.other for check in claim.checks}


def test_other_records_get_tables_alone(tmp_path):
    found = {k: v for k, v in record(row("map", nll=0.5)).items() if k not in ("table", "start")}
    text = written(tmp_path, found)
    assert text.startswith("# Results: methods on npz")
    assert "papers" not in text


def test_the_command_writes_the_page_and_refuses_what_is_no_record(leanbayes, tmp_path):
    path, out = tmp_path / "found.json", tmp_path / "page.md"
    path.write_text(json.dumps(record(row("map", nll=0.5))))
    result = leanbayes("report", path, "--markdown", out)
    assert result.code == 0, result.err
    assert out.read_text().startswith("# Results: all methods side by side")
    path.write_text('{"rows": 3}')
    assert leanbayes("report", path, "--markdown", out).code == 5
    assert leanbayes("report", tmp_path / "none.json", "--markdown", out).code == 5


def started(found, **fit):
    """The same record with a start of these settings."""
    return {**found, "start": {**found["start"], "config": {"fit": fit}}}


def test_rows_from_another_start_have_a_section(tmp_path):
    """They are told against their own start, and against ensembles of the table; prices are its."""
    price = {"predict_ratio_sample": 1.1}
    rows = [
        row("map", nll=0.13, ece=0.02),
        row("shared_ensemble", nll=0.11, ece=0.005, prices=price),
        row("partial_5_loss", nll=0.12, ece=0.002, prices=price),
        row("vi_scratch", nll=0.001, accuracy=0.99),
        row("deep_ensemble", nll=0.096),
    ]
    point = begun("map", run(0, start="b", nll=0.111), nll=0.111)
    others = [
        point | {"figures": point["figures"] | {"ece": {"mean": 0.01, "standard_error": None}}},
        row("shared_ensemble", nll=0.097, ece=0.0055, prices=None),
        begun("partial_5_loss", run(0, start="b", nll=0.093), nll=0.093),
    ]
    first = started(record(*rows), epochs=60, lr=0.2, compile=False)
    second = started(record(*others), epochs=160, lr=0.2, compile=True)
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, found in zip(paths, (first, second), strict=True):
        path.write_text(json.dumps(found))
    text = markdown_of(paths, Path("page.md"))
    assert "one.json two.json --markdown page.md`, with every figure from these files." in text
    section = text[text.index("## From another start: epochs 160 (60)\n") : text.index("## Open")]
    assert "| partial_5_loss | 0 | - | - | 0.0930 | -0.0180 |" in section
    whole = "**Holds.** shared_ensemble: NLL <= 0.105 and ECE <= 0.006"
    assert whole in section
    assert "predict_ratio_sample 1.1 wanted 1.3." in line(section, f"- {whole}")
    assert "(shared ensemble): nll 0.097 against 0.096." in section
    assert "**Holds.** The deep ensemble's NLL" in line(section, "- **Holds.** The deep")
    assert "(5 % of them random): nll 0.093 against 0.096." in section
    # What was trained for the epochs of the first start is no match for these rows.
    assert "vi_scratch" not in section
    assert "not run yet" not in section


def drawn(nll, ece, samples=(1, 4)):
    curve = {"samples": list(samples), "nll": list(nll), "ece": list(ece)}
    return {"evaluation": {"splits": {"test": {"curves": {"samples": curve}}}}}


def test_figures_by_draws_are_means_over_the_seeds():
    runs = [
        run(0) | drawn([0.2, 0.1], [0.02, 0.01]),
        run(1) | drawn([0.3, 0.12, 0.11], [0.03, 0.02, 0.0], samples=(1, 4, 8)),
    ]
    rows = [
        row("map") | {"runs": [run(0) | drawn([0.5], [0.1], samples=(1,))]},
        row("emp") | {"runs": runs},
        row("ecmp") | {"runs": [run(0) | drawn([0.4, 0.3], [0.0, 0.0], samples=(1, 2))]},
        row("swag"),
    ]
    assert by_draws(rows).splitlines() == [
        "| NLL / ECE by draws | 1 | 2 | 4 |",
        "|---|---|---|---|",
        "| emp | 0.2500 / 0.0250 | - | 0.1100 / 0.0150 |",
        "| ecmp | 0.4000 / 0.0000 | 0.3000 / 0.0000 | - |",
    ]
    assert not by_draws(rows[:1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "two files of the same start are pieces of one table: write leanbayes join"),
        ({"table": "other"}, "table is 'cifar10-wrn' in the first file and 'other' in another"),
        ({"start": None}, "only where each has a shared start"),
    ],
)
def test_files_that_are_no_other_starts_are_refused(change, words, leanbayes, tmp_path):
    found = started(record(row("map", nll=0.5)), epochs=60)
    other = {k: v for k, v in (found | change).items() if v is not None}
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, plain in zip(paths, (found, other), strict=True):
        path.write_text(json.dumps(plain))
    result = leanbayes("report", *paths, "--markdown", tmp_path / "page.md")
    assert result.code == 2
    assert words in result.err
    assert not (tmp_path / "page.md").exists()


@pytest.mark.skipif(not JSON.is_file(), reason="no figures yet")
def test_the_page_of_the_docs_is_what_the_command_writes(monkeypatch):
    monkeypatch.chdir(ROOT)
    files = [Path("results/cifar10_wrn.json"), Path("results/cifar10_wrn_160.json")]
    expected = markdown_of(files, Path("docs/results.md"))
    assert PAGE.read_text(encoding="utf-8") == expected


def test_there_is_no_page_without_figures():
    assert PAGE.is_file() == JSON.is_file()
