"""What stops a run, in words, with the last good checkpoint kept."""

import pytest
import torch
from fit_cases import digest, model_of, problem, settings

import leanbayes as lb
from leanbayes.train import step as stepping


def spoiled(row, value):
    x, y = problem()
    x = x.clone()
    x[row] = value
    return x, y


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_data_stop_the_run_and_the_last_checkpoint_is_good(value, tmp_path):
    model = model_of()
    config = settings(folder=str(tmp_path / "run"), save_every=1)
    with pytest.raises(lb.NonFinite, match="data"):
        lb.fit(model, spoiled(20, value), lb.Categorical(), config=config)
    from leanbayes.train.state import unpack
    from leanbayes.train.store import Store

    newest = Store(tmp_path / "run").newest()
    if newest is not None:
        tree = unpack(newest[1])
        tensors = [t for t in tree["model"].values() if t.is_floating_point()]
        assert all(t.isfinite().all() for t in tensors)


def test_an_infinite_gradient_names_step_and_parameter(tmp_path):
    model = model_of(lb.MAP())
    calls = []

    def spoil(grad):
        calls.append(grad)
        return grad * float("inf") if len(calls) == 4 else grad

    model.net.hidden.weight.register_hook(spoil)
    config = settings(folder=str(tmp_path / "run"), save_every=1)
    with pytest.raises(lb.NonFinite, match=r"step 3.*hidden\.weight"):
        lb.fit(model, problem(), lb.Categorical(), config=config)
    assert model.net.hidden.weight.isfinite().all()


class Memory:
    """A stand-in for a device with room for so many rows."""

    def __init__(self, monkeypatch, rows):
        self.rows, self.seen = rows, []
        whole = stepping.objective

        def objective(module, batch, *args, **kwargs):
            self.seen.append(len(batch[1]))
            if len(batch[1]) > self.rows:
                raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
            return whole(module, batch, *args, **kwargs)

        monkeypatch.setattr(stepping, "objective", objective)


def test_out_of_memory_gives_advice(monkeypatch):
    Memory(monkeypatch, 4)
    with pytest.raises(lb.OutOfMemory, match="batch_size"):
        lb.fit(model_of(), problem(), lb.Categorical(), config=settings())


@pytest.mark.filterwarnings("ignore:.*BatchNorm")
def test_auto_batch_equals_explicit_accumulation(monkeypatch):
    explicit, found = model_of(), model_of()
    lb.fit(explicit, problem(), lb.Categorical(), config=settings(accumulate=4))
    memory = Memory(monkeypatch, 3)
    lb.fit(found, problem(), lb.Categorical(), config=settings(auto_batch=True))
    assert digest(found) == digest(explicit)
    assert max(memory.seen[3:]) <= 3


def test_auto_batch_warns_where_there_is_batchnorm(monkeypatch):
    Memory(monkeypatch, 6)
    with pytest.warns(UserWarning, match="BatchNorm"):
        lb.fit(model_of(), problem(), lb.Categorical(), config=settings(auto_batch=True))


def test_an_empty_set_is_refused():
    with pytest.raises(lb.DataError):
        lb.fit(model_of(), (torch.empty(0, 1, 4, 4), torch.empty(0)), lb.Categorical())
