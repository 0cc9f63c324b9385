"""Networks of timm, torchvision and transformers, where these are installed, under every method.

Small ones, with weights of their own: what is asked is whether conversion, draws, a step, files and
the way back hold in networks that were written without a thought of them.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import leanbayes as lb
from leanbayes.likelihood import tensor_of
from leanbayes.plan import call

pytestmark = pytest.mark.slow

CLASSES = 7
WORDS = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": CLASSES,
    "pad_token_id": 0,
}
GPT = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "num_labels": CLASSES}
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "intermediate_size": 48,
    "patch_size": 8,
    "num_labels": CLASSES,
}


@dataclass(frozen=True)
class Other:
    """A network of a library: how to build it, its inputs, and layers that it reads itself."""

    library: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (3, 64, 64)  # of a row; of ids where it is one number
    reads: tuple[str, ...] = ()

    def build(self) -> nn.Module:
        """With the same weights at every call."""
        kind = pytest.importorskip(self.library, exc_type=(ImportError, RuntimeError))
        torch.manual_seed(0)
        return BUILD[self.library](kind, self.name, self.options).eval()

    def inputs(self, rows: int = 4) -> Any:
        """A batch, by keyword where the library wants it so."""
        generator = torch.Generator().manual_seed(rows)
        if len(self.shape) == 1:
            ids = torch.randint(3, 90, (rows, *self.shape), generator=generator)
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        x = torch.randn(rows, *self.shape, generator=generator)
        return {"pixel_values": x} if self.library == "transformers" else x


def _transformer(library: Any, name: str, options: dict[str, Any]) -> nn.Module:
    config = getattr(library, name.partition("For")[0] + "Config")(**options)
    return getattr(library, name)(config)


BUILD: dict[str, Callable[[Any, str, dict[str, Any]], nn.Module]] = {
    "timm": lambda timm, name, more: timm.create_model(name, num_classes=CLASSES, **more),
    "torchvision": lambda vision, name, more: vision.models.get_model(
        name, num_classes=CLASSES, weights=None, **more
    ),
    "transformers": _transformer,
}


def timm(name: str, size: int = 64, reads: tuple[str, ...] = (), **options: Any) -> Other:
    return Other("timm", name, options, (3, size, size), reads)


def words(name: str, reads: tuple[str, ...] = (), **options: Any) -> Other:
    return Other("transformers", name, options, (9,), reads)


NETS = [
    *map(timm, ("resnet18", "resnetv2_18", "efficientnet_b0", "tf_efficientnet_b0")),
    *map(timm, ("mobilenetv3_small_050", "regnetx_002", "densenet121", "convnext_atto")),
    *map(timm, ("ghostnet_050", "edgenext_xx_small", "poolformer_s12", "fastvit_t8")),
    timm("vit_tiny_patch16_224", img_size=64, depth=2),
    timm("deit3_small_patch16_224", img_size=64, depth=2),
    timm("swin_tiny_patch4_window7_224", 56, img_size=56, depths=(1, 1, 1, 1)),
    timm("mixer_s32_224", img_size=64),
    timm("coatnet_nano_rw_224", img_size=64),
    timm("xcit_nano_12_p16_224"),
    timm("eva02_tiny_patch14_224", 56, ("blocks.*.attn.qkv",), img_size=56, depth=2),
    Other("torchvision", "mnasnet0_5"),
    Other("torchvision", "shufflenet_v2_x0_5"),
    Other("torchvision", "convnext_tiny"),
    Other("torchvision", "r3d_18", shape=(3, 4, 32, 32)),
    words("BertForSequenceClassification", **WORDS),
    words("AlbertForSequenceClassification", **WORDS, embedding_size=16),
    words("GPT2ForSequenceClassification", **GPT, pad_token_id=0),
    words("LlamaForSequenceClassification", **WORDS),
    words("GemmaForSequenceClassification", **WORDS, num_key_value_heads=2, head_dim=8),
    words("OPTForSequenceClassification", **WORDS, word_embed_proj_dim=32),
    words(
        "DebertaV2ForSequenceClassification",
        ("deberta.encoder.rel_embeddings",),
        **WORDS,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    ),
    Other("transformers", "ViTForImageClassification", IMAGE, (3, 32, 32)),
    Other("transformers", "Dinov2ForImageClassification", IMAGE, (3, 32, 32)),
]


@pytest.fixture(params=NETS, ids=lambda net: f"{net.library}-{net.name}")
def other(request):
    return request.param


def converted(other: Other, method: Any) -> lb.BayesianModel:
    """The network under a method; one that asks for more than the network has is skipped."""
    net, x = other.build(), other.inputs()
    select = ~lb.select.by_name(*other.reads) if other.reads else lb.select.everything
    if isinstance(method, lb.MCDropout):  # fused attention takes the rate of its dropout
        method = lb.MCDropout(rate=0.1, where=lb.select.output, existing=False)
    elif isinstance(method, lb.DeepEnsemble):  # Conv1D of transformers cannot be drawn anew
        method = lb.DeepEnsemble(members=2, init_std=0.05, select=select)
    elif isinstance(method, lb.Partial):
        method = lb.Partial(rate=0.05, criterion="magnitude", select=select)
    elif isinstance(method, lb.SharedEnsemble):
        method = lb.SharedEnsemble(members=4, select=select)
    elif isinstance(method, lb.Compose):
        method = lb.Compose([(select, lb.RankOne())])
    else:
        method = type(method)(select=select)
    return lb.bayesianize(net, method, example=x, likelihood=lb.Categorical())


def some(inputs: Any, rows: slice) -> Any:
    return {k: v[rows] for k, v in inputs.items()} if isinstance(inputs, dict) else inputs[rows]


def outputs(net: nn.Module, inputs: Any) -> Tensor:
    with torch.no_grad():
        return tensor_of(call(net, inputs))


def test_rows_are_independent_and_passes_equal_wherever_they_are_cut(method, other):
    model, x = converted(other, method), other.inputs()
    options = {"samples": 4, "seed": 0}
    whole = lb.predict(model, x, **options).probs
    assert whole.isfinite().all()
    assert whole.shape == (4, CLASSES)
    for inputs, chunk in ((x, 1), (some(x, slice(2)), None)):
        part = lb.predict(model, inputs, chunk=chunk, **options).probs
        torch.testing.assert_close(part, whole[: len(part)], rtol=1e-3, atol=2e-5)


def test_a_step_files_and_the_way_back(method, other, tmp_path):
    model, x = converted(other, method), other.inputs()
    before = [type(m) for m in other.build().modules()]
    y = torch.arange(4) % CLASSES
    model.train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=1e-4, weight_decay=1e-4))
    if model.kl_kind != "none":
        lb.attach_kl(optimizer, model, num_data=1000)
    lb.objective(model, (x, y), lb.Categorical(), include_kl=False).loss.backward()
    optimizer.step()
    assert all(p.isfinite().all() for p in model.parameters())
    options = {"samples": 4, "seed": 0}
    expected = lb.predict(model, x, **options).probs
    lb.save(model, tmp_path / "model")
    for twin in (copy.deepcopy(model), lb.load(other.build(), tmp_path / "model")):
        assert torch.equal(lb.predict(twin, x, **options).probs, expected)
    plain = lb.collapse(model).eval()
    assert [type(m) for m in plain.modules()] == before
    if isinstance(model.method, (lb.MeanField, lb.Partial, lb.MAP)):
        torch.testing.assert_close(
            outputs(plain, x), outputs(model.eval(), x), rtol=1e-5, atol=1e-6
        )


def test_norms_and_the_output_are_found(other):
    """What `Patching` makes copies of: all norms with parameters, and the layer that runs last."""
    model = converted(other, lb.Patching())
    copied = {layer.name for layer in model.report.converted}
    assert model.report.output in copied
    assert "runs last" not in str(model.report)
    for name, module in other.build().named_modules():
        is_norm = "norm" in type(module).__name__.lower() and list(module.parameters(False))
        assert name in copied or not is_norm, name
