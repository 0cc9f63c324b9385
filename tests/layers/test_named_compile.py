"""`torch.compile(fullgraph=True)` of layers that run their own forward or hold an activation."""

import look_alikes as alike
import pytest
import torch
from layer_cases import assert_equal
from torch import nn

import leanbayes as lb

METHODS = {
    "mean_field": lb.MeanField(init_std=0.3, estimator="exemplar"),
    "deep_ensemble": lb.DeepEnsemble(members=2, init_std=0.3),
}


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Graphs of other tests count towards its limits."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        *(alike.Conv2dSame(3, 6, 3, stride=2), alike.BatchNormAct2d(6), alike.LayerNorm2d(6)),
        *(alike.LayerNormAct2d(6), alike.RmsNorm2d(6), alike.GroupNormAct(6, 2)),
        *(nn.Flatten(2), nn.Linear(9, 6), alike.LlamaRMSNorm(6), alike.GemmaRMSNorm(6)),
        *(alike.Zamba2RMSNormGated(6), alike.LayerNorm(6), nn.Flatten(), alike.Linear(36, 2)),
    ).double()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_one_graph_gives_the_eager_numbers_and_gradients(method):
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64)
    model = lb.bayesianize(network(), method, example=x).train()
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    results = []
    for module in (model, run):
        torch.manual_seed(1)
        y = module(x)
        parameters = [p for p in model.parameters() if p.requires_grad]
        results.append((y, *torch.autograd.grad(y.sin().sum(), parameters)))
    for eager, compiled in zip(*results, strict=True):
        assert_equal(compiled, eager)
    options = {"likelihood": lb.Categorical(), "samples": 2, "seed": 0}
    assert_equal(lb.predict(run, x, **options).probs, lb.predict(model, x, **options).probs)
