"""Mean squared changes of ImageNet-size images against the public package, where it is installed.

`pip install imagecorruptions-imaug` brings it together with scikit-image and its pictures.
"""

import warnings

import numpy as np
import pytest
import torch

from leanbayes.shifts import CORRUPTIONS, SEVERITIES, corrupt
from leanbayes.shifts.blurs import smooth
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.spatter import RELIEF, relief

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    package = pytest.importorskip("imagecorruptions", exc_type=ImportError)
    pictures = pytest.importorskip("skimage.data")
Image = pytest.importorskip("PIL.Image")

# Its elastic transform has strengths of its own, and its frost a sixth, dark photograph.
TOLERANCE = dict.fromkeys(CORRUPTIONS, 0.02) | {"frost": 0.4}
TOLERANCE |= dict.fromkeys(["motion_blur", "fog", "snow", "spatter"], 0.15)
TOLERANCE["glass_blur"] = 0.05  # the package moves pixels by a generator that no seed reaches
FEW = ("motion_blur", "frost", "fog", "spatter")  # one draw an image decides much
del TOLERANCE["elastic_transform"]


def test_the_relief_of_drops_is_opencvs():
    cv2 = pytest.importorskip("cv2")
    noise = Draws(0, "drops", range(3), torch.empty(0, dtype=torch.float64)).normal(1, 224, 224)
    liquid = smooth(0.65 + 0.3 * noise, 3)
    levels = (torch.where(liquid < 0.68, 0, liquid).clamp(0, 1) * 255).floor().float()
    for ours, row in zip(relief(levels), levels, strict=True):
        far = cv2.distanceTransform(255 - cv2.Canny(row[0].byte().numpy(), 50, 150), 2, 5)
        height = cv2.equalizeHist(cv2.blur(np.minimum(far, 20), (3, 3)).astype(np.uint8))
        expected = cv2.blur(cv2.filter2D(height, cv2.CV_8U, np.array(RELIEF)), (3, 3))
        assert (ours[0].numpy() == expected).mean() > 0.999


@pytest.fixture(scope="module")
def arrays():
    found = []
    for name in ("astronaut", "coffee", "chelsea"):
        image = Image.fromarray(getattr(pictures, name)())
        side = min(image.size)
        for left in (0, image.width - side):
            box = (left, 0, left + side, side)
            found.append(np.asarray(image.crop(box).resize((224, 224), Image.BICUBIC)))
    return found


@pytest.mark.parametrize("name", TOLERANCE)
def test_the_mean_squared_change_is_the_packages(name, arrays):
    images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float() / 255
    np.random.seed(0)  # noqa: NPY002
    for severity in SEVERITIES:
        ours, theirs = [], []
        for seed in range(12 if name in FEW else 1):
            change = corrupt(images, name, severity, seed=seed) - images
            ours.append(change.square().mean().item())
            rows = [package.corrupt(x, corruption_name=name, severity=severity) for x in arrays]
            change = np.stack(rows) / 255.0 - np.stack(arrays) / 255.0
            theirs.append(np.square(change).mean())
        assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=TOLERANCE[name]), severity
