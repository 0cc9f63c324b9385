"""Stops a run, on all processes, when a loss, a gradient or the data are no finite numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.errors import NonFinite
from leanbayes.likelihood import HALF
from leanbayes.model import reshard, unwrap
from leanbayes.posteriors.shards import is_shard, local_part
from leanbayes.train.late_flag import LateFlag, Sent

# Steps in a row whose gradients may overflow under fp16: its scaler leaves them out and halves the
# scale each time, so that after so many of them the scale is not the reason.
OVERFLOWS = 20
LOSS, DATA, FIRST = 0, 1, 2  # places in the vector of numbers: loss, data, then every parameter


class Shares(Protocol):
    """What the guard needs of a Runtime."""

    def any(self, flags: Tensor, /) -> Tensor:
        """The largest of every flag over all processes, on the CPU."""


class FiniteGuard:
    """Looks at every step's loss, gradients and data, and raises NonFinite on all processes.

    One norm a parameter (clipping reuses them), one sum over the batch, one vector of flags that is
    shared by all processes, so that all raise the same error. On the CPU that is before the
    optimiser moves anything. On a GPU all numbers share one flag that is read at the next `check`
    (`LateFlag`): nobody waits for the GPU, an error comes one step late, and the parameters that
    the broken step has spoilt tell its name. Call `settle()` before a state is saved or evaluated,
    so that no checkpoint is of a broken step.

    Args:
        likelihood: A likelihood with parameters of its own, if any.
        fp16: Gradients may overflow for a few steps, since a scaler leaves those steps out.

    Attributes:
        norms: Norm of every parameter's gradient at the last check (of this process's shards), 0
            where there is none; None where one flag was enough.
    """

    def __init__(self, likelihood: nn.Module | None = None, *, fp16: bool = False) -> None:
        self.likelihood = likelihood
        self.overflows = OVERFLOWS if fp16 else 0
        self.norms: Tensor | None = None
        self._module: nn.Module | None = None
        self._named: list[tuple[str, nn.Parameter]] = []
        self._parameters: list[nn.Parameter] = []
        self._grads: list[Tensor] = []
        self._quick = False
        self._sharded: Tensor | None = None
        self._late: LateFlag | None = None
        self._runtime: Shares | None = None
        self._overflowed = 0

    @torch.no_grad()
    def check(
        self, step: int, loss: Tensor, module: nn.Module, runtime: Shares, batch: Any = None
    ) -> None:
        """Raise NonFinite if this step (on a GPU: the one before) is broken on any process.

        Args:
            step: Number of the step, for the message.
            loss: The loss of this process.
            module: The model or its wrapper, gradients in place and unscaled.
            runtime: Shares flags with the other processes.
            batch: Inputs and targets of the step, on the device; floating tensors are looked at.
        """
        self.settle()
        if module is not self._module:
            self._learn(module)
        self._runtime = runtime
        loss = loss.detach()
        if self._late is None:
            loss = loss.reshape(())
            self._decide(step, runtime.any(_broken(self._numbers(loss, _sum_of(batch, loss)))))
        else:
            self._send(Sent(step, loss, batch), self._late)

    def settle(self) -> None:
        """Read the verdict that is still on its way, if any, and raise what it says."""
        sent = None if self._late is None else self._late.read()
        if sent is None:
            return
        assert self._runtime is not None
        # A sum is finite only if all its numbers are.
        now = [local_part(p.detach()).sum().to(sent.loss.dtype) for p in self._parameters]
        loss = sent.loss.reshape(())
        numbers = torch.stack([loss, _sum_of(sent.batch, loss), *now])
        wrong = self._runtime.any(_broken(numbers)).nonzero().flatten().tolist()
        raise NonFinite(self._words(sent.step, wrong))

    @torch.no_grad()
    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradients of the last check down to this norm; gives the norm they had.

        As `torch.nn.utils.clip_grad_norm_`, without computing the norms again.
        """
        norm = self.norm()
        if self._grads:
            factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(self._grads, factor)
        return norm

    @torch.no_grad()
    def norm(self) -> Tensor:
        """Norm of the whole gradient at the last check, over the shards of all processes."""
        if self.norms is None and self._parameters:
            zero = self._parameters[0].new_zeros(())
            self._numbers(zero, zero)
        if self.norms is None:
            return torch.zeros(())
        squares = self.norms.square()
        if self._sharded is None:
            return squares.sum().sqrt()
        apart = (squares * self._sharded).sum()
        torch.distributed.all_reduce(apart)
        return (apart + (squares * ~self._sharded).sum()).sqrt()

    def _learn(self, module: nn.Module) -> None:
        """List the parameters once: to walk through a deep network costs as much as the norms."""
        inner = unwrap(module)
        reshard(inner)  # gradients belong to the shards, not to what FSDP2 gathers for a pass
        named = dict(inner.named_parameters())
        if self.likelihood is not None:
            named |= {f"likelihood.{n}": p for n, p in self.likelihood.named_parameters()}
        self._named = [(name, p) for name, p in named.items() if p.requires_grad]
        shards = [is_shard(p) for _, p in self._named]
        device = next((p.device for _, p in self._named), None)
        self._sharded = torch.tensor(shards, device=device) if any(shards) else None
        self._parameters = [p for _, p in self._named]
        narrow = any(p.dtype in HALF for p in self._parameters)
        self._quick = self._sharded is None and not narrow and bool(self._parameters)
        # fp16 looks at every step at once: its scaler has to, too.
        on_gpu = device is not None and device.type == "cuda"
        self._late = LateFlag(device) if on_gpu and device and not self.overflows else None
        self._module = module

    def _send(self, sent: Sent, late: LateFlag) -> None:
        others = [sent.loss, *_floats(sent.batch)]  # the data too: a kernel less than their sum
        grads = [grad for p in self._parameters if (grad := p.grad) is not None]
        world = getattr(self._runtime, "world", 1)
        if not self._quick or not late.send(sent, grads + others, world):
            moved = [p for p in self._parameters if p.grad is not None]
            plain = [*map(_values, moved), sent.loss, _sum_of(sent.batch, sent.loss)]
            late.send(sent, plain, world)
        self.norms = None

    def _numbers(self, loss: Tensor, data: Tensor) -> Tensor:
        """Loss, sum of the data, and the norm of every gradient, as one vector."""
        zero, start = loss.new_zeros(()), [loss, data]
        grads: list[Any] = [p.grad for p in self._parameters]
        if self._quick:
            try:  # a few calls, where every parameter has a plain gradient, as nearly always
                numbers = torch.stack([*start, *torch._foreach_norm(grads)])
            except (TypeError, RuntimeError):
                pass
            else:
                self._grads, self.norms = grads, numbers[FIRST:]
                return numbers
        places = [i for i, grad in enumerate(grads) if grad is not None]
        self._grads = [_values(self._parameters[i]) for i in places]
        norms = [zero] * len(self._named)
        for place, norm in zip(places, _norms(self._grads), strict=True):
            norms[place] = norm
        numbers = torch.stack([*start, *norms])
        self.norms = numbers[FIRST:]
        return numbers

    def _decide(self, step: int, flags: Tensor) -> None:
        wrong = flags.nonzero().flatten().tolist()
        if not wrong:
            self._overflowed = 0
            return
        if wrong[0] >= FIRST:  # gradients alone
            self._overflowed += 1
            if self._overflowed < self.overflows:
                return
        raise NonFinite(self._words(step, wrong))

    def _words(self, step: int, wrong: Sequence[int]) -> str:
        names = [self._named[i - FIRST][0] for i in wrong if i >= FIRST]
        what = ["the loss"] * (LOSS in wrong) + ["the data (inputs or targets)"] * (DATA in wrong)
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            what.append(f"the gradient of {', '.join(names[:3])}{more}")
        elif not what:  # it moved no parameter: that of a part at rest
            what.append("a gradient")
        cure = _CLEAN if DATA in wrong else _CALM
        return (
            f"step {step}: {', '.join(what)} infinite or not a number. The run has stopped on all "
            f"processes; its last checkpoint is from before. {cure}"
        )


