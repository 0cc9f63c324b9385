"""`lb.price`: operations and bytes by closed form, ratios by a made-up clock, nothing changed."""

import copy
import gc
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import leanbayes as lb
from leanbayes.price.measure import flops, saved_bytes, timed, turn_of

ROWS, SIZES = 6, (5, 7, 3)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(SIZES[0], SIZES[1]), nn.ReLU(), nn.BatchNorm1d(SIZES[1]), nn.Linear(*SIZES[1:])
    )


@pytest.fixture
def batch():
    g = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, SIZES[0], generator=g), torch.randint(0, 3, (ROWS,), generator=g)


class Clock:
    """Time that passes only when something is called."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, seconds):
        def run():
            self.now += seconds

        return run


def priced(method, batch, **options):
    model = lb.bayesianize(mlp(), method, example=batch[0])
    return lb.price(model, mlp(), batch, likelihood=lb.Categorical(), rounds=1, **options)


def forward_flops(layers=((SIZES[0], SIZES[1]), (SIZES[1], SIZES[2]))):
    return sum(2 * ROWS * inputs * outputs for inputs, outputs in layers)


def step_flops():
    """Forward, gradients of weights, and of the inputs of all layers but the first."""
    return 3 * forward_flops() - 2 * ROWS * SIZES[0] * SIZES[1]


def test_the_point_estimate_costs_what_the_network_costs(batch):
    found = priced(lb.MAP(), batch)
    assert (found.flops_predict, found.flops_step) == (forward_flops(), step_flops())
    assert found.flops_predict_ratio == found.flops_step_ratio == 1
    assert found.activation_ratio == 1
    assert (found.parameters_added, found.samples, found.rows) == (0, 1, ROWS)


def test_a_prediction_has_a_forward_pass_a_draw(batch):
    found = priced(lb.MeanField(), batch, samples=4)
    assert found.flops_predict == 4 * forward_flops()
    assert (
        found.parameters_added
        == found.parameters // 2
        == sum(p.numel() for p in mlp().parameters())
    )
    assert found.predict_ratio_sample == found.predict_ratio / 4


@pytest.mark.parametrize("method", [lb.MAP(), lb.Partial(rate=0), lb.DeepEnsemble(members=1)])
def test_a_network_without_draws_is_predicted_once_however_many_are_asked_for(method, batch):
    found = priced(method, batch, samples=4)
    assert found.flops_predict == forward_flops()
    assert found.samples == 1
    assert found.predict_ratio_sample == found.predict_ratio


def test_draws_of_a_step_repeat_its_rows(batch):
    assert priced(lb.MAP(), batch, draws=3).flops_step == 3 * step_flops()


def test_the_regulariser_has_its_rows_in_the_step(batch):
    """As many OOD inputs as clean ones, two draws each: three times the rows."""
    method = lb.Implicit(members=2)  # factors of inputs: no products but the first one's gradient
    assert priced(method, batch).flops_step == 3 * forward_flops()
    found = priced(method, batch, regularizer=lb.OODRegularizer())
    assert found.flops_step == 3 * 3 * forward_flops()


def test_members_in_turn_cost_a_step_each_and_the_memory_of_one(batch):
    together = priced(lb.DeepEnsemble(members=3), batch)
    alone = priced(lb.DeepEnsemble(members=3), batch, in_turn=True)
    assert alone.flops_step == 3 * step_flops()
    assert alone.activation_ratio == 1
    assert together.flops_step < alone.flops_step
    assert alone.flops_predict == 3 * forward_flops()


def test_activations_are_those_that_a_backward_pass_needs():
    """A chain of exponentials keeps every result; the parameter is there anyway."""
    x = torch.ones(10, requires_grad=True)
    assert saved_bytes(lambda: x.exp().exp().exp()) == 3 * 40
    assert saved_bytes(lambda: x * x) == 40
    assert saved_bytes(lambda: x * x, [x]) == 0
    y = torch.ones(10, 10, requires_grad=True)
    assert saved_bytes(lambda: y.exp()[0] * y.exp()[1]) == 2 * 400  # a view keeps the whole


@pytest.mark.parametrize("layer", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_gradients_of_a_convolution_cost_a_forward_pass_each(layer, groups):
    """In groups too; without them as torch's own formula has it."""
    conv, x = layer(8, 16, 3, stride=2, groups=groups), torch.randn(2, 8, 9, 9, requires_grad=True)
    forward = flops(lambda: conv(x))
    out = conv(x)
    entries = out.numel() if layer is nn.Conv2d else x.numel()
    partners = (8 if layer is nn.Conv2d else 16) // groups * 9
    assert forward == 2 * entries * partners
    assert flops(lambda: out.sum().backward()) == 2 * forward
    if groups == 1:
        with FlopCounterMode(display=False) as counter:
            conv(x).sum().backward()
        assert counter.get_total_flops() == 3 * forward


def test_a_ratio_is_the_median_of_rounds_in_turns():
    clock, order = Clock(), []
    took = iter([1.0, 1.0, 3.0, 6.0, 5.0])  # two to warm up, then one a round

    def first():
        order.append("first")
        clock.now += next(took)

    def second():
        order.append("second")
        clock.now += 2.0

    found = timed(first, second, rounds=3, seconds=1e9, clock=clock)
    assert found == (2.5, 2.0)
    assert order[4:] == ["second", "first", "first", "second", "second", "first"]


