"""The named layers of the libraries themselves where these are installed, and the look-alikes."""

import copy
from importlib import import_module

import look_alikes as alike
import pytest
import torch
from layer_cases import assert_equal
from torch.func import functional_call

import leanbayes as lb
from leanbayes.layers import host_of
from leanbayes.layers.hf_norm import BayesianHFNorm
from leanbayes.layers.named import NAMED
from leanbayes.noise import KeyedNoise

ARGUMENTS = {
    "Linear": (6, 4),
    "Conv1D": (4, 6),
    "Conv2dSame": (6, 4, 3, 2),
    "StdConv2d": (6, 4, 3),
    "StdConv2dSame": (6, 4, 3, 2),
    "GroupNorm": (6, 2),
    "GroupNormAct": (6, 2),
}
HF_MODELS = {
    "llama": ("LlamaRMSNorm",),
    "gemma": ("GemmaRMSNorm",),
    "gemma2": ("Gemma2RMSNorm",),
    "gemma3n": ("Gemma3nRMSNorm",),
    "qwen2": ("Qwen2RMSNorm",),
    "qwen3": ("Qwen3RMSNorm",),
    "qwen3_next": ("Qwen3NextRMSNorm", "Qwen3NextRMSNormGated"),
    "mistral": ("MistralRMSNorm",),
    "olmo2": ("Olmo2RMSNorm",),
    "gpt_oss": ("GptOssRMSNorm",),
    "helium": ("HeliumRMSNorm",),
    "llama4": ("Llama4TextRMSNorm",),
    "moshi": ("MoshiRMSNorm",),
    "t5": ("T5LayerNorm",),
    "mt5": ("MT5LayerNorm",),
    "idefics": ("IdeficsRMSNorm",),
    "cohere": ("CohereLayerNorm",),
    "deberta": ("DebertaLayerNorm",),
}


def library(name):
    return pytest.importorskip(name, exc_type=(ImportError, RuntimeError))


def filled(layer):
    """Float32, as the originals compute: parameters and statistics that are neither 0 nor 1."""
    torch.manual_seed(3)
    with torch.no_grad():
        for tensor in (*layer.parameters(), *layer.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(0.25 + 0.5 * torch.rand(tensor.shape))
    return layer


def inputs(host):
    """Tokens, or images where a layer has its channels in dim 1."""
    return torch.randn(6, 6, 5, 4) if host.channel == 0 else torch.randn(6, 5, 6)


def check(layer, x, tolerance):
    """Bits without noise, in training and evaluation; stock passes with the draws; and back."""
    stock, untouched = copy.deepcopy(layer), copy.deepcopy(layer)
    model = lb.bayesianize(copy.deepcopy(layer), lb.MeanField(init_std=0.0)).train()
    for seed in range(2):
        batch = x + seed
        assert torch.equal(model(batch, plan=lb.Plan()), stock(batch))
    for name, buffer in stock.named_buffers():
        assert torch.equal(model.net.get_buffer(name), buffer)
    assert torch.equal(model.eval()(x), stock.eval()(x))

    model = lb.bayesianize(layer, lb.MeanField(init_std=0.3)).eval()
    assert [c.slots for c in model.report.converted] == [tuple(dict(stock.named_parameters()))]
    noise, draws = KeyedNoise(0, range(3)), [{}, {}, {}]
    for _, _, posterior, base in model.posteriors():
        normal = noise.normal(posterior.key, 3, base.shape, base)
        for k in range(3):
            draws[k][posterior.key] = base + posterior.log_std.exp() * normal[k]
    found = model(x, plan=lb.Plan(groups=3, noise=noise))
    untouched.eval()
    expected = [
        functional_call(untouched, draw, block)
        for draw, block in zip(draws, x.chunk(3), strict=True)
    ]
    assert_equal(found, torch.cat(expected), tolerance)
    plain = lb.collapse(model).eval()
    assert type(plain) is type(untouched)
    assert torch.equal(plain(x), untouched(x))


@pytest.mark.parametrize("path", NAMED)
def test_every_named_type_of_an_installed_library(path):
    library(path.split(".")[0])
    module, _, name = path.rpartition(".")
    cls = getattr(import_module(module), name, None)
    if cls is None:
        pytest.skip(f"this version has no {path}")
    layer = filled(cls(*ARGUMENTS.get(name, (6,))))
    check(layer, inputs(NAMED[path]), 1e-5)


@pytest.mark.parametrize("model", HF_MODELS)
def test_norms_of_transformers(model):
    library("transformers")
    module = import_module(f"transformers.models.{model}.modeling_{model}")
    for name in HF_MODELS[model]:
        layer = filled(getattr(module, name)(6))
        assert BayesianHFNorm.refusal(layer) is None
        if "Gated" not in name:
            check(layer, torch.randn(6, 5, 6), 1e-5)


@pytest.mark.parametrize("cls", alike.LOOK_ALIKES, ids=lambda c: f"{c.__module__}.{c.__name__}")
def test_a_look_alike_computes_what_the_original_does(cls):
    library(cls.__module__.split(".")[0])
    name = cls.__name__
    original = getattr(import_module(cls.__module__), name)
    options = {"group_size": 3} if name == "Zamba2RMSNormGated" else {}
    if name == "FalconH1RMSNormGated":
        options = {"n_groups": 2, "norm_before_gate": True}
    real = filled(original(*ARGUMENTS.get(name, (6,)), **options))
    twin = cls(*ARGUMENTS.get(name, (6,)))
    twin.load_state_dict(real.state_dict())
    for kept in ("eps", "variance_epsilon", "act"):
        if hasattr(real, kept):
            setattr(twin, kept, getattr(real, kept))
    x = inputs(host_of(cls))
    for mode in (True, False):
        assert_equal(twin.train(mode)(x), real.train(mode)(x), 1e-6)
    for one, other in zip(twin.buffers(), real.buffers(), strict=True):
        assert_equal(one, other, 1e-6)


@pytest.mark.parametrize(
    "name",
    [
        *("efficientnet_b0", "tf_efficientnet_b0", "mobilenetv3_small_050", "convnext_atto"),
        *("vit_tiny_patch16_224", "regnetx_002", "poolformer_s12", "resnetv2_18"),
        "resnetv2_50x1_bit",
    ],
)
def test_of_a_network_of_timm_no_norm_convolution_or_linear_layer_is_left(name):
    timm = library("timm")
    net = timm.create_model(name, num_classes=7)
    model = lb.bayesianize(net, lb.MeanField())
    left = {s.type for s in model.report.skipped}
    assert not [t for t in left if "Norm" in t or t.startswith(("Linear", "Conv2d"))]
    output = lb.bayesianize(timm.create_model(name, num_classes=7), lb.Patching()).report
    assert any("Norm" in type(net.get_submodule(c.name)).__name__ for c in output.converted)
