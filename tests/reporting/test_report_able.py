"""A method that cannot do the task is best in nothing, and a page says so."""

import json

import pytest

from leanbayes.reporting import build, read
from leanbayes.reporting.looks import leading
from leanbayes.reporting.sections import decomposition
from leanbayes.reporting.sections.best import best
from leanbayes.reporting.sections.findings import findings

FIGURES = {  # accuracy, NLL, ECE, AUROC of errors, AUROC of foreign images
    "map": (0.96, 0.13, 0.015, 0.944, 0.90),
    "good": (0.95, 0.11, 0.010, 0.951, 0.92),
    "weak": (0.60, 1.10, 0.020, 0.950, 0.91),
    "failed": (0.10, 2.30, 0.002, 0.975, 0.99),
}
NAMES = ("accuracy", "nll", "ece", "error_auroc", "auroc_total_tiny")


@pytest.fixture
def path(tmp_path):
    rows = [
        {
            "method": label,
            "runs": [],
            "figures": {
                name: {"mean": value, "standard_error": None}
                for name, value in zip(NAMES, values, strict=True)
            },
        }
        for label, values in FIGURES.items()
    ]
    file = tmp_path / "compare.json"
    file.write_text(
        json.dumps({"command": "leanbayes compare", "data": "digits", "seeds": [0], "rows": rows})
    )
    return file


def test_the_best_is_one_that_can_do_the_task(path):
    rows = read(path).rows
    for name in ("ece", "error_auroc", "auroc_total_tiny"):
        assert [row.label for row in best(rows, name)] == ["good"], name
    assert [row.label for row in best(rows, "accuracy")] == ["map"]


def test_findings_and_first_colours_do_not_name_one_that_cannot(path):
    result = read(path)
    assert "failed" not in {found.who for found in findings(result)}
    assert [row.label for row in leading(result)][-1] == "failed"


def test_the_table_says_which_rows_are_not_marked(path):
    sections = {section.title: section for section in build([read(path)])}
    assert "Not in bold: failed, with less than half of the best accuracy." in (
        sections["Methods"].body
    )


PARTS = {  # aleatoric, epistemic
    "map": (0.4, -1e-9),
    "good": (0.4, 0.1),
    "weak": (0.5, 0.2),
    "failed": (0.5, 1.7),
}


def test_parts_of_uncertainty_are_set_beside_those_of_a_method_that_can(path):
    file = json.loads(path.read_text())
    for row in file["rows"]:
        aleatoric, epistemic = PARTS[row["method"]]
        found = {"aleatoric": aleatoric, "epistemic": epistemic}
        splits = {
            f"corrupted/fog/{level}": {
                "kind": "corrupted",
                "of": "test",
                "count": 9,
                "figures": found,
                "shift": {"name": "fog", "severity": level},
            }
            for level in (1, 2)
        }
        suite = {"name": "test", "data": "digits"}
        row["runs"] = [{"seed": 0, "evaluation": {"suite": suite, "splits": splits}}]
    path.write_text(json.dumps(file))
    block = decomposition._block(read(path))
    assert [chart.caption for chart in block.charts] == ["map: 0% epistemic", "weak: 29% epistemic"]
    assert [chart.caption for chart in block.folded] == [
        "good: 20% epistemic",
        "failed: 77% epistemic",
    ]
    shown, folded = (chart.file() for chart in (block.charts[0], block.folded[0]))
    assert (">0.6<" in shown, ">0.5<" in shown) == (True, False)  # marks up to 0.7
    assert (">0.6<" in folded, ">0.5<" in folded) == (False, True)  # up to 2.2