def test_rounds_end_when_time_is_up_but_one_is_always_measured():
    clock = Clock()
    count = []
    work = clock.work(1.0)

    def counted():
        count.append(1)
        work()

    found = timed(counted, clock.work(4.0), rounds=50, seconds=1.0, clock=clock)
    assert found.ratio == 0.25
    assert len(count) == 3


def test_short_works_run_many_times_a_turn():
    clock = Clock()
    assert timed(clock.work(1e-4), clock.work(2e-4), rounds=2, seconds=9, clock=clock).ratio == (
        pytest.approx(0.5)
    )
    assert clock.now == pytest.approx(2 * 1e-4 + 2 * 2e-4 + 2 * 0.04)


@pytest.mark.parametrize("fails", [False, True])
def test_garbage_is_not_collected_in_a_turn(fails):
    seen, clock = [], Clock()

    def work():
        seen.append(gc.isenabled())
        clock.now += 1.0
        if fails and len(seen) > 2:
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect") if fails else nullcontext():
        timed(work, clock.work(1.0), rounds=2, seconds=9, clock=clock)
    assert not any(seen)
    assert gc.isenabled()


def test_a_turn_on_a_gpu_is_several_steps_long():
    """A step of 25 ms alone would be timed with an empty queue, which no training has."""
    assert turn_of(torch.device("cuda")) / 0.025 >= 4
    assert turn_of(torch.device("cpu")) == 0.02
    clock = Clock()
    timed(clock.work(0.025), clock.work(0.05), rounds=1, seconds=9, clock=clock, turn=0.1)
    assert clock.now == pytest.approx(2 * 0.025 + 2 * 0.05 + 4 * 0.025 + 2 * 0.05)


@pytest.mark.parametrize("method", [lb.MeanField(), lb.Implicit(members=2), lb.SWAG()])
def test_nothing_is_changed(method, batch):
    model, net = lb.bayesianize(mlp(), method, example=batch[0]), mlp()
    model.train()
    model.net[2].eval()
    likelihood = lb.Categorical()
    before = copy.deepcopy((model.state_dict(), net.state_dict(), batch))
    state = torch.get_rng_state()
    lb.price(model, net, batch, likelihood=likelihood, rounds=2)
    after = (model.state_dict(), net.state_dict(), batch)
    pairs = zip(*(torch.utils._pytree.tree_leaves(tree) for tree in (before, after)), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert torch.equal(torch.get_rng_state(), state)
    assert (model.training, model.net[0].training, model.net[2].training) == (True, True, False)
    assert all(p.grad is None for p in (*model.parameters(), *net.parameters()))
    assert not model.kl_attached


def test_learnt_noise_is_left_alone_and_halves_of_memory_are_seen():
    model = lb.bayesianize(nn.Linear(4, 1), lb.MeanField())
    likelihood = lb.Gaussian(precision=2.0, learn=True)
    before = copy.deepcopy(likelihood.state_dict())
    batch = torch.randn(8, 4), torch.randn(8, 1)
    found = lb.price(model, nn.Linear(4, 1), batch, likelihood=likelihood, rounds=1)
    assert all(torch.equal(before[k], v) for k, v in likelihood.state_dict().items())
    assert found.peak_memory_ratio is None


def test_a_smaller_network_of_a_method_is_set_against_the_common_one(batch):
    """An ensemble of two narrow networks beside a wide one."""
    narrow = nn.Sequential(nn.Linear(SIZES[0], 2), nn.ReLU(), nn.Linear(2, SIZES[2]))
    size = sum(p.numel() for p in narrow.parameters())
    model = lb.bayesianize(narrow, lb.DeepEnsemble(members=2))
    found = lb.price(model, mlp(), batch, likelihood=lb.Categorical(), rounds=1)
    assert found.parameters == 2 * size
    assert found.parameters_added == 2 * size - sum(p.numel() for p in mlp().parameters())
    assert found.flops_predict_ratio < 1


def test_recurrent_kernels_that_torch_cannot_count_have_no_ratio():
    net = lb.models.create("lstm_classifier", events=11, num_classes=2, width=4)
    model = lb.bayesianize(copy.deepcopy(net), lb.MAP())
    batch = torch.randint(1, 11, (4, 6)), torch.randint(0, 2, (4,))
    found = lb.price(model, net, batch, likelihood=lb.Categorical(), rounds=1)
    assert found.flops_step_ratio is None
    assert found.flops_predict_ratio is None
    assert found.step_ratio > 0


def test_what_is_wrong_is_said(batch):
    model = lb.bayesianize(mlp(), lb.MeanField(), example=batch[0])
    with pytest.raises(lb.ConfigError, match="price needs a likelihood"):
        lb.price(model, mlp(), batch)
    for options, words in (
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"precision": "int8"}, "precision is one of fp32, bf16, fp16"),
        ({"in_turn": True}, "in_turn is for an ensemble"),
    ):
        with pytest.raises(lb.ConfigError, match=words):
            lb.price(model, mlp(), batch, likelihood=lb.Categorical(), **options)


def test_all_figures_are_plain_data(batch):
    import json

    found = priced(lb.MeanField(), batch, precision="bf16").to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["peak_memory_bytes"] is None
    assert 0.02 < found["step_ratio"] < 50
