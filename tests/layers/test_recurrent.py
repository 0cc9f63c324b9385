"""nn.RNN, nn.LSTM, nn.GRU as hosts: the stock layers' results, options, copies and way back."""

import copy
import pickle

import pytest
import torch
from recurrent_cases import (
    CASES,
    HIDDEN,
    QUIET,
    ROWS,
    SMALL,
    STEPS,
    WIDTH,
    assert_same,
    build,
    each,
    inputs,
    packed,
    states,
    twin,
)
from torch import nn
from torch.nn.utils.rnn import pad_packed_sequence

import leanbayes as lb
from leanbayes.layers import Host

pytestmark = QUIET

PLANS = [
    None,
    lb.Plan(),
    lb.Plan(groups=2),
    lb.Plan(groups=ROWS),
    lb.Plan(groups=ROWS, per_row=True),
]
LSTM, GRU = ("LSTM", "deep_bidirectional"), ("GRU", "deep_bidirectional")


def silent(layer, estimator="auto"):
    return lb.bayesianize(layer, lb.MeanField(init_std=0.0, estimator=estimator))


@pytest.mark.parametrize("estimator", ["auto", "exemplar", "shared"])
@each(CASES)
def test_without_noise_every_plan_gives_the_stock_result(case, estimator):
    layer = build(case)
    stock = twin(layer)
    model = silent(layer, estimator)
    x, start = inputs(), states(stock)
    for training in (True, False):
        model.train(training)
        for plan in PLANS:
            assert_same(model(x, plan=plan), stock(x))
            assert_same(model(x, start, plan=plan), stock(x, start))


@each(CASES)
def test_gradients_of_weights_input_and_state_are_those_of_the_stock_layer(case):
    layer = build(case)
    stock = twin(layer)
    model = silent(layer).train()

    def gradients(module, parameters, **options):
        x, start = inputs().requires_grad_(), states(stock)
        start = tuple(start) if isinstance(start, tuple) else (start,)
        for part in start:
            part.requires_grad_()
        y, end = module(x, start if stock.mode == "LSTM" else start[0], **options)
        ends = end if isinstance(end, tuple) else (end,)
        total = y.sin().sum() + sum(part.cos().sum() for part in ends)
        return torch.autograd.grad(total, [*parameters, x, *start])

    expected = gradients(stock, list(stock.parameters()))
    own = [layer.get_parameter(name) for name, _ in stock.named_parameters()]
    for plan in PLANS:
        found = gradients(model, own, plan=plan)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("enforce_sorted", [False, True])
@each(SMALL)
def test_packed_sequences_give_the_stock_result(case, enforce_sorted):
    layer = build(case)
    stock = twin(layer)
    model = silent(layer)
    lengths = (4, 4, 3, 2, 2, 1) if enforce_sorted else (2, 4, 1, 3, 4, 2)
    x = packed(inputs(), lengths, enforce_sorted)
    for start in (None, states(stock)):
        expected = stock(x, start)
        for groups in (1, 2, ROWS):
            with model.sampling(lb.Plan(groups=groups)) as net:
                assert_same(net(x, start), expected)


@each(SMALL)
def test_time_in_dim_0_and_inputs_without_a_batch_take_one_draw(case):
    for batch_first in (False, True):
        layer = build(case, batch_first=batch_first)
        stock = twin(layer)
        model = silent(layer)
        single = inputs()[0]
        assert_same(model(single, plan=lb.Plan()), stock(single))
        start = states(stock, rows=1)
        start = tuple(s[:, 0] for s in start) if isinstance(start, tuple) else start[:, 0]
        assert_same(model(single, start, plan=lb.Plan()), stock(single, start))
        with pytest.raises(lb.errors.PlanError, match="one draw"):
            model(single, plan=lb.Plan(groups=2))
    turned = inputs().transpose(0, 1)
    layer = build(case, batch_first=False)
    stock = twin(layer)
    model = silent(layer).train()
    assert_same(model(turned), stock(turned))
    assert model.sequence_first


def test_one_draw_of_a_sequence_first_layer_is_shared_by_all_rows():
    model = lb.bayesianize(build(LSTM, batch_first=False), lb.MeanField(init_std=0.3)).train()
    x = inputs(rows=1).transpose(0, 1).expand(STEPS, ROWS, WIDTH)
    y, _ = model(x)
    torch.testing.assert_close(y, y[:, :1].expand_as(y))
    assert (model(x)[0] - y).abs().max() > 1e-2


def test_dropout_between_layers_acts_in_training_only_and_never_after_the_last():
    layer = build(("GRU", "deep"), dropout=1.0)
    stock = twin(layer)
    model = silent(layer)
    for training in (True, False):
        stock.train(training)
        model.train(training)
        for plan in (lb.Plan(), lb.Plan(groups=ROWS, per_row=True)):
            assert_same(model(inputs(), plan=plan), stock(inputs()))
    assert (stock.train()(inputs())[0] - stock.eval()(inputs())[0]).abs().max() > 1e-2


@each(CASES)
def test_collapse_and_reversal_give_the_stock_layer_back_bit_for_bit(case):
    layer = build(case)
    stock = twin(layer)
    plain = lb.collapse(lb.bayesianize(layer, lb.MeanField()))
    assert type(plain) is type(stock)
    assert plain.__dict__.keys() == stock.__dict__.keys()
    assert all(torch.equal(plain.state_dict()[k], v) for k, v in stock.state_dict().items())
    assert list(plain.state_dict()) == list(stock.state_dict())
    for a, b in zip(plain._flat_weights, plain.parameters(), strict=True):
        assert a is b
    assert torch.equal(plain(inputs())[0], stock(inputs())[0])


