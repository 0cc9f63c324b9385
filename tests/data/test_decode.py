import sys

import numpy as np
import pytest
import torch

from leanbayes.data.decode import Frame, decode, decode_images
from leanbayes.errors import ConfigError, DataError

Image = pytest.importorskip("PIL.Image")


def save(path, height=6, width=8, seed=0, mode="RGB"):
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def test_pixels_are_those_of_the_file(tmp_path):
    pixels = save(tmp_path / "a.png")
    found = decode(tmp_path / "a.png")
    assert found.dtype == torch.uint8
    assert np.array_equal(found.permute(1, 2, 0).numpy(), pixels)


def test_grey_and_colour_are_turned_into_each_other(tmp_path):
    grey = save(tmp_path / "grey.png", mode="L")
    colour = save(tmp_path / "colour.png")
    assert np.array_equal(decode(tmp_path / "grey.png").numpy(), np.stack([grey] * 3))
    luma = colour @ np.array([0.299, 0.587, 0.114])
    found = decode(tmp_path / "colour.png", channels=1)[0].numpy()
    assert np.abs(found - luma).max() <= 1


def test_sixteen_bits_keep_their_upper_byte_instead_of_being_clipped(tmp_path):
    values = np.array([[0, 255, 256], [1000, 40000, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert decode(tmp_path / "deep.png", channels=1)[0].tolist() == [[0, 0, 1], [3, 156, 255]]


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "p.png", transparency=bytes([0, 128]))
    assert decode(tmp_path / "p.png")[:, 0].T.tolist() == [[10, 20, 30], [40, 50, 60]]


@pytest.mark.parametrize(
    ("size", "resize", "source", "scaled"),
    [
        (224, 256, (500, 333), (384, 256)),  # the longer side is rounded down
        (224, 256, (333, 500), (256, 384)),
        (32, None, (32, 32), (32, 32)),
        (32, None, (65, 40), (52, 32)),
        ((10, 20), None, (30, 30), (20, 20)),
        ((10, 20), None, (60, 20), (30, 10)),
    ],
)
def test_scaling_keeps_the_shape_and_covers_the_piece(size, resize, source, scaled):
    assert Frame.of(size, resize).scaled(*source) == scaled


def test_every_piece_is_covered():
    for height in range(1, 40, 3):
        for width in range(1, 40, 3):
            for frame in (Frame.of(7), Frame.of((5, 9)), Frame.of((9, 5)), Frame.of(7, 9)):
                found = frame.scaled(width, height)
                assert found[0] >= frame.width
                assert found[1] >= frame.height


def test_the_piece_comes_from_the_middle(tmp_path):
    pixels = save(tmp_path / "a.png", height=8, width=14)
    found = decode(tmp_path / "a.png", Frame.of(4, 8)).permute(1, 2, 0).numpy()
    assert np.array_equal(found, pixels[2:6, 5:9])


def test_resizing_averages_over_what_it_drops(tmp_path):
    Image.fromarray(np.tile(np.uint8([0, 255]), (64, 32))).save(tmp_path / "stripes.png")
    found = decode(tmp_path / "stripes.png", Frame.of(8), channels=1).float()
    assert (found - 127.5).abs().max() <= 8


def test_what_cannot_be_read_is_listed_and_left_out(tmp_path):
    pixels = save(tmp_path / "a.png")
    save(tmp_path / "z.png", seed=1)
    (tmp_path / "cut.png").write_bytes((tmp_path / "a.png").read_bytes()[:80])
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "empty.jpg").write_bytes(b"")
    names = ["cut.png", "a.png", "text.png", "missing.png", "empty.jpg", "z.png"]
    x, good, bad = decode_images([tmp_path / name for name in names])
    assert [path.name for path in good] == ["a.png", "z.png"]
    assert [path.name for path, _ in bad] == ["cut.png", "text.png", "missing.png", "empty.jpg"]
    assert all(path.name in reason for path, reason in bad)
    assert np.array_equal(x[0].permute(1, 2, 0).numpy(), pixels)


def test_another_size_is_listed_unless_a_size_is_given(tmp_path):
    save(tmp_path / "a.png")
    save(tmp_path / "b.png", height=7)
    paths = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    x, _, bad = decode_images(paths)
    assert x.shape == (1, 3, 6, 8)
    assert "is 7x8, the first picture is 6x8; write size=6" in bad[0][1]
    x, good, bad = decode_images(paths, size=6)
    assert (x.shape, len(good), bad) == ((2, 3, 6, 6), 2, [])


def test_no_good_picture_gives_an_empty_tensor(tmp_path):
    x, good, bad = decode_images([tmp_path / "a.png"], size=5, channels=1)
    assert x.shape == (0, 1, 5, 5)
    assert x.dtype == torch.uint8
    assert (good, len(bad)) == ([], 1)


def test_settings_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="resize=8 needs a size"):
        Frame.of(None, 8)
    with pytest.raises(ConfigError, match="size=9 and resize=8"):
        Frame.of(9, 8)
    with pytest.raises(ConfigError, match="channels is 1"):
        decode(tmp_path / "a.png", channels=4)


def test_pixels_of_32_bits_are_refused(tmp_path):
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(DataError, match="32 bits"):
        decode(tmp_path / "f.tif")


def test_without_pillow_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match="pip install Pillow"):
        decode(tmp_path / "a.png")
