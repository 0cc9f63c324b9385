"""nn.Transformer's layers: the fused path, which would bypass converted layers, must be off."""

import copy

import pytest
import torch
from layer_cases import assert_equal
from torch import nn
from torch.func import functional_call

import leanbayes as lb
from leanbayes.noise import KeyedNoise

ROWS, TOKENS, WIDTH = 4, 5, 6
SIZES = {"d_model": WIDTH, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0}
CAUSAL = nn.Transformer.generate_square_subsequent_mask(TOKENS, dtype=torch.float64)
PADDING = torch.arange(TOKENS) >= torch.tensor([5, 3, 4, 2])[:, None]
FLOAT_PADDING = torch.zeros(ROWS, TOKENS).double().masked_fill(PADDING, float("-inf"))
PLANS = [None, lb.Plan(), lb.Plan(groups=2), lb.Plan(groups=ROWS, per_row=True)]


@pytest.fixture
def stock_path():
    """Run a stock network without its fused kernels, which write zeros at padded positions."""

    def run(net, *args, **kwargs):
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            return net(*args, **kwargs)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)

    return run


def encoder_layer(**options):
    torch.manual_seed(2)
    return nn.TransformerEncoderLayer(**SIZES, **{"batch_first": True, **options}).double()


def encoder(**options):
    return nn.TransformerEncoder(encoder_layer(**options), 2, norm=nn.LayerNorm(WIDTH).double())


def tokens(seed=0, rows=ROWS):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


ENCODERS = {
    "layer": encoder_layer,
    "layer_gelu": lambda: encoder_layer(activation="gelu"),
    "layer_norm_first": lambda: encoder_layer(norm_first=True),
    "layer_no_bias": lambda: encoder_layer(bias=False),
    "stack": encoder,
}
MASKS = {
    "none": {},
    "causal": {"mask": CAUSAL, "is_causal": True},
    "padding": {"padding": PADDING},
    "both": {"mask": CAUSAL, "padding": FLOAT_PADDING},
}


def arguments(net, masks):
    """The stock names of the masks: a layer says src_mask, a stack says mask."""
    names = {"padding": "src_key_padding_mask", "is_causal": "is_causal", "mask": "mask"}
    if isinstance(net, nn.TransformerEncoderLayer):
        names["mask"] = "src_mask"
    return {names[name]: value for name, value in masks.items()}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("build", ENCODERS.values(), ids=ENCODERS)
def test_encoders_equal_the_stock_ones_in_every_mode(build, masks, stock_path):
    net = build()
    stock = copy.deepcopy(net)
    kwargs = arguments(net, masks)
    x = tokens()
    model = lb.bayesianize(net, lb.MeanField(init_std=0.0), example=x)
    for training in (True, False):
        model.train(training)
        stock.train(training)
        for plan in PLANS:
            expected = stock_path(stock, x, **kwargs)
            assert_equal(model(x, plan=plan, **kwargs), expected)
            with torch.no_grad():
                assert_equal(model(x, plan=plan, **kwargs), expected)


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("build", ENCODERS.values(), ids=ENCODERS)
def test_encoders_draw_in_evaluation_without_gradients(build, masks, stock_path):
    net = build()
    stock = copy.deepcopy(net).eval()
    kwargs = arguments(net, masks)
    x = tokens()
    model = lb.bayesianize(net, lb.MeanField(init_log_std=(-2, -1)), example=x).eval()
    sample = KeyedNoise(1, [3])
    draw = {
        q.key: base + q.log_std.exp() * sample.normal(q.key, 1, base.shape, base)[0]
        for _, _, q, base in model.posteriors()
    }
    with torch.no_grad():
        found = model(x, plan=lb.Plan(noise=sample), **kwargs)
        expected = stock_path(functional_call, stock, draw, (x,), kwargs)
        assert_equal(found, expected)
        mean = stock_path(stock, x, **kwargs)
        assert_equal(model(x, **kwargs), mean)
    assert set(draw) == {name for name, _ in stock.named_parameters()}
    assert (found - mean).abs().max() > 0.1


@pytest.mark.parametrize("build", ENCODERS.values(), ids=ENCODERS)
def test_collapse_restores_weights_classes_and_the_fused_path(build):
    net = build()
    stock = copy.deepcopy(net).eval()
    keys = list(net.state_dict())
    model = lb.bayesianize(net, lb.MeanField(), example=tokens())
    assert [key for key in net.state_dict() if ".slots." not in key] == keys
    plain = lb.collapse(model).eval()
    for (name, module), other in zip(stock.named_modules(), plain.modules(), strict=True):
        assert type(other) is type(module), name
        for flag in ("activation_relu_or_gelu", "use_nested_tensor"):
            assert getattr(other, flag, None) == getattr(module, flag, None), name
    for name, tensor in stock.state_dict().items():
        assert torch.equal(plain.state_dict()[name], tensor)
    with torch.no_grad():
        assert torch.equal(plain(tokens()), stock(tokens()))


