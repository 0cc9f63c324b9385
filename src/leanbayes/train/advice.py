"""Words for a user: on labels and inputs, on the number of data, on memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from leanbayes.devices import device_of
from leanbayes.errors import DataError, OutOfMemory
from leanbayes.likelihood import Bernoulli, Categorical, Likelihood, tensor_of
from leanbayes.model import BayesianModel
from leanbayes.plan import MEAN, call, count_rows
from leanbayes.prediction import is_label
from leanbayes.train.keyed import kept
from leanbayes.untouched import untouched


class LabelGuard:
    """Finds labels out of range before a loss kernel does: on a GPU that would end the process.

    The first check of a run asks the network for its number of classes (one pass of one row, which
    leaves no trace). After that targets on the CPU are checked in every batch, so hand them over
    before they go to the device. Targets that come on a GPU are checked in the first batch only:
    to read them makes the GPU wait.

    Args:
        likelihood: Says what targets may be.
        augment: What is done to inputs before the network sees them.
    """

    def __init__(self, likelihood: Likelihood, augment: Callable[[Any], Any] | None = None) -> None:
        self.likelihood, self.augment = likelihood, augment
        self.classes: int | None = None
        self._first = True

    def check(self, batch: tuple[Any, Any], model: BayesianModel) -> None:
        """Raise DataError if a label of this batch is out of range."""
        inputs, targets = batch
        if self._first and isinstance(self.likelihood, Categorical):
            self.classes = count_classes(model, inputs, self.augment)
        if self._first or targets.device.type == "cpu":
            check_labels(targets, self.likelihood, self.classes)
        self._first = False


def count_classes(
    model: BayesianModel, inputs: Any, augment: Callable[[Any], Any] | None = None
) -> int:
    """The size of dim 1 of the mean network's output, from the first row of some inputs."""
    device = device_of(model)
    rows = count_rows((inputs,), {})

    def first(x: Tensor) -> Tensor:
        cut = x.dim() > 0 and x.shape[0] == rows and not model.sequence_first
        return (x[:1] if cut else x).to(device)

    # An augmentation may draw from the generators of Python and numpy, too.
    with kept(), untouched(model), torch.no_grad():
        model.eval()
        inputs = pytree.tree_map_only(Tensor, first, inputs)
        inputs = inputs if augment is None else augment(inputs)
        return tensor_of(call(model, inputs, plan=MEAN)).shape[1]


def check_labels(targets: Tensor, likelihood: Likelihood, classes: int | None = None) -> None:
    """Raise DataError for labels that the likelihood cannot take; makes a GPU wait.

    Numbers that are not finite are the affair of `FiniteGuard`, which stops all processes.

    Args:
        targets: Labels of a batch.
        likelihood: Categorical: 0 to classes - 1, or `ignore_index`; Bernoulli: 0 to 1.
        classes: Number of classes; None leaves the upper end open.

    Example:
        >>> check_labels(torch.tensor([0, 3]), Categorical(), classes=3)
        Traceback (most recent call last):
        leanbayes.errors.DataError: label 3 at place 1 of the batch ...
    """
    if targets.numel() == 0:
        return
    if isinstance(likelihood, Categorical):
        _check_classes(targets, likelihood.ignore_index, classes)
    elif isinstance(likelihood, Bernoulli):
        low, high = (float(x) for x in torch.aminmax(targets.detach()))
        if low < 0 or high > 1:
            raise DataError(f"Bernoulli expects targets 0 or 1, found {low:g} to {high:g}")


def _check_classes(targets: Tensor, ignored: int, classes: int | None) -> None:
    if targets.is_floating_point() or targets.is_complex():
        raise DataError(
            f"Categorical expects whole-number labels, found {targets.dtype}; write targets.long() "
            "(class indices, not one-hot rows: those give targets.argmax(1)), of numbers "
            "likelihood=lb.Gaussian(), of several yes or no lb.Bernoulli()"
        )
    if targets.dtype == torch.bool:
        return
    low, high = (int(x) for x in torch.aminmax(targets))
    if low >= 0 and (classes is None or high < classes):
        return
    targets = targets.long()  # bytes compare with 200 as with -56
    wrong = (targets < 0) if classes is None else (targets < 0) | (targets >= classes)
    places = (wrong & is_label(targets, ignored)).flatten().nonzero().flatten()
    if places.numel():
        first = int(places[0])
        raise DataError(_label_words(int(targets.flatten()[first]), first, len(places), classes))


