"""Which network a step calls: a compiled one, but not for the short batch of an epoch."""

import pytest
import torch
from fit_cases import model_of, problem, settings
from torch._dynamo.testing import CompileCounterWithBackend

import leanbayes as lb


@pytest.fixture
def graphs(monkeypatch):
    """Counts what is compiled, by a backend that needs no compiler."""
    torch._dynamo.reset()
    counter, compiled = CompileCounterWithBackend("eager"), torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled(model, backend=counter))
    yield counter
    torch._dynamo.reset()


def trained(rows, **options):
    """Weights after two epochs of batches of 12."""
    model = model_of(lb.MAP())
    config = settings(steps=None, epochs=2, **options)
    lb.fit(model, problem(rows), lb.Categorical(), config=config)
    return model.state_dict()


@pytest.mark.parametrize("rows", [48, 41])
def test_the_short_batch_that_ends_an_epoch_makes_no_graph_of_its_own(graphs, rows):
    found = trained(rows, compile=True)
    assert graphs.frame_count == 1
    for name, value in trained(rows).items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_a_single_short_batch_is_compiled(graphs):
    trained(7, compile=True)
    assert graphs.frame_count == 1


def test_parts_of_a_batch_count_as_batches(graphs):
    trained(41, compile=True, accumulate=2)  # 6 and 6 rows, at the end of an epoch 2 and 3
    assert graphs.frame_count == 1
