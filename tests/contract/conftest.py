"""Every registered method, with default arguments, on every network of `nets.py`."""

import pytest
import torch
from nets import FEW, SOME, converted, default, nets

import leanbayes as lb

# CI runs the papers' methods and new ones: what a method can break most easily on every network,
# the rest on some of them, and what takes seconds a cell for one of those that are alike. Of the
# baselines it runs what is quick, on a few networks. `make test-all` runs everything.
WIDE = ("test_convert.py", "test_sampling.py")
HEAVY = ("test_compile.py", "test_distributed.py", "test_pretrained.py")
BASELINES = {
    *("map", "batch_ensemble", "deep_ensemble", "mc_dropout", "drop_connect", "swag", "laplace"),
}
ALIKE = {"implicit", "rank_one", "patching", "partial", "compose"}


@pytest.hookimpl(tryfirst=True)  # before marks are selected by
def pytest_collection_modifyitems(items):
    for item in items:
        if _waits(item.path.name, getattr(getattr(item, "callspec", None), "params", {})):
            item.add_marker(pytest.mark.slow)


def _waits(file, params):
    """True where a cell is left to `make test-all`."""
    method, net = params.get("method"), params.get("net_name")
    if file in HEAVY:
        return method in BASELINES or (method in ALIKE and net in (None, "transformer"))
    if method in BASELINES:
        return net is not None and net not in FEW
    return net is not None and net not in SOME and file not in WIDE


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
