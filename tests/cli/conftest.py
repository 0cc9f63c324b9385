import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from leanbayes.cli import main


@pytest.fixture
def leanbayes(monkeypatch, capsys):
    """Run a command in this process: `.code`, `.out`, `.err`."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["leanbayes", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return SimpleNamespace(code=stop.value.code or 0, out=out, err=err)

    return run


@pytest.fixture(scope="session")
def python():
    """Run python in a process of its own, where no other test has registered anything."""

    def run(*arguments):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-W", "error", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=environment,
        )

    return run
