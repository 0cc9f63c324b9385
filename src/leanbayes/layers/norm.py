"""Hosts of the normalisation layers: normalise as the stock layer does, then a drawn affine map.

Statistics are pooled over all rows, *before* the affine map, and belong to the stock layer; unless
the members of an ensemble have statistics of their own (`layers/statistics.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from leanbayes import ops
from leanbayes.errors import PlanError
from leanbayes.forms import Form, Shared
from leanbayes.layers.base import Host
from leanbayes.layers.statistics import Statistics, normalised, normalised_by_batch


class NormHost(Host):
    """What all of them share: a mask on what they give.

    Behind a ReLU it would be the same, `relu(z * y) = z * relu(y)` for z >= 0: so a network whose
    convolutions hold something else can still have dropout between its layers.
    """

    kind: ClassVar[str] = "norm"
    masks_output: ClassVar[bool] = True

    def masked(self, y: Tensor) -> Tensor:
        """What the layer gives, times the mask where it has one."""
        return ops.scaled(y, self.factor("out_mask", y), 1 if self.channel == 0 else -1)


class _BatchNormHost(NormHost, _BatchNorm):
    channel: ClassVar[int | None] = 0
    overrides: ClassVar[tuple[str, ...]] = ("forward", "_check_input_dim")

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, C, ...]."""
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        return self.masked(self._normed(input))

    def _normed(self, input: Tensor) -> Tensor:
        weight, bias = self.form("weight"), self.form("bias")
        if "statistics" in self.slots:
            if not self.training or self.has_members:
                return self._by_member(input, weight, bias)
            self._note_statistics()  # those of fixed draws act in prediction alone
        factor = self._average_factor()
        if one_value(weight) and one_value(bias):
            return self._normalise(input, value_of(weight), value_of(bias), factor)
        return ops.affine(self._normalise(input, None, None, factor), weight, bias, 1)

    @property
    def has_members(self) -> bool:
        """True where members have running statistics of their own, in training too."""
        return "statistics" in self.slots and isinstance(self.posterior("statistics"), Statistics)

    def _by_member(self, x: Tensor, weight: Form | None, bias: Form | None) -> Tensor:
        """Every member by its own statistics: those of its rows in training, else its running."""
        if self.training or self.running_mean is None:
            return ops.affine(self._by_rows_of_members(x), weight, bias, 1)
        statistics = self.form("statistics")
        if one_value(statistics) and one_value(weight) and one_value(bias):
            return normalised(x, statistics, self.eps, value_of(weight), value_of(bias))
        return ops.affine(normalised(x, statistics, self.eps), weight, bias, 1)

    def _by_rows_of_members(self, x: Tensor) -> Tensor:
        scope, statistics = self.scope, self.posterior("statistics")
        assert isinstance(statistics, Statistics)
        self._note_statistics()
        if scope.plan.mean:  # no member's batch
            return F.batch_norm(x, None, None, None, None, True, 0.0, self.eps)
        tracks = self.training and self.track_running_stats
        return normalised_by_batch(x, self, statistics, scope, tracks)

    def _note_statistics(self) -> None:
        if self.scope.trace is not None:
            self.scope.trace.append((self, "statistics"))

    def base(self, slot: str) -> Tensor:
        """The tensor that a slot stands for; `statistics` for running mean and variance, [2, C]."""
        if slot != "statistics":
            return super().base(slot)
        if self.running_mean is None or self.running_var is None:
            return torch.zeros(2, self.num_features)
        return torch.stack([self.running_mean, self.running_var])

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Take over running statistics."""
        assert slot == "statistics"
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.copy_(factor[0])
            self.running_var.copy_(factor[1])

    def settle(self, member: int | None) -> None:
        """Write the locations (of a member) and its count of batches into the stock layer."""
        super().settle(member)
        if member and self.has_members and self.num_batches_tracked is not None:
            own: Any = self.posterior("statistics")
            self.num_batches_tracked.copy_(own.num_batches_tracked[member - 1])

    def _average_factor(self) -> float:
        """Count the batch, and give the weight that it gets in the running statistics."""
        if not (self.training and self.track_running_stats) or self.num_batches_tracked is None:
            return 0.0 if self.momentum is None else self.momentum
        self.num_batches_tracked.add_(1)
        return self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)

    def _normalise(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, factor: float
    ) -> Tensor:
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        mean, variance = (self.running_mean, self.running_var) if keep else (None, None)
        return F.batch_norm(x, mean, variance, weight, bias, by_batch, factor, self.eps)


class BayesianBatchNorm1d(_BatchNormHost, nn.BatchNorm1d):
    """`nn.BatchNorm1d` with a drawn affine map."""

    stock: ClassVar[type[nn.Module]] = nn.BatchNorm1d


class BayesianBatchNorm2d(_BatchNormHost, nn.BatchNorm2d):
    """`nn.BatchNorm2d` with a drawn affine map."""

    stock: ClassVar[type[nn.Module]] = nn.BatchNorm2d


class BayesianBatchNorm3d(_BatchNormHost, nn.BatchNorm3d):
    """`nn.BatchNorm3d` with a drawn affine map."""

    stock: ClassVar[type[nn.Module]] = nn.BatchNorm3d


class BayesianSyncBatchNorm(_BatchNormHost, nn.SyncBatchNorm):
    """`nn.SyncBatchNorm` with a drawn affine map; statistics over all processes in training."""

    stock: ClassVar[type[nn.Module]] = nn.SyncBatchNorm

    def _normalise(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, factor: float
    ) -> Tensor:
        if not self._synchronises():
            return super()._normalise(x, weight, bias, factor)
        if weight is None:  # the synchronised kernel needs an affine map
            ones = torch.ones(self.num_features, device=x.device, dtype=torch.float32)
            weight, bias = ones, torch.zeros_like(ones)
        group = self.process_group or torch.distributed.group.WORLD
        world = torch.distributed.get_world_size(group)
        synchronised = torch.nn.modules._functions.SyncBatchNorm
        y: Tensor = synchronised.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, self.running_mean, self.running_var, self.eps, factor, group, world
        )
        return y

    def _by_rows_of_members(self, x: Tensor) -> Tensor:
        if self._synchronises():
            raise PlanError(
                "SyncBatchNorm keeps no statistics by member across processes: train the members "
                "with BatchNorm, or in processes of their own"
            )
        return super()._by_rows_of_members(x)

    def _synchronises(self) -> bool:
        distributed = torch.distributed
        if not (self.training and distributed.is_available() and distributed.is_initialized()):
            return False
        return distributed.get_world_size(self.process_group or distributed.group.WORLD) > 1


class BayesianLayerNorm(NormHost, nn.LayerNorm):
    """`nn.LayerNorm` with a drawn affine map."""

    stock: ClassVar[type[nn.Module]] = nn.LayerNorm

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, ..., *normalized_shape]."""
        weight, bias = self.form("weight"), self.form("bias")
        shape = self.normalized_shape
        if one_value(weight) and one_value(bias):
            return self.masked(
                F.layer_norm(input, shape, value_of(weight), value_of(bias), self.eps)
            )
        normed = F.layer_norm(input, shape, None, None, self.eps)
        return self.masked(ops.affine(normed, weight, bias, input.dim() - len(shape)))


