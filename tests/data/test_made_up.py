"""Made-up data: shapes and kinds of every task, the same for a seed."""

import pytest
import torch

import leanbayes as lb
from leanbayes.data import read


@pytest.mark.parametrize(
    ("task", "shape", "target"),
    [
        ("classification", (3, 8, 8), ()),
        ("binary", (5,), ()),
        ("regression", (4,), (1,)),
        ("segmentation", (3, 6, 4), (6, 4)),
    ],
)
def test_targets_are_what_the_task_asks_for(task, shape, target):
    data = read("made_up", task=task, shape=shape, classes=3, rows=10)
    x, y = data.train
    assert (x.shape, y.shape) == ((10, *shape), (10, *target))
    assert (len(data.validation[0]), len(data.test[0])) == (5, 5)
    if task == "regression":
        mean, std = data.target_scale.mean[0], data.target_scale.std[0]
        assert mean == pytest.approx(y.mean().item(), rel=1e-5)
        assert std == pytest.approx(y.std(correction=0).item(), rel=1e-5)
    else:
        assert set(y.unique().tolist()) <= set(range(len(data.classes)))


def test_images_are_pixels_on_a_known_scale():
    data = read("made_up", shape=(3, 8, 8))
    pixels = data.normalize.undo(data.train[0])
    assert 0 <= pixels.min() < 0.1
    assert 0.9 < pixels.max() <= 1
    assert read("made_up", shape=(4,)).normalize is None


def test_a_seed_decides_and_ids_are_whole_numbers():
    first, again, other = (read("made_up", rows=4, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.train[0], again.train[0])
    assert not torch.equal(first.train[0], other.train[0])
    x, _ = read("made_up", shape=[7], ids=5, rows=50).train
    assert x.dtype == torch.int64
    assert (int(x.min()), int(x.max())) == (0, 4)


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"shape": [3, 0]}, {"classes": 0}, {"ids": -1}])
def test_sizes_are_positive(wrong):
    with pytest.raises(lb.ConfigError, match="positive"):
        read("made_up", **wrong)
