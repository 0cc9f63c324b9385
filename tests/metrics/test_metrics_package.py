import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import leanbayes.metrics
from leanbayes.errors import LeanBayesError
from leanbayes.metrics.check import refuse

PARTS = sorted(
    path.stem
    for path in Path(leanbayes.metrics.__file__).parent.glob("*.py")
    if path.stem != "__init__"
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_import_leaves_torchmetrics_alone():
    code = "import leanbayes.metrics, sys; print('torchmetrics' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("name", PARTS)
def test_examples_in_docstrings(name):
    module = importlib.import_module(f"leanbayes.metrics.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_name_is_exported():
    names = {
        name
        for part in PARTS
        if part != "check"
        for name in importlib.import_module(f"leanbayes.metrics.{part}").__all__
    }
    assert set(leanbayes.metrics.__all__) == names


def test_the_page_defines_every_public_name():
    text = PAGE.read_text()
    missing = [name for name in leanbayes.metrics.__all__ if f"`{name}" not in text]
    assert not missing


def test_one_except_catches_what_a_metric_refuses():
    with pytest.raises(LeanBayesError, match="bins = 0; expected at least 1"):
        refuse("bins = 0", "at least 1", "bins=15")
