"""Callbacks do nothing by default; trackers write what they are told, and say if they cannot."""

import sys
import types

import pytest

from leanbayes.errors import ConfigError
from leanbayes.train.callbacks import Callback, MLflow, Run, TensorBoard
from leanbayes.train.config import FitConfig


def run_at(step, folder=None, rank=0, **settings):
    config = FitConfig(steps=100, batch_size=32, samples=2, **settings)
    return Run(config, step=step, total_steps=100, steps_per_epoch=10, folder=folder, rank=rank)


def told(callback, folder=None, rank=0):
    callback.on_start(run_at(0, folder, rank))
    callback.on_step(run_at(10, folder, rank), {"loss": 1.5})
    callback.on_evaluate(run_at(10, folder, rank), {"nll": 0.5})
    callback.on_save(run_at(10, folder, rank), folder)
    callback.on_end(run_at(20, folder, rank), None)


def test_a_plain_callback_is_silent(capsys):
    told(Callback())
    assert capsys.readouterr() == ("", "")


def test_a_step_counts_examples_times_draws_unless_told_otherwise():
    run = run_at(0)
    assert run.rows_per_step == 64
    run.rows = 48
    assert run.rows_per_step == 48


class Writer:
    def __init__(self, folder, purge_step=None):
        self.calls = [(folder, purge_step)]
        Writer.last = self

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))


@pytest.fixture
def tensorboard(monkeypatch):
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    Writer.last = None


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_gets_scalars_by_kind_and_step(tmp_path):
    told(TensorBoard(), tmp_path)
    assert Writer.last.calls == [
        (str(tmp_path / "tensorboard"), None),
        ("add_scalar", "train/loss", 1.5, 10),
        ("add_scalar", "validation/nll", 0.5, 10),
        ("flush",),
        ("close",),
    ]


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_purges_what_came_after_the_step_where_a_run_goes_on(tmp_path):
    TensorBoard(tmp_path / "events").on_start(run_at(30))
    assert Writer.last.calls == [(str(tmp_path / "events"), 31)]


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_without_any_folder_says_so():
    with pytest.raises(ConfigError, match=r"TensorBoard\('events'\)"):
        TensorBoard().on_start(run_at(0))


@pytest.mark.usefixtures("tensorboard")
def test_only_the_first_process_writes(mlflow, tmp_path):
    told(TensorBoard(), tmp_path, rank=1)
    assert Writer.last is None
    told(MLflow(), rank=1)
    assert mlflow.calls == []


@pytest.fixture
def mlflow(monkeypatch):
    module = types.ModuleType("mlflow")
    module.calls, module.active = [], None
    module.active_run = lambda: module.active
    for name in ("start_run", "log_params", "log_metrics", "end_run"):

        def record(*args, _name=name, **kwargs):
            module.calls.append((_name, args, kwargs))

        setattr(module, name, record)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def test_mlflow_gets_the_config_and_every_figure(mlflow):
    told(MLflow(run_name="first"))
    names = [name for name, _, _ in mlflow.calls]
    assert names == ["start_run", "log_params", "log_metrics", "log_metrics", "end_run"]
    assert mlflow.calls[0][2] == {"run_name": "first"}
    assert mlflow.calls[1][1][0]["batch_size"] == "32"
    assert mlflow.calls[2][1:] == (({"train.loss": 1.5},), {"step": 10})
    assert mlflow.calls[3][1:] == (({"validation.nll": 0.5},), {"step": 10})


def test_a_run_of_mlflow_that_is_active_is_joined_and_left_open(mlflow):
    mlflow.active = object()
    told(MLflow())
    assert {"start_run", "end_run"}.isdisjoint(name for name, _, _ in mlflow.calls)


@pytest.mark.parametrize(("tracker", "package"), [(TensorBoard, "tensorboard"), (MLflow, "mlflow")])
def test_a_tracker_that_is_not_installed_says_how_to_install_it(tracker, package, monkeypatch):
    for name in ("torch.utils.tensorboard", "tensorboard", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(package), *sys.meta_path])
    with pytest.raises(ConfigError, match=rf"pip install {package}"):
        tracker()


class Missing:
    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002
        if name.split(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}")
