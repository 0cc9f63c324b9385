"""Noise that is the same on every device: its law, and its very numbers."""

import pytest
import torch

from leanbayes.noise import KeyedNoise, PortableNoise, key_seed

LIKE = torch.zeros((), dtype=torch.float64)
WORD = 2**64


def splitmix(state):
    """The reference, on Python's integers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % WORD
    return state ^ (state >> 31)


def test_numbers_are_halves_of_a_hash_of_key_and_place():
    found = PortableNoise(3, [7, 2]).uniform("a", 2, (2, 5), LIKE)
    for row, sample in zip(found, (7, 2), strict=True):
        first = key_seed(3, "a", sample)
        for at, value in enumerate(row.flatten().tolist()):
            bits = splitmix((first + at * 0x9E3779B97F4A7C15) % WORD)
            assert value == ((bits >> 40) + 0.5) / 2**24


def test_a_key_means_the_same_numbers_in_every_version():
    """Whoever writes a seed down, or saves fixed draws, writes no numbers down."""
    assert key_seed(0, "layer.weight", 3) == 6232977385557633294
    assert KeyedNoise(7, [0]).number("layer#index", 0) == 13093375 / 2**24
    found = PortableNoise(0, [3]).uniform("layer.weight", 1, (3,), LIKE)
    assert (found * 2**24).flatten().tolist() == [13189678.5, 2057773.5, 9540495.5]


def test_the_law_is_normal():
    z = PortableNoise(0, [0]).normal("w", 1, (400_000,), LIKE)[0]
    assert abs(float(z.mean())) < 4 / 400_000**0.5
    for power, moment, spread in ((2, 1, 2), (3, 0, 15), (4, 3, 96)):
        error = float((z**power).mean()) - moment
        assert abs(error) < 4 * (spread / 400_000) ** 0.5
    quantiles = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    expected = torch.special.ndtri(quantiles)
    assert (torch.quantile(z, quantiles) - expected).abs().max() < 0.03


def test_draws_tensors_and_places_are_independent():
    source, size = PortableNoise(0, range(4)), 100_000
    rows = [*source.normal("a", 4, (size,), LIKE), *source.normal("b", 4, (size,), LIKE)]
    rows += [rows[0].roll(1), rows[0].roll(64)]
    correlation = torch.corrcoef(torch.stack(rows)) - torch.eye(len(rows), dtype=LIKE.dtype)
    assert correlation.abs().max() < 5 / size**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_types_have_the_same_numbers_rounded(dtype):
    source = PortableNoise(1, [0])
    exact = source.normal("w", 1, (1000,), LIKE)
    found = source.normal("w", 1, (1000,), LIKE.to(dtype))
    assert found.dtype == dtype
    room = 1e-5 if dtype == torch.float32 else 0.01
    torch.testing.assert_close(found.double(), exact, rtol=room, atol=room)
    assert bool(found.isfinite().all())


def test_draws_do_not_depend_on_those_beside_them():
    one = PortableNoise(0, [3]).normal("w", 1, (7,), LIKE)
    assert torch.equal(PortableNoise(0, [5, 3]).normal("w", 2, (7,), LIKE)[1:], one)
    assert PortableNoise(0, [3]).normal("w", 1, (), LIKE).shape == (1,)
    with pytest.raises(ValueError, match="2 draws asked for, 1 samples keyed"):
        PortableNoise(0, [3]).normal("w", 2, (7,), LIKE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_of_tensors_has_the_numbers_of_each(dtype):
    source, like = PortableNoise(5, [3]), LIKE.to(dtype)
    keys, sizes = ["a", "b", "c"], [7, 1, 300]
    for row, alone in ((source.normal_row, source.normal), (source.uniform_row, source.uniform)):
        found = torch.split(row(keys, sizes, like), sizes)
        for key, size, part in zip(keys, sizes, found, strict=True):
            assert torch.equal(part, alone(key, 1, (size,), like)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_has_the_same_numbers():
    found = [PortableNoise(0, [3]).normal("w", 1, (999,), LIKE.to(d)) for d in ("cpu", "cuda")]
    torch.testing.assert_close(found[0], found[1].cpu(), rtol=1e-9, atol=1e-9)
