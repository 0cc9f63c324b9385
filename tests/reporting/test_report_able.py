"""A method that cannot do the task is best in nothing, and a page says so."""

import json

import pytest

from leanbayes.reporting import build, read
from leanbayes.reporting.looks import leading
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
