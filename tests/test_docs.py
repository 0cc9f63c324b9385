"""The code in README and docs runs as printed, and the files speak of what exists."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import leanbayes as lb
from leanbayes.cli.settings_file import settings_of
from leanbayes.cli.train import DATA

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    assert "```python" not in page.read_text() or blocks
    exec(compile("\n".join(blocks), page.name, "exec"), {})


def test_the_settings_files_of_a_page_are_read():
    pages = "\n".join(page.read_text() for page in PAGES)
    found = re.findall(r"```toml\n(.*?)```", pages, flags=re.S)
    assert found
    for text in found:
        settings_of(tomllib.loads(text), data_names=DATA)


def anchors_of(page):
    """Headings as GitHub makes them names of places."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    heads = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def test_every_local_link_leads_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            found = page.parent / path if path else page
            assert found.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors_of(found), f"{page.name}: {target}"


def test_every_page_is_listed_in_the_readme():
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES if f"](docs/{page.name}" not in text] == ["README.md"]


def test_the_readme_lists_every_method():
    text = (ROOT / "README.md").read_text()
    for cls in lb.methods().values():
        if cls.__module__.startswith("leanbayes."):
            assert f"lb.{cls.__name__}(" in text, cls.__name__


def test_the_readme_says_of_a_method_what_its_class_says():
    text = (ROOT / "README.md").read_text()
    for cls in lb.methods().values():
        if cls.__module__.startswith("leanbayes."):
            row = re.search(rf"^\| `lb\.{cls.__name__}\(.*$", text, flags=re.M)
            assert row[0].strip("| ").split(" | ")[1:] == [cls.paper, cls.cost, cls.advice]


def test_every_setting_of_a_training_has_words():
    text = (ROOT / "docs" / "training.md").read_text()
    missing = [f.name for f in fields(lb.FitConfig) if not re.search(rf"`{f.name}\b", text)]
    assert not missing


def test_every_claim_row_has_a_command_and_a_figure_or_is_open():
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in (ROOT / "docs" / "claims.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| issue")
    ]
    assert rows
    for row in rows:
        assert len(row) == 6, row
        issue, level, claim, command, figure, commit = row
        assert issue.isdigit()
        assert claim
        assert level in ("must", "then", "last")
        assert figure == "open" or (command and commit), row


def test_the_table_of_the_readme_has_the_figures_of_its_file():
    found = json.loads((ROOT / "results" / "cifar10_wrn.json").read_text())["rows"]
    rows = {row["method"]: row for row in found}
    lines = re.findall(r"^\| `(\w+)`[^|]*\|(.*)\|$", (ROOT / "README.md").read_text(), flags=re.M)
    assert len(lines) > 10
    for label, cells in lines:
        _, *shown, draw = (cell.strip() for cell in cells.split("|"))
        figures = rows[label]["runs"][0]["figures"]
        assert rows[label]["runs"][0]["seed"] == 0
        corrupted = figures.get("corrupted_ece")
        expected = [f"{100 * figures['accuracy']:.2f}", f"{figures['nll']:.4f}"]
        expected += [f"{figures['ece']:.4f}", "-" if corrupted is None else f"{corrupted:.3f}"]
        assert shown == expected, label
        price = rows[label].get("prices")
        assert draw == ("-" if price is None else f"{price['predict_ratio_sample']:.2f}x"), label
