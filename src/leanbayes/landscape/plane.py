"""The plane of the first two principal components of a few networks' weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.ops import at_least_float32

FLAT = 1e-9  # share of the first variance below which there is no second direction
Values = dict[str, Tensor]  # by the first name of a parameter


@dataclass(frozen=True, eq=False)
class Plane:
    """`theta(x, y) = centre + x u_1 + y u_2` with orthonormal u_1, u_2.

    With members' weights w_k, centred rows C and Gram matrix `C C^T = V diag(lambda) V^T` [K, K],
    `u_j = C^T v_j / sqrt(lambda_j)`, and member k lies at `(sqrt(lambda_j) v_kj)_j`: nothing larger
    than the K networks is ever made. Two members span a line; the second direction is then a seeded
    random one, with the norm of the first in every tensor.

    Running statistics (buffers) are no part of the distance. They follow the same combination of
    the members, so that a member's place has its own.

    Attributes:
        net: The network that takes the weights of a place.
        names: Names of every parameter that moves, tied ones together.
        centre: Average of the members' weights.
        axes: The two directions.
        buffers: Of every buffer that moves: centre and the two directions.
        members: Places of the members, [K, 2].
        explained: Shares of the members' variance along the two directions.
        random: The second direction is a random one.
    """

    net: nn.Module
    names: Mapping[str, Sequence[str]]
    centre: Values
    axes: tuple[Values, Values]
    buffers: Mapping[str, tuple[Tensor, Tensor, Tensor]]
    members: Tensor
    explained: tuple[float, float]
    random: bool = False

    @staticmethod
    def through(nets: Sequence[nn.Module], seed: int = 0) -> Plane:
        """The plane of the first two components of at least two networks."""
        if len(nets) < 2:
            raise ConfigError(f"a plane needs at least 2 networks, found {len(nets)}")
        names = _moving(nets)
        rows = {first: _stacked(nets, first) for first in names}
        variances, vectors, total = _components(rows, len(nets))
        weights = vectors / variances.sqrt().clamp_min(torch.finfo(variances.dtype).tiny)
        random = bool(variances[1] <= FLAT * variances[0])
        if random:
            weights[:, 1] = 0
        first, second = ({n: _combined(r, w) for n, r in rows.items()} for w in weights.T)
        places = vectors * variances.sqrt()
        if random:
            second, places[:, 1] = _random_direction(first, seed), 0
        share = variances / total
        return Plane(
            net=_untied(copy.deepcopy(nets[0]), names),
            names=names,
            centre={n: at_least_float32(r[0]) + _mean_shift(r) for n, r in rows.items()},
            axes=(first, second),
            buffers=dict(_statistics(nets, weights)),
            members=places[:, :2],
            explained=(float(share[0]), 0.0 if random else float(share[1])),
            random=random,
        )

    @torch.no_grad()
    def at(self, x: float, y: float) -> nn.Module:
        """The network with the weights of a place; the next call changes it again."""
        parameters = dict(self.net.named_parameters())
        buffers = dict(self.net.named_buffers())
        first, second = self.axes
        for name, value in self.centre.items():
            parameters[name].copy_(value + x * first[name] + y * second[name])
        for name, (value, one, two) in self.buffers.items():
            moved = value + x * one + y * two
            # Far from the members a combination of variances may fall below 0.
            buffers[name].copy_(moved.clamp_min(0) if name.endswith("running_var") else moved)
        return self.net

    def place_of(self, net: nn.Module) -> tuple[float, float, float]:
        """Where a network lies: along both directions, and its distance from the plane."""
        table = dict(net.named_parameters(remove_duplicate=False))
        gaps = {n: (table[n].detach() - value).double() for n, value in self.centre.items()}
        x, y = (sum(float((gap * axis[n]).sum()) for n, gap in gaps.items()) for axis in self.axes)
        square = sum(float(gap.square().sum()) for gap in gaps.values())
        return x, y, max(square - x * x - y * y, 0.0) ** 0.5


def _moving(nets: Sequence[nn.Module]) -> dict[str, list[str]]:
    """Names of the parameters in which the networks differ, by the first name of tied ones.

    Settling may give a tied tensor a copy of its own in one network and not in another: only what
    is one tensor in all of them is one tensor of the plane.
    """
    tables = [dict(net.named_parameters(remove_duplicate=False)) for net in nets]
    tied: dict[tuple[int, ...], list[str]] = {}
    for name in tables[0]:
        tied.setdefault(tuple(id(table[name]) for table in tables), []).append(name)
    return {
        names[0]: names
        for names in tied.values()
        if any(not torch.equal(table[names[0]], tables[0][names[0]]) for table in tables)
    }


def _stacked(nets: Sequence[nn.Module], name: str) -> list[Tensor]:
    return [net.get_parameter(name).detach() for net in nets]


def _components(rows: Mapping[str, list[Tensor]], count: int) -> tuple[Tensor, Tensor, float]:
    """The two largest eigenvalues of the Gram matrix, their vectors [K, 2], and its trace."""
    gram = torch.zeros(count, count, dtype=torch.float64)
    for values in rows.values():
        stacked = torch.stack([value.flatten() for value in values]).to("cpu", torch.float64)
        centred = stacked - stacked.mean(0)
        gram += centred @ centred.T
    variances, vectors = torch.linalg.eigh(gram)
    if not float(variances[-1]) > 0:
        raise ConfigError(
            "the members are one network, so they span no plane: train them apart, or start them "
            "with a larger init_std (lb.diversity tells)"
        )
    order = [-1, -2]
    vectors = vectors[:, order]
    # A direction is as good as its opposite: the member farthest out lies on the positive side.
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    vectors = vectors * torch.where(signs == 0, 1.0, signs)
    return variances[order].clamp_min(0), vectors, float(gram.trace())


def _combined(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    """`sum_k weights_k w_k` of weights that sum to 0: of differences, which keeps digits."""
    base = values[0]
    total = torch.zeros_like(base, dtype=torch.float64)
    for value, weight in zip(values[1:], weights[1:].tolist(), strict=True):
        total += weight * (value.double() - base.double())
    return total.to(at_least_float32(base).dtype)


def _mean_shift(values: Sequence[Tensor]) -> Tensor:
    return _combined(values, torch.full((len(values),), 1 / len(values)))


def _statistics(
    nets: Sequence[nn.Module], weights: Tensor
) -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor]]]:
    """Buffers in which the networks differ: their average and its slopes."""
    tables = [dict(net.named_buffers()) for net in nets]
    for name, first in tables[0].items():
        values = [table[name] for table in tables]
        if first.is_floating_point() and any(not torch.equal(v, first) for v in values):
            one, two = (_combined(values, column) for column in weights.T)
            yield name, (first + _mean_shift(values), one, two)


def _random_direction(first: Values, seed: int) -> Values:
    """Of unit norm, orthogonal to the first and as large as it in every tensor."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, axis in first.items():
        noise = torch.randn(axis.shape, generator=generator, dtype=torch.float64)
        drawn[name] = (noise / noise.norm().clamp_min(1e-300)).to(axis) * axis.norm()
    along = sum(float((drawn[n] * axis).sum(dtype=torch.float64)) for n, axis in first.items())
    drawn = {name: value - along * first[name] for name, value in drawn.items()}
    norm = sum(float(v.square().sum(dtype=torch.float64)) for v in drawn.values()) ** 0.5
    if norm < 1e-6:
        raise ConfigError("the networks differ in a single number: they span a line, not a plane")
    return {name: value / norm for name, value in drawn.items()}


def _untied(net: nn.Module, names: Mapping[str, Sequence[str]]) -> nn.Module:
    """The network with one parameter of its own for all names of a tensor of the plane."""
    for first, tied in names.items():
        own = nn.Parameter(net.get_parameter(first).detach().clone(), requires_grad=False)
        for name in tied:
            path, _, last = name.rpartition(".")
            setattr(net.get_submodule(path), last, own)
    return net
