"""MC dropout: masks of activations that stay on when the network predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.layers.dropout import DropoutHost
from leanbayes.methods.base import Method
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.bernoulli import Mask
from leanbayes.select import Selector, Site, dropouts, everything, output

Position = Literal["before", "after"]


@dataclass(frozen=True, kw_only=True)
class MCDropout(Method, name="mc_dropout"):
    """`y = W (x * z) + b`, z = Bernoulli(1 - rate) / (1 - rate): dropout in training and after it.

    Training draws a mask a row, as dropout does; prediction one a sample, shared by all rows, so
    that a sample is one network; the mean network has no masks. Tokens that a network has folded
    into the batch share the mask of their row. The prior is weight decay, so the KL is 0.

    Gal and Ghahramani, Dropout as a Bayesian approximation, 2016. It is `lb.Patching(members=2,
    zero_copy=True, scope="input")` up to the factor 1 / (1 - rate), which keeps the expected value.

    The network's own `nn.Dropout`, `Dropout1d`, `Dropout2d` and `Dropout3d` go on at their own
    rates, unless `existing=False`. Dropout by function (`F.dropout`, the weights of attention) is
    no module and cannot be seen: in prediction it is off, as it was. Where layers keep time in dim
    0 (`batch_first=False`), the masks of a sample differ between sequences.

    Cost: no parameters; a step and a pass cost what the network and its masks cost.

    Attributes:
        rate: Probability that an activation is dropped.
        where: The layers with a mask: `lb.select.output` by default, which keeps a trained network
            what it was. `lb.select.nothing` leaves it to the network's own dropout.
        position: The mask multiplies what comes in (`before`) or what goes out, bias included;
            of a norm what goes out alone, which with a ReLU behind it is dropout after the ReLU.
        channelwise: Drop whole channels (feature maps; features of all tokens), not elements.
        existing: Take the network's own dropout layers as well.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 3))
        >>> model = lb.bayesianize(net, lb.MCDropout(rate=0.1))
        >>> [(layer.name, layer.slots) for layer in model.report.converted]
        [('0', ('mask',)), ('1', ('in_scale',))]
    """

    paper: ClassVar[str] = "Gal and Ghahramani 2016, dropout as a Bayesian approximation"
    cost: ClassVar[str] = "nothing added; training step and draw 1x"
    advice: ClassVar[str] = "a network that was trained with dropout"

    rate: float = 0.1
    where: Selector = output
    position: Position = "before"
    channelwise: bool = False
    existing: bool = True

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if self.position not in get_args(Position):
            raise ConfigError(f"position is 'before' or 'after' a layer; found {self.position!r}")
        if not isinstance(self.where, Selector):
            raise ConfigError(f"where is a selector such as lb.select.output; found {self.where!r}")
        if self.select == everything:
            object.__setattr__(self, "select", self.where | dropouts)

    @property
    def takes_dropout(self) -> bool:
        """The network's own dropout, unless told otherwise."""
        return self.existing

    def slots(self, site: Site) -> dict[str, Posterior]:
        """A mask where the layer is chosen, and in the network's own dropout."""
        if issubclass(site.host, DropoutHost) or self.where(site):
            return self.restored(site, {})
        return {}

    def restored(self, site: Site, tensors: Mapping[str, Tensor]) -> dict[str, Posterior]:  # noqa: ARG002
        """A mask, wherever the layer stands: which ones have it is in the checkpoint."""
        host = site.host
        if issubclass(host, DropoutHost):
            rate = float(getattr(site.layer, "p", 0.0))
            return {"mask": Mask(rate, host.channel)} if rate > 0 else {}
        mask_of = host.channel if self.channelwise else None
        return {slot: Mask(self.rate, mask_of) for slot in self._places(site)}

    def _places(self, site: Site) -> list[str]:
        """Where the host can take a mask; element masks need inputs of one shape only.

        One after a layer without parameters would not know a type and a device to be drawn in.
        """
        if self.position == "after":
            return ["out_mask"] if site.host.masks_output and site.tensors else []
        if not (self.channelwise or site.host.kind in ("linear", "conv")):
            return []
        sizes = site.host.factor_sizes(site.layer)
        return [slot for slot in sizes if slot.startswith("in_scale")]


def check_rate(rate: float) -> None:
    """Raise unless the rate is a probability below 1."""
    if isinstance(rate, bool) or not 0 <= rate < 1:
        raise ConfigError(
            f"rate is the probability that something is dropped, at least 0 and below 1; "
            f"found {rate!r}"
        )
