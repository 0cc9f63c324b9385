"""A matrix normal over the weight and bias of a linear layer, by the eigenbases of two factors."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from leanbayes.noise import NoiseSource
from leanbayes.posteriors.fixed_gaussian import Measured, frozen


class Eigenbases(nn.Module):
    """Covariance of a matrix [O, J]: `(U_G x U_A) diag(std^2) (U_G x U_A)^T`.

    Weight and bias of a layer share one: the bias is the last of the J columns.

    Args:
        like: A tensor that tells type and device.
        rows: Outputs O.
        columns: Inputs, plus one where there is a bias, J.
        std: Standard deviation along every pair of eigenvectors until one is measured.
    """

    def __init__(self, like: Tensor, rows: int, columns: int, std: float = 0.0) -> None:
        super().__init__()
        self.left = frozen(torch.eye(rows).to(like))
        self.right = frozen(torch.eye(columns).to(like))
        self.std = frozen(torch.full((rows, columns), std).to(like))

    def set(self, left: Tensor, right: Tensor, std: Tensor) -> None:
        """Store eigenvectors of the output and the input factor, and the scales."""
        with torch.no_grad():
            self.left.copy_(left)
            self.right.copy_(right)
            self.std.copy_(std)


class KroneckerGaussian(Measured):
    """`[W | b] = mean + U_G (std * Z) U_A^T`: the part of it that one slot stands for.

    Args:
        bases: The eigenbases and scales, shared by weight and bias.
        part: Which part of the matrix this slot is.
    """

    def __init__(self, bases: Eigenbases, part: Literal["weight", "bias"]) -> None:
        super().__init__()
        self.bases = bases
        self.part = part

    def is_placeholder(self, std: float) -> bool:
        """True while nothing has been measured."""
        return torch.equal(self.bases.std, torch.full_like(self.bases.std, std))

    @property
    def noise_key(self) -> str:
        """Weight and bias are parts of one draw."""
        return f"{self.key.rpartition('.')[0]}#kronecker"

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard normal numbers for the whole matrix, [draws, O, J]."""
        return source.normal(self.noise_key, draws, self.bases.std.shape, base)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """The slot's part of the matrix, [draws, *base.shape]."""
        delta = self.bases.left @ (noise * self.bases.std) @ self._columns(base).T
        return base + delta.reshape(len(noise), *base.shape)

    def spread(self, base: Tensor) -> Tensor:
        """`sqrt(sum_ab U_G[o, a]^2 std[a, b]^2 U_A[i, b]^2)`."""
        bases = self.bases
        squares = (m.square() for m in (bases.left, bases.std, self._columns(base)))
        left, middle, right = squares
        return (left @ middle @ right.T).sqrt().reshape(base.shape)

    def _columns(self, base: Tensor) -> Tensor:
        """Rows of the input's eigenvectors that belong to the slot's part."""
        return self.bases.right[: base.shape[1]] if self.part == "weight" else self.bases.right[-1:]