_CLEAN = (
    "Look for missing values in the data, and for a division by a standard deviation of 0 where "
    "they are normalised"
)
_CALM = (
    "Usual cures: a smaller lr or posterior_lr, clip=1.0, a warmup, precision='bf16' or 'fp32' "
    "instead of 'fp16'"
)


def _broken(numbers: Tensor) -> Tensor:
    """1 where a number is infinite or none."""
    return numbers.isfinite().logical_not_().float()


def _values(parameter: nn.Parameter) -> Tensor:
    """The numbers of a gradient on this process, in its own memory."""
    grad = parameter.grad
    assert grad is not None
    if grad.is_sparse:
        parameter.grad = grad = grad.coalesce()  # entries that come twice are one number
        return grad._values()
    return local_part(grad)


def _norms(grads: Sequence[Tensor]) -> Iterator[Tensor]:
    """Half-precision norms are taken in float32, where their squares have room."""
    if not grads:
        return iter(())
    narrow = any(g.dtype in HALF for g in grads) and all(g.dtype != torch.float64 for g in grads)
    dtype = torch.float32 if narrow else None
    return iter(torch._foreach_norm(list(grads), 2, dtype))


def _sum_of(batch: Any, like: Tensor) -> Tensor:
    """The sum of all numbers of the data: finite only if all of them are. Reads them once."""
    total: Tensor | None = None
    for x in _floats(batch):
        part = x.detach().sum(dtype=torch.float32 if x.dtype in HALF else None)
        total = part if total is None else total + part.to(total.device)
    return like.new_zeros(()) if total is None else total.to(like)


def _floats(batch: Any) -> list[Tensor]:
    """The tensors of a batch that may hold infinities."""
    leaves = pytree.tree_leaves(batch) if _is_nested(batch) else batch
    return [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]


def _is_nested(batch: Any) -> bool:
    """False for a tuple of tensors, as nearly always: walking through a tree costs a small step."""
    return type(batch) is not tuple or not all(isinstance(x, Tensor) for x in batch)