class BayesianRMSNorm(NormHost, nn.RMSNorm):
    """`nn.RMSNorm` with a drawn scale."""

    stock: ClassVar[type[nn.Module]] = nn.RMSNorm
    tensor_names: ClassVar[tuple[str, ...]] = ("weight",)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, ..., *normalized_shape]."""
        weight, shape = self.form("weight"), list(self.normalized_shape)
        if one_value(weight):
            return self.masked(F.rms_norm(x, shape, value_of(weight), self.eps))
        normed = F.rms_norm(x, shape, None, self.eps)
        return self.masked(ops.affine(normed, weight, None, x.dim() - len(shape)))


class BayesianGroupNorm(NormHost, nn.GroupNorm):
    """`nn.GroupNorm` with a drawn affine map."""

    channel: ClassVar[int | None] = 0
    stock: ClassVar[type[nn.Module]] = nn.GroupNorm

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, C, ...]."""
        weight, bias = self.form("weight"), self.form("bias")
        if one_value(weight) and one_value(bias):
            values = value_of(weight), value_of(bias)
            return self.masked(F.group_norm(input, self.num_groups, *values, self.eps))
        normed = F.group_norm(input, self.num_groups, None, None, self.eps)
        return self.masked(ops.affine(normed, weight, bias, 1))


def one_value(form: Form | None) -> bool:
    """True where all rows share the tensor, or the layer has none."""
    return form is None or isinstance(form, Shared)


def value_of(form: Form | None) -> Tensor | None:
    """The tensor that all rows share."""
    return form.value if isinstance(form, Shared) else None
