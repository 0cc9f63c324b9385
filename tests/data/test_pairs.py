import numpy as np
import pytest
import torch

from leanbayes.data.pairs import lfw_pairs, pairs_from_labels, read_pairs
from leanbayes.errors import ConfigError, DataError

image = pytest.importorskip("PIL.Image")
PEOPLE = {"Ann_Lee": 3, "Bo": 2}
LINES = "1\t2\nAnn_Lee\t1\t3\nBo\t1\t2\nAnn_Lee\t2\tBo\t1\nBo\t2\tAnn_Lee\t3\n"


def shade(name, number):
    return 40 * number + (5 if name == "Bo" else 0)


@pytest.fixture
def root(tmp_path):
    for name, count in PEOPLE.items():
        (tmp_path / name).mkdir()
        for number in range(1, count + 1):
            pixels = np.full((10, 10, 3), shade(name, number), np.uint8)
            image.fromarray(pixels).save(tmp_path / name / f"{name}_{number:04d}.png")
    (tmp_path / "pairs.txt").write_text(LINES)
    return tmp_path


def shades(data, rows):
    pixels = data.normalize.undo(data.extra["pairs"].images) * 255
    return pixels[rows].mean((1, 2, 3)).round().long().tolist()


def test_pairs_point_to_the_images_of_their_lines(root):
    data = lfw_pairs(root=str(root), size=4)
    pairs = data.extra["pairs"]
    firsts = [("Ann_Lee", 1), ("Bo", 1), ("Ann_Lee", 2), ("Bo", 2)]
    seconds = [("Ann_Lee", 3), ("Bo", 2), ("Bo", 1), ("Ann_Lee", 3)]
    assert shades(data, pairs.first) == [shade(*name) for name in firsts]
    assert shades(data, pairs.second) == [shade(*name) for name in seconds]
    assert pairs.same.tolist() == [True, True, False, False]


def test_an_image_of_several_pairs_is_read_once(root):
    pairs = lfw_pairs(root=str(root), size=4).extra["pairs"]
    assert pairs.images.shape == (5, 3, 4, 4)
    assert pairs.files[0] == "Ann_Lee/Ann_Lee_0001.png"


def test_the_list_may_lie_elsewhere_and_pixels_are_scaled_as_told(root, tmp_path_factory):
    other = tmp_path_factory.mktemp("lists") / "mine.txt"
    other.write_text("1\nAnn_Lee 1 2\nAnn_Lee 1 Bo 2\n")
    data = lfw_pairs(root=str(root), pairs=str(other), size=(4, 4), channels=1, mean=0.0, std=1.0)
    pixels = data.extra["pairs"].images
    assert pixels.shape == (3, 1, 4, 4)
    assert pixels[0].mean().item() == pytest.approx(40 / 255)


def test_a_missing_or_unreadable_image_is_named(root):
    (root / "Bo" / "Bo_0002.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"1 images.*Bo_0002\.png"):
        lfw_pairs(root=str(root), size=4)
    (root / "Bo" / "Bo_0002.png").unlink()
    with pytest.raises(DataError, match=r"Bo_0002\.jpg is missing"):
        lfw_pairs(root=str(root), size=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the number of folds"),
        ("ten\nBo 1 2\n", "expected the number of folds"),
        ("1 2\nBo 1 2\n", "has 1 pairs; its first line announces 4"),
        ("1\nBo 1\nBo 1 2\n", "line 2: 'Bo 1'; expected 'name n1 n2'"),
        ("1\nBo 1 2\nBo one Ann 2\n", "line 3: 'Bo one Ann 2'"),
    ],
)
def test_a_list_of_another_form_is_refused(tmp_path, text, message):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path / "pairs.txt")


def test_a_list_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a file"):
        lfw_pairs(root=str(tmp_path))
    (tmp_path / "pairs.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a text file"):
        lfw_pairs(root=str(tmp_path))


def test_pairs_from_labels_are_distinct_and_half_of_each_kind():
    labels = torch.randint(0, 7, (200,))
    pairs = pairs_from_labels(labels, 1001, seed=4)
    assert torch.equal(labels[pairs.first] == labels[pairs.second], pairs.same)
    assert int(pairs.same.sum()) == 501
    assert bool((pairs.first < pairs.second).all())
    assert len(set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))) == 1001


def test_pairs_from_labels_can_give_every_pair_there_is():
    labels = torch.tensor([3, 1, 3, 1, 3])
    pairs = pairs_from_labels(labels, 8)
    same = {(0, 2), (0, 4), (2, 4), (1, 3)}
    found = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    assert {pair for pair, is_same in zip(found, pairs.same, strict=True) if is_same} == same
    with pytest.raises(ConfigError, match="5 pairs of one label asked for; the labels allow 4"):
        pairs_from_labels(labels, 9)


def test_every_pair_of_a_kind_is_equally_likely():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    counts = torch.zeros(6, 6)
    for seed in range(3000):
        pairs = pairs_from_labels(labels, 2, seed=seed)
        counts[pairs.first, pairs.second] += 1
    for same, number in ((True, 4), (False, 11)):
        chosen = torch.triu(labels[:, None] == labels if same else labels[:, None] != labels, 1)
        expected = 3000 / number
        assert int(chosen.sum()) == number
        assert ((counts[chosen] - expected).abs() < 5 * expected**0.5).all()


def test_the_seed_decides_the_pairs():
    labels = torch.arange(50) % 5
    one, again, other = (pairs_from_labels(labels, 20, seed=s) for s in (1, 1, 2))
    assert torch.equal(one.first, again.first)
    assert not torch.equal(one.first, other.first)


def test_labels_of_one_kind_or_shape_are_refused():
    with pytest.raises(ConfigError, match="two labels asked for; the labels allow 0"):
        pairs_from_labels(torch.zeros(9), 4)
    with pytest.raises(ConfigError, match=r"expected \[N\] and 2 or more"):
        pairs_from_labels(torch.zeros(9, 2), 4)
