"""What timm, torchvision and transformers have under these names, which need not be installed.

Where the originals compute in float32 these keep float64, so that equalities can be in float64.
"""

import sys
from types import ModuleType

import torch
from torch import nn
from torch.nn import functional as F


def named(module):
    """Give a class the import path of the original."""

    def rename(cls):
        cls.__module__ = module
        return cls

    return rename


def at_least_float32(tensor):
    return tensor if tensor is None or tensor.dtype == torch.float64 else tensor.float()


@named("timm.layers.linear")
class Linear(nn.Linear):
    def forward(self, input):
        return F.linear(input, self.weight, self.bias)


def padding_of(x, layer):
    """Zeros on every side, the last dimension first."""
    amounts = []
    for dim in (3, 2):
        size, stride, dilation = x.shape[dim], layer.stride[dim - 2], layer.dilation[dim - 2]
        out = (size + stride - 1) // stride
        kernel = (layer.kernel_size[dim - 2] - 1) * dilation + 1
        total = max((out - 1) * stride + kernel - size, 0)
        amounts += [total // 2, total - total // 2]
    return amounts


@named("timm.layers.conv2d_same")
class Conv2dSame(nn.Conv2d):
    def __init__(self, *args, padding="same", **options):  # noqa: ARG002
        super().__init__(*args, padding=0, **options)

    def forward(self, x):
        x = F.pad(x, padding_of(x, self))
        return F.conv2d(x, self.weight, self.bias, self.stride, (0, 0), self.dilation, self.groups)


def standardised(kernel, eps):
    rows = kernel.reshape(1, len(kernel), -1)
    return F.batch_norm(rows, None, None, training=True, eps=eps).reshape(kernel.shape)


@named("timm.layers.std_conv")
class StdConv2d(nn.Conv2d):
    def __init__(self, inputs, outputs, size, stride=1, padding=None, eps=1e-6, **options):
        padding = (size - 1) // 2 if padding is None else padding
        super().__init__(inputs, outputs, size, stride, padding, **{"bias": False, **options})
        self.eps = eps

    def forward(self, x):
        return self._conv_forward(x, standardised(self.weight, self.eps), self.bias)


@named("timm.layers.std_conv")
class StdConv2dSame(StdConv2d):
    def __init__(self, *args, same_pad=True, padding=0, **options):
        super().__init__(*args, padding=padding, **options)
        self.same_pad = same_pad

    def forward(self, x):
        return super().forward(F.pad(x, padding_of(x, self)) if self.same_pad else x)


def hold_activation(layer, act_layer, drop_layer=None):
    layer.drop = nn.Identity() if drop_layer is None else drop_layer()
    layer.act = nn.Identity() if act_layer is None else act_layer(inplace=True)


@named("timm.layers.norm_act")
class BatchNormAct2d(nn.BatchNorm2d):
    def __init__(self, *args, act_layer=nn.ReLU, drop_layer=None, **options):
        super().__init__(*args, **options)
        hold_activation(self, act_layer, drop_layer)

    def forward(self, x):
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        kept = not self.training or self.track_running_stats
        x = F.batch_norm(
            x,
            self.running_mean if kept else None,
            self.running_var if kept else None,
            self.weight,
            self.bias,
            self.training or (self.running_mean is None and self.running_var is None),
            factor,
            self.eps,
        )
        return self.act(self.drop(x))


@named("timm.layers.norm_act")
class SyncBatchNormAct(nn.SyncBatchNorm):
    def forward(self, x):
        x = super().forward(x)
        x = self.drop(x) if hasattr(self, "drop") else x
        return self.act(x) if hasattr(self, "act") else x


@named("timm.layers.norm")
class LayerNorm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


@named("timm.layers.norm")
class LayerNormFp32(nn.LayerNorm):
    def forward(self, x):
        weight, bias = at_least_float32(self.weight), at_least_float32(self.bias)
        shape = self.normalized_shape
        return F.layer_norm(at_least_float32(x), shape, weight, bias, self.eps).to(x.dtype)


@named("timm.layers.norm")
class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


TorchvisionLayerNorm2d = named("torchvision.models.convnext")(
    type("LayerNorm2d", (nn.LayerNorm,), {"forward": LayerNorm2d.forward})
)


@named("timm.layers.norm")
class GroupNorm1(nn.GroupNorm):
    def __init__(self, num_channels, **options):
        super().__init__(1, num_channels, **options)

    def forward(self, x):
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


@named("timm.layers.norm")
class RmsNorm(nn.Module):
    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.normalized_shape, self.eps = (channels,), eps
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


@named("timm.layers.norm")
class RmsNorm2d(RmsNorm):
    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps)
        return x if self.weight is None else x * self.weight.reshape(1, -1, 1, 1)


