"""Layer types of libraries that need not be installed, known by module and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leanbayes.layers.base import Host
from leanbayes.layers.conv1d import BayesianHFConv1D
from leanbayes.layers.hf_norm import BayesianHFNorm
from leanbayes.layers.linear import BayesianLinear
from leanbayes.layers.std_conv import BayesianStdConv2d, BayesianStdConv2dSame
from leanbayes.layers.timm import (
    BayesianBatchNormAct2d,
    BayesianConv2dSame,
    BayesianOwnNorm,
    BayesianOwnNorm2d,
    BayesianSyncBatchNormAct,
)

_LAST = {
    "norm": ("LayerNorm", "LayerNormFp32", "RmsNorm", "RmsNormFp32"),
    "norm_act": ("LayerNormAct", "LayerNormActFp32", "RmsNormAct", "RmsNormActFp32"),
}
_CHANNELS = {
    "norm": (
        *("GroupNorm", "GroupNorm1", "LayerNorm2d", "LayerNorm2dFp32"),
        *("RmsNorm2d", "RmsNorm2dFp32"),
    ),
    "norm_act": (
        *("GroupNormAct", "GroupNorm1Act", "LayerNormAct2d", "LayerNormAct2dFp32"),
        *("RmsNormAct2d", "RmsNormAct2dFp32"),
    ),
}


def _of_timm(host: type[Host], names: Mapping[str, Sequence[str]]) -> dict[str, type[Host]]:
    return {f"timm.layers.{file}.{name}": host for file in names for name in names[file]}


NAMED: dict[str, type[Host]] = {
    "transformers.pytorch_utils.Conv1D": BayesianHFConv1D,
    "torchvision.models.convnext.LayerNorm2d": BayesianOwnNorm2d,
    "timm.layers.linear.Linear": BayesianLinear,
    "timm.layers.conv2d_same.Conv2dSame": BayesianConv2dSame,
    "timm.layers.std_conv.StdConv2d": BayesianStdConv2d,
    "timm.layers.std_conv.StdConv2dSame": BayesianStdConv2dSame,
    "timm.layers.norm_act.BatchNormAct2d": BayesianBatchNormAct2d,
    "timm.layers.norm_act.SyncBatchNormAct": BayesianSyncBatchNormAct,
    **_of_timm(BayesianOwnNorm, _LAST),
    **_of_timm(BayesianOwnNorm2d, _CHANNELS),
}

# What the norms of `transformers` without a stock parent are called, behind their model's name.
_HF_NORMS = (
    *("RMSNorm", "RMSNormGated", "T5LayerNorm", "SwitchTransformersLayerNorm"),
    *("Pix2StructLayerNorm", "Pop2PianoLayerNorm", "UdopLayerNorm", "Kosmos2_5LayerNorm"),
    *("CohereLayerNorm", "Cohere2LayerNorm", "Cohere2MoeLayerNorm", "DebertaLayerNorm"),
)


def named(cls: type) -> type[Host] | None:
    """The host of a type by its name, or None."""
    if cls.__module__.startswith("transformers.models.") and cls.__name__.endswith(_HF_NORMS):
        return BayesianHFNorm
    return NAMED.get(f"{cls.__module__}.{cls.__qualname__}")
