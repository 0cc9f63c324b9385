"""Files in, predictions out: what readers and augmentations give is what training takes."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import leanbayes as lb
from leanbayes.data.augment import augment_named
from leanbayes.data.decode import decode_images
from leanbayes.data.folders import image_folder

Image = pytest.importorskip("PIL.Image")


def write(root):
    """Two classes of noise, dark and bright."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 6)):
        for name, low in (("bright", 130), ("dark", 0)):
            (root / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(low, low + 120, (9, 12, 3), np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{number}.png")


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_network_learns_from_a_folder_and_predicts_files(tmp_path, in_memory):
    write(tmp_path)
    data = image_folder(root=str(tmp_path), size=8, validation=4, in_memory=in_memory)
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 2))
    model = lb.bayesianize(net, lb.MeanField(), example=torch.zeros(1, 3, 8, 8))
    config = lb.FitConfig(epochs=15, batch_size=5, lr=0.1, kl_weight=0.0, progress=False)
    augment = augment_named("crop+flip+cutout", normalize=data.normalize, padding=1, size=2)
    lb.fit(
        model,
        data.train,
        lb.Categorical(),
        validation=data.validation,
        config=config,
        augment=augment,
    )
    inputs = data.test[0] if in_memory else DataLoader(data.test, batch_size=5)
    found = lb.predict(model, inputs, samples=8, seed=0)
    assert found.label.tolist() == [0] * 6 + [1] * 6
    paths = sorted((tmp_path / "test").rglob("*.png"))
    pixels, good, bad = decode_images(paths, size=8)
    again = lb.predict(model, data.normalize(pixels), samples=8, seed=0)
    assert (good, bad) == (paths, [])
    assert torch.allclose(again.probs, found.probs, atol=1e-6)
