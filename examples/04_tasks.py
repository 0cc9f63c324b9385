"""Numbers with intervals, and pairs of images to verify.

Run:       python examples/04_tasks.py     (about 15 seconds; 9 with --smoke)
Expected:  diabetes: rmse 53.4 of std 77.5
           log density -5.355, 90 % intervals hold 88%
           first row: 141, predicted 105 to 263
           noise of the data 50.8, doubt about the weights 1.8
           pairs of digits by features: Verification(accuracy=0.8770 +- 0.0332, auroc=0.9539, ...
           pairs of digits by pixels: Verification(accuracy=0.7990 +- 0.0478, auroc=0.8639, ...
"""

import sys
from typing import Any

import torch

import leanbayes as lb

SMOKE = "--smoke" in sys.argv
SAMPLES = 20


def table() -> lb.data.Data:
    """The diabetes table of scikit-learn; where that is missing, numbers with growing noise."""
    try:
        return lb.data.read("sklearn_table", name="diabetes", test=0.2)
    except lb.ConfigError:
        made = torch.Generator().manual_seed(0)
        x = torch.randn(440, 10, generator=made)
        noise = (0.5 * x[:, 1:2]).exp() * torch.randn(440, 1, generator=made)
        y = 150 + 50 * x[:, :1] + 30 * noise
        scale = lb.data.Normalize.of(y[:300])
        parts: dict[str, Any] = {
            "train": (x[:300], y[:300]),
            "validation": (x[300:350], y[300:350]),
        }
        return lb.data.Data(
            name="made_up",
            task="regression",
            test=(x[350:], y[350:]),
            target_scale=scale,
            **parts,
        )


def regression() -> None:
    """A disease score in its own units: mean, interval, and the two parts of the variance."""
    data = table()
    scale = data.target_scale
    assert scale is not None  # every reader of regression gives one
    torch.manual_seed(0)
    net = lb.models.create("mlp", inputs=data.train[0].shape[1], hidden=[50], outputs=2)
    likelihood = lb.HeteroscedasticGaussian(target_mean=scale.mean, target_std=scale.std)
    config = lb.FitConfig(
        epochs=10 if SMOKE else 20, batch_size=32, optimizer="Adam", lr=3e-3, progress=False
    )
    done = lb.adapt(net, lb.MeanField(), data.train, likelihood=likelihood, config=config)

    x, y = data.test
    p = lb.predict(done.model, x, samples=SAMPLES, seed=0, keep_samples=True)
    low, high = p.interval(0.9)
    covered = lb.metrics.interval_coverage(low, high, y.double())
    print(f"{data.name}: rmse {lb.metrics.rmse(p.mean, y.double()):.1f} of std {y.std():.1f}")
    print(f"log density {p.log_prob(y).mean():.3f}, 90 % intervals hold {covered:.0%}")
    print(f"first row: {y[0].item():.0f}, predicted {low[0].item():.0f} to {high[0].item():.0f}")
    aleatoric, epistemic = (v.mean().sqrt() for v in (p.aleatoric, p.epistemic))
    print(f"noise of the data {aleatoric:.1f}, doubt about the weights {epistemic:.1f}")


def verification() -> None:
    """Do two images show the same digit? Asked of images that training has not seen."""
    data = lb.data.read("digits", held_out=597)
    torch.manual_seed(0)
    net = lb.models.create("lenet", num_classes=10)
    config = lb.FitConfig(
        epochs=8 if SMOKE else 30, batch_size=64, optimizer="AdamW", lr=3e-3, progress=False
    )
    done = lb.adapt(net, lb.MeanField(), data.train, config=config)

    x, y = data.test
    pairs = lb.data.pairs_from_labels(y, count=1000, seed=0)
    features = lb.predict_features(done.model, x, samples=SAMPLES, seed=0)
    for name, rows in (("features", features), ("pixels", x.flatten(1))):
        found = lb.verify(rows[pairs.first], rows[pairs.second], pairs.same)
        print(f"pairs of digits by {name}: {found}")


regression()
verification()
