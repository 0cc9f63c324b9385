"""nn.MultiheadAttention: every option of the stock layer, with and without noise."""

import copy

import pytest
import torch
from layer_cases import assert_equal, written_out
from torch import nn
from torch.func import functional_call

import leanbayes as lb
from leanbayes.layers import Host
from leanbayes.noise import KeyedNoise

ROWS, QUERIES, KEYS, HEADS, WIDTH = 4, 3, 5, 2, 6
OPTIONS = {
    "plain": {},
    "no_bias": {"bias": False},
    "key_value_dims": {"kdim": 3, "vdim": 5},
    "bias_kv": {"add_bias_kv": True},
    "zero_attention": {"add_zero_attn": True},
    "everything": {"kdim": 3, "vdim": 5, "add_bias_kv": True, "add_zero_attn": True},
}
PLANS = [
    None,
    lb.Plan(),
    lb.Plan(groups=2),
    lb.Plan(groups=ROWS),
    lb.Plan(groups=ROWS, per_row=True),
]
WEIGHTS = [
    {},
    {"need_weights": False},
    {"average_attn_weights": False},
]


def build(**options):
    torch.manual_seed(3)
    layer = nn.MultiheadAttention(WIDTH, HEADS, **{"batch_first": True, **options}).double()
    with torch.no_grad():
        for parameter in layer.parameters():  # the stock biases start at 0
            parameter.uniform_(-1, 1)
    return layer


def inputs_of(layer, rows=ROWS, same=False):
    """Query, key and value; one object if the attention is to itself."""
    generator = torch.Generator().manual_seed(8)
    sizes = ((QUERIES, WIDTH), (KEYS, layer.kdim), (KEYS, layer.vdim))
    query, key, value = (
        torch.randn(rows, *size, generator=generator, dtype=torch.float64) for size in sizes
    )
    batch_first = [key] * 3 if same else [query, key, value]
    if layer.batch_first:
        return tuple(batch_first)
    turned = [x.transpose(0, 1) for x in batch_first]
    return (turned[0],) * 3 if same else tuple(turned)


def masks_of(queries, keys, rows=ROWS):
    """Keyword arguments with masks; the first key of a query is never hidden."""
    generator = torch.Generator().manual_seed(9)

    def hidden(*shape):
        mask = torch.rand(shape, generator=generator) < 0.5
        mask[..., 0] = False
        return mask

    def added(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    causal = nn.Transformer.generate_square_subsequent_mask(keys, dtype=torch.float64)
    return {
        "none": {},
        "bool": {"attn_mask": hidden(queries, keys)},
        "float": {"attn_mask": added(queries, keys)},
        "bool_by_head": {"attn_mask": hidden(rows * HEADS, queries, keys)},
        "float_by_head": {"attn_mask": added(rows * HEADS, queries, keys)},
        "padding": {"key_padding_mask": hidden(rows, keys)},
        "float_padding": {"key_padding_mask": added(rows, keys)},
        "both": {"attn_mask": hidden(queries, keys), "key_padding_mask": hidden(rows, keys)},
        "both_by_head": {
            "attn_mask": added(rows * HEADS, queries, keys),
            "key_padding_mask": added(rows, keys),
        },
        "causal": {"attn_mask": causal[:queries], "is_causal": queries == keys},
    }


MASKS = pytest.mark.parametrize("mask", list(masks_of(1, 1)))


def assert_same(found, expected, tolerance=1e-12):
    """Outputs and attention weights."""
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_equal(a, b, tolerance)


@pytest.mark.parametrize("weights", WEIGHTS, ids=["mean", "no", "by_head"])
@MASKS
@pytest.mark.parametrize("same", [True, False], ids=["self", "cross"])
def test_every_mask_gives_the_stock_output_and_weights(same, mask, weights):
    layer = build()
    stock = copy.deepcopy(layer)
    inputs = inputs_of(layer, same=same)
    options = {**masks_of(KEYS if same else QUERIES, KEYS)[mask], **weights}
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=inputs)
    for training in (True, False):
        model.train(training)
        stock.train(training)
        for plan in PLANS:
            assert_same(model(*inputs, plan=plan, **options), stock(*inputs, **options))
    with torch.no_grad():
        for plan in PLANS:
            assert_same(model(*inputs, plan=plan, **options), stock(*inputs, **options))


@pytest.mark.parametrize("estimator", ["auto", "exemplar"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_gives_the_stock_output_and_gradients(options, estimator):
    layer = build(**options)
    stock = copy.deepcopy(layer)
    inputs = inputs_of(layer)
    masks = masks_of(QUERIES, KEYS)["both_by_head"]
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0, estimator=estimator), example=inputs)
    model.train()
    for plan in PLANS:
        model.zero_grad()
        stock.zero_grad()
        found, expected = model(*inputs, plan=plan, **masks), stock(*inputs, **masks)
        assert_same(found, expected)
        for output in (found, expected):
            (output[0].sin().sum() + output[1].sin().sum()).backward()
        for name, parameter in stock.named_parameters():
            assert_equal(layer.get_parameter(name).grad, parameter.grad)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_float32_equals_the_stock_layer(options):
    layer = build(**options).float()
    stock = copy.deepcopy(layer)
    inputs = tuple(x.float() for x in inputs_of(layer))
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=inputs)
    for need_weights in (True, False):
        found = model(*inputs, plan=lb.Plan(groups=ROWS), need_weights=need_weights)
        assert_same(found, stock(*inputs, need_weights=need_weights), 1e-6)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_collapse_gives_the_stock_layer_back_bit_for_bit(options):
    layer = build(**options)
    stock = copy.deepcopy(layer)
    keys = list(layer.state_dict())
    model = lb.bayesianize(layer, lb.MeanField(), example=inputs_of(layer))
    assert [key for key in layer.state_dict() if "slots." not in key] == keys
    plain = lb.collapse(model)
    assert type(plain) is nn.MultiheadAttention
    assert type(plain.out_proj) is type(stock.out_proj)
    for name, tensor in stock.state_dict().items():
        assert torch.equal(plain.state_dict()[name], tensor)
    assert list(plain.state_dict()) == keys
    raw = {s.name for s in model.report.skipped}
    assert raw == ({"bias_k", "bias_v"} if "add_bias_kv" in options else set())


