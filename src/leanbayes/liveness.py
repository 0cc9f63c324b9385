"""Prove on an example that every converted layer acts, and that rows are in dim 0.

Forward hooks would not do: they switch off the very fast paths that bypass converted layers. Hosts
note the use of their slots instead, in training and in `eval()` + `no_grad()`, and in training the
output must depend on every new parameter (in one of several passes, where chance skips layers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.calls import calls_of, off_rows
from leanbayes.errors import ConversionError, PlanError
from leanbayes.layers.base import Host
from leanbayes.likelihood import HALF
from leanbayes.model import BayesianModel
from leanbayes.noise import KeyedNoise
from leanbayes.plan import MEAN, Plan, call, count_rows, fold, tensors_in
from leanbayes.posteriors.base import Posterior
from leanbayes.reads import reads_beside_layers
from leanbayes.rows_apart import rows_apart
from leanbayes.surgery import hosts
from leanbayes.untouched import untouched

Uses = Counter[tuple[Host, str]]
PASSES = 16  # in training: one of 24 layers left out half of the time is missed once in 2,700


def check_alive(model: BayesianModel, example: Any) -> None:
    """Raise ConversionError where a converted layer is bypassed or rows are not in dim 0.

    Buffers, gradients, modes and the random state are as before. Tensors that one pass uses more
    than once are noted in the model: they take one draw a pass from now on.
    """
    with untouched(model):
        with _full_precision(model), rows_apart(model):
            check_rows(model, example)
            check_folds(model, example)
        batch = _batch_of(model, example)
        read = _read_beside(model, example, train=False) | _read_beside(model, batch, train=True)
        evaluated = _uses_in_evaluation(model, example)
        trained, dead = _uses_in_training(model, batch, evaluated)
    for where, uses in (("in training", trained), ("in eval() with no_grad()", evaluated)):
        _raise_bypassed(model, _missing(model, uses), where)
    _raise_keys(sorted(dead), "runs, but the output does not depend on it")
    _raise_keys(
        sorted(read),
        "is used by the network itself beside its layer, without noise there: let a layer of the "
        "same Parameter do that (head.weight = embed.weight), and both share a draw",
    )
    model.shared = _used_often(trained | evaluated)


def _batch_of(model: BayesianModel, example: Any) -> Any:
    """The example as often as training needs it."""
    needed = max(2, model.method.index_members)  # BatchNorm needs two rows, every member one
    return fold(example, -(-needed // count_rows((example,), {})))


def _uses_in_training(model: BayesianModel, batch: Any, evaluated: Uses) -> tuple[Uses, set[str]]:
    """What acts in training, and what does not; chance may leave layers out of a pass."""
    model.train()
    uses, dead = _training_pass(model, batch)
    for _ in range(PASSES - 1):
        missing = {host.posterior(slot).key for host, slot in _missing(model, uses)}
        if not dead | missing or _missing(model, evaluated):
            break
        again, still = _training_pass(model, batch)
        uses, dead = uses | again, dead & still
    return uses, dead


def _training_pass(model: BayesianModel, batch: Any) -> tuple[Uses, set[str]]:
    """What one pass used, and the keys that its output does not depend on."""
    with torch.enable_grad(), _tracing(model) as trace:
        output = call(model, batch)
    return Counter(trace), _disconnected(model, output)


def _uses_in_evaluation(model: BayesianModel, example: Any) -> Uses:
    model.eval()
    plan = Plan() if model.method.is_random else MEAN
    with torch.no_grad(), _tracing(model) as trace:
        call(model, example, plan=plan)
    return Counter(trace)


def _read_beside(model: BayesianModel, inputs: Any, *, train: bool) -> set[str]:
    """Keys of the tensors that the network reads by itself, too."""
    model.train(train)
    with torch.no_grad():
        return reads_beside_layers(model.net, lambda: call(model, inputs, plan=MEAN))


def _missing(model: BayesianModel, uses: Uses) -> list[tuple[Host, str]]:
    """Slots whose draws act nowhere; those of a tied tensor may act in another of its layers."""
    every = [(host, slot) for _, host in hosts(model.net) for slot in host.slots]
    acting = {id(host.posterior(slot)) for host, slot in uses}
    return [(host, slot) for host, slot in every if id(host.posterior(slot)) not in acting]


@contextmanager
def _tracing(model: BayesianModel) -> Iterator[list[Any]]:
    """Let hosts note their uses; layers that run twice are only found here, so they may."""
    trace: list[Any] = []
    model.scope.trace = trace
    model.shared = [(host, slot) for _, host in hosts(model.net) for slot in host.slots]
    try:
        yield trace
    finally:
        model.scope.trace = None
        model.shared = []


def _disconnected(model: BayesianModel, output: Any) -> set[str]:
    """Keys of the posteriors with a parameter that the output does not depend on."""
    leaves = [x for x in tensors_in(output) if x.requires_grad]
    names = {host: name for name, host in hosts(model.net)}
    named = [
        (f"{names[host]}.{slot}".lstrip("."), p)
        for host, slot, posterior, base in model.posteriors()
        for p in _learnt(posterior) or [base]  # measured laws learn nothing of their own
        if p.requires_grad
    ]
    if not named:
        return set()
    if not leaves:
        raise ConversionError(_without_gradient())
    reached = _reached(leaves)
    return {key for key, p in named if id(p) not in reached}


def _reached(outputs: Sequence[Tensor]) -> set[int]:
    """Identities of the tensors at the ends of the graph: nothing is differentiated for them.

    A backward pass to some parameters alone would be dearer, and kills the process in PyTorch's
    GroupNorm on images channels last, where that needs no gradient of its input.
    """
    waiting: list[Any] = [output.grad_fn for output in outputs]
    reached = {id(output) for output in outputs}
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            raise ConversionError(
                "the network checkpoints activations with use_reentrant=True, which hides what is "
                "inside a block: convert first and turn checkpointing on after it, or write "
                "use_reentrant=False. The network is unchanged"
            )
        seen.add(node)
        reached.add(id(getattr(node, "variable", None)))
        waiting += [following for following, _ in node.next_functions]
    return reached


def _without_gradient() -> str:
    if torch.is_inference_mode_enabled():
        return "found torch.inference_mode(), in which nothing can be learnt: convert outside of it"
    return "the output of the example has no gradient: does it return tensors?"


def _learnt(posterior: Posterior) -> list[Tensor]:
    return [p for p in posterior.parameters() if p.requires_grad]


def _raise_bypassed(model: BayesianModel, sites: list[tuple[Host, str]], where: str) -> None:
    names = {host: name for name, host in hosts(model.net)}
    keys = sorted({f"{names[host]}.{slot}".lstrip(".") for host, slot in sites})
    _raise_keys(keys, f"does not act {where}: {_why_bypassed(keys)}")


def _why_bypassed(keys: list[str]) -> str:
    if all(key.rpartition(".")[2] == "mask" for key in keys):
        return (
            "the network never calls it, and may hand its rate to a fused attention instead (in "
            "transformers, attn_implementation='eager' calls it)"
        )
    return "the network reads its weight or never calls it"


def _raise_keys(keys: list[str], what: str) -> None:
    if keys:
        layers = sorted({key.rpartition(".")[0] for key in keys})
        raise ConversionError(
            f"{keys[0]} {what}"
            + (f" (and {len(keys) - 1} more: {', '.join(keys[1:5])})" if keys[1:] else "")
            + ". Leave such layers out: select=~lb.select.by_name("
            + ", ".join(repr(layer) for layer in layers)
            + "). The network is unchanged"
        )


def _used_often(uses: Uses) -> list[tuple[Host, str]]:
    """One (host, slot) for all the noise that more than one use in a pass refers to."""
    total: Counter[str] = Counter()
    first: dict[str, tuple[Host, str]] = {}
    for (host, slot), count in uses.items():
        key = host.posterior(slot).noise_key
        total[key] += count
        first.setdefault(key, (host, slot))
    return [first[key] for key, count in total.items() if count > 1]


def tied_slots(net: nn.Module) -> list[tuple[Host, str]]:
    """One (host, slot) for every posterior that several layers, or several names, share."""
    uses: Uses = Counter()
    for _, module in net.named_modules(remove_duplicate=False):
        if isinstance(module, Host):
            uses.update((module, slot) for slot in module.slots)
    return _used_often(uses)


def check_rows(model: BayesianModel, example: Any) -> None:
    """Reversing the rows of the example must reverse the rows of the mean network's output."""
    rows = count_rows((example,), {})
    if rows < 2 or model.sequence_first:
        return
    model.eval()
    with torch.no_grad():
        forward = call(model, example, plan=MEAN)
        backward = call(model, _reversed(example, rows), plan=MEAN)
    outputs = _by_row(forward, rows)
    if not outputs:
        raise ConversionError(_without_rows(rows, forward))
    again = [x.flip(0) for x in _by_row(backward, rows)]
    if _differ(model, example, zip(outputs, again, strict=False)):
        raise ConversionError(
            f"dim 0 of the example ({rows} rows) is not the batch: reversing it does not reverse "
            "the output. leanbayes needs the batch in dim 0: transpose the input, or build the "
            "layers with batch_first=True. The network is unchanged"
        )


