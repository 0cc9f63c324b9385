"""Corruptions against scipy, Pillow, colorsys and loops written from the definition."""

import colorsys
import io
import math

import numpy as np
import pytest
import torch

from leanbayes.shifts import corrupt
from leanbayes.shifts.blurs import disc, scattered
from leanbayes.shifts.digital import _affine, _sampled, mirrored_smoothing
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.geometry import streaked
from leanbayes.shifts.strengths import CIFAR, IMAGENET

ndimage = pytest.importorskip("scipy.ndimage")
SEVERITIES = (1, 3, 5)


def by_hsv(images, change):
    result = torch.empty_like(images)
    for b, y, x in np.ndindex(images.shape[0], *images.shape[2:]):
        hsv = colorsys.rgb_to_hsv(*images[b, :, y, x].tolist())
        result[b, :, y, x] = torch.tensor(colorsys.hsv_to_rgb(*change(*hsv)))
    return result


def hsv_cases(photos):
    images = photos(2, 3, 12, 12)
    images[0, :, 0], images[0, :, 1], images[0, 0, 2] = 0, 1, 0  # black, white, without red
    images[1, :, 0] = images[1, :1, 0]  # grey
    return images


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_is_more_value_in_hsv(severity, photos):
    images, (more,) = hsv_cases(photos), CIFAR["brightness"][severity - 1]
    expected = by_hsv(images, lambda h, s, v: (h, s, min(v + more, 1)))
    ours = corrupt(images, "brightness", severity, quantize=False)
    torch.testing.assert_close(ours, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_saturate_is_saturation_in_hsv(severity, photos):
    images, (factor, more) = hsv_cases(photos), CIFAR["saturate"][severity - 1]
    expected = by_hsv(images, lambda h, s, v: (h, min(s * factor + more, 1), v))
    ours = corrupt(images, "saturate", severity, quantize=False)
    torch.testing.assert_close(ours, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_shrinks_around_the_mean_of_a_channel(severity, photos):
    images = photos()
    x = images.double().numpy()
    means = x.mean((2, 3), keepdims=True)
    expected = (x - means) * CIFAR["contrast"][severity - 1][0] + means
    ours = corrupt(images, "contrast", severity, quantize=False)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=0, atol=1e-6)


def arrays(images):
    return (images * 255).round().byte().permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("size", [32, 61, 96])
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_pixelate_is_pillows_box_filter_twice(size, severity, photos):
    image = pytest.importorskip("PIL.Image")
    images = photos(1, 3, size, size)
    (share,) = (CIFAR if size == 32 else IMAGENET)["pixelate"][severity - 1]
    small = image.fromarray(arrays(images)[0]).resize((int(size * share),) * 2, image.BOX)
    expected = np.asarray(small.resize((size, size), image.BOX))
    assert np.array_equal(arrays(corrupt(images, "pixelate", severity))[0], expected)


@pytest.mark.parametrize("size", [32, 96])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_is_pillows_file(size, severity, photos):
    image = pytest.importorskip("PIL.Image")
    images = photos(1, 3, size, size)
    (quality,) = (CIFAR if size == 32 else IMAGENET)["jpeg_compression"][severity - 1]
    file = io.BytesIO()
    image.fromarray(arrays(images)[0]).save(file, "JPEG", quality=quality)
    expected = np.asarray(image.open(file)).astype(float)
    ours = arrays(corrupt(images, "jpeg_compression", severity))[0].astype(float)
    assert np.abs(ours - expected).mean() < 0.75
    clean = arrays(images)[0].astype(float)
    changes = [np.square(x - clean).mean() for x in (ours, expected)]
    assert changes[0] == pytest.approx(changes[1], rel=0.02)


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_is_scipys(size, severity, photos):
    images = photos(2, 3, size, size)
    (sigma,) = (CIFAR if size == 32 else IMAGENET)["gaussian_blur"][severity - 1]
    sigmas = (0, 0, sigma, sigma)
    expected = ndimage.gaussian_filter(images.numpy(), sigmas, mode="nearest", truncate=4)
    ours = corrupt(images, "gaussian_blur", severity, quantize=False)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=0, atol=3e-4)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_defocus_is_a_smoothed_disc_with_mirrored_edges(severity, photos):
    images = photos(1, 3, 40, 48)
    radius, alias = IMAGENET["defocus_blur"][severity - 1]
    side = 1 if radius <= 8 else 2
    places = np.arange(-max(8, radius), max(8, radius) + 1)
    full = (places[:, None] ** 2 + places**2 <= radius**2) * 1.0
    line = np.exp(-0.5 * (np.arange(-side, side + 1) / alias) ** 2)
    small = np.outer(line, line) / line.sum() ** 2
    kernel = ndimage.correlate(full / full.sum(), small, mode="mirror")
    expected = ndimage.correlate(images[0].double().numpy(), kernel[None], mode="mirror")
    ours = corrupt(images, "defocus_blur", severity, quantize=False)[0]
    np.testing.assert_allclose(ours.numpy(), expected.clip(0, 1), rtol=0, atol=1e-5)