def test_conversion_keeps_parameters_keys_and_the_shape_of_a_bidirectional_net():
    layer = build(GRU)
    parameters = dict(layer.named_parameters())
    model = lb.bayesianize(nn.Sequential(layer), lb.MeanField())
    assert isinstance(layer, Host)
    assert not isinstance(layer, nn.RNNBase)  # the compiler refuses every subclass
    assert dict(layer.named_parameters(recurse=False)) == parameters
    assert tuple(model.report.converted[0].slots) == tuple(parameters)
    assert len(parameters) == 16
    assert model(inputs())[0].shape == (ROWS, STEPS, 2 * HIDDEN)
    assert [len(weights) for weights in layer.all_weights] == [4] * 4
    assert layer.all_weights[3][1] is parameters["weight_hh_l1_reverse"]
    layer.flatten_parameters()
    assert "num_layers=2" in repr(layer)


class Classifier(nn.Module):
    """A head on the mean over time, and a layer that the pass may leave out."""

    def __init__(self, kind, spare=False):
        super().__init__()
        self.recurrent = build((kind, "plain"))
        self.head = nn.Linear(HIDDEN, 2).double()
        if spare:
            self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.recurrent(x)[0].mean(1))


def test_a_failed_conversion_leaves_a_working_stock_layer():
    net = Classifier("LSTM", spare=True)
    stock = twin(net)
    with pytest.raises(lb.errors.ConversionError, match="spare"):
        lb.bayesianize(net, lb.MeanField(), example=inputs())
    assert type(net.recurrent) is nn.LSTM
    assert torch.equal(net(inputs()), stock(inputs()))
    net.float()
    assert net.recurrent._flat_weights[0] is net.recurrent.weight_ih_l0


@pytest.mark.parametrize(
    "passed", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_copies_are_hosts_with_weights_of_their_own_and_turn_back(passed):
    model = lb.bayesianize(build(LSTM), lb.MeanField(init_std=0.1))
    other = passed(model)
    plan = lb.Plan(groups=2)
    torch.manual_seed(0)
    expected = model(inputs(), plan=plan)
    torch.manual_seed(0)
    assert_same(other(inputs(), plan=plan), expected)
    with torch.no_grad():
        other.net.weight_hh_l0.zero_()
        loaded = {k: 2 * v for k, v in model.net.state_dict().items()}
    other.float().double().net.load_state_dict(loaded)
    plain = lb.collapse(other)
    assert torch.equal(plain._flat_weights[1], 2 * model.net.weight_hh_l0)
    assert plain(inputs())[0].isfinite().all()


class Named(nn.LSTM):
    """A subclass that only builds."""

    def __init__(self):
        super().__init__(WIDTH, HIDDEN, batch_first=True)


class Clever(nn.LSTM):
    """A subclass with a method that a plain module could not inherit."""

    def halved(self):
        return self.hidden_size // 2


def test_a_subclass_that_only_builds_converts_and_one_with_methods_is_left():
    model = lb.bayesianize(Named(), lb.MeanField())
    assert type(lb.collapse(pickle.loads(pickle.dumps(model)))) is Named
    net = nn.ModuleList([Clever(WIDTH, HIDDEN), nn.Linear(2, 2)])
    report = lb.bayesianize(net, lb.MeanField()).report
    assert type(net[0]) is Clever
    assert [s.reason for s in report.skipped if s.name == "0"] == [
        "Clever defines halved, which a recurrent host would lose"
    ]


@pytest.mark.parametrize(
    ("kind", "method"),
    [("LSTM", lb.MeanField()), ("RNN", lb.RankOne(members=2)), ("GRU", lb.MAP())],
    ids=["LSTM-mean_field", "RNN-rank_one", "GRU-map"],
)
def test_compiled_passes_are_one_graph_and_equal_eager_ones(kind, method):
    torch._dynamo.reset()
    x = inputs()[:, :2]
    model = lb.bayesianize(Classifier(kind), method, example=x).eval()
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(x), model(x))
    model.train()
    found = run(x)
    assert found.isfinite().all()
    found.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_wrong_inputs_get_the_stock_errors():
    model = silent(build(LSTM))
    with pytest.raises(RuntimeError, match="input_size"):
        model(inputs()[..., :2])
    with pytest.raises(RuntimeError, match="hidden"):
        model(inputs(), states(model.net, rows=2))
    with pytest.raises(ValueError, match="dtype"):
        model(inputs().float())
    with pytest.raises(ValueError, match="dimensions"):
        model(inputs()[None])


def test_padded_and_packed_sequences_agree_where_they_live():
    """One draw a row follows the row, wherever packing has put it."""
    method = lb.MeanField(init_std=0.3, estimator="exemplar")
    model = lb.bayesianize(build(("LSTM", "plain")), method)
    lengths = (2, 4, 1, 3, 4, 2)
    torch.manual_seed(3)
    model.enter(lb.Plan(per_row=True), ROWS)
    output, (h, _) = model.net(packed(inputs(), lengths))
    torch.manual_seed(3)
    full, _ = model(inputs(), plan=lb.Plan(per_row=True))
    padded, found = pad_packed_sequence(output, batch_first=True)
    assert tuple(found.tolist()) == lengths
    for row, length in enumerate(lengths):
        torch.testing.assert_close(padded[row, :length], full[row, :length])
        torch.testing.assert_close(h[0, row], full[row, length - 1])
