"""Where random numbers come from: the global generator, or a key, or tensors made beforehand.

Training draws from the global generator inside the graph. Prediction draws by key (seed, tensor,
sample), so that its numbers do not depend on chunking, batch order, module order or the number of
processes. Compiled prediction takes tensors that were drawn by key before the graph was entered.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Protocol

import torch
from torch import Tensor

# Of splitmix64, as numbers with a sign.
GOLDEN: Final = 0x9E3779B97F4A7C15 - 2**64
MIX_1: Final = 0xBF58476D1CE4E5B9 - 2**64
MIX_2: Final = 0x94D049BB133111EB - 2**64


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


class PortableNoise(KeyedNoise):
    """Keyed noise that is the same on every device, up to rounding.

    Generators differ between a CPU and a GPU, which does not matter as long as nothing else depends
    on a draw. Here number i of a tensor is a hash of (seed, key, sample) and i (splitmix64, Steele
    et al. 2014), and normal numbers are made of its two halves by Box and Muller: some
    thirty passes over the tensor.
    """

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard normal numbers, [draws, *shape]."""
        return _normal(self._bits(key, draws, shape, like), like)

    def uniform(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Numbers in (0, 1), [draws, *shape]."""
        return _part(self._bits(key, draws, shape, like), 40, like).to(like.dtype)

    def normal_row(self, keys: Sequence[str], sizes: list[int], like: Tensor) -> Tensor:
        """The standard normal numbers of tensors of one draw each, side by side in one row."""
        return _normal(self._row_bits(keys, sizes, like), like)

    def uniform_row(self, keys: Sequence[str], sizes: list[int], like: Tensor) -> Tensor:
        """The numbers in (0, 1) of tensors of one draw each, side by side in one row."""
        return _part(self._row_bits(keys, sizes, like), 40, like).to(like.dtype)

    def _bits(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """A hash of 64 bits for every entry, [draws, *shape]."""
        if draws != len(self.samples):
            raise ValueError(f"{key}: {draws} draws asked for, {len(self.samples)} samples keyed")
        seeds = [key_seed(self.seed, key, sample) for sample in self.samples]
        first = torch.tensor(seeds, device=like.device).reshape(-1, *(1,) * len(shape))
        index = torch.arange(math.prod(shape), device=like.device).reshape(tuple(shape))
        return _mixed(first + index * GOLDEN)

    def _row_bits(self, keys: Sequence[str], sizes: list[int], like: Tensor) -> Tensor:
        """The same of several tensors: number i of the row is number i - begin of its tensor."""
        (sample,) = self.samples
        seeds = [key_seed(self.seed, key, sample) for key in keys]
        begins = [0, *accumulate(sizes)][:-1]
        table = torch.tensor([seeds, begins, sizes], device=like.device)
        first = table[0] - table[1] * GOLDEN
        total = sum(sizes)
        index = torch.arange(total, device=like.device)
        return _mixed(first.repeat_interleave(table[2], output_size=total) + index * GOLDEN)


def _normal(bits: Tensor, like: Tensor) -> Tensor:
    """Of two halves of a hash by Box and Muller."""
    high, low = (_part(bits, at, like) for at in (40, 8))
    return high.log_().mul_(-2).sqrt_().mul_(low.mul_(2 * math.pi).cos_()).to(like.dtype)


def _part(bits: Tensor, at: int, like: Tensor) -> Tensor:
    """24 of the bits as a number in (0, 1), at least in float32."""
    wide = torch.promote_types(like.dtype, torch.float32)
    return (bits >> at).bitwise_and_(0xFFFFFF).to(wide).add_(0.5).div_(2**24)


def _mixed(bits: Tensor) -> Tensor:
    """The finaliser of splitmix64, on 64 bits that wrap around, in place."""
    for shift, factor in ((30, MIX_1), (27, MIX_2)):
        bits.bitwise_xor_(_shifted(bits, shift)).mul_(factor)
    return bits.bitwise_xor_(_shifted(bits, 31))


def _shifted(bits: Tensor, shift: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (bits >> shift).bitwise_and_((1 << (64 - shift)) - 1)


class RecordedNoise:
    """The numbers of another source, raw as it gives them, kept by key for a `FixedNoise`."""

    def __init__(self, source: NoiseSource) -> None:
        self.source = source
        self.values: dict[str, Tensor] = {}

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard normal numbers of the source."""
        self.values[key] = self.source.normal(key, draws, shape, like)
        return self.values[key]

    def uniform(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Numbers in [0, 1) of the source."""
        self.values[key] = self.source.uniform(key, draws, shape, like)
        return self.values[key]


class FixedNoise:
    """Raw numbers drawn before the graph was entered: the route of torch.compile."""

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
