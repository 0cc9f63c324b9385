"""Where random numbers come from: the global generator, or a key, or tensors made beforehand.

Training draws from the global generator inside the graph. Prediction draws by key (seed, tensor,
sample), so that its numbers do not depend on chunking, batch order, module order or the number of
processes. Compiled prediction takes tensors that were drawn by key before the graph was entered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor


class NoiseSource(Protocol):
    """Raw noise for `draws` independent draws of one tensor."""

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard normal numbers, [draws, *shape]."""

    def uniform(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Numbers in [0, 1), [draws, *shape]."""


class FreshNoise:
    """The global generator: what training uses, and what torch.compile can trace."""

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:  # noqa: ARG002
        """Standard normal numbers, [draws, *shape]."""
        return torch.randn((draws, *shape), device=like.device, dtype=like.dtype)

    def uniform(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:  # noqa: ARG002
        """Numbers in [0, 1), [draws, *shape]."""
        return torch.rand((draws, *shape), device=like.device, dtype=like.dtype)


class KeyedNoise:
    """Draw s of tensor `key` depends on (seed, key, samples[s]) and on nothing else.

    Args:
        seed: The seed of the prediction.
        samples: Which samples are drawn.
        memory: Where tensors that stay the same for all samples are kept; None keeps none.
    """

    def __init__(
        self, seed: int, samples: Sequence[int], memory: dict[str, Tensor] | None = None
    ) -> None:
        self.seed = seed
        self.samples = samples
        self.memory = memory
        self._generators: dict[torch.device, torch.Generator] = {}

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard normal numbers, [draws, *shape]."""
        return self._fill(key, draws, shape, like, torch.randn)

    def uniform(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Numbers in [0, 1), [draws, *shape]."""
        if not shape:  # the hash itself is the number: no generator to seed
            values = [self.number(key, sample) for sample in self.samples]
            return torch.tensor(values, device=like.device, dtype=like.dtype)
        return self._fill(key, draws, shape, like, torch.rand)

    def normal_row(self, keys: Sequence[str], sizes: list[int], like: Tensor) -> Tensor:
        """The standard normal numbers of vectors of one draw each, side by side in one row."""
        return self._row(keys, sizes, like, Tensor.normal_)

    def uniform_row(self, keys: Sequence[str], sizes: list[int], like: Tensor) -> Tensor:
        """The numbers in [0, 1) of vectors of one draw each, side by side in one row."""
        return self._row(keys, sizes, like, Tensor.uniform_)

    def number(self, key: str, sample: int) -> float:
        """A number in [0, 1) of 24 bits, which float32 holds exactly."""
        return (key_seed(self.seed, key, sample) >> 39) / 2**24

    def remember(self, key: str, make: Callable[[], Tensor]) -> Tensor:
        """What `make` gave first, where there is a memory."""
        if self.memory is None:
            return make()
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    def _fill(
        self,
        key: str,
        draws: int,
        shape: Sequence[int],
        like: Tensor,
        law: Callable[..., Tensor],
    ) -> Tensor:
        if draws != len(self.samples):
            raise ValueError(f"{key}: {draws} draws asked for, {len(self.samples)} samples keyed")
        generator = self._generator(like.device)
        if draws == 1:  # the way of looped prediction: no copy into a row
            generator.manual_seed(key_seed(self.seed, key, self.samples[0]))
            return law((1, *shape), generator=generator, device=like.device, dtype=like.dtype)
        noise = torch.empty((draws, *shape), device=like.device, dtype=like.dtype)
        for row, sample in zip(noise, self.samples, strict=True):
            generator.manual_seed(key_seed(self.seed, key, sample))
            law(tuple(shape), generator=generator, out=row)
        return noise

    def _row(
        self, keys: Sequence[str], sizes: list[int], like: Tensor, fill: Callable[..., Tensor]
    ) -> Tensor:
        (sample,), generator = self.samples, self._generator(like.device)
        row = torch.empty(sum(sizes), device=like.device, dtype=like.dtype)
        for key, part in zip(keys, torch.split(row, sizes), strict=True):
            generator.manual_seed(key_seed(self.seed, key, sample))
            fill(part, generator=generator)
        return row

    def _generator(self, device: torch.device) -> torch.Generator:
        generator = self._generators.get(device)
        if generator is None:
            generator = self._generators[device] = torch.Generator(device=device)
        return generator


class FixedNoise:
    """Noise drawn before the graph was entered: the route of torch.compile."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self.values = values

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:  # noqa: ARG002
        """The stored tensor of this key."""
        return self.values[key]

    def uniform(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:  # noqa: ARG002
        """The stored tensor of this key."""
        return self.values[key]


def key_seed(seed: int, key: str, sample: int) -> int:
    """A 63-bit seed that differs for every (seed, key, sample)."""
    digest = hashlib.blake2b(f"{seed}/{key}/{sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def signs(draws: int, size: int, like: Tensor) -> Tensor:
    """Independent fair signs, [draws, size]."""
    return torch.randint(0, 2, (draws, size), device=like.device).to(like.dtype).mul_(2).sub_(1)
