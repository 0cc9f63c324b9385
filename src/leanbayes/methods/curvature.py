"""The generalised Gauss-Newton matrix of a likelihood: its diagonal, and two Kronecker factors.

For outputs f of an example the Hessian of -log p(y | f) does not depend on y for the likelihoods
here: `diag(p) - p p^T` (Categorical), `p (1 - p)` (Bernoulli), `precision` (Gaussian). With
J = df/dw the matrix is the sum over examples of `J^T H J`, which is also the Fisher information.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, tensor_of, widened
from leanbayes.likelihood.gaussian import by_target
from leanbayes.plan import MEAN, call
from leanbayes.posteriors.fixed_gaussian import FixedGaussian, Measured
from leanbayes.posteriors.kronecker import Eigenbases, KroneckerGaussian
from leanbayes.prediction import is_label


class Curvature(ABC):
    """Eigenvalues of H (for a diagonal: its entries) and where the scales go."""

    kind: ClassVar[type[Measured]]
    eigenvalues: list[Tensor]

    def __init__(self, model: Any) -> None:
        self.model = model
        # To the letter: subclasses belong to other methods of a composed model.
        self.sites = [site for site in model.posteriors() if type(site[2]) is self.kind]
        self.bases = [base for _, _, _, base in self.sites]

    @abstractmethod
    def add(self, inputs: Any, target: Tensor, likelihood: Likelihood) -> Tensor:
        """Take a batch into account; the log-probabilities of its targets."""

    @abstractmethod
    def finish(self, factor: float) -> None:
        """Compute the eigenvalues of `factor * H`."""

    @abstractmethod
    def write(self, prior_std: float) -> None:
        """Store `(H + 1 / prior_std^2)^-1/2`."""

    def log_evidence(self, prior_std: float) -> float:
        """`-|w*|^2 / (2 s^2) - 1/2 sum ln(1 + s^2 h)`: the part that the prior's s acts on."""
        squares = sum(float(base.detach().double().square().sum()) for base in self.bases)
        volume = sum(float((h.double() * prior_std**2).log1p().sum()) for h in self.eigenvalues)
        return -squares / (2 * prior_std**2) - volume / 2


class Diagonal(Curvature):
    """The diagonal of H for every tensor with a slot.

    Args:
        model: The BayesianModel.
        probes: Sign vectors a batch; None is exact.
        seed: Of the signs; None takes them from the global generator.
    """

    kind: ClassVar[type[Measured]] = FixedGaussian

    def __init__(self, model: Any, probes: int | None, seed: int | None) -> None:
        super().__init__(model)
        self.probes = probes
        self.posteriors: list[FixedGaussian] = [q for _, _, q, _ in self.sites]
        self.eigenvalues = []
        self.generator = None
        if seed is not None:
            self.generator = torch.Generator().manual_seed(seed)

    def add(self, inputs: Any, target: Tensor, likelihood: Likelihood) -> Tensor:
        """Squared gradients of random (or all) combinations of outputs."""
        with torch.enable_grad(), differentiable(self.bases):
            output = tensor_of(call(self.model, inputs, plan=MEAN))
            log_prob = likelihood.log_prob(output.detach(), target).detach()
            signs = probe_signs(output, self.probes, self.generator)
            vectors = ((root_product(likelihood, output, target, s), w) for s, w in signs)
            found = squared_gradients(output, self.bases, vectors)
        sums = self.eigenvalues or [torch.zeros_like(h) for h in found]
        self.eigenvalues = [a + b for a, b in zip(sums, found, strict=True)]
        return log_prob

    def finish(self, factor: float) -> None:
        """A matter of scale."""
        self.eigenvalues = [h * factor for h in self.eigenvalues]

    def write(self, prior_std: float) -> None:
        """Every entry by itself."""
        for posterior, h in zip(self.posteriors, self.eigenvalues, strict=True):
            posterior.set_std((h + prior_std**-2).rsqrt())


class Kronecker(Curvature):
    """The two factors of the last layer."""

    kind: ClassVar[type[Measured]] = KroneckerGaussian

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.host, _, posterior, _ = self.sites[0]
        self.factors: Eigenbases = posterior.bases
        self.input_sum: Tensor | float = 0.0  # A
        self.hessian_sum: Tensor | float = 0.0  # count * G
        self.count = 0

    @torch.no_grad()
    def add(self, inputs: Any, target: Tensor, likelihood: Likelihood) -> Tensor:
        """Products of the layer's inputs, and the Hessian of its outputs."""
        calls: list[tuple[Tensor, Tensor]] = []

        def note(_layer: nn.Module, args: Any, kwargs: Any, out: Tensor) -> None:
            calls.append((args[0] if args else kwargs["input"], out))

        handle = self.host.register_forward_hook(note, with_kwargs=True)
        try:
            output = tensor_of(call(self.model, inputs, plan=MEAN))
        finally:
            handle.remove()
        log_prob = likelihood.log_prob(output, target)
        rows = widened(_input_of_last(calls, output))[labelled_rows(likelihood, target)]
        if self.host.bias is not None:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        self.input_sum = self.input_sum + rows.T @ rows
        self.hessian_sum = self.hessian_sum + summed_hessian(likelihood, output, target)
        self.count += len(rows)
        return log_prob

    def finish(self, factor: float) -> None:
        """Eigenvalues of G x A are the products of theirs."""
        assert isinstance(self.input_sum, Tensor)
        assert isinstance(self.hessian_sum, Tensor)
        a, self.right = torch.linalg.eigh(self.input_sum)
        g, self.left = torch.linalg.eigh(self.hessian_sum / max(self.count, 1))
        self.eigenvalues = [factor * g.clamp_min(0)[:, None] * a.clamp_min(0)]

    def write(self, prior_std: float) -> None:
        """Scales along pairs of eigenvectors."""
        std = (self.eigenvalues[0] + prior_std**-2).rsqrt()
        self.factors.set(self.left, self.right, std)


