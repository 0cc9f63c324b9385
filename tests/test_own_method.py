"""A method of one's own is one file: the example passes the contract without a word elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = "02_your_own_method"


def run(*arguments):
    paths = [str(ROOT / "examples"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_example_prints_what_it_says():
    result = run(f"examples/{EXAMPLE}.py")
    assert result.returncode == 0, result.stderr
    head, uncertainty = result.stdout.splitlines()
    assert head.startswith("gaussian_dropout: 2 layers converted, 1 left; 210 parameters + 0")
    assert float(uncertainty.rpartition(" ")[2]) > 0


def test_the_example_is_registered_and_passes_the_contract():
    files = [f"tests/contract/test_{name}.py" for name in ("convert", "sampling", "copy", "save")]
    chosen = "gaussian_dropout and (mlp or conv_norm or transformer or gru)"
    plain = ["-p", "no:cacheprovider", "-p", "no:randomly", "-q", "--no-header"]
    result = run("-m", "pytest", *plain, "-p", EXAMPLE, *files, "-k", chosen)
    assert result.returncode == 0, result.stdout[-3000:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None
    assert int(passed[1]) > 100
