"""K copies of a tensor, of which a draw picks: by network, layer, input unit or element."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from leanbayes.forms import Ask, Form, PerDraw, Selected, Shared, by_draw
from leanbayes.noise import KeyedNoise, NoiseSource
from leanbayes.ops import at_least_float32
from leanbayes.plan import Drawn, Granularity, Scope
from leanbayes.posteriors.base import (
    Editable,
    Posterior,
    decay,
    member_index,
    spread_of,
)
from leanbayes.posteriors.joint import forms_of, side_by_side
from leanbayes.posteriors.shards import whole

# Tensors of fewer numbers are drawn together: above it the copy costs more than the calls it saves.
SHORT = 2**15
IndexScope = Literal["network", "layer", "input", "element"]


class Bank(Posterior):
    """A uniform mixture of K points; the layer's own parameter is copy 0.

    The KL of points is infinite; `kl` gives the cross-entropy `|theta_k|^2 / (2 prior_std^2)` of
    every copy, whose mean over copies has the right gradient (a decay of 1/K a copy, T4.4).

    Args:
        base: The parameter; copies start as `base * N(1, jitter^2)`.
        members: Copies K, the base and a zero copy included.
        index: What one index picks: for the whole network, a layer (its tensors share it), every
            input unit, or every element.
        zero_copy: The last copy is fixed at 0 (dropout).
        keep: With two copies: probability of copy 0; uniform if None.
        jitter: Relative spread of the copies at the start.
        prior_std: Scale of the prior in the cross-entropy; None has none (weight decay is it).
        granularity: One draw a `batch` (group) or a `row`.
        input_dim: Which dimension of the tensor counts its input units.
        input_groups: Groups of a convolution, whose rows count their own inputs in dim 1.
        fixed_row: A row that all copies share, without cross-entropy (the padding row of an
            embedding).
    """

    closed_form = True
    owns_base = True
    regularises_base = False

    def __init__(  # noqa: PLR0913
        self,
        base: Tensor,
        *,
        members: int = 5,
        index: IndexScope = "layer",
        zero_copy: bool = False,
        keep: float | None = None,
        jitter: float = 0.05,
        prior_std: float | None = 1.0,
        granularity: Granularity = "batch",
        input_dim: int = 1,
        input_groups: int = 1,
        fixed_row: int | None = None,
    ) -> None:
        super().__init__()
        self.copies, self.index, self.zero_copy, self.keep = members, index, zero_copy, keep
        self.members = members if index == "network" else 0
        # Under an index for the whole network the plan alone says which rows take which copy.
        self.prior_std, self.granularity = prior_std, "row" if index == "network" else granularity
        self.input_dim, self.input_groups = input_dim, input_groups
        self.fixed_row = fixed_row
        self.closed_form = fixed_row is None  # an edit of shards cannot leave a row out
        further = members - 1 - int(zero_copy)
        self.further: nn.Parameter | None = None
        if further:
            noise = 1 + jitter * torch.randn((further, *base.shape), device=base.device)
            if fixed_row is not None:  # it gets no gradient, so that it stays what it is
                noise[:, fixed_row] = 1
            self.further = nn.Parameter(base.detach() * noise.to(base.dtype))

    @property
    def noise_key(self) -> str:
        """Weight and bias of a layer share its index."""
        return f"{self.key.rpartition('.')[0]}#index" if self.index == "layer" else self.key

    @property
    def single_number(self) -> bool:
        """The index of a layer."""
        return self.index == "layer"

    def values(self, base: Tensor) -> Tensor:
        """All copies, [K, *base.shape]."""
        parts = self._trained(base)
        return torch.cat([*parts, self._zero(base)[None]] if self.zero_copy else parts)

    def _trained(self, base: Tensor) -> list[Tensor]:
        return [base[None]] if self.further is None else [base[None], whole(self.further)]

    def _zero(self, base: Tensor) -> Tensor:
        """The copy without a parameter, whose padding row is that of all."""
        zero = torch.zeros_like(base)
        if self.fixed_row is not None:
            zero[self.fixed_row] = base[self.fixed_row].detach()
        return zero

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Uniform numbers, one an index."""
        if self.index == "network":  # the component is the draw
            return base.new_zeros(draws)
        units = base.shape[min(self.input_dim, base.dim() - 1)] * self.input_groups
        shapes = {"element": base.shape, "input": (units,)}
        # In float32 whatever the type, so that a rounded network picks the same copies.
        single = torch.empty((), device=base.device, dtype=torch.float32)
        return source.uniform(self.noise_key, draws, shapes.get(self.index, ()), single)

    def random_numbers(self, base: Tensor) -> dict[str, int]:
        """One an index that is drawn here: none where the network's index picks."""
        return {} if self.index == "network" else super().random_numbers(base)

    def picks(self, noise: Tensor, component: Tensor | None) -> Tensor:
        """Which copy each index stands for."""
        if self.index == "network":
            return member_index(component, len(noise), self.copies, noise.device)
        if self.keep is not None:
            return (noise >= self.keep).long()
        return (noise.double() * self.copies).long()

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any law, with a short way for a predicted sample: one copy, read by its number."""
        source = scope.plan.noise
        if not isinstance(source, KeyedNoise) or torch.is_grad_enabled() or scope.plan.groups > 1:
            return super().form(base, scope, ask)
        if self.index == "network" and scope.member is not None:
            return Shared(self.copy(base, scope.member))
        if self.index != "layer":
            return super().form(base, scope, ask)
        number = source.number(self.noise_key, source.samples[0])
        return Shared(self.copy(base, self._pick(number)))

    def _pick(self, number: float) -> int:
        """What `picks` computes, of a number on the host: nothing waits for a device."""
        if self.keep is None:
            return int(number * self.copies)
        (keep,) = struct.unpack("f", struct.pack("f", self.keep))  # compared in float32
        return int(number >= keep)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:
        """The picked copies, [draws, *base.shape]; copies that are not drawn get no gradient."""
        picks = self.picks(noise, component)
        if self.index in ("network", "layer"):
            return self.values(base)[picks]
        if self.index == "input" and base.dim() > 1:
            after = base.dim() - 1 - self.input_dim
            if self.input_groups > 1:  # [draws, rows, columns]: rows of a group share their columns
                picks = picks.reshape(len(picks), self.input_groups, -1)
                picks = picks.repeat_interleave(base.shape[0] // self.input_groups, 1)
            else:
                picks = picks.reshape(len(picks), *(1,) * self.input_dim, -1)
            picks = picks.reshape(*picks.shape, *(1,) * after)
        return self.values(base).gather(0, picks.expand(len(picks), *base.shape))

    def _read(self, noise: Tensor, component: Tensor | None) -> int | None:
        """The one copy that a pass uses, where reading its number is free: on a CPU."""
        eager = not torch.compiler.is_compiling() and len(noise) == 1 and noise.is_cpu
        if not eager or self.index not in ("network", "layer"):
            return None
        if self.index == "layer":
            return self._pick(noise.item())
        return int(self.picks(noise, component))

    def copy(self, base: Tensor, k: int) -> Tensor:
        """One copy."""
        if k == 0:
            return base
        if self.further is None or k > len(self.further):
            return self._zero(base)
        return self.further[k - 1]

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """One copy for all rows, gathered vectors, or whole weights to choose from."""
        noise, component = drawn.values, scope.component(self.granularity)
        k = self._read(noise, component)
        if k is not None:
            # In training all copies stay in the graph, for DDP.
            return Shared(self.values(base)[k] if torch.is_grad_enabled() else self.copy(base, k))
        if self.index not in ("network", "layer") or len(noise) == 1 or base.dim() == 1:
            return by_draw(self.draw(base, noise, component))
        order = scope.order(self.granularity) if self.index == "network" else None
        return Selected(self.values(base), self.picks(noise, component), order)

    def joins(self, base: Tensor, scope: Scope) -> Hashable | None:
        """Short tensors of as many copies under the same kind of index."""
        plain = self.keep is None and not self.zero_copy and self.further is not None
        one = self.index == "element" or scope.draws(self.granularity) == 1
        short = base.dim() == 1 or (one and base.numel() < SHORT)
        if not (plain and short and self.index != "input"):
            return None
        return self.index, self.copies, self.granularity

    @classmethod
    def draw_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope
    ) -> Sequence[Form]:
        """As one bank over the entries of all, of which every layer (or entry) picks its copy."""
        banks = [(q, base) for q, base in sites if isinstance(q, Bank)]
        further = side_by_side([q.further.flatten(1) for q, _ in banks if q.further is not None])
        copies = torch.cat([torch.cat([base.flatten() for _, base in banks])[None], further])
        values = copies.gather(0, _picks_of_all(banks, scope))
        forms = forms_of(values, [base.numel() for _, base in banks])
        return [_in_shape(form, base) for form, (_, base) in zip(forms, banks, strict=True)]

    def joins_keyed(self, base: Tensor) -> Hashable | None:
        """Vectors whose elements all pick for themselves, among as many copies."""
        plain = self.keep is None and not self.zero_copy and self.further is not None
        return self.copies if plain and self.index == "element" and base.dim() == 1 else None

    @classmethod
    def predict_together(
        cls,
        sites: Sequence[tuple[Posterior, Tensor]],
        scope: Scope,  # noqa: ARG003
        source: KeyedNoise,
    ) -> Sequence[Form]:
        """As one bank over the elements of all, whose copies are laid out once a prediction."""
        banks = [q for q, _ in sites if isinstance(q, Bank)]
        first, sizes = banks[0], [len(base) for _, base in sites]

        def laid_out() -> Tensor:
            return torch.cat([q.values(base) for q, (_, base) in zip(banks, sites, strict=True)], 1)

        copies = source.remember(f"{first.key}#copies", laid_out)
        single = torch.empty((), device=copies.device, dtype=torch.float32)
        noise = source.uniform_row([q.noise_key for q in banks], sizes, single)
        value = copies.gather(0, first.picks(noise, None)[None])[0]
        return [Shared(part) for part in torch.split(value, sizes)]

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:
        """A copy, or the expected value of a draw."""
        values = self.values(base)
        if member is not None:
            return values[member]
        if self.keep is not None:
            return self.keep * values[0] + (1 - self.keep) * values[1]
        return base + (values - base).mean(0)  # exact where all copies are the base

    def spread(self, base: Tensor) -> Tensor:
        """Over the copies, each by its probability."""
        values = self.values(base)
        if self.keep is None:
            return spread_of(values)
        gap: Tensor = values[0] - values[1]
        return gap.abs() * math.sqrt(self.keep * (1 - self.keep))

    def kl(self, base: Tensor) -> Tensor:
        """Cross-entropy: by member under a network index, else its mean over the copies."""
        if self.prior_std is None:
            return base.new_zeros(())
        squares = at_least_float32(torch.cat(self._trained(whole(base)))).square()
        if self.fixed_row is not None:
            row = torch.tensor([self.fixed_row], device=squares.device)
            squares = squares.index_fill(1, row, 0)
        terms = squares.flatten(1).sum(1) / (2 * self.prior_std**2)
        if self.zero_copy:
            terms = torch.cat([terms, terms.new_zeros(1)])
        return terms if self.members else (self._shares(terms) * terms).sum()

    @property
    def decay_share(self) -> float:
        """The probability of a copy."""
        return 1 / self.copies if self.keep is None else self.keep

    def _shares(self, like: Tensor) -> Tensor:
        """The probability of every copy."""
        if self.keep is not None:
            return like.new_tensor([self.keep, 1 - self.keep])
        return torch.full_like(like, 1 / self.copies)

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """Closed form: `+ scale * p_k * theta_k / prior_std^2` for every copy k."""
        copies: dict[float, list[Tensor]] = defaultdict(list)
        for posterior, base in sites:
            assert isinstance(posterior, Bank)
            if posterior.prior_std is not None:
                weight = scale * posterior.decay_share / posterior.prior_std**2
                own = (base,) if posterior.further is None else (base, posterior.further)
                copies[weight] += [tensor for tensor in own if editable(tensor)]
        with torch.no_grad():
            for weight, tensors in copies.items():
                decay(tensors, weight)


def _in_shape(form: Form, base: Tensor) -> Form:
    if base.dim() == 1:
        return form
    if isinstance(form, Shared):
        return Shared(form.value.reshape(base.shape))
    assert isinstance(form, PerDraw)
    return PerDraw(form.value.reshape(-1, *base.shape))


def _picks_of_all(banks: Sequence[tuple[Bank, Tensor]], scope: Scope) -> Tensor:
    """Which copy each draw takes, by entry, [D, entries]; tensors of a layer share their noise."""
    first, base = banks[0]
    draws, component = scope.draws(first.granularity), scope.component(first.granularity)
    sizes = [base.numel() for _, base in banks]
    if first.index == "network":
        return first.picks(base.new_zeros(draws), component)[:, None].expand(-1, sum(sizes))
    single = torch.empty((), device=base.device, dtype=torch.float32)
    if first.index == "element":
        return first.picks(scope.source.uniform("", draws, (sum(sizes),), single), None)
    picks = _picks_of_layers(banks, scope, single)
    columns = zip(banks, sizes, strict=True)
    return torch.cat([picks[q.noise_key].expand(-1, size) for (q, _), size in columns], 1)


def _picks_of_layers(
    banks: Sequence[tuple[Bank, Tensor]], scope: Scope, like: Tensor
) -> dict[str, Tensor]:
    """Which copy each draw takes of every layer, [D, 1] by noise key."""
    first, _ = banks[0]
    keys = list(dict.fromkeys(q.noise_key for q, _ in banks))
    noise: dict[str, Tensor] = {}
    for key in keys:  # no assignment inside a comprehension, which Dynamo does not read
        drawn = scope.taken(key)
        if drawn is not None:
            noise[key] = drawn.values
    rest = [key for key in keys if key not in noise]
    if rest:
        draws = scope.draws(first.granularity)
        numbers = scope.source.uniform("", draws, (len(rest),), like).unbind(1)
        noise.update(zip(rest, numbers, strict=True))
    every = torch.stack([noise[key] for key in keys], 1)
    return dict(zip(keys, torch.split(first.picks(every, None), 1, 1), strict=True))
