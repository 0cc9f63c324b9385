"""Layers and inputs that the tests of the hosts run through."""

from collections.abc import Callable
from dataclasses import dataclass

import look_alikes as alike
import pytest
import torch
from torch import Tensor, nn

from leanbayes.forms import Flipped, PerDraw, Shared

ROWS = 6


@dataclass(frozen=True)
class Case:
    """A layer, how to build it, and the shape of one row of its input (ids below `ids`, if any)."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    ids: int = 0

    def layer(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """The layer with parameters and running statistics that are neither 0 nor 1."""
        torch.manual_seed(7)
        layer = self.build().to(dtype)
        with torch.no_grad():
            for tensor in (*layer.parameters(), *layer.buffers()):
                if tensor.is_floating_point():
                    tensor.copy_(0.25 + 0.5 * torch.rand(tensor.shape))
            for parameter in layer.parameters():
                if parameter.dim() > 1:
                    parameter.sub_(0.5)
            if self.ids and layer.padding_idx is not None:
                layer.weight[layer.padding_idx] = 0
        return layer

    def inputs(
        self, dtype: torch.dtype = torch.float64, rows: int = ROWS, seed: int = 11
    ) -> Tensor:
        """A batch of rows."""
        generator = torch.Generator().manual_seed(seed)
        if self.ids:
            return torch.randint(0, self.ids, (rows, *self.shape), generator=generator)
        return torch.randn(rows, *self.shape, generator=generator, dtype=torch.float64).to(dtype)


def _conv(dims: int, name: str = "", transposed: bool = False, **options: object) -> Case:
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    shape = (4, *(7, 6, 5)[:dims])
    options = {"kernel_size": 3, "out_channels": 4, **options}
    return Case(f"{kind.__name__}{'-' + name if name else ''}", lambda: kind(4, **options), shape)


LINEARS = [
    Case("Linear", lambda: nn.Linear(5, 3), (5,)),
    Case("Linear-no_bias", lambda: nn.Linear(5, 3, bias=False), (5,)),
    Case("Linear-tokens", lambda: nn.Linear(5, 3), (4, 5)),
    Case("Linear-grid", lambda: nn.Linear(5, 3), (2, 3, 5)),
]
CONVS = [
    *(_conv(dims) for dims in (1, 2, 3)),
    *(_conv(dims, "groups", groups=2, stride=2, padding=1) for dims in (1, 2, 3)),
    *(_conv(dims, "depthwise", groups=4, out_channels=8, dilation=2) for dims in (1, 2)),
    _conv(2, "no_bias", bias=False),
    _conv(2, "strip", kernel_size=(3, 2), stride=(1, 2), padding=(2, 0), dilation=(1, 2)),
    *(_conv(dims, "same", kernel_size=4, padding="same") for dims in (1, 2, 3)),
    *(_conv(dims, "valid", padding="valid") for dims in (1, 2)),
    *(
        _conv(dims, mode, padding=2, padding_mode=mode, groups=2)
        for mode in ("reflect", "replicate", "circular")
        for dims in (1, 2, 3)
    ),
    *(
        _conv(2, f"same_{mode}", kernel_size=(3, 2), padding="same", padding_mode=mode, dilation=2)
        for mode in ("reflect", "replicate", "circular")
    ),
]
TRANSPOSED = [
    *(_conv(dims, transposed=True) for dims in (1, 2, 3)),
    *(
        _conv(
            dims,
            "groups",
            transposed=True,
            groups=2,
            stride=3,
            padding=1,
            output_padding=2,
            dilation=2,
            out_channels=6,
        )
        for dims in (1, 2, 3)
    ),
    _conv(2, "depthwise", transposed=True, groups=4, out_channels=8, bias=False),
]


def _stopped_norm() -> nn.Module:
    """A norm whose statistics were kept up to now and stay as they are."""
    norm = nn.BatchNorm2d(4)
    norm.track_running_stats = False
    return norm


BATCH_NORMS = [
    Case("BatchNorm1d", lambda: nn.BatchNorm1d(4), (4,)),
    Case("BatchNorm1d-sequence", lambda: nn.BatchNorm1d(4), (4, 5)),
    Case("BatchNorm2d", lambda: nn.BatchNorm2d(4), (4, 5, 3)),
    Case("BatchNorm3d", lambda: nn.BatchNorm3d(4), (4, 3, 2, 3)),
    Case("BatchNorm2d-no_bias", lambda: nn.BatchNorm2d(4, bias=False), (4, 5, 3)),
    Case("BatchNorm1d-cumulative", lambda: nn.BatchNorm1d(4, momentum=None), (4,)),
    Case("BatchNorm2d-frozen", lambda: nn.BatchNorm2d(4, momentum=0.0), (4, 5, 3)),
    Case("BatchNorm2d-untracked", lambda: nn.BatchNorm2d(4, track_running_stats=False), (4, 5, 3)),
    Case("BatchNorm2d-stopped", _stopped_norm, (4, 5, 3)),
    Case("SyncBatchNorm", lambda: nn.SyncBatchNorm(4), (4, 5, 3)),
    Case("timm-BatchNormAct2d", lambda: alike.BatchNormAct2d(4, act_layer=None), (4, 5, 3)),
    Case("timm-SyncBatchNormAct", lambda: alike.SyncBatchNormAct(4), (4, 5, 3)),
    Case("SyncBatchNorm-cumulative", lambda: nn.SyncBatchNorm(4, momentum=None), (4, 5)),
]
NORMS = [
    Case("LayerNorm", lambda: nn.LayerNorm(5), (5,)),
    Case("LayerNorm-tokens", lambda: nn.LayerNorm(5), (4, 5)),
    Case("LayerNorm-two_dims", lambda: nn.LayerNorm((4, 5), eps=0.1), (3, 4, 5)),
    Case("LayerNorm-no_bias", lambda: nn.LayerNorm(5, bias=False), (4, 5)),
    Case("GroupNorm", lambda: nn.GroupNorm(2, 4), (4,)),
    Case("GroupNorm-images", lambda: nn.GroupNorm(2, 4, eps=0.1), (4, 5, 3)),
    Case("RMSNorm", lambda: nn.RMSNorm(5), (4, 5)),
    Case("RMSNorm-two_dims", lambda: nn.RMSNorm((4, 5), eps=0.1), (3, 4, 5)),
]
EMBEDDINGS = [
    Case("Embedding", lambda: nn.Embedding(7, 5), (4,), 7),
    Case("Embedding-rows", lambda: nn.Embedding(7, 5), (), 7),
    Case("Embedding-grid", lambda: nn.Embedding(7, 5), (2, 3), 7),
    Case("Embedding-padding", lambda: nn.Embedding(7, 5, padding_idx=2), (4,), 7),
    Case("Embedding-padding_last", lambda: nn.Embedding(7, 5, padding_idx=-1), (4,), 7),
]


def _same(name: str, **options: object) -> Case:
    options = {"kernel_size": 3, "stride": 2, **options}
    return Case(f"timm-Conv2dSame-{name}", lambda: alike.Conv2dSame(4, 4, **options), (4, 7, 6))


NAMED = [
    Case("timm-Linear", lambda: alike.Linear(5, 3), (4, 5)),
    _same("stride"),
    _same("groups", groups=2, bias=False),
    _same("dilation", kernel_size=(5, 2), stride=(1, 3), dilation=(2, 1)),
    _same("depthwise", groups=4, stride=3),
    Case("timm-StdConv2d", lambda: alike.StdConv2d(4, 6, 3, eps=0.1, bias=True), (4, 7, 6)),
    Case("timm-StdConv2d-groups", lambda: alike.StdConv2d(4, 6, 3, padding=0, groups=2), (4, 5, 5)),
    Case(
        "timm-StdConv2dSame", lambda: alike.StdConv2dSame(4, 4, 3, stride=2, bias=True), (4, 7, 6)
    ),
    Case(
        "timm-StdConv2dSame-padded",
        lambda: alike.StdConv2dSame(4, 4, 3, padding=1, same_pad=False),
        (4, 5, 6),
    ),
    Case("timm-LayerNorm", lambda: alike.LayerNorm(5), (4, 5)),
    Case("timm-LayerNorm-two_dims", lambda: alike.LayerNorm((4, 5)), (3, 4, 5)),
    Case("timm-LayerNorm-no_bias", lambda: alike.LayerNorm(5, bias=False), (5,)),
    Case("timm-LayerNormFp32", lambda: alike.LayerNormFp32(5), (4, 5)),
    Case("timm-LayerNorm2d", lambda: alike.LayerNorm2d(4), (4, 5, 3)),
    Case("torchvision-LayerNorm2d", lambda: alike.TorchvisionLayerNorm2d(4), (4, 5, 3)),
    Case("timm-GroupNorm1", lambda: alike.GroupNorm1(4), (4, 5, 3)),
    Case("timm-RmsNorm", lambda: alike.RmsNorm(5), (4, 5)),
    Case("timm-RmsNorm2d", lambda: alike.RmsNorm2d(4), (4, 5, 3)),
    Case("timm-GroupNormAct", lambda: alike.GroupNormAct(4, 2), (4, 5, 3)),
    Case("timm-LayerNormAct2d", lambda: alike.LayerNormAct2d(4), (4, 5, 3)),
    Case("hf-LlamaRMSNorm", lambda: alike.LlamaRMSNorm(5), (4, 5)),
    Case("hf-LlamaRMSNorm-heads", lambda: alike.LlamaRMSNorm(5), (3, 2, 5)),
    Case("hf-LlamaRMSNorm-rows", lambda: alike.LlamaRMSNorm(5), (5,)),
    Case("hf-GemmaRMSNorm", lambda: alike.GemmaRMSNorm(5), (4, 5)),
    Case("hf-T5LayerNorm", lambda: alike.T5LayerNorm(5), (4, 5)),
    Case("hf-DebertaLayerNorm", lambda: alike.DebertaLayerNorm(5), (4, 5)),
    Case("hf-Zamba2RMSNormGated", lambda: alike.Zamba2RMSNormGated(6), (4, 6)),
]
CASES = [*LINEARS, *CONVS, *TRANSPOSED, *BATCH_NORMS, *NORMS, *EMBEDDINGS, *NAMED]


def each(cases: list[Case]) -> pytest.MarkDecorator:
    """Run a test once a case, named by it."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def assert_equal(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Equal to the tolerance, absolutely and relatively."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def written_out(form: object, draws: int, groups: int = 1) -> list[Tensor]:
    """The value of the parameter in every draw; `groups` are those of a convolution."""
    match form:
        case Shared(value):
            return [value] * draws
        case PerDraw(value):
            return list(value)
        case Flipped(mean, delta, sign0, sign1):
            columns = sign1.reshape(draws, groups, 1, -1)
            outer = columns.expand(-1, -1, mean.shape[0] // groups, -1).flatten(1, 2)
            outer = outer if sign0 is None else outer * sign0[:, :, None]
            return list(mean + delta * outer.reshape(*outer.shape, *(1,) * (mean.dim() - 2)))
    raise TypeError(f"{form!r} holds no values")