@pytest.mark.parametrize("select", ["linears", "norms", "attentions"])
def test_a_part_of_an_encoder_acts_without_gradients(select):
    """One converted layer of any kind is enough to switch the fused path off."""
    x = tokens()
    method = lb.MeanField(init_log_std=(-1, 0), select=getattr(lb.select, select))
    model = lb.bayesianize(encoder(), method, example=x).eval()
    with torch.no_grad():
        a, b = (model(x, plan=lb.Plan(noise=KeyedNoise(0, [s]))) for s in range(2))
    assert (a - b).abs().max() > 1e-2


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layers_equal_the_stock_ones(norm_first):
    torch.manual_seed(2)
    net = nn.TransformerDecoderLayer(**SIZES, batch_first=True, norm_first=norm_first).double()
    stock = copy.deepcopy(net)
    x, memory = tokens(), tokens(1)
    kwargs = {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_key_padding_mask": PADDING}
    model = lb.bayesianize(net, lb.MeanField(init_std=0.0), example=(x, memory))
    for training in (True, False):
        model.train(training)
        stock.train(training)
        for plan in PLANS:
            assert_equal(model(x, memory, plan=plan, **kwargs), stock(x, memory, **kwargs))
            with torch.no_grad():
                assert_equal(model(x, memory, plan=plan, **kwargs), stock(x, memory, **kwargs))
    plain = lb.collapse(model)
    for name, tensor in stock.state_dict().items():
        assert torch.equal(plain.state_dict()[name], tensor)


def test_a_decoder_layer_draws_self_and_cross_attention_apart():
    torch.manual_seed(2)
    net = nn.TransformerDecoderLayer(**SIZES, batch_first=True).double()
    stock = copy.deepcopy(net).eval()
    x, memory = tokens(), tokens(1)
    model = lb.bayesianize(net, lb.MeanField(init_log_std=(-2, -1)), example=(x, memory)).eval()
    noise = KeyedNoise(0, range(2))
    found = model(x, memory, plan=lb.Plan(groups=2, noise=noise))
    values = {
        q.key: base + q.log_std.exp() * noise.normal(q.key, 2, base.shape, base)
        for _, _, q, base in model.posteriors()
    }
    for group in range(2):
        draw = {key: value[group] for key, value in values.items()}
        block = (x.chunk(2)[group], memory.chunk(2)[group])
        assert_equal(found.chunk(2)[group], functional_call(stock, draw, block))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_whole_transformer_equals_the_stock_one(batch_first, stock_path):
    torch.manual_seed(2)
    net = nn.Transformer(
        WIDTH, 2, 1, 1, dim_feedforward=8, dropout=0.0, batch_first=batch_first
    ).double()
    stock = copy.deepcopy(net)
    x, y = tokens(), tokens(1)
    if not batch_first:
        x, y = x.transpose(0, 1), y.transpose(0, 1)
    kwargs = {"tgt_mask": CAUSAL, "src_key_padding_mask": PADDING}
    model = lb.bayesianize(net, lb.MeanField(init_std=0.0), example=(x, y))
    for training in (True, False):
        model.train(training)
        stock.train(training)
        expected = stock_path(stock, x, y, **kwargs)
        for plan in PLANS if batch_first else PLANS[:2]:
            assert_equal(model(x, y, plan=plan, **kwargs), expected)
            with torch.no_grad():
                assert_equal(model(x, y, plan=plan, **kwargs), expected)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("select", ["everything", "norms"])
def test_time_first_encoders_take_one_draw_a_pass(select):
    x = tokens().transpose(0, 1)
    method = lb.MeanField(init_std=0.1, select=getattr(lb.select, select))
    model = lb.bayesianize(encoder(batch_first=False), method, example=x).train()
    same = x[:1, :1].expand(TOKENS, ROWS, -1)
    y = model(same)
    assert_equal(y, y[:1, :1].expand_as(y))  # all tokens of all rows share the draw
    with pytest.raises(lb.PlanError, match="batch_first=False"):
        model(x, plan=lb.Plan(groups=TOKENS))


class Padded(nn.Module):
    """Sequences whose ids of 0 are padding, which the stack packs into nested tensors."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(9, WIDTH, padding_idx=0).double()
        self.stack = encoder()
        self.head = nn.Linear(WIDTH, 2).double()

    def forward(self, ids):
        padding = ids == 0
        found = self.stack(self.tokens(ids), src_key_padding_mask=padding)
        return self.head(found.masked_fill(padding[..., None], 0).sum(1))


IDS = torch.randint(1, 9, (ROWS, TOKENS), generator=torch.Generator().manual_seed(3))
IDS = IDS.masked_fill(PADDING, 0)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("select", ["everything", "output", "attentions", "embeddings"])
def test_an_example_with_padding_converts_and_leaves_the_packing_alone(select):
    torch.manual_seed(0)
    net = Padded()
    expected = copy.deepcopy(net).eval()(IDS)
    chosen = lb.MeanField(init_std=0.0, select=getattr(lb.select, select))
    model = lb.bayesianize(net, chosen, example=IDS)
    assert_equal(lb.predict(model, IDS, likelihood=lb.Gaussian(), samples=2).mean, expected)
    assert lb.collapse(model).stack.use_nested_tensor


def test_features_inside_a_plain_encoder_with_padding():
    torch.manual_seed(0)
    model = lb.bayesianize(Padded(), lb.MAP(), likelihood=lb.Categorical())
    found = lb.predict_features(model, IDS, layer="stack.layers.0.linear1", normalise=False)
    assert found.shape == (ROWS, TOKENS, 8)
    assert model.net.stack.use_nested_tensor
