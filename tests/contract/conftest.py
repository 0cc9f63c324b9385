"""Every registered method, with default arguments, on every network of `nets.py`."""

import pytest
import torch
from nets import converted, default, nets

import leanbayes as lb


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
