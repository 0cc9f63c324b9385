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

    def run(*arguments, timeout=240):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-W", "error", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=environment,
        )

    return run


@pytest.fixture
def tiny(monkeypatch):
    """Make `--smoke` still smaller: two steps a method, and the named methods alone."""
    import leanbayes as lb
    from leanbayes.cli.demo import setting

    def shrink(*names, **more):
        known = lb.methods()
        chosen = {name: known[name] for name in names} | more
        monkeypatch.setattr(lb, "methods", lambda: chosen)
        small = {"train_images": 32, "test_images": 20, "ood_images": 10, "epochs": 1}
        monkeypatch.setattr(
            setting,
            "smoke_settings",
            lambda seed: setting.Settings(seed=seed, tuning_epochs=1, batch=16, samples=2, **small),
        )

    return shrink


RUN = {
    "model": {"name": "mlp", "options": {"inputs": 784, "hidden": [8], "outputs": 10}},
    "data": {"name": "fashion_mini", "options": {"images": 64, "held_out": 20}},
    "method": {"name": "mean_field", "fields": {"init_std": 0.3}},
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run that has finished, made once: a small network on a few images. Not to be changed."""
    from leanbayes.cli.run import run
    from leanbayes.cli.settings_file import settings_of

    folder = tmp_path_factory.mktemp("runs") / "one"
    fit = {"epochs": 1, "batch_size": 16, "lr": 0.05, "progress": False, "folder": str(folder)}
    run(settings_of({**RUN, "fit": fit}))
    return folder
