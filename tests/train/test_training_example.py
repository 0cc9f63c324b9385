"""The example on training runs, and says what its first lines promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "03_training.py"


def test_the_example_stops_goes_on_and_ends_with_the_same_bits():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), "--smoke"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if not line.startswith("leanbayes: ")]
    promised = re.search(r"Expected:(.*?)\"\"\"", EXAMPLE.read_text(), re.S)[1].strip()
    promised = [line.strip() for line in promised.splitlines()]

    def without_figures(text):
        return re.sub(r"\d\.\d{3}", "#", text)

    assert [without_figures(line) for line in lines] == [without_figures(p) for p in promised]