def _input_of_last(calls: list[tuple[Tensor, Tensor]], output: Tensor) -> Tensor:
    # A missing value is no sign of another layer: who measures says what is wrong with the data.
    alike = len(calls) == 1 and torch.equal(calls[0][1].nan_to_num(), output.nan_to_num())
    if not alike or output.dim() != 2:
        raise ConfigError(
            "Kronecker factors need a last layer whose output [B, C] is the output of the network, "
            f"run once a pass; here it gives {_shapes(calls) or 'nothing'} and the network "
            f"{tuple(output.shape)}. Write lb.Laplace(structure='diagonal', where='last_layer')"
        )
    return calls[0][0]


def _shapes(calls: list[tuple[Tensor, Tensor]]) -> str:
    return ", then ".join(str(tuple(output.shape)) for _, output in calls)


def root_product(likelihood: Likelihood, output: Tensor, target: Tensor, signs: Tensor) -> Tensor:
    """`L s` by example, with `L L^T = H`; elements without a label give 0."""
    with torch.no_grad():
        match likelihood:
            case Categorical():
                p = torch.softmax(output, 1)
                scaled = p.sqrt() * signs
                labelled = is_label(target, likelihood.ignore_index).unsqueeze(1)
                return (scaled - p * scaled.sum(1, keepdim=True)) * labelled
            case Bernoulli():
                p = torch.sigmoid(output)
                return (p * (1 - p)).sqrt() * signs
            case Gaussian():
                half = by_target("precision", likelihood.log_precision / 2, output, 1)
                return half.exp().to(signs) * signs
            case _:
                raise _unknown(likelihood)


def summed_hessian(likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor:
    """Sum over the rows of outputs [B, C] of the Hessian, [C, C], in float64."""
    match likelihood:
        case Categorical():
            labelled = is_label(target, likelihood.ignore_index)
            p = torch.softmax(widened(output), 1)[labelled]
            return torch.diag(p.sum(0)) - p.T @ p
        case Bernoulli():
            p = torch.sigmoid(widened(output))
            return torch.diag((p * (1 - p)).sum(0))
        case Gaussian():
            precision = likelihood.log_precision.detach().exp()
            return len(output) * precision * torch.eye(output.shape[1]).to(widened(output))
        case _:
            raise _unknown(likelihood)


def labelled_rows(likelihood: Likelihood, target: Tensor) -> Tensor | slice:
    """The rows that count, as an index."""
    if not isinstance(likelihood, Categorical):
        return slice(None)
    return is_label(target, likelihood.ignore_index)


def probe_signs(
    output: Tensor, probes: int | None, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, float]]:
    """Vectors s with E[s s^T] = 1 and their weights: random signs, or every unit vector in turn.

    Signs are independent by example and output, which makes the squared gradient of a batch an
    unbiased estimate of the sum of squared gradients of its examples.
    """
    if probes is None:
        for index in range(output.numel()):
            unit = torch.zeros_like(output).flatten()
            unit[index] = 1
            yield unit.reshape(output.shape), 1.0
        return
    for _ in range(probes):
        bits = torch.randint(2, output.shape, generator=generator)  # on the CPU: any device's seed
        yield (2 * bits - 1).to(output), 1.0 / probes


def squared_gradients(
    output: Tensor, tensors: Sequence[Tensor], vectors: Iterable[tuple[Tensor, float]]
) -> list[Tensor]:
    """Weighted sum over the vectors v of `(J^T v)^2`, a tensor each."""
    sums = [torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32)) for t in tensors]
    for vector, weight in vectors:
        grads: Sequence[Tensor | None] = torch.autograd.grad(
            output, tensors, grad_outputs=vector, retain_graph=True, allow_unused=True
        )
        for total, grad in zip(sums, grads, strict=True):
            if grad is not None:
                total.addcmul_(grad.to(total.dtype), grad.to(total.dtype), value=weight)
    return sums


@contextmanager
def differentiable(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Let gradients reach these tensors, frozen or not."""
    before = [tensor.requires_grad for tensor in tensors]
    for tensor in tensors:
        tensor.requires_grad_(True)
    try:
        yield
    finally:
        for tensor, flag in zip(tensors, before, strict=True):
            tensor.requires_grad_(flag)


def _unknown(likelihood: nn.Module) -> ConfigError:
    return ConfigError(
        f"no curvature is known for the likelihood {type(likelihood).__name__}; "
        "expected lb.Categorical, lb.Bernoulli or lb.Gaussian"
    )
