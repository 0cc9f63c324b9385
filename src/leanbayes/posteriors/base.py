"""What every distribution over one tensor promises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from leanbayes.forms import Ask, Form, Shared, by_draw
from leanbayes.noise import KeyedNoise, NoiseSource
from leanbayes.plan import Drawn, Granularity, Scope
from leanbayes.posteriors.shards import is_shard, local_parts, shard_like

Editable = Callable[[Tensor], bool]  # may the optimiser at hand edit this parameter's gradient?


class Posterior(nn.Module, ABC):
    """A distribution over one parameter `base` of a layer.

    A draw is a deterministic function of raw noise: `draw(base, noise)`. Noise can thus come from
    the global generator, from a key, or from tensors made before a compiled graph.

    Attributes:
        key: Name of the tensor in the network; draws of prediction are keyed by it.
        granularity: `row` draws once a row where the plan says so, `batch` once a group.
        members: Mixture components; 0 where there is no index.
        regularises_base: The KL (or cross-entropy) already acts on `base`: no weight decay on it.
        copies: Copies of the base that share its weight decay; 0 where nothing here decays.
        owns_base: `base` is one of the posterior's own locations and trains at its learning rate.
        composed: Which part of a composition put it there.
        closed_form: `add_kl_grads` gives the gradient of the KL without autograd.
        integrates: A layer may integrate its noise out, so that nothing is to be drawn beforehand.
        by_input: Its noise has the shape of the activations, so nothing can be drawn beforehand.
    """

    key: str = ""
    granularity: Granularity = "row"
    members: int = 0
    regularises_base: bool = True
    copies: int = 0
    owns_base: bool = False
    composed: int = 0
    closed_form: bool = False
    by_input: ClassVar[bool] = False

    @property
    def integrates(self) -> bool:
        """False: a draw is a draw."""
        return False

    @property
    def single_number(self) -> bool:
        """True where the noise of a draw is one uniform number in float32."""
        return False

    @abstractmethod
    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Raw noise of `draws` draws, [draws, ...]."""

    @abstractmethod
    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:
        """Turn noise into values of the tensor, [draws, *base.shape]."""

    @abstractmethod
    def kl(self, base: Tensor) -> Tensor:
        """KL(q || p), summed over the tensor: a scalar, or [members] terms."""

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:  # noqa: ARG002
        """The location (of a member): what the mean network uses."""
        return base

    def spread(self, base: Tensor) -> Tensor:
        """Standard deviation of every entry of a draw: closed forms where the laws have them.

        Here it is measured on 64 keyed draws, for laws that know none.
        """
        noise = self.noise(base, 64, KeyedNoise(0, range(64)))
        return self.draw(base, noise.to(base.dtype)).std(0, correction=0)

    @property
    def noise_key(self) -> str:
        """What keys the noise; tensors of a layer that share one index share this key."""
        return self.key

    @property
    def decay_share(self) -> float:
        """The part of the weight decay that each copy gets; 0 where nothing here decays."""
        return 1 / self.copies if self.copies else 0.0

    def random_dimensions(self, base: Tensor) -> int:
        """Random numbers that one draw takes; 0 for points, and for masks shaped like inputs.

        An index for the whole network is the model's, not the tensor's, and counts nothing here.
        """
        return sum(self.random_numbers(base).values())

    def random_numbers(self, base: Tensor) -> dict[str, int]:
        """These numbers by noise key: tensors that share a key share its numbers."""
        counted = _CountedNoise()
        if not self.by_input:
            with torch.no_grad():
                self.noise(base, 1, counted)
        return counted.numbers

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """The tensor as this pass uses it."""
        if scope.plan.mean:
            return Shared(self.mean(base))
        scope.visit(self.noise_key)
        drawn = scope.taken(self.noise_key)
        return self.realise(base, drawn or self.drawn(base, scope, ask), scope)

    def drawn(self, base: Tensor, scope: Scope, ask: Ask) -> Drawn:  # noqa: ARG002
        """Raw noise for this pass."""
        return Drawn(self.noise(base, scope.draws(self.granularity), scope.source))

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """A form of the draws that `drawn` stands for."""
        noise = drawn.values.to(base.dtype)
        return by_draw(self.draw(base, noise, scope.component(self.granularity)))

    def joins(self, base: Tensor, scope: Scope) -> Hashable | None:  # noqa: ARG002
        """What posteriors must have in common to be drawn in one go; None draws by itself."""
        return None

    @classmethod
    def draw_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope
    ) -> Sequence[Form]:
        """The forms of posteriors that can be joined, from the global generator."""
        raise NotImplementedError(f"{cls.__name__} draws tensor by tensor")

    def joins_keyed(self, base: Tensor) -> Hashable | None:  # noqa: ARG002
        """The same for samples of a prediction; None draws by itself."""
        return None

    @classmethod
    def predict_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope, source: KeyedNoise
    ) -> Sequence[Form]:
        """The forms of one predicted sample, each equal to what `form` gives."""
        raise NotImplementedError(f"{cls.__name__} draws tensor by tensor")

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """Add `scale * dKL` to the gradients of all sites; only where `closed_form` is set."""
        raise NotImplementedError(f"{cls.__name__} has no closed-form gradient of its KL")