@named("timm.layers.norm_act")
class GroupNormAct(nn.GroupNorm):
    def __init__(self, num_channels, num_groups, act_layer=nn.SiLU, **options):
        super().__init__(num_groups, num_channels, **options)
        hold_activation(self, act_layer)

    def forward(self, x):
        x = F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
        return self.act(self.drop(x))


@named("timm.layers.norm_act")
class LayerNormAct2d(nn.LayerNorm):
    def __init__(self, *args, act_layer=nn.SiLU, **options):
        super().__init__(*args, **options)
        hold_activation(self, act_layer)

    def forward(self, x):
        return self.act(self.drop(LayerNorm2d.forward(self, x)))


class _HFNorm(nn.Module):
    """What the norms of transformers share: a weight and an epsilon."""

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = self.eps = eps


@named("transformers.models.llama.modeling_llama")
class LlamaRMSNorm(_HFNorm):
    def forward(self, hidden_states):
        wide = at_least_float32(hidden_states)
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * wide.to(hidden_states.dtype)


@named("transformers.models.gemma.modeling_gemma")
class GemmaRMSNorm(_HFNorm):
    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(at_least_float32(x)) * (1.0 + at_least_float32(self.weight))
        return output.type_as(x)


@named("transformers.models.t5.modeling_t5")
class T5LayerNorm(_HFNorm):
    def forward(self, hidden_states):
        variance = at_least_float32(hidden_states).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        if self.weight.dtype in [torch.float16, torch.bfloat16]:
            hidden_states = hidden_states.to(self.weight.dtype)
        return self.weight * hidden_states


@named("transformers.models.deberta.modeling_deberta")
class DebertaLayerNorm(_HFNorm):
    def __init__(self, size, eps=1e-12):
        super().__init__(size, eps)
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, hidden_states):
        centred = hidden_states - hidden_states.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return self.weight * (centred / torch.sqrt(variance + self.variance_epsilon)) + self.bias


@named("transformers.models.zamba2.modeling_zamba2")
class Zamba2RMSNormGated(_HFNorm):
    def forward(self, hidden_states, gate=None):
        if gate is not None:
            hidden_states = hidden_states * F.silu(gate)
        groups = hidden_states.unflatten(-1, (2, -1))
        variance = groups.pow(2).mean(-1, keepdim=True)
        groups = groups * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * groups.flatten(-2)


@named("transformers.models.falcon_h1.modeling_falcon_h1")
class FalconH1RMSNormGated(_HFNorm):
    def forward(self, hidden_states, gate=None):
        groups = hidden_states.unflatten(-1, (2, -1))
        variance = groups.pow(2).mean(-1, keepdim=True)
        groups = self.weight.view(2, -1) * groups * torch.rsqrt(variance + self.variance_epsilon)
        return groups.flatten(-2) * (1 if gate is None else F.silu(gate))


LOOK_ALIKES = [
    value
    for value in globals().values()
    if isinstance(value, type) and value.__module__.startswith(("timm", "torchv", "transformers."))
]


def make_importable(monkeypatch):
    """Give the look-alikes the import path of their names, for pickle."""
    for cls in LOOK_ALIKES:
        parts = cls.__module__.split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            if name not in sys.modules or not hasattr(sys.modules[name], "look_alike"):
                module = ModuleType(name)
                module.look_alike = True
                monkeypatch.setitem(sys.modules, name, module)
        setattr(sys.modules[cls.__module__], cls.__name__, cls)
