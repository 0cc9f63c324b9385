"""Where a run takes place: device, processes, number format and wrappers, behind one object."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from leanbayes.errors import ConfigError
from leanbayes.model import BayesianModel, sharded_modules, unwrap
from leanbayes.train import wrapping
from leanbayes.train.layout import turn_
from leanbayes.train.precision import Determinism, Precision
from leanbayes.train.processes import Processes, close_group, device_of, is_open, open_group
from leanbayes.train.whole_state import (
    Tensors,
    copies,
    living_tensors,
    load_optimizer,
    load_tensors,
    optimizer_state,
    trained_tensors,
)

if TYPE_CHECKING:
    from leanbayes.train.config import FitConfig

STRATEGIES = ("auto", "single", "ddp", "fsdp2")


class Runtime:
    """One process of a run, as a context: on exit the model is as plain as it was.

    Gradients are averaged over the processes; the KL is no part of them but an edit of the averaged
    gradients, the same in every process, and so counts once. (In the loss, the KL of every process
    is the whole KL, and its average again counts once.)

    Args:
        strategy: `auto` (DDP where there are several processes), `single` (this process alone,
            whatever others there are), `ddp` or `fsdp2`.
        precision: `fp32`, `bf16` or `fp16`.
        device: `auto`, `cpu`, `cuda` or `cuda:0`.
        compile: Compile the model; or the name of a backend.
        checkpoint_activations: Keep only the inputs of blocks and compute the rest again.
        deterministic: Repeatable kernels only.
        channels_last: Kernels channels last.
        timeout: Seconds after which a process gives the others up.

    Attributes:
        device: Of this process.
        strategy: `single`, `ddp` or `fsdp2`.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> with Runtime(device="cpu") as runtime:
        ...     module = runtime.prepare(model, lb.Categorical())
        ...     runtime.world, runtime.is_first
        (1, True)
    """

    def __init__(  # noqa: PLR0913
        self,
        strategy: str = "auto",
        precision: str = "fp32",
        device: str = "auto",
        compile: bool | str = False,
        checkpoint_activations: bool = False,
        deterministic: bool = False,
        channels_last: bool = False,
        timeout: float = 300.0,
    ) -> None:
        if strategy not in STRATEGIES:
            raise ConfigError(f"strategy is one of {', '.join(STRATEGIES)}; found {strategy!r}")
        if compile and checkpoint_activations:
            raise ConfigError(
                "checkpointed blocks cut a compiled graph to pieces: choose compile=True, which "
                "decides by itself what to compute again, or checkpoint_activations=True"
            )
        self.strategy = strategy
        self._backend = compile if isinstance(compile, str) else "inductor" if compile else None
        self._checkpoints, self._deterministic = checkpoint_activations, deterministic
        self._precision_name, self._device_name = precision, device
        self._timeout, self._channels_last = timeout, channels_last
        self._likelihood: nn.Module | None = None
        self._local, self._joint = ExitStack(), ExitStack()
        self._owns_group = False

    @classmethod
    def of(cls, config: FitConfig) -> Self:
        """The runtime that a configuration asks for."""
        return cls(
            strategy=config.strategy,
            precision=config.precision,
            device=config.device,
            compile=config.compile,
            checkpoint_activations=config.checkpoint_activations,
            deterministic=config.deterministic,
            channels_last=config.channels_last,
        )

    def __enter__(self) -> Self:
        found = Processes.found()
        if self.strategy == "auto":
            self.strategy = "ddp" if found.world > 1 else "single"
        if self.strategy == "single":
            found = Processes(local_rank=found.local_rank)
        self._processes = found
        self.device = device_of(self._device_name, found)
        self._precision = Precision(self._precision_name, self.device)
        if self._deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            self._local.callback(Determinism().undo)
        self._owns_group = self.strategy != "single" and not is_open()
        if self._owns_group:
            open_group(found, self.device, self._timeout)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            if kind is None:
                self._joint.close()  # all processes are here: shards can be put together
            else:
                self._joint.pop_all()
        finally:
            self._local.close()
            if self._owns_group:
                self._owns_group = False
                close_group(wait=kind is None)

    @property
    def rank(self) -> int:
        """Number of this process."""
        return self._processes.rank

    @property
    def world(self) -> int:
        """Number of processes."""
        return self._processes.world

    @property
    def is_first(self) -> bool:
        """True in the process that writes."""
        return self.rank == 0

    def seed(self, seed: int) -> None:
        """Seed all generators with `seed + rank`: processes draw differently, runs alike."""
        own = seed + self.rank
        torch.manual_seed(own)
        random.seed(own)
        np.random.seed(own % 2**32)  # noqa: NPY002

    def prepare(self, model: BayesianModel, likelihood: nn.Module | None = None) -> nn.Module:
        """The module to call in training: on the device, equal in all processes, and wrapped.

        `likelihood` moves too; its parameters are no part of the wrapper, so their gradients are
        to be averaged by `average_gradients`. Parameters may be exchanged here: build the optimiser
        afterwards.
        """
        inner = unwrap(model).to(self.device)
        if self._channels_last:
            turn_(inner)
        self._likelihood = likelihood
        if likelihood is not None:
            likelihood.to(self.device)
        if self.strategy != "single":
            self._set_likelihood_aside(inner)
        if self.world > 1:
            every = [inner] if likelihood is None else [inner, likelihood]
            self._processes.copy_first(t for m in every for t in (*m.parameters(), *m.buffers()))
            self._joint.callback(self.share_buffers, inner)
        if self.device.type == "cuda" and self.world > 1:
            self._local.callback(wrapping.synchronise_norms(inner.net))
        if self._checkpoints:
            self._local.callback(wrapping.checkpoint_blocks(inner.net))
        return self._wrapped(inner)

    def _wrapped(self, model: BayesianModel) -> nn.Module:
        if self.strategy == "fsdp2":
            if self._backend is not None:
                self._local.callback(wrapping.compile_blocks(model.net, self._backend))
            self._joint.callback(wrapping.Shards(model, self.device).undo)
            return model
        module: Any = model
        if self._backend is not None:
            module = torch.compile(model, backend=self._backend)
        if self.strategy == "ddp":
            module = wrapping.distributed(module, model, self.device)
            self._local.callback(wrapping.hollow, module)
        wrapped: nn.Module = module
        return wrapped

    def _set_likelihood_aside(self, model: BayesianModel) -> None:
        """Wrappers wait for the gradient of every parameter inside, and no pass uses these."""
        kept, model.likelihood = model.likelihood, None

        def undo() -> None:
            if model.likelihood is None:
                model.likelihood = kept

        self._local.callback(undo)

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass in the run's precision."""
        return self._precision.autocast()

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss; scaled in fp16."""
        self._precision.backward(loss)

    @contextmanager
    def synchronising(self, module: nn.Module, last: bool = True) -> Iterator[None]:
        """Around forward and backward of a part of a batch: only the last part sends gradients."""
        if last or self.strategy == "single":
            yield
        elif isinstance(module, DistributedDataParallel):
            with module.no_sync():
                yield
        else:
            _set_gradient_sync(module, False)
            yield
            _set_gradient_sync(module, True)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """True gradients in fp16; once a step, and after `average_gradients`."""
        self._precision.unscale(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Step; False where fp16 overflowed, in any process, and the step was left out."""
        return self._precision.step(optimizer)

    def scaler_state(self) -> dict[str, Any]:
        """State of the loss scale; empty but in fp16."""
        return self._precision.state()

    def load_scaler_state(self, state: Mapping[str, Any]) -> None:
        """Go on with a saved loss scale."""
        self._precision.load_state(dict(state))

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Mean gradients, over the processes, of parameters outside the wrapper."""
        self._processes.average_gradients(parameters)

    def any(self, flags: Tensor | float) -> Tensor:
        """The largest value over all processes, of every element, in float32 on the CPU."""
        return self._processes.any(flags)

    def mean(self, values: Tensor | float) -> Tensor:
        """The mean over all processes, of every element."""
        return self._processes.mean(values)

    def gather(self, thing: Any) -> list[Any]:
        """What every process holds, by rank, in all of them."""
        return self._processes.gather(thing)

    def broadcast(self, thing: Any) -> Any:
        """What the first process holds, in all of them."""
        return self._processes.broadcast(thing)

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self._processes.barrier()

    def share_buffers(self, module: nn.Module) -> None:
        """Give all processes the buffers of the first; BatchNorm's follow a process's own rows."""
        self._processes.copy_first(unwrap(module).buffers())

    def full_state(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[Tensors, dict[str, Any]]:
        """Tensors of the model and state of the optimiser by name, whole, on the CPU.

        All processes must call and all get it. Buffers (BatchNorm's statistics) are those of the
        first process, and all have them from here on.
        """
        model = unwrap(module)
        self.share_buffers(model)
        tensors = copies(living_tensors(model))
        return tensors, optimizer_state(optimizer, trained_tensors(model, self._likelihood))

    def load_full_state(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        model_state: Mapping[str, Tensor],
        optimizer_state: Mapping[str, Any],
    ) -> None:
        """Go on from a saved state, whatever number of processes had written it."""
        model = unwrap(module)
        load_tensors(living_tensors(model), model_state)
        load_optimizer(optimizer, trained_tensors(model, self._likelihood), optimizer_state)


def _set_gradient_sync(module: nn.Module, wanted: bool) -> None:
    for part in sharded_modules(unwrap(module)):
        part.set_requires_gradient_sync(wanted)