class WithoutKL(Posterior):
    """A law whose prior is weight decay, or that has nothing to learn."""

    closed_form = True
    regularises_base = False

    def kl(self, base: Tensor) -> Tensor:
        """Zero."""
        return base.new_zeros(())

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """Nothing to add."""


class _CountedNoise:
    """Counts the numbers that are asked for; draws none."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:
        """Zeros that take no memory."""
        self.numbers[key] = draws * math.prod(shape)
        return like.new_zeros(()).expand(draws, *shape)

    uniform = normal


def member_of(scope: Scope) -> int | None:
    """The one member of a predicted sample, where no graph is kept; None in any other pass."""
    keyed = isinstance(scope.plan.noise, KeyedNoise)
    return scope.member if keyed and not torch.is_grad_enabled() else None


def member_index(
    component: Tensor | None, draws: int, members: int, device: torch.device
) -> Tensor:
    """The component of each draw; members in turn where the plan names none."""
    if component is not None:
        return component
    return torch.arange(draws, device=device) % members


def spread_of(values: Tensor, variance: Tensor | None = None) -> Tensor:
    """Standard deviation of a uniform mixture of points [K, ...], or of laws around them."""
    between = values.var(0, correction=0)
    return (between if variance is None else between + variance.mean(0)).sqrt()


def gradient_of(parameter: Tensor) -> Tensor:
    """The gradient of a parameter, made of zeros where the forward left none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def add_to_gradients(pairs: Sequence[tuple[Tensor, Tensor]], weight: float) -> None:
    """`grad += weight * pull` for all pairs of a parameter and a pull that every process holds."""
    shards = [pair for pair in pairs if is_shard(pair[0])]
    plain = pairs if not shards else [pair for pair in pairs if not is_shard(pair[0])]
    for target, pull in shards:
        gradient_of(target).add_(shard_like(pull.to(target.dtype), target), alpha=weight)
    if plain:
        grads = [gradient_of(target) for target, _ in plain]
        pulls = [like_gradient(pull, grad) for grad, (_, pull) in zip(grads, plain, strict=True)]
        torch._foreach_add_(grads, pulls, alpha=weight)


def like_gradient(pull: Tensor, grad: Tensor) -> Tensor:
    """In the type of the gradient; without a call where it has that type."""
    return pull if pull.dtype == grad.dtype else pull.to(grad.dtype)


def decay(parameters: Sequence[Tensor], weight: float) -> None:
    """`grad += weight * parameter` for all of them, shards where they lie."""
    if parameters:
        grads = local_parts([gradient_of(parameter) for parameter in parameters])
        own = zip(local_parts(parameters), grads, strict=True)
        pulls = [like_gradient(part, grad) for part, grad in own]
        torch._foreach_add_(grads, pulls, alpha=weight)


def add_product(target: Tensor, tensor: Tensor, factor: Tensor, weight: float) -> None:
    """`grad += weight * tensor * factor`, without a product of its size where it is at hand."""
    if is_shard(target) or target.dtype != tensor.dtype:
        add_to_gradients([(target, tensor * factor)], weight)
    else:
        gradient_of(target).addcmul_(tensor, factor, value=weight)
