"""A method of your own takes one file: Gaussian dropout, a factor N(1, alpha) an input channel.

Run:       python examples/02_your_own_method.py     (a second)
Expected:  gaussian_dropout: 2 layers converted, 1 left; 210 parameters + 0 (0.0%); 24 random ...
           epistemic uncertainty of the first row: 0.0027

`lb.methods()`, the command line, `predict`, `save` and `load` know the method as soon as its class
exists; a package announces it by an entry point in the group `leanbayes.methods`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import leanbayes as lb
from leanbayes.noise import NoiseSource
from leanbayes.posteriors import Posterior
from leanbayes.select import Site


class GaussianFactors(Posterior):
    """s ~ N(1, std^2), one a channel: a law is noise, a draw made of it, a mean and a KL."""

    regularises_base = False  # the weight keeps its weight decay

    def __init__(self, size: int, std: float) -> None:
        super().__init__()
        self.size, self.std = size, std

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard normal numbers, keyed in prediction."""
        return source.normal(self.key, draws, (self.size,), base)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Factors around 1, [draws, size]."""
        return 1 + self.std * noise

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:  # noqa: ARG002
        """One: the network as it is."""
        return base.new_ones(self.size)

    def kl(self, base: Tensor) -> Tensor:
        """None: the prior is weight decay."""
        return base.new_zeros(())


@dataclass(frozen=True, kw_only=True)
class GaussianDropout(lb.Method, name="gaussian_dropout"):
    """Srivastava et al. 2014, section 10: multiply inputs by N(1, rate / (1 - rate))."""

    paper: ClassVar[str] = "Srivastava et al. 2014"
    cost: ClassVar[str] = "no parameters; pass 1.1x"
    advice: ClassVar[str] = "an example of a method"

    rate: float = 0.1
    init_std: float | None = None  # 0 switches the noise off

    def slots(self, site: Site) -> dict[str, Posterior]:
        """Factors on the inputs of every layer that has channels."""
        std = math.sqrt(self.rate / (1 - self.rate)) if self.init_std is None else self.init_std
        sizes = site.host.factor_sizes(site.layer)
        return {s: GaussianFactors(n, std) for s, n in sizes.items() if s.startswith("in_scale")}


def main() -> None:
    """Convert a network and predict with it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(5, 8)
    model = lb.bayesianize(net, GaussianDropout(), example=x)
    print(str(model.report).splitlines()[0])
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=100, seed=0)
    print(f"epistemic uncertainty of the first row: {p.epistemic[0]:.4f}")


if __name__ == "__main__":
    main()
