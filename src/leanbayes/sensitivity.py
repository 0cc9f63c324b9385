"""How much a network depends on each of its parameters: what `lb.Partial` ranks them by.

With independent random signs v_i the squared gradient of `sum_i v_i g_i` has the mean
`sum_i (dg_i / dtheta)^2`: squares by example, at the price of one backward pass a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.arguments import refuse_examples
from leanbayes.counts import checked_count
from leanbayes.devices import device_of
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Likelihood, tensor_of
from leanbayes.ops import at_least_float32
from leanbayes.plan import call
from leanbayes.untouched import untouched

Criterion = Literal["loss_grad", "fisher", "output_jacobian", "magnitude", "random"]
Scores = dict[str, Tensor]
# What is differentiated, and how many data it is summed over.
Probe = Callable[[Tensor, Tensor, Likelihood, torch.Generator], tuple[Tensor, Tensor | int]]


def sensitivity(  # noqa: PLR0913
    net: nn.Module,
    data: Iterable[Any] | None = None,
    likelihood: nn.Module | None = None,
    *,
    criterion: Criterion = "output_jacobian",
    samples: int = 1,
    seed: int = 0,
    progress: bool = True,
) -> Scores:
    """A score for every entry of every parameter, by name, in the order of `named_parameters()`.

    - `output_jacobian`: mean over examples of `sum_c (df_c / dtheta)^2`; times the variance of the
      parameter it is its first-order share in the variance of the outputs (PBN, eq. 6).
    - `fisher`: mean over data of `(d log p(y | x) / dtheta)^2`, labels as given (empirical Fisher).
    - `loss_grad`: `|d mean loss / dtheta|`, the paper's. Near 0 up to noise in a converged net: on
      two halves of the data its top 5 % agree to 0.3-0.6, those of `output_jacobian` to 0.8.
    - `magnitude`: `|theta|`. `random`: uniform numbers of the seed. Both need no data.

    PBN ranks first-order variances. Its second-order variance (eq. 4) prints
    `f'^2 s^2 - f''^2 s^4 / 4`; a Gaussian's is `f'^2 s^2 + f''^2 s^4 / 2`: for `f = theta^2` at
    mean 1 and s = 0.5 that is 1.125, which is exact, against 0.9375.

    The network runs in `eval()`; modes, gradients, buffers and random states stay as they were.

    Args:
        net: Any module, not yet converted.
        data: Batches of (inputs, targets).
        likelihood: How outputs give a probability to targets.
        criterion: What to score by.
        samples: Draws of signs a batch, for `fisher` and `output_jacobian`. With few batches more
            draws pay: one batch and one draw leave a score with a relative error of 1.4.
        seed: Of the signs, and of `random`.
        progress: Show a bar, on a terminal only.

    Cost: one pass and `samples` backward passes a batch; one more copy of the parameters.

    Example:
        >>> import leanbayes as lb, torch
        >>> net, x = torch.nn.Linear(2, 1), torch.tensor([[3.0, 0.0]])
        >>> scores = lb.sensitivity(net, [(x, torch.zeros(1, 1))], lb.Gaussian())
        >>> scores["weight"].tolist(), scores["bias"].tolist()
        ([[9.0, 0.0]], [1.0])
    """
    if criterion not in get_args(Criterion):
        raise ConfigError(
            f"criterion is one of {', '.join(get_args(Criterion))}; found {criterion!r}"
        )
    samples = checked_count("samples", samples)
    generator = torch.Generator().manual_seed(seed)
    named = dict(net.named_parameters())
    if criterion == "magnitude":
        return {name: p.detach().abs() for name, p in named.items()}
    if criterion == "random":
        drawn = {name: torch.rand(p.shape, generator=generator) for name, p in named.items()}
        return {name: drawn[name].to(p.device) for name, p in named.items()}
    found = _checked_data(data), _checked_likelihood(likelihood, criterion)
    totals = _totals(net, *found, criterion, samples, generator, progress)
    return dict(zip(named, totals, strict=True))


def _totals(  # noqa: PLR0913
    net: nn.Module,
    data: Iterable[Any],
    likelihood: Likelihood,
    criterion: Criterion,
    samples: int,
    generator: torch.Generator,
    progress: bool,
) -> list[Tensor]:
    """Gradients, or their squares, averaged over all data."""
    params = list(net.parameters())
    totals = [torch.zeros_like(at_least_float32(p.detach())) for p in params]
    repeats = 1 if criterion == "loss_grad" else samples
    count = 0.0  # class weights add up to no whole number
    with _evaluating(net), _differentiable(params) as live:
        for inputs, target in _batches(data, net, criterion, progress):
            output = tensor_of(call(net, inputs))
            for _ in range(repeats):
                value, size = PROBES[criterion](output, target, likelihood, generator)
                grads = torch.autograd.grad(value, live, retain_graph=True, allow_unused=True)
                _add(totals, params, dict(zip(live, grads, strict=True)), criterion)
                count += float(size)
    if count == 0:
        raise ConfigError(
            "sensitivity saw no datum: the loader gave no batch, or none with a label. Expected "
            "batches of (inputs, targets), and a generator that has not been used up"
        )
    return [(total / count).abs() for total in totals]


def _add(
    totals: Sequence[Tensor],
    params: Sequence[Tensor],
    grads: dict[Tensor, Tensor | None],
    criterion: Criterion,
) -> None:
    for total, parameter in zip(totals, params, strict=True):
        grad = grads.get(parameter)
        if grad is not None:
            wide = at_least_float32(grad)
            total.add_(wide if criterion == "loss_grad" else wide.square())


def _log_prob(
    output: Tensor, target: Tensor, likelihood: Likelihood, _generator: torch.Generator
) -> tuple[Tensor, Tensor | int]:
    log_prob = likelihood.log_prob(output, target)
    return log_prob.sum(), likelihood.count(log_prob, target)


def _signed_log_prob(
    output: Tensor, target: Tensor, likelihood: Likelihood, generator: torch.Generator
) -> tuple[Tensor, Tensor | int]:
    log_prob = likelihood.log_prob(output, target)
    return (log_prob * _signs(log_prob, generator)).sum(), likelihood.count(log_prob, target)


def _signed_output(
    output: Tensor, _target: Tensor, _likelihood: Likelihood, generator: torch.Generator
) -> tuple[Tensor, int]:
    return (output * _signs(output, generator)).sum(), len(output)


PROBES: dict[str, Probe] = {
    "loss_grad": _log_prob,
    "fisher": _signed_log_prob,
    "output_jacobian": _signed_output,
}


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """Fair signs, the same ones on every device."""
    return torch.randint(0, 2, like.shape, generator=generator).mul_(2).sub_(1).to(like)


def _checked_data(data: Iterable[Any] | None) -> Iterable[Any]:
    if data is None:
        raise ConfigError(
            "loss_grad, fisher and output_jacobian look at data: write lb.bayesianize(net, "
            "lb.Partial(rate=0.01), data=loader, likelihood=lb.Categorical()), or "
            "lb.sensitivity(net, loader, lb.Categorical()). Without data there are "
            "criterion='magnitude' and criterion='random'"
        )
    refuse_examples(data)
    return data


def _checked_likelihood(likelihood: nn.Module | None, criterion: str) -> Likelihood:
    if not isinstance(likelihood, Likelihood):
        raise ConfigError(
            f"{criterion} needs a likelihood beside the data, likelihood=lb.Categorical() for "
            f"class logits; found {likelihood!r}"
        )
    return likelihood


def _batches(
    data: Iterable[Any], net: nn.Module, name: str, progress: bool
) -> Iterator[tuple[Any, Tensor]]:
    """(inputs, targets) on the network's device, with a bar on a terminal."""
    from tqdm import tqdm

    device = device_of(net)
    hidden = None if progress else True  # None: hidden where stderr is no terminal
    for item in tqdm(data, desc=f"sensitivity ({name})", unit="batch", disable=hidden):
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise ConfigError(
                f"expected batches of (inputs, targets), found {type(item).__name__}; a single "
                "batch is a list of one pair: data=[(x, y)]"
            )
        yield pytree.tree_map_only(Tensor, lambda x: x.to(device), tuple(item))


@contextmanager
def _evaluating(net: nn.Module) -> Iterator[None]:
    """`eval()` with gradients; modes, buffers and random states come back as they were."""
    with ExitStack() as stack:
        stack.enter_context(untouched(net))
        stack.enter_context(torch.enable_grad())
        if any(isinstance(m, nn.RNNBase) for m in net.modules()):
            # cuDNN has no backward pass of recurrent layers in eval().
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        net.eval()
        yield


@contextmanager
def _differentiable(params: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """All parameters that can have a gradient, frozen ones included, for a while."""
    live = [p for p in params if p.is_floating_point()]
    frozen = [p for p in live if not p.requires_grad]
    try:
        for p in frozen:
            p.requires_grad_(True)
        yield live
    finally:
        for p in frozen:
            p.requires_grad_(False)