def check_folds(model: BayesianModel, example: Any) -> None:
    """Two samples in one pass must equal two passes: no layer may mix rows up with other things."""
    if model.sequence_first or not model.method.is_random:
        return
    model.eval()

    def drawn(samples: range) -> Any:
        plan = model.method.prediction_plan(samples, KeyedNoise(0, samples))
        return call(model, fold(example, len(samples)), plan=plan)

    with torch.no_grad():
        try:
            folded, looped = drawn(range(2)), [drawn(range(1)), drawn(range(1, 2))]
        except PlanError as error:
            if names := _off_rows(model, example):
                raise ConversionError(_unfolded(names)) from error
            raise
    rows = count_rows((example,), {})
    parts = map(torch.cat, zip(*(_by_row(y, rows) for y in looped), strict=False))
    if _differ(model, example, zip(_by_row(folded, 2 * rows), parts, strict=False)):
        raise ConversionError(_unfolded(_off_rows(model, example)))


def _without_rows(rows: int, output: Any) -> str:
    shapes = ", ".join(str(tuple(x.shape)) for x in tensors_in(output))
    if not shapes:
        return (
            f"the network returned {type(output).__name__}, in which no tensor was found; expected "
            "one, or several in a tuple, a dict or a dataclass. The network is unchanged"
        )
    return (
        f"dim 0 of the example ({rows} rows) is not the batch: the outputs are {shapes}. leanbayes "
        "needs the batch in dim 0: transpose the input, or build the layers with batch_first=True. "
        "The network is unchanged"
    )