@pytest.mark.parametrize("mask", ["none", "both"])
@pytest.mark.parametrize("same", [True, False], ids=["self", "cross"])
def test_time_first_holds_one_draw_a_pass(same, mask):
    layer = build(batch_first=False)
    stock = copy.deepcopy(layer)
    inputs = inputs_of(layer, same=same)
    masks = masks_of(KEYS if same else QUERIES, KEYS)[mask]
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=inputs)
    model.train()
    for plan in (None, lb.Plan(), lb.Plan(mean=True)):
        assert_same(model(*inputs, plan=plan, **masks), stock(*inputs, **masks))
    for plan in (lb.Plan(groups=len(inputs[0])), lb.Plan(per_row=True)):
        with pytest.raises(lb.PlanError, match="batch_first=False"):
            model(*inputs, plan=plan, **masks)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", ["none", "bool", "float_by_head", "both"])
def test_an_input_without_a_batch_holds_one_draw(mask, batch_first):
    layer = build(batch_first=batch_first)
    stock = copy.deepcopy(layer)
    example = inputs_of(layer)
    single = tuple(x[0] for x in inputs_of(build()))
    masks = masks_of(QUERIES, KEYS, rows=1)[mask]
    masks = {k: v[0] if k == "key_padding_mask" else v for k, v in masks.items()}
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=example)
    for plan in (lb.Plan(), lb.Plan(mean=True)):
        for weights in WEIGHTS:
            expected = stock(*single, **masks, **weights)
            assert_same(model(*single, plan=plan, **masks, **weights), expected)
    with pytest.raises(lb.PlanError, match="one draw"):
        model(*single, plan=lb.Plan(per_row=True))


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_row_whose_keys_are_all_hidden_gives_what_the_stock_layer_gives(need_weights):
    layer = build()
    stock = copy.deepcopy(layer)
    inputs = inputs_of(layer)
    hidden = torch.zeros(ROWS, KEYS, dtype=torch.bool)
    hidden[1] = True
    model = lb.bayesianize(layer, lb.MeanField(init_std=0.0), example=inputs)
    options = {"key_padding_mask": hidden, "need_weights": need_weights}
    found, expected = model(*inputs, **options)[0], stock(*inputs, **options)[0]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_causal_hint_without_a_mask_is_refused_as_in_the_stock_layer():
    layer = build()
    stock = copy.deepcopy(layer)
    inputs = inputs_of(layer)
    model = lb.bayesianize(layer, lb.MeanField())
    for module in (stock, model):
        with pytest.raises(RuntimeError, match="attn_mask"):
            module(*inputs, is_causal=True)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("same", [True, False], ids=["self", "cross"])
def test_keyed_groups_equal_stock_passes_with_the_drawn_weights(same, options):
    same = same and "kdim" not in options
    layer = build(**options)
    stock = copy.deepcopy(layer).eval()
    inputs = inputs_of(layer, same=same)
    masks = masks_of(KEYS if same else QUERIES, KEYS)["both_by_head"]
    model = lb.bayesianize(layer, lb.MeanField(init_log_std=(-2, -1)), example=inputs).eval()
    noise = KeyedNoise(1, range(2))
    values = {
        q.key: base + q.log_std.exp() * noise.normal(q.key, 2, base.shape, base)
        for _, _, q, base in model.posteriors()
    }
    found = model(*inputs, plan=lb.Plan(groups=2, noise=noise), **masks)
    for group in range(2):
        draw = {key: value[group] for key, value in values.items()}
        block = tuple(x.chunk(2)[group] for x in inputs)
        block = (block[0],) * 3 if same else block
        options_of_block = {name: mask.chunk(2)[group] for name, mask in masks.items()}
        expected = functional_call(stock, draw, block, options_of_block)
        assert_same([x.chunk(2)[group] for x in found], expected)


@pytest.mark.parametrize("estimator", ["flipout", "exemplar", "auto"])
@pytest.mark.parametrize("options", [{}, OPTIONS["key_value_dims"]], ids=["one", "three"])
@pytest.mark.parametrize("same", [True, False], ids=["self", "cross"])
def test_training_rows_equal_stock_passes_with_the_draws_they_took(
    same, options, estimator, monkeypatch
):
    same = same and "kdim" not in options
    layer = build(**options)
    stock = copy.deepcopy(layer)
    inputs = inputs_of(layer, same=same)
    method = lb.MeanField(init_log_std=(-2, -1), estimator=estimator)
    model = lb.bayesianize(layer, method, example=inputs).train()
    forms, form = {}, Host.form

    def recording(self, slot, *args):
        key = f"out_proj.{slot}" if self is layer.out_proj else slot
        forms[key] = form(self, slot, *args)
        return forms[key]

    monkeypatch.setattr(Host, "form", recording)
    found = model(*inputs)
    values = {key: written_out(form, ROWS) for key, form in forms.items()}
    for row in range(ROWS):
        draw = {key: value[row] for key, value in values.items()}
        block = tuple(x[[row]] for x in inputs)
        expected = functional_call(stock, draw, (block[0],) * 3 if same else block)
        assert_same([x[[row]] for x in found], expected)
