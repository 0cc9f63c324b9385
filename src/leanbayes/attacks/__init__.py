"""Adversarial examples against the posterior predictive: PGD and FGSM.

What is made unlikely is the answer that `lb.predict` gives, the mean over draws w_s of the network,

    loss(x) = -ln sum_s a_s p(y | x, w_s),      a_s = 1 / S

(Deng et al. 2022, BayesAdapter). Its gradient weighs that of every draw by the share of the true
class's probability which the draw brings in; `average="loss"` takes the mean of the draws' own
losses instead, and weighs all alike. A step has new draws, so that an attack does not fit one set.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leanbayes.attacks.ball import Ball, Norm, Scale
from leanbayes.attacks.victim import Average, Victim
from leanbayes.data import Normalize
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Likelihood


def pgd(  # noqa: PLR0913
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    eps: float,
    step_size: float | None = None,
    steps: int = 20,
    samples: int | None = None,
    seed: int | None = None,
    likelihood: Likelihood | None = None,
    random_start: bool = True,
    normalize: Normalize | None = None,
    norm: Norm = "inf",
    average: Average = "probabilities",
    bounds: tuple[float, float] | None = (0.0, 1.0),
    rows: int = 256,
    first: int | None = None,
) -> Tensor:
    """Inputs near `x` that make the targets `y` unlikely, by projected gradient ascent.

    From a random point of the ball (Madry et al. 2018), every step goes along the sign of the
    gradient (for `norm="2"` along the gradient) and back into the ball and the bounds:

        x <- project(x + step_size sign(grad loss(x)))

    The model is left as it was: modes, gradients, generators (where a seed is given). The paper
    takes steps=20 and samples=20 with eps=0.031, step_size=0.003 on CIFAR-10 and eps=16/255,
    step_size=1/255 on ImageNet. Cost: a pass and its gradient a draw and step; memory does not
    grow with the draws, except where a row has several labels.

    Args:
        model: A BayesianModel, its DDP or compiled wrapper, or any module, which has one draw.
        x: Inputs as the network takes them, [B, ...].
        y: Their targets, as the likelihood takes them.
        eps: Radius of the ball, in pixels.
        step_size: Length of a step, in pixels; 2.5 eps / steps by default.
        steps: How many.
        samples: Draws a step; by default as many as `lb.predict` takes.
        seed: Of the start and of the draws, new ones each step; without one it is taken from the
            global generator.
        likelihood: By default the one kept with the model; of a plain module `lb.Categorical()`.
        random_start: Begin at a random point of the ball instead of at x.
        normalize: How pixels became `x`, if they were scaled: ball and bounds are those of pixels.
        norm: Of the ball, "inf" or "2".
        average: Attack the mean of the draws' probabilities, or the mean of their losses.
        bounds: Least and largest pixel; None for inputs without any.
        rows: Examples that are attacked at once; the result does not depend on it.
        first: Index of the first row in its data set: every row then has a random start of its
            own, by its index, whatever the batch. By default one generator serves the batch.

    Returns:
        Changed inputs on the scale of `x`, without a graph.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> x, y = torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
        >>> found = lb.attacks.pgd(model, x, y, eps=0.1, seed=0, likelihood=lb.Categorical())
        >>> bool((found - x).abs().max() <= 0.1 + 1e-6)
        True
    """
    ball = Ball(eps, 2.5 * eps / max(steps, 1) if step_size is None else step_size, norm, bounds)
    with torch.inference_mode(False), torch.enable_grad():
        scale = Scale.of(x, normalize)
        _check(y, x, steps=steps, rows=rows)
        victim = Victim.of(model, likelihood, samples, seed, average=average, scale=scale)
        x, y = x.detach().clone(), y.detach().clone()  # tensors of inference mode have no gradient
        clean = ball.within_bounds(scale.undo(x))
        start = ball.random(clean, victim.seed, first) if random_start else clean
        with victim.open():
            parts = [
                _climbed(victim, ball, (clean[at], start[at], y[at]), steps)
                for at in _pieces(len(x), len(x) if victim.mixes else rows)
            ]
        return scale(torch.cat(parts)).to(x)


def fgsm(  # noqa: PLR0913
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    eps: float,
    samples: int | None = None,
    seed: int | None = None,
    likelihood: Likelihood | None = None,
    normalize: Normalize | None = None,
    norm: Norm = "inf",
    average: Average = "probabilities",
    bounds: tuple[float, float] | None = (0.0, 1.0),
    rows: int = 256,
) -> Tensor:
    """One step of length `eps` from `x` itself (Goodfellow et al. 2015); arguments as for `pgd`.

    Example:
        >>> import leanbayes as lb, torch
        >>> x = torch.full((2, 4), 0.5)
        >>> found = lb.attacks.fgsm(torch.nn.Linear(4, 3), x, torch.tensor([0, 1]), eps=0.25)
        >>> (found - x).abs().unique()
        tensor([0.2500])
    """
    return pgd(
        model,
        x,
        y,
        eps=eps,
        step_size=eps,
        steps=1,
        samples=samples,
        seed=seed,
        likelihood=likelihood,
        random_start=False,
        normalize=normalize,
        norm=norm,
        average=average,
        bounds=bounds,
        rows=rows,
    )


Rows = tuple[Tensor, Tensor, Tensor]  # clean pixels, where they start, and targets


def _climbed(victim: Victim, ball: Ball, part: Rows, steps: int) -> Tensor:
    clean, pixels, y = (tensor.to(victim.device) for tensor in part)
    for step in range(steps):
        pixels = ball.project(pixels + ball.move(victim.slope(pixels, y, step)), clean)
    return pixels.to(part[0].device)


def _pieces(length: int, rows: int) -> list[slice]:
    return [slice(start, start + rows) for start in range(0, max(length, 1), max(rows, 1))]


def _check(y: Tensor, x: Tensor, **counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or count != int(count) or count < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, found {count!r}")
    if len(y) != len(x):
        raise ConfigError(f"{len(x)} inputs and {len(y)} targets: expected a target an input")
