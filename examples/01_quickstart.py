"""Make your own trained network Bayesian in three lines.

Run:       python examples/01_quickstart.py     (about 12 seconds; 4 with --smoke)
Expected:  accuracy 0.830
           surest: Trouser with probability 1.00, total 0.000 = aleatoric 0.000 + epistemic 0.000
           least sure: Sandal with probability 0.41, total 1.696 = aleatoric 1.560 + epistemic 0.136
"""

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

import leanbayes as lb
from leanbayes.data import fashion_mini

SMOKE = "--smoke" in sys.argv
torch.manual_seed(0)
data = fashion_mini()
images, labels = data.x_train[: 1200 if SMOKE else None], data.y_train[: 1200 if SMOKE else None]
epochs = 2 if SMOKE else 8


def fit(optimizer: torch.optim.Optimizer, epochs: int, loss: Callable[..., Tensor]) -> None:
    """Your training loop, whatever it looks like."""
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss(images[rows], labels[rows]).backward()
            optimizer.step()


# Your network, trained in your way.
net = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
adam = torch.optim.Adam(net.parameters(), lr=2e-3)
fit(adam, epochs, lambda x, y: nn.functional.cross_entropy(net(x), y))

# 1. Every layer gets a posterior; the weights stay where they are.
model = lb.bayesianize(net, lb.MeanField(), example=images[:8]).train()

# 2. The same loop learns the posteriors; the optimiser adds the gradients of the KL.
adam = torch.optim.Adam(lb.param_groups(model, lr=1e-4, posterior_lr=5e-3))
lb.attach_kl(adam, model, num_data=len(images))
likelihood = lb.Categorical()
fit(adam, epochs // 2, lambda *xy: lb.objective(model, xy, likelihood, include_kl=False).loss)

# 3. Probabilities, and how far to trust them, in nats.
p = lb.predict(model, data.x_test[:200], samples=20, likelihood=likelihood, seed=0)
print(f"accuracy {lb.metrics.accuracy(p.probs, data.y_test[:200]):.3f}")
for name, i in (("surest", p.total.argmin()), ("least sure", p.total.argmax())):
    print(
        f"{name}: {data.classes[p.label[i]]} with probability {p.confidence[i]:.2f}, "
        f"total {p.total[i]:.3f} = aleatoric {p.aleatoric[i]:.3f} + epistemic {p.epistemic[i]:.3f}"
    )