def test_the_disc_of_a_small_radius_is_its_smoothing_alone():
    line = np.exp(-0.5 * (np.arange(-1, 2) / 0.4) ** 2)
    expected = np.outer(line, line) / line.sum() ** 2
    np.testing.assert_allclose(disc(0.3, 0.4).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_is_the_mean_of_scipys_zooms(severity, photos):
    size = 64
    images = photos(1, 3, size, size)
    count, step = IMAGENET["zoom_blur"][severity - 1]
    x = images[0].permute(1, 2, 0).numpy()
    total = x.copy()
    for k in range(int(count)):
        factor = 1 + k * step
        crop = math.ceil(size / factor)
        at = (size - crop) // 2
        large = ndimage.zoom(x[at : at + crop, at : at + crop], (factor, factor, 1), order=1)
        trim = (large.shape[0] - size) // 2
        total += large[trim : trim + size, trim : trim + size]
    ours = corrupt(images, "zoom_blur", severity, quantize=False)[0].permute(1, 2, 0)
    np.testing.assert_allclose(ours.numpy(), total / (count + 1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_scattered_pixels_are_those_of_the_loop(reach):
    generator = torch.Generator().manual_seed(reach)
    images = torch.rand(3, 2, 13, 17, generator=generator)
    offsets = torch.randint(-reach, reach, (3, 2, 13, 17), generator=generator)
    expected = images.clone()
    for b in range(3):
        for y in range(13 - reach, reach, -1):
            for x in range(17 - reach, reach, -1):
                dy, dx = offsets[b, :, y, x].tolist()
                expected[b, :, y, x] = expected[b, :, y + dy, x + dx]
    assert torch.equal(scattered(images, reach, offsets), expected)


@pytest.mark.parametrize("angle", [0.0, -45.0, 30.0, 100.0])
def test_a_streak_is_the_explicit_sum(angle):
    images = torch.rand(1, 1, 9, 11, generator=torch.Generator().manual_seed(3))
    ours = streaked(images, 3, 2.0, [angle])
    weights = np.exp(-0.5 * (np.arange(7) / 2.0) ** 2)
    for y, x in ((0, 0), (4, 5), (8, 10), (2, 9)):
        total = 0.0
        for i, weight in enumerate(weights):
            down = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
            right = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
            at = images[0, 0, min(max(y + down, 0), 8), min(max(x + right, 0), 10)]
            total += weight * at.item()
        assert ours[0, 0, y, x].item() == pytest.approx(total / weights.sum(), abs=1e-6)


@pytest.mark.parametrize("sigma", [0.4, 3.0, 40.0])
def test_mirrored_smoothing_is_scipys_reflect(sigma):
    values = np.random.default_rng(0).uniform(-1, 1, (24, 5))
    expected = ndimage.gaussian_filter1d(values, sigma, 0, mode="reflect", truncate=3)
    np.testing.assert_allclose(mirrored_smoothing(24, sigma).numpy() @ values, expected, atol=1e-12)


@pytest.mark.parametrize(("between", "mode"), [(True, "reflect"), (False, "mirror")])
def test_sampling_off_the_grid_is_scipys(between, mode):
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(1, 1, 12, 15, generator=generator, dtype=torch.float64)
    y = 20 * torch.rand(1, 12, 15, generator=generator, dtype=torch.float64) - 4
    x = 22 * torch.rand(1, 12, 15, generator=generator, dtype=torch.float64) - 4
    expected = ndimage.map_coordinates(images[0, 0].numpy(), [y[0], x[0]], order=1, mode=mode)
    ours = _sampled(images, y, x, mirror_between=between)
    np.testing.assert_allclose(ours[0, 0].numpy(), expected, atol=1e-12)


def test_the_affine_map_takes_three_points_to_where_they_were_moved(photos):
    images = photos(1, 1, 32, 32).double()
    ours = _affine(images, 2.0, Draws(0, "key", [4], images[:0]))[0, 0]
    again = Draws(0, "key", [4], images[:0])
    moves = np.array([again.numbers(-2.0, 2.0)[0] for _ in range(6)]).reshape(3, 2)
    before = np.array([[26.0, 26.0], [6.0, 26.0], [6.0, 6.0]])  # x, y: 10 about the middle (16, 16)
    back = np.linalg.solve(np.c_[before + moves, np.ones(3)], before)  # rows x, y, 1
    matrix = back[:2].T[::-1, ::-1]  # to rows and columns
    expected = ndimage.affine_transform(
        images[0, 0].numpy(), matrix, back[2][::-1], order=1, mode="mirror"
    )
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-6)