def _off_rows(model: BayesianModel, example: Any) -> list[str]:
    return off_rows(model, dict(hosts(model.net)), example)


def _unfolded(names: list[str]) -> str:
    listed = ", ".join(map(repr, names)) or "..."
    more = f" and {len(names) - 1} more get inputs" if names[1:] else " gets an input"
    which = f"'{names[0]}'{more}" if names else "a converted layer gets an input"
    return (
        f"two samples folded into one pass differ from two passes: {which} without rows in dim 0. "
        f"Transpose it, or leave such layers out: select=~lb.select.by_name({listed}). The network "
        "is unchanged"
    )


@contextmanager
def _full_precision(model: nn.Module) -> Iterator[None]:
    """Without TF32 in convolutions, whose error a network with widely spread factors may magnify.

    Settings by the newer names of PyTorch cannot be read by the older ones: they stay.
    """
    cudnn = torch.backends.cudnn
    with ExitStack() as stack:
        if any(p.is_cuda for p in model.parameters()):
            with suppress(RuntimeError):
                stack.enter_context(
                    cudnn.flags(
                        enabled=cudnn.enabled,
                        benchmark=cudnn.benchmark,
                        deterministic=cudnn.deterministic,
                        allow_tf32=False,
                    )
                )
        yield


def _reversed(tree: Any, rows: int) -> Any:
    return pytree.tree_map_only(
        Tensor, lambda x: x.flip(0) if x.dim() and x.shape[0] == rows else x, tree
    )


def _by_row(tree: Any, rows: int) -> list[Tensor]:
    return [x for x in tensors_in(tree) if x.dim() and x.shape[0] == rows]


def _differ(model: BayesianModel, example: Any, found: Iterable[tuple[Tensor, Tensor]]) -> bool:
    """True unless they are the same up to the precision in which the network computes.

    Outputs do not tell it: logits of half precision are often widened at the end. There a dozen
    blocks round what is the same by up to two per cent, for numbers of rows have kernels of their
    own.
    """
    pairs = [(a, b) for a, b in found if not _close(a, b, 1e-3)]
    if not pairs:
        return False
    types = calls_of(model, dict(model.net.named_modules()), example).types
    return types.isdisjoint(HALF) or not all(_close(a, b, 5e-2) for a, b in pairs)


def _close(a: Tensor, b: Tensor, loose: float) -> bool:
    if not a.is_floating_point():
        return bool((a == b).all())
    finite = a[a.isfinite()]  # masked logits are infinite, rows with missing values are no number
    size = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=loose, atol=loose * max(size, 1e-6), equal_nan=True)