def _label_words(label: int, place: int, count: int, classes: int | None) -> str:
    top = "" if classes is None else f" to {classes - 1}, for the {classes} outputs of the network"
    hint = f"number them from 0, or write Categorical(ignore_index={label}) if it means 'no label'"
    if label == classes:
        hint = "labels that start at 1 need targets - 1, one class more needs a wider last layer"
    elif label < 0:
        hint = f"write Categorical(ignore_index={label}) if it means 'no label'"
    return (
        f"label {label} at place {place} of the batch ({count} wrong in all) is out of range: "
        f"expected 0{top}. Cure: {hint}"
    )


def check_batch(batch: Any, name: str = "inputs") -> None:
    """Raise DataError naming the rows that hold infinite numbers or none at all.

    Reads every floating tensor once and makes a GPU wait. It raises on this process alone: in
    training `FiniteGuard` looks at the data and stops all of them.
    """
    for x in pytree.tree_leaves(batch):
        if not (isinstance(x, Tensor) and x.is_floating_point()) or x.numel() == 0:
            continue
        if bool(x.sum(dtype=torch.float32).isfinite()):
            continue
        wrong = x.isfinite().logical_not().reshape(len(x) if x.dim() else 1, -1).any(1)
        rows = wrong.nonzero().flatten().tolist()
        if rows:
            listed = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
            raise DataError(
                f"the {name} hold infinite values or nan in {len(rows)} of {len(wrong)} rows "
                f"(rows {listed} of the batch). Clean the data, or look for a division by a "
                "standard deviation of 0 where they are normalised"
            )


def warn_num_data(given: int, counted: int) -> None:
    """Warn where the number of data that was given is not that of the data set."""
    if given == counted:
        return
    times = counted / given
    effect = f"{times:.3g} times as much" if times > 1 else f"only {times:.3g} times as much"
    warnings.warn(
        f"num_data={given} was given, but the training data hold {counted}: the KL is divided by "
        f"num_data, so the prior counts {effect} as it should. Leave num_data out to have the data "
        "counted; to temper the KL on purpose, kl_weight says so",
        stacklevel=3,
    )


def warn_batchnorm(model: nn.Module, rows: int, pieces: int) -> None:
    """Warn that BatchNorm sees a part of a batch at a time once `auto_batch` has cut it."""
    if any(isinstance(m, _BatchNorm) and m.training for m in model.modules()):
        warnings.warn(
            f"memory ran out, so batches of {rows} rows go through the network in {pieces} parts: "
            f"BatchNorm now takes its statistics over {-(-rows // pieces)} rows, which is not the "
            "same as over the whole batch. batchnorm='frozen' or a smaller batch_size avoids it",
            stacklevel=3,
        )


# What allocators say; torch has a class of its own for its CUDA allocator alone.
_MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "bad_alloc",
    "alloc_failed",
)


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch and Python raise when memory runs out, on a GPU and on the CPU.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes differ"))
        (True, False)
    """
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _MEMORY_WORDS)


def memory_advice(error: BaseException, batch_size: int) -> OutOfMemory:
    """An error that says what to change; raise it `from` the one that was caught.

    Args:
        error: What was raised.
        batch_size: Rows that went through the network at once, on this process.
    """
    said = next(iter(str(error).splitlines()), "") or type(error).__name__
    half = max(1, batch_size // 2)
    keep = "auto_batch=True (the batch stays, cut into parts that fit)"
    first = f"{keep}, or batch_size={half}" if batch_size > 1 else "a smaller network or input"
    return OutOfMemory(
        f"a step with {batch_size} rows at once does not fit into memory ({said.rstrip('.')}). "
        f"Cures, the cheapest first: {first}; samples=1; precision='bf16' on a GPU; "
        "checkpoint_activations=True (slower, least memory); strategy='fsdp2' on several GPUs"
    )
