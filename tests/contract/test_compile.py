"""`torch.compile(fullgraph=True)`: one graph, the eager numbers, no recompilation for new noise."""

import copy
import dataclasses
import pickle

import pytest
import torch
from nets import (
    CLASSES,
    ROWS,
    Residual,
    converted,
    gradients,
    labels,
    nets,
    predicted,
    slot_parameters,
)
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import leanbayes as lb
from leanbayes.model import unwrap
from leanbayes.plan import fold

QUICK = ("conv_norm", "transformer")  # a recurrent graph takes ten seconds and more
pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.fixture(
    params=[pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in nets()]
)
def net_name(request):
    return request.param


def compiled(model, backend="aot_eager", **options):
    return torch.compile(model, backend=backend, fullgraph=True, **options)


def trained_pass(run, model, inputs):
    """Outputs and gradients of one seeded training pass."""
    model.zero_grad()
    torch.manual_seed(4)
    batch = (inputs, labels(len(inputs)))
    loss = lb.objective(run, batch, lb.Categorical(), num_data=ROWS).loss
    loss.backward()
    return loss.detach(), {n: g.clone() for n, g in gradients(model).items()}


def check_training(run, model, inputs, exact):
    loss, grads = trained_pass(run, model, inputs)
    assert loss.isfinite()
    for name in slot_parameters(model):
        assert grads[name].isfinite().all(), name
        # A pass gives copies that it does not draw no gradient.
        assert grads[name].abs().sum() > 0 or isinstance(unwrap(model).method, lb.Patching), name
    if exact:
        eager_loss, eager = trained_pass(model, model, inputs)
        torch.testing.assert_close(loss, eager_loss)
        for name, grad in eager.items():
            torch.testing.assert_close(grads[name], grad, rtol=1e-4, atol=1e-5, msg=name)


def check_evaluation(run, model, inputs):
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(run(inputs), model(inputs), rtol=1e-5, atol=1e-5)
    eager = predicted(model, inputs)
    torch.testing.assert_close(predicted(run, inputs), eager, rtol=1e-5, atol=1e-5)


def test_training_gives_the_eager_loss_and_gradients(model_and_inputs):
    model, inputs = model_and_inputs
    model.train()
    # aot_eager keeps the order of random calls, so a seed gives the eager noise.
    check_training(compiled(model), model, inputs, exact=True)


def test_mean_pass_and_seeded_prediction_equal_eager_without_a_graph_a_draw(model_and_inputs):
    model, inputs = model_and_inputs
    counter = CompileCounterWithBackend("aot_eager")
    run = compiled(model, counter)
    check_evaluation(run, model, inputs)
    graphs = counter.frame_count
    assert graphs <= 3  # the mean pass, one chunk of samples, a pass that sizes the memory
    for seed in (1, 2, 3):
        eager = predicted(model, inputs, seed=seed)
        torch.testing.assert_close(predicted(run, inputs, seed=seed), eager, rtol=1e-5, atol=1e-5)
        with torch.no_grad():
            run(inputs + seed if inputs.is_floating_point() else inputs)
    assert counter.frame_count == graphs


def in_place(model):
    model.compile(backend="eager", fullgraph=True)


def by_block(model):
    for stage in model.net.stages:
        for block in stage:
            block.compile(backend="eager", fullgraph=True)


def inside(model):
    model.net = compiled(model.net, "eager")


# Dynamo looks at `.grad` of what a compiled block is given.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("compile_", [in_place, by_block, inside])
def test_however_it_is_compiled_seeded_prediction_equals_eager(noisy, compile_):
    model, inputs = converted(noisy, "nested_residual")
    eager = predicted(model, inputs)
    compile_(model)
    torch.testing.assert_close(predicted(model, inputs), eager, rtol=1e-5, atol=1e-5)
    check_training(model, model, inputs, exact=False)


LAWS = {
    "cauchy": lb.RankOne(law="cauchy"),
    "cauchy_scale_0.1": lb.RankOne(law="cauchy", init_scale=0.1, clip=3.0),
    "one_side": lb.RankOne(law="cauchy", stochastic="in"),
    "crossed": lb.Patching(cross=True, init_std=0.3),
    "rank_2": lb.SharedEnsemble(rank=2, members=3),
    "swag_diagonal": lb.SWAG(rank=0, init_std=0.1),
    "swag_draws": lb.SWAG(rank=2, draws=3, init_std=0.1),
    "kronecker": lb.Laplace(structure="kronecker", init_std=0.1),
    "composed": lb.Compose(
        [(lb.select.by_name("0"), lb.RankOne(law="cauchy")), (lb.select.output, lb.MeanField())]
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_that_are_no_defaults_predict_as_eager(name):
    """The same raw numbers go into the graph: a law that is made of them is not made twice."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES))
    model = lb.bayesianize(net, LAWS[name]).eval()
    inputs, few = torch.randn(5, 4), {"samples": 12, "seed": 0, "keep_samples": True}
    p, q = (
        lb.predict(run, inputs, likelihood=lb.Categorical(), **few)
        for run in (model, compiled(model, "eager"))
    )
    torch.testing.assert_close(q.samples, p.samples, rtol=1e-6, atol=1e-7)
    assert p.samples.std(0).max() > 1e-4


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Residual(5) for _ in range(10)])
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_equal_blocks_share_their_graphs(method):
    net, inputs = Deep(), torch.randn(ROWS, 5)
    if isinstance(method, lb.Partial):  # masks of a part make blocks unequal
        method = dataclasses.replace(method, rate=1.0)
    model = lb.bayesianize(net, method, example=inputs)
    counter = CompileCounterWithBackend("eager")
    for block in net.blocks:
        block.compile(backend=counter, fullgraph=True)
    for _ in range(2):
        check_training(model, model.train(), inputs, exact=False)
    assert counter.frame_count <= 2  # as in the plain network: inputs with and without gradient
    check_evaluation(model, model, inputs)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_model_compiled_in_place_runs_its_own_weights(method, duplicate):
    model, inputs = converted(method, "mlp")
    in_place(model)
    twin = duplicate(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
        assert torch.equal(twin.eval()(inputs), torch.zeros(ROWS, 3))
        assert model.eval()(inputs).abs().sum() > 0


@pytest.mark.parametrize("net_name", ["conv_norm"], indirect=True)
def test_batches_of_any_size_need_two_graphs(model_and_inputs):
    model, inputs = model_and_inputs
    inputs = fold(inputs, 4)  # every member of an ensemble needs a row
    counter = CompileCounterWithBackend("eager")
    run = compiled(model, counter)
    for training in (True, False):
        model.train(training)
        before = counter.frame_count
        for rows in (24, 23, 22, 21):
            output = run(inputs[:rows])
            if not training:
                torch.testing.assert_close(output, model(inputs[:rows]), rtol=1e-5, atol=1e-5)
        assert counter.frame_count - before <= 2  # one for the first size, one for all others


@pytest.mark.slow
@pytest.mark.timeout(900)  # a compiler beside other tests
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Inductor imports torch.jit
@pytest.mark.parametrize("net_name", ["conv_norm", "transformer"], indirect=True)
def test_inductor_trains_and_predicts_like_eager(model_and_inputs):
    model, inputs = model_and_inputs
    run = compiled(model, "inductor")
    check_training(run, model.train(), inputs, exact=not model.method.is_random)
    check_evaluation(run, model, inputs)
