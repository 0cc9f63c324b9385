"""Blur, JPEG and OOD inputs against explicit sums, scipy, and a real codec where there is one."""

import io
import math

import pytest
import torch

import leanbayes as lb
from leanbayes.degrade import blur, degraded
from leanbayes.jpeg import _tables, block_dct, block_idct, dct_matrix, jpeg

F64 = torch.float64


def photo(rows=2, channels=3, height=20, width=27):
    """Smooth waves with a little noise: closer to a photograph than white noise is."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    phase = torch.rand(rows, channels, 1, 1) * 6
    waves = 0.5 + 0.3 * torch.sin(0.4 * x + phase) * torch.cos(0.3 * y + phase)
    return (waves + 0.05 * torch.randn(rows, channels, height, width)).clamp(0, 1)


def test_the_cosine_matrix_is_orthonormal_and_is_the_textbook_sum():
    matrix = dct_matrix(torch.empty((), dtype=F64))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(8, dtype=F64), rtol=0, atol=1e-14)
    for k in range(8):
        norm = math.sqrt((1 if k == 0 else 2) / 8)
        for n in range(8):
            value = norm * math.cos(math.pi * (2 * n + 1) * k / 16)
            assert matrix[k, n].item() == pytest.approx(value, abs=1e-15)


def test_blocks_are_transformed_as_scipy_does():
    fft = pytest.importorskip("scipy.fft")
    planes = torch.randn(2, 3, 16, 24, dtype=F64)
    blocks = block_dct(planes)
    for i, j in ((0, 0), (1, 2)):
        tile = planes[1, 2, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8].numpy()
        expected = torch.from_numpy(fft.dctn(tile, norm="ortho"))
        torch.testing.assert_close(blocks[1, 2, i, j], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(block_idct(blocks), planes, rtol=0, atol=1e-12)


def test_quality_100_is_nearly_the_image_and_the_error_grows_as_quality_falls():
    images = photo()
    errors = [
        (jpeg(images, torch.full((2,), q)) - images).square().mean().sqrt().item()
        for q in (100.0, 90.0, 50.0, 20.0, 5.0)
    ]
    assert errors[0] < 1.5 / 255
    assert errors == sorted(errors)
    assert errors[-1] > 10 * errors[0]


def test_every_image_has_the_quality_it_was_given():
    images = photo()
    both = jpeg(images, torch.tensor([95.0, 10.0]))
    assert torch.equal(both[:1], jpeg(images[:1], torch.tensor([95.0])))
    assert torch.equal(both[1:], jpeg(images[1:], torch.tensor([10.0])))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [30, 75, 95])
@pytest.mark.parametrize("subsample", [False, True])
def test_jpeg_agrees_with_a_real_codec(quality, channels, subsample):
    image = pytest.importorskip("PIL.Image")
    pixels = (photo(1, channels) * 255).round()
    array = pixels[0].permute(1, 2, 0).byte().numpy()
    file = io.BytesIO()
    source = image.fromarray(array if channels == 3 else array[:, :, 0])
    source.save(file, "JPEG", quality=quality, subsampling=2 if subsample else 0)
    codec = image.open(file)
    for plane, table in codec.quantization.items():
        ours = _tables(torch.tensor([float(quality)]), channels)[0, plane]
        assert ours.flatten().tolist() == list(table)
    decoded = torch.tensor(list(codec.tobytes()), dtype=torch.float32)
    decoded = decoded.reshape(20, 27, channels).permute(2, 0, 1)
    ours = jpeg(pixels / 255, torch.tensor([float(quality)]), subsample)[0] * 255
    # Its integer transform now and then rounds a coefficient the other way.
    assert (ours - decoded).abs().mean() < 1.5
    assert (ours - pixels[0]).square().mean() == pytest.approx(
        (decoded - pixels[0]).square().mean().item(), rel=0.02, abs=1.0
    )


def test_blur_is_the_explicit_gaussian_sum():
    images = torch.rand(2, 3, 9, 11)
    sigma = torch.tensor([0.7, 1.6])
    result = blur(images, sigma)
    radius = 5  # ceil(3 * 1.6)
    for b, c, y, x in ((0, 0, 4, 5), (1, 2, 0, 0), (1, 1, 8, 3)):
        total = weight = 0.0
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                w = math.exp(-(dx * dx + dy * dy) / (2 * sigma[b].item() ** 2))
                at = images[b, c, min(max(y + dy, 0), 8), min(max(x + dx, 0), 10)].item()
                total, weight = total + w * at, weight + w
        assert result[b, c, y, x].item() == pytest.approx(total / weight, abs=1e-5)


def test_blur_keeps_constants_and_sigma_zero_keeps_everything():
    images = torch.rand(2, 1, 6, 6)
    assert torch.equal(blur(images, torch.zeros(2)), images)
    flat = torch.full((2, 3, 7, 7), 0.25)
    torch.testing.assert_close(blur(flat, torch.tensor([0.5, 3.0])), flat)


def test_degraded_images_stay_pixels_and_repeat_with_the_seed():
    images = photo(4)
    torch.manual_seed(5)
    first = degraded(images)
    torch.manual_seed(5)
    assert torch.equal(first, degraded(images))
    assert first.min() >= 0
    assert first.max() <= 1
    distances = (first - images).square().flatten(1).mean(1)
    assert (distances > 1e-5).all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(5)
        assert torch.equal(first, degraded(images))


MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def normalised(pixels):
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (MEAN, STD))
    return (pixels - mean) / std


def pixels_of(x):
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (MEAN, STD))
    return x * std + mean


def test_noise_is_uniform_within_eps_and_clamped_in_pixel_space():
    pixels = torch.full((64, 3, 8, 8), 0.5)
    pixels[:, :, 0] = 1.0
    result = pixels_of(lb.ood_inputs(normalised(pixels), eps=0.1, mean=MEAN, std=STD))
    inner = (result - pixels)[:, :, 1:]
    assert inner.abs().max() <= 0.1 + 1e-6
    assert inner.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.03)
    edge = result[:, :, 0]
    assert edge.max() <= 1 + 1e-6
    # Half of the noise at a white pixel is clamped away.
    assert (edge > 1 - 1e-6).float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_half_of_the_rows_are_the_users_images_degraded():
    """Black training images and white OOD images, which neither blur nor JPEG changes."""
    x, images = torch.zeros(6, 3, 16, 16), torch.ones(2, 3, 16, 16)
    result = pixels_of(lb.ood_inputs(normalised(x), 0.02, normalised(images), mean=MEAN, std=STD))
    assert result.shape == x.shape
    assert result[:3].max() <= 0.02 + 1e-5
    torch.testing.assert_close(result[3:], torch.ones(3, 3, 16, 16), rtol=0, atol=2e-3)
    assert lb.ood_inputs(torch.rand(5, 3, 8, 8), images=torch.rand(9, 3, 8, 8)).shape[0] == 5


def test_half_precision_comes_back_as_it_went_in():
    x = torch.rand(4, 3, 8, 8).bfloat16()
    assert lb.ood_inputs(x, images=x).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lb.ood_inputs(torch.randn(4, 3, 8, 8)), r"lb\.ood_inputs\(x, mean="),
        (lambda: lb.ood_inputs(torch.rand(4, 3), eps=0.0), "eps must be a positive number"),
        (lambda: lb.ood_inputs(torch.rand(4, 3), std=0.0), "std must be positive"),
        (lambda: lb.ood_inputs(torch.rand(4, 3, 8, 8), mean=(0.1, 0.2)), "each of the channels"),
        (
            lambda: lb.ood_inputs(torch.rand(4, 3, 8, 8), images=torch.rand(2, 3, 9, 8)),
            "OOD images of the shape of the training images",
        ),
        (lambda: jpeg(torch.rand(1, 2, 8, 8), torch.ones(1)), "1 or 3 channels"),
        (lambda: jpeg(torch.rand(1, 3, 8, 8), torch.zeros(1)), "between 1 and 100"),
        (lambda: blur(torch.rand(1, 3, 8, 8), torch.tensor([-1.0])), "sigma must be finite"),
        (lambda: degraded(torch.rand(1, 3, 8, 8), sigma=(2.0, 1.0)), "low <= high"),
    ],
)
def test_bad_images_are_refused(make, words):
    with pytest.raises(lb.ConfigError, match=words):
        make()
