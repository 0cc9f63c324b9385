import re

import pytest
import torch

from leanbayes.data.augment import Chain, Crop, Cutout, Flip, augment_named
from leanbayes.data.dataset import Normalize
from leanbayes.errors import ConfigError, DataError

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def ramp(rows=1, channels=2, height=5, width=7, device="cpu"):
    """Images whose pixels are all different and above 0."""
    total = rows * channels * height * width
    return torch.arange(1.0, total + 1, device=device).view(rows, channels, height, width)


def shifts(x, padding, fill):
    """Every crop of one image [C, H, W], by slicing."""
    height, width = x.shape[1:]
    wide = torch.tensor(fill).view(-1, 1, 1).repeat(1, height + 2 * padding, width + 2 * padding)
    wide[:, padding : padding + height, padding : padding + width] = x
    return [
        wide[:, down : down + height, right : right + width]
        for down in range(2 * padding + 1)
        for right in range(2 * padding + 1)
    ]


def chi_square(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("device", DEVICES)
def test_crops_are_uniform_over_all_shifts(device):
    x = ramp(device=device)
    found = Crop(padding=1, fill=(-1.0, -2.0))(x.expand(9000, -1, -1, -1)).cpu()
    every = torch.stack(shifts(x[0].cpu(), 1, (-1.0, -2.0)))
    matches = (found[:, None] == every).flatten(2).all(2)
    assert matches.sum(1).eq(1).all()  # every row is exactly one of the nine
    assert chi_square(matches.sum(0), torch.tensor(1000.0)) < 26.1  # 0.999 of chi2 with 8


@pytest.mark.parametrize("device", DEVICES)
def test_flips_mirror_the_wanted_share_of_rows(device):
    x = ramp(device=device).expand(8000, -1, -1, -1)
    found = Flip(rate=0.25)(x)
    mirrored = (found == x.flip(3)).flatten(1).all(1)
    assert ((found == x).flatten(1).all(1) ^ mirrored).all()
    assert int(mirrored.sum()) == pytest.approx(2000, abs=4 * (8000 * 0.25 * 0.75) ** 0.5)


def test_flips_at_rate_zero_and_one_are_certain():
    x = ramp(rows=50)
    assert torch.equal(Flip(rate=0.0)(x), x)
    assert torch.equal(Flip(rate=1.0)(x), x.flip(3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_cutouts_cover_a_clipped_square_around_a_uniform_pixel(device, size):
    height, width = 4, 5
    rows = 20 * 500
    x = torch.ones(rows, 2, height, width, device=device)
    found = Cutout(size=size, fill=-7.0)(x).cpu()
    covered = found == -7.0
    assert torch.equal(covered, found != 1)
    assert torch.equal(covered[:, 0], covered[:, 1])  # the same in all channels
    every = []
    for down in range(height):
        for right in range(width):
            mask = torch.zeros(height, width, dtype=torch.bool)
            top, left = down - size // 2, right - size // 2
            mask[max(top, 0) : top + size, max(left, 0) : left + size] = True
            every.append(mask)
    shapes, kinds = torch.stack(every).unique(dim=0, return_inverse=True)
    matches = (covered[:, 0][:, None] == shapes).flatten(2).all(2)
    assert matches.sum(1).eq(1).all()
    expected = 500.0 * torch.bincount(kinds, minlength=len(shapes))
    assert chi_square(matches.sum(0), expected) < 43.8  # 0.999 of chi2 with 19


def test_rows_differ_and_the_seed_decides():
    x = ramp().expand(64, -1, -1, -1)
    chain = Chain([Crop(padding=2), Flip(), Cutout(size=2)])
    torch.manual_seed(3)
    first = chain(x)
    second = chain(x)
    torch.manual_seed(3)
    assert torch.equal(chain(x), first)
    assert not torch.equal(second, first)
    assert len(first.unique(dim=0)) > 40


def test_inputs_are_not_written_to():
    x = ramp(rows=8)
    kept = x.clone()
    augment_named("crop+flip+cutout", size=2)(x)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float64])
def test_type_shape_and_gradients_are_kept(dtype):
    x = torch.ones(4, 3, 8, 8, dtype=dtype)
    found = augment_named("crop+flip+cutout")(x)
    assert found.dtype == dtype
    assert found.shape == x.shape
    if dtype == torch.float64:
        x.requires_grad_()
        found = Crop(padding=1)(x)
        found.sum().backward()
        assert float(x.grad.sum()) == float(found.detach().sum())


def test_names_pad_with_black_and_cut_out_the_mean():
    scale = Normalize((0.5, 0.25), (0.25, 0.5))
    crop, cutout = augment_named("crop + cutout", normalize=scale, padding=3, size=5).steps
    assert crop == Crop(padding=3, fill=(-2.0, -0.5))
    assert cutout == Cutout(size=5, fill=0.0)
    black = scale(torch.zeros(1, 2, 4, 4))
    assert torch.equal(crop(black.expand(20, -1, -1, -1)), black.expand(20, -1, -1, -1))


def test_none_changes_nothing():
    x = ramp()
    assert augment_named("none")(x) is x
    assert augment_named("")(x) is x


def test_wrong_names_and_numbers_are_refused():
    with pytest.raises(ConfigError, match=r"crop, flip, cutout, joined by .* found 'mixup'"):
        augment_named("crop+mixup")
    for wrong in (lambda: Crop(padding=-1), lambda: Flip(rate=1.5), lambda: Cutout(size=0)):
        with pytest.raises(ConfigError, match="found"):
            wrong()
    with pytest.raises(ConfigError, match="fill has 2 values, the images have 3"):
        Crop(fill=(0.0, 1.0))(torch.zeros(1, 3, 4, 4))
    with pytest.raises(DataError, match=r"images \[N, C, H, W\], found \(4, 3\)"):
        Flip()(torch.zeros(4, 3))
    with pytest.raises(DataError, match="found dict"):
        Flip()({"x": torch.zeros(1)})


def test_pixels_stand_after_a_colon():
    crop, flip, cutout = augment_named("crop:3 + flip+cutout:16", padding=1, size=2).steps
    assert (crop, flip, cutout) == (Crop(padding=3), Flip(), Cutout(size=16))
    assert augment_named("cutout").steps == (Cutout(size=8),)


@pytest.mark.parametrize("words", ["cutout:", "cutout:x", "cutout:-4", "flip:2", "crop:4:5"])
def test_pixels_that_are_none_are_refused(words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        augment_named(f"crop+{words}")
