import doctest
import importlib
import subprocess
import sys

import pytest

import leanbayes.metrics

MODULES = ["calibration", "check", "ood", "proper", "regression"]


def test_import_leaves_torchmetrics_alone():
    code = "import leanbayes.metrics, sys; print('torchmetrics' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    module = importlib.import_module(f"leanbayes.metrics.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_name_is_exported():
    public = {"calibration", "ood", "proper", "regression"}
    names = {
        name
        for part in public
        for name in importlib.import_module(f"leanbayes.metrics.{part}").__all__
    }
    assert set(leanbayes.metrics.__all__) == names
