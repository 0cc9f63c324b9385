"""Noise has the moments of its law; weather and spatter are the sums they are said to be."""

import numpy as np
import pytest
import torch

from leanbayes.errors import ConfigError
from leanbayes.shifts import corrupt, mix_noise, rotate, salt_and_pepper
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.spatter import distance_to, edges, equalised
from leanbayes.shifts.strengths import CIFAR
from leanbayes.shifts.texture import ICE, clouds, ice
from leanbayes.shifts.weather import fog, frost, snow


def draws(rows=1, key="key"):
    return Draws(0, key, range(rows), torch.empty(0))


def flat(value, rows=16):
    return torch.full((rows, 3, 32, 32), value)


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("gaussian_noise", 0.04**2),
        ("shot_noise", 0.4 / 500),
        ("speckle_noise", (0.06 * 0.4) ** 2),
    ],
)
def test_noise_has_the_mean_and_variance_of_its_law(name, variance):
    noise = corrupt(flat(0.4), name, 1, quantize=False) - 0.4
    assert noise.mean().item() == pytest.approx(0, abs=5 * (variance / noise.numel()) ** 0.5)
    assert noise.var().item() == pytest.approx(variance, rel=0.03)


def test_impulses_are_black_and_white_in_equal_shares_and_the_rest_stays():
    result = corrupt(flat(0.4), "impulse_noise", 5, quantize=False)
    shares = [(result == value).float().mean().item() for value in (0.0, 1.0)]
    assert shares == pytest.approx([0.035, 0.035], rel=0.1)
    kept = (result == torch.tensor(0.4)).float().mean().item()
    assert kept + sum(shares) == pytest.approx(1, abs=1e-6)


def test_mixed_noise_is_the_share_of_one_noise():
    x = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    noise = mix_noise(x, 1.0, seed=4)
    torch.testing.assert_close(mix_noise(x, 0.25, seed=4), 0.75 * x + 0.25 * noise)
    assert torch.equal(mix_noise(x, 0.0), x)
    large = mix_noise(torch.zeros(4, 3, 64, 64), 1.0)
    assert large.mean().item() == pytest.approx(0, abs=0.02)
    assert large.std().item() == pytest.approx(1, abs=0.02)


def test_salt_and_pepper_strike_a_share_and_more_of_it_strikes_more_of_the_same():
    x = flat(0.3)
    few, many = salt_and_pepper(x, 0.1, seed=1), salt_and_pepper(x, 0.4, seed=1)
    for result, share in ((few, 0.1), (many, 0.4)):
        found = [(result == value).float().mean().item() for value in (0.0, 1.0)]
        assert found == pytest.approx([share / 2, share / 2], rel=0.05)
    struck = few != x
    assert torch.equal(few[struck], many[struck])
    assert torch.equal(salt_and_pepper(x[5:], 0.4, seed=1, first=5), many[5:])
    assert salt_and_pepper(x.half(), 0.4).dtype == torch.float16


@pytest.mark.parametrize("function", [mix_noise, salt_and_pepper])
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(function, share):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        function(torch.rand(1, 3, 8, 8), share)


def test_whole_numbers_get_no_noise():
    with pytest.raises(ConfigError, match="floating point"):
        mix_noise(torch.zeros(2, 3, dtype=torch.uint8), 0.5)


@pytest.mark.parametrize(
    ("quarters", "size"), [(1, (8, 8)), (2, (9, 9)), (3, (9, 9)), (-1, (8, 8)), (2, (6, 10))]
)
def test_quarter_turns_permute_pixels(quarters, size):
    x = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(rotate(x, 90.0 * quarters), x.rot90(quarters, (2, 3)))


def test_an_oblong_image_is_turned_without_a_stretch():
    x = torch.zeros(1, 1, 21, 41, dtype=torch.float64)
    x[0, 0, 10, 10:31] = 1  # a line of 21 along the middle row
    turned = rotate(x, 90)
    torch.testing.assert_close(turned[0, 0, :, 20], torch.ones(21, dtype=torch.float64))
    assert turned.sum().item() == pytest.approx(21)


def test_rotation_brings_in_the_background_and_asks_for_images():
    corner = rotate(torch.zeros(1, 1, 20, 20), 45, background=-0.4)[0, 0, 0, 0]
    assert corner.item() == pytest.approx(-0.4)
    with pytest.raises(ConfigError, match="B, C, H, W"):
        rotate(torch.zeros(20, 20), 45)


def test_clouds_are_midpoints_moved_by_noise_that_decays():
    size, decay = 8, 1.5
    noise = draws().uniform(size, size, low=-1.0, high=1.0)[0].double()
    field, bound, step = np.zeros((size, size)), 1.0, size
    while step >= 2:
        half, points = step // 2, []
        for y in range(0, size, step):
            points += [(y + half, x + half, 1, 1) for x in range(0, size, step)]
        sides = [(y, x + half) for y in range(0, size, step) for x in range(0, size, step)]
        sides += [(y + half, x) for y in range(0, size, step) for x in range(0, size, step)]
        for y, x, *_ in points:
            around = [(y - half, x - half), (y - half, x + half), (y + half, x - half)]
            around.append((y + half, x + half))
            values = [field[a % size, b % size] for a, b in around]
            field[y, x] = np.mean(values) + bound * noise[y, x]
        for y, x in sides:
            around = [(y - half, x), (y + half, x), (y, x - half), (y, x + half)]
            values = [field[a % size, b % size] for a, b in around]
            field[y, x] = np.mean(values) + bound * noise[y, x]
        step, bound = half, bound / decay**2
    expected = (field - field.min()) / (field.max() - field.min())
    np.testing.assert_allclose(clouds((size, size), decay, draws())[0, 0], expected, atol=1e-5)


