"""Every registered method, with default arguments, on every network of `nets.py`."""

import pytest
import torch
from nets import converted, default, nets

import leanbayes as lb

# Seconds a cell: CI runs them for the papers' methods and for new ones, `make test-all` for all.
HEAVY = ("test_compile.py", "test_distributed.py", "test_pretrained.py")
BASELINES = {
    *("map", "batch_ensemble", "deep_ensemble", "mc_dropout", "drop_connect", "swag", "laplace"),
}


@pytest.hookimpl(tryfirst=True)  # before marks are selected by
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name in HEAVY and _method_of(item) in BASELINES:
            item.add_marker(pytest.mark.slow)


def _method_of(item):
    return getattr(item, "callspec", None) and item.callspec.params.get("method")


@pytest.fixture(params=sorted(lb.methods()))
def method(request):
    return default(lb.methods()[request.param])


@pytest.fixture(params=list(nets()))
def net_name(request):
    return request.param


@pytest.fixture
def noisy(method):
    """The method, where it draws at all."""
    if not method.is_random:
        pytest.skip(f"{method.name} has no noise")
    return method


@pytest.fixture
def model_and_inputs(method, net_name):
    """A freshly converted network and six rows of input, in float32."""
    return converted(method, net_name)


@pytest.fixture
def fresh_dynamo():
    """No graph, counter or shape of an earlier test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
