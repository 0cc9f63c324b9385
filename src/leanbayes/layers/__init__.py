"""Hosts: layer types that can hold posteriors. They know shapes, not distributions."""

from __future__ import annotations

from torch import nn

from leanbayes.errors import ConversionError
from leanbayes.layers.attention import BayesianMultiheadAttention
from leanbayes.layers.base import Host as Host
from leanbayes.layers.conv import (
    BayesianConv1d,
    BayesianConv2d,
    BayesianConv3d,
    BayesianConvTranspose1d,
    BayesianConvTranspose2d,
    BayesianConvTranspose3d,
)
from leanbayes.layers.dropout import (
    BayesianDropout,
    BayesianDropout1d,
    BayesianDropout2d,
    BayesianDropout3d,
)
from leanbayes.layers.embedding import BayesianEmbedding
from leanbayes.layers.grouped import BayesianGroupedLinear
from leanbayes.layers.linear import BayesianLinear
from leanbayes.layers.named import named
from leanbayes.layers.norm import (
    BayesianBatchNorm1d,
    BayesianBatchNorm2d,
    BayesianBatchNorm3d,
    BayesianGroupNorm,
    BayesianLayerNorm,
    BayesianRMSNorm,
    BayesianSyncBatchNorm,
)
from leanbayes.layers.recurrent import BayesianGRU, BayesianLSTM, BayesianRNN

HOSTS: dict[type[nn.Module], type[Host]] = {
    host.stock: host
    for host in (
        BayesianLinear,
        BayesianConv1d,
        BayesianConv2d,
        BayesianConv3d,
        BayesianGroupedLinear,
        BayesianConvTranspose1d,
        BayesianConvTranspose2d,
        BayesianConvTranspose3d,
        BayesianBatchNorm1d,
        BayesianBatchNorm2d,
        BayesianBatchNorm3d,
        BayesianSyncBatchNorm,
        BayesianLayerNorm,
        BayesianGroupNorm,
        BayesianRMSNorm,
        BayesianEmbedding,
        BayesianMultiheadAttention,
        BayesianRNN,
        BayesianLSTM,
        BayesianGRU,
        BayesianDropout,
        BayesianDropout1d,
        BayesianDropout2d,
        BayesianDropout3d,
    )
}


def register_host(host: type[Host]) -> type[Host]:
    """Make a new layer type convertible; usable as a decorator on the host class."""
    known = HOSTS.get(host.stock)
    if known is not None and known is not host:
        raise ConversionError(
            f"{host.stock.__name__} has the host {known.__name__} already; found {host.__name__}"
        )
    HOSTS[host.stock] = host
    return host


def host_of(layer: type[nn.Module]) -> type[Host] | None:
    """The host of a layer type or of its nearest stock parent."""
    stock = stock_of(layer)
    return None if stock is None else _host(stock)


def stock_of(layer: type[nn.Module]) -> type[nn.Module] | None:
    """A layer type itself, or its nearest parent that has a host."""
    return next((cls for cls in layer.__mro__ if _host(cls) is not None), None)


def _host(cls: type) -> type[Host] | None:
    return HOSTS.get(cls) or named(cls)
