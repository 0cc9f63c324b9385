"""The file of `--out` belongs to one command at a time."""

import subprocess
import sys

import pytest

from leanbayes.cli.record_file import alone
from leanbayes.errors import ConfigError

COMMANDS = (
    ("compare", "fashion_mini", "--methods", "map", "--smoke", "--no-price", "--resume"),
    ("experiment", "toy", "--smoke"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_second_command_is_refused_and_the_rows_of_the_first_stay(command, leanbayes, tmp_path):
    out = tmp_path / "rows.json"
    out.write_text("rows of the first")
    with alone(out):
        result = leanbayes(*command, "--out", out)
    assert result.code == 2, result.err
    assert "rows.json is being written by another command" in result.err
    assert out.read_text() == "rows of the first"
    assert list(tmp_path.iterdir()) == [out]  # no lock is left


def test_the_file_is_free_again_after_an_end_of_any_kind(tmp_path):
    out = tmp_path / "rows.json"
    with pytest.raises(ZeroDivisionError), alone(out):
        raise ZeroDivisionError
    killed = (
        "import os, pathlib, sys\n"
        "from leanbayes.cli.record_file import alone\n"
        "with alone(pathlib.Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", killed, out], check=False).returncode == -9
    with alone(out), pytest.raises(ConfigError, match="another command"), alone(out):
        pass
    with alone(out), alone(None):
        pass
