"""Host of `nn.MultiheadAttention`.

The stock layer hands its weights to one fused function and never calls `out_proj`, so drawn weights
would be bypassed. The host projects with drawn weights, attends with torch's own kernel and calls
`out_proj`, which is a Linear host of its own.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leanbayes import ops
from leanbayes.errors import PlanError
from leanbayes.forms import Ask, Flipped, Form, LowRank, PerDraw, Selected, Shared
from leanbayes.layers.base import PLAIN, Host


class Heads(NamedTuple):
    """Queries, keys and values, each [B, tokens, E]."""

    query: Tensor
    key: Tensor
    value: Tensor


class BayesianMultiheadAttention(Host, nn.MultiheadAttention):
    """Attention with drawn projections; one draw a row, shared by its tokens."""

    kind: ClassVar[str] = "attention"
    stock: ClassVar[type[nn.Module]] = nn.MultiheadAttention
    tensor_names: ClassVar[tuple[str, ...]] = (
        "in_proj_weight",
        "q_proj_weight",
        "k_proj_weight",
        "v_proj_weight",
        "in_proj_bias",
    )

    def ask(self, slot: str) -> Ask:
        """Flipout signs for the projections."""
        if not slot.endswith("weight"):
            return PLAIN
        shape: torch.Size = getattr(self, slot).shape
        return Ask(signs=(shape[0], shape[1]))

    def forward(  # noqa: PLR0913
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; the arguments are those of the stock layer."""
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal needs attn_mask, as in nn.MultiheadAttention")
        batched = query.dim() == 3
        inputs = self._batch_first(Heads(query, key, value), batched)
        heads = self._with_extra_keys(self._project(inputs))
        mask = self._mask(heads, attn_mask, key_padding_mask)
        attended, weights = self._attend(heads, mask, need_weights)
        output: Tensor = self.out_proj(attended)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return output[0], None if weights is None else weights[0]
        return output if self.batch_first else output.transpose(0, 1), weights

    def _batch_first(self, inputs: Heads, batched: bool) -> Heads:
        """Bring the inputs to [B, tokens, E]; objects that were one stay one."""
        if batched and self.batch_first:
            return inputs
        if self.scope.draws("row") > 1 and not self.scope.plan.mean:
            raise PlanError(
                "MultiheadAttention with batch_first=False (or without a batch) keeps no rows in "
                "dim 0, so one pass holds one draw: use Plan(groups=1) or batch_first=True"
            )
        query = _turned(inputs.query, batched)
        key = query if inputs.key is inputs.query else _turned(inputs.key, batched)
        value = key if inputs.value is inputs.key else _turned(inputs.value, batched)
        return Heads(query, key, value)

    @classmethod
    def factor_sizes(cls, layer: nn.Module) -> dict[str, int]:
        """A pair for the three projections together, or one for each where their inputs differ.

        Together they share the factors of their inputs, as they share one matrix.
        """
        assert isinstance(layer, nn.MultiheadAttention)
        E = layer.embed_dim
        if layer._qkv_same_embed_dim:
            return {"in_scale": E, "out_scale": 3 * E}
        widths = zip("qkv", (E, layer.kdim, layer.vdim), strict=True)
        return {
            f"{side}_scale_{name}": width if side == "in" else E
            for name, width in widths
            for side in ("in", "out")
        }

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Scale columns by an input factor, rows by an output factor."""
        side, _, name = slot.partition("_scale")
        weight = getattr(self, f"{name[1:]}_proj_weight" if name else "in_proj_weight")
        weight.mul_(factor if side == "in" else factor[:, None])

    def _project(self, inputs: Heads) -> Heads:
        """Scale, multiply by the drawn matrices, scale, add the bias; one product where it does."""
        bias = self.form("in_proj_bias")
        E = self.embed_dim
        rows = [slice(i * E, (i + 1) * E) for i in range(3)]
        biases = [None if bias is None else _rows(bias, part) for part in rows]
        if not self._qkv_same_embed_dim:
            parts = zip("qkv", inputs, biases, strict=True)
            return Heads(*(self._projected_alone(name, x, b) for name, x, b in parts))
        weight, x = self._weight("in_proj_weight"), inputs.query
        before, after = self.factor("in_scale", x), self._out_factor("out_scale", x, 3 * E)
        if x is inputs.key and x is inputs.value:
            return Heads(*_projected(x, weight, bias, before, after).chunk(3, dim=-1))
        afters = [None if after is None else after[..., part] for part in rows]
        weights = [_rows(weight, part) for part in rows]
        return Heads(*map(_projected, inputs, weights, biases, [before] * 3, afters))

    def _projected_alone(self, name: str, x: Tensor, bias: Form | None) -> Tensor:
        before = self.factor(f"in_scale_{name}", x)
        after = self._out_factor(f"out_scale_{name}", x, self.embed_dim)
        return _projected(x, self._weight(f"{name}_proj_weight"), bias, before, after)

    def _out_factor(self, slot: str, x: Tensor, width: int) -> Tensor | None:
        """Factors of what a projection of x to `width` features gives."""
        return self.factor(slot, x[..., :1].expand(*x.shape[:-1], width))

    def _weight(self, slot: str) -> Form:
        weight = self.form(slot, self.ask(slot))
        assert weight is not None
        return weight

    def _with_extra_keys(self, heads: Heads) -> Heads:
        query, key, value = heads
        B = key.shape[0]
        if self.bias_k is not None and self.bias_v is not None:
            key = torch.cat([key, self.bias_k.expand(B, 1, -1).to(key.dtype)], 1)
            value = torch.cat([value, self.bias_v.expand(B, 1, -1).to(value.dtype)], 1)
        if self.add_zero_attn:
            zeros = key.new_zeros(B, 1, self.embed_dim)
            key, value = torch.cat([key, zeros], 1), torch.cat([value, zeros], 1)
        return Heads(query, key, value)

    def _mask(
        self, heads: Heads, attn_mask: Tensor | None, padding: Tensor | None
    ) -> Tensor | None:
        """Both masks as one additive mask that broadcasts to [B, heads, queries, keys]."""
        B, keys = heads.key.shape[:2]
        mask = None
        if attn_mask is not None:
            mask = _additive(attn_mask, heads.query.dtype)
            mask = mask.reshape(-1, self.num_heads, *mask.shape[1:]) if mask.dim() == 3 else mask
            mask = F.pad(mask, (0, keys - mask.shape[-1]))
        if padding is not None:
            hidden = _additive(padding.reshape(B, 1, 1, -1), heads.query.dtype)
            hidden = F.pad(hidden, (0, keys - hidden.shape[-1]))
            mask = hidden if mask is None else mask + hidden
        return mask

    def _attend(
        self, heads: Heads, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = (
            x.reshape(*x.shape[:2], self.num_heads, -1).transpose(1, 2) for x in heads
        )
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            y = F.scaled_dot_product_attention(query, key, value, mask, dropout)
            return y.transpose(1, 2).flatten(-2), None
        scores = query @ key.transpose(-2, -1) * self.head_dim**-0.5
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        weights = F.dropout(weights, dropout)
        return (weights @ value).transpose(1, 2).flatten(-2), weights


def _turned(x: Tensor, batched: bool) -> Tensor:
    return x.transpose(0, 1) if batched else x.unsqueeze(0)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def _projected(
    x: Tensor, weight: Form, bias: Form | None, before: Tensor | None, after: Tensor | None
) -> Tensor:
    """`(W (x * before)) * after + b`."""
    x = ops.scaled(x, before, -1)
    if after is None:
        return ops.linear(x, weight, bias)
    return ops.added(ops.scaled(ops.linear(x, weight, None), after, -1), bias, -1)


def _rows(form: Form, part: slice) -> Form:
    """The draw of some rows of a tensor."""
    if isinstance(form, Shared):
        return Shared(form.value[part])
    if isinstance(form, PerDraw):
        return PerDraw(form.value[:, part])
    if isinstance(form, Flipped):
        rows = None if form.sign0 is None else form.sign0[:, part]
        return form._replace(mean=form.mean[part], delta=form.delta[part], sign0=rows)
    if isinstance(form, Selected):
        return form._replace(values=form.values[:, part])
    if isinstance(form, LowRank):
        picked = form.picked
        if picked is not None:
            picked = [factor[:, part] for factor in picked[0]], picked[1]
        return form._replace(base=form.base[part], left=form.left[:, part], picked=picked)
    raise TypeError(f"rows of {type(form).__name__} are not defined")