def test_fog_is_a_weighted_sum_with_clouds_that_keeps_the_brightest_value(photos):
    images, (share, decay) = photos(2), CIFAR["fog"][3]
    brightest = images.amax((1, 2, 3), keepdim=True)
    layer = clouds((32, 32), decay, draws(2))
    expected = (images + share * layer) * brightest / (brightest + share)
    torch.testing.assert_close(fog(images, (share, decay), draws(2)), expected)
    assert layer.amin((1, 2, 3)).tolist() == [0, 0]
    assert layer.amax((1, 2, 3)).tolist() == [1, 1]


def test_frost_is_a_weighted_sum_with_ice_of_the_benchmarks_colours(photos):
    images = photos(2)
    expected = 0.9 * images + 0.4 * ice((32, 32), draws(2))
    torch.testing.assert_close(frost(images, (0.9, 0.4), draws(2)), expected)
    many = ice((64, 64), draws(200))
    found = many.mean((0, 2, 3)) * 255
    wanted = torch.tensor(ICE, dtype=torch.float32)[:, :3].mean(0)
    torch.testing.assert_close(found, wanted, rtol=0.06, atol=0)


def test_flakes_fall_twice_the_second_time_upside_down(photos):
    images, strength = photos(1), CIFAR["snow"][2]
    keep = strength[-1]
    luma = (images * torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)).sum(1, keepdim=True)
    whitened = keep * images + (1 - keep) * torch.maximum(images, 1.5 * luma + 0.5)
    flakes = snow(images, strength, draws()) - whitened
    torch.testing.assert_close(flakes, flakes.flip(2, 3), rtol=0, atol=1e-5)
    assert flakes.min() > -1e-5
    assert flakes.max() > 0.1


def shortest_ways(marks):
    """Relaxation over single steps, until nothing gets shorter."""
    steps = {(1, 0): 1.0, (0, 1): 1.0, (1, 1): 1.4, (2, 1): 2.1969, (1, 2): 2.1969}
    moves = [(a * y, b * x, w) for (y, x), w in steps.items() for a in (1, -1) for b in (1, -1)]
    height, width = marks.shape
    found, before = np.where(marks, 0.0, 1e3), None
    while before is None or (found < before).any():
        before = found.copy()
        wide = np.pad(found, 2, constant_values=1e3)
        for y, x, weight in moves:
            there = wide[2 + y : 2 + y + height, 2 + x : 2 + x + width]
            found = np.minimum(found, there + weight)
    return found


def test_the_distance_to_marks_is_the_shortest_way_of_single_steps_up_to_20():
    marks = torch.rand(3, 1, 40, 50, generator=torch.Generator().manual_seed(2)) < 0.005
    for ours, row in zip(distance_to(marks).clamp_max(20), marks, strict=True):
        expected = shortest_ways(row[0].numpy()).clip(max=20)
        np.testing.assert_allclose(ours[0].numpy(), expected, atol=1e-5)
    assert (distance_to(torch.zeros(1, 1, 9, 9, dtype=torch.bool)) >= 20).all()


def test_the_edges_of_a_square_are_a_closed_thin_line():
    levels = torch.zeros(1, 1, 24, 24)
    levels[..., 8:16, 8:16] = 200
    found = edges(levels)[0, 0]
    assert found[8:16, 7:9].any(1).all()  # every row of the left side, once
    assert found[10:14].sum(1).tolist() == [2, 2, 2, 2]
    assert found[:, 10:14].sum(0).tolist() == [2, 2, 2, 2]
    assert not found[10:14, 10:14].any()
    faint = edges(torch.where(levels > 0, 20.0, 0.0))
    assert not faint.any()


def test_equalised_levels_are_shares_of_the_pixels_above_the_least():
    levels = torch.tensor([[3.0, 3, 3, 5], [5, 9, 9, 9]]).reshape(1, 1, 2, 4)
    above = 5  # two of 5, three of 9
    expected = [0, 0, 0, round(255 * 2 / above), round(255 * 2 / above), 255, 255, 255]
    assert equalised(levels).flatten().tolist() == expected
    one = torch.full((1, 1, 2, 2), 7.0)
    assert torch.equal(equalised(one), one)


@pytest.mark.parametrize(("severity", "colour"), [(3, (175, 238, 238)), (5, (63, 42, 20))])
def test_spatter_is_water_that_lightens_or_mud_that_covers(severity, colour):
    result = corrupt(flat(0.5 if severity == 5 else 0.0), "spatter", severity, quantize=False)
    changed = result[:, 0] != result[0, 0].mode().values.mode().values
    share = changed.float().mean().item()
    assert 0.005 < share < 0.5
    values = torch.stack([result[:, c][changed] for c in range(3)])
    tint = torch.tensor(colour) / 255
    if severity == 3:  # a multiple of the colour, on black
        torch.testing.assert_close(values * tint[0], values[:1] * tint[:, None], rtol=0, atol=1e-5)
    else:  # between the pixel and the colour, at least 4/5 of the way
        way = (0.5 - values) / (0.5 - tint[:, None])
        assert way.min() >= 0.8 - 1e-5
        assert way.max() <= 1 + 1e-5
