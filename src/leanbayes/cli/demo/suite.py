"""What the demo evaluates besides its table: curves, examples, corruptions, digits.

All test images are predicted once more, with figures by number of samples; the rest is few rows, so
that the whole adds less than a third to the time of the demo.
"""

from __future__ import annotations

from typing import Any

import leanbayes as lb
from leanbayes.cli.demo.setting import Data, Settings

KINDS, SEVERITIES = ("gaussian_noise", "defocus_blur", "contrast"), (1, 3, 5)
CORRUPTED, FOREIGN = 100, 500  # images of a corruption; digits


def suite_of(data: Data) -> lb.Suite:
    """Test images, corrupted ones and digits.

    Example:
        >>> from leanbayes.cli.demo.setting import smoke_settings
        >>> [s.name for s in suite_of(Data.of(smoke_settings(0))).splits][-2:]
        ['corrupted/contrast/5', 'ood/digits']
    """
    whole = lb.data.Data(
        name="fashion_mini",
        task="classification",
        train=None,
        test=(data.x_test, data.y_test),
        classes=data.classes,
    )
    names = [f"corrupted:{kind}/{severity}" for kind in KINDS for severity in SEVERITIES]
    return lb.Suite.of(
        whole,
        ",".join(["test", *names, "ood:digits"]),
        rows=CORRUPTED,
        foreign={"digits": data.x_ood[:FOREIGN]},
        sweep=True,
        examples=True,
    ).named("demo")


def evaluated(
    model: lb.BayesianModel, samples: int, settings: Settings, data: Data
) -> dict[str, Any]:
    """The suite on a model, with the draws of the table."""
    return lb.evaluate(
        model,
        suite_of(data),
        samples=samples,
        seed=settings.seed,
        likelihood=lb.Categorical(),
        progress=False,
    )
