"""The reference pages are what the docstrings say today, and no public name is missing."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AGAIN = "write them again: python tools/make_reference.py"


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "tools" / "make_reference.py"
    spec = importlib.util.spec_from_file_location("make_reference", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize(
    ("name", "page"), [("methods.md", "methods_page"), ("reference.md", "reference_page")]
)
def test_a_page_is_what_the_docstrings_say(tool, name, page):
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == getattr(tool, page)(), AGAIN


def test_no_public_name_is_missing(tool):
    assert tool.missing() == set()


def test_every_argument_of_a_function_has_words(tool):
    page = tool.reference_page()
    for name in ("samples", "seed", "keep_samples", "chunk", "memory", "trunk", "calibrated"):
        assert f"| `{name}` | `" in page.partition("### lb.predict\n")[2].partition("###")[0]


def test_a_field_of_a_parent_has_the_words_of_the_parent(tool):
    page = tool.methods_page().partition("## RankOne\n")[2].partition("\n## ")[0]
    assert "| `select` | `Selector` | `everything` | The layers it acts on. |" in page
    assert "| `members` | `int` | `4` | Components K. |" in page
