"""How much the members of a model differ, and whether they have become one network."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.counts import checked_count
from leanbayes.errors import CollapsedMembers, ConfigError
from leanbayes.likelihood import Bernoulli, Categorical, Likelihood, Statistics
from leanbayes.metrics import label_disagreement
from leanbayes.model import BayesianModel, unwrap
from leanbayes.predict import predict
from leanbayes.prediction import check_chances, check_classes, is_label, matched

TOLERANCE = 1e-3  # of the total variation between members that count as one


@dataclass(frozen=True)
class Diversity:
    """What `lb.diversity` found; numbers are averages over labelled elements.

    Attributes:
        members: Members compared; samples where the method has no members.
        disagreement: Share of elements on which two members predict different labels, averaged
            over pairs.
        accuracy: Accuracy of a member, averaged over members.
        ensemble_accuracy: Accuracy of the average of the members.
        ensemble_nll: Negative log-likelihood of the average of the members.
        kl: KL(p_s || p_t) between members' predictives in nats, averaged over ordered pairs.
        distance: Largest total variation between two members on any element.
        collapsed: No disagreement, and no distance above 1e-3.
    """

    members: int
    disagreement: float
    accuracy: float
    ensemble_accuracy: float
    ensemble_nll: float
    kl: float
    distance: float

    @property
    def collapsed(self) -> bool:
        """True where the members are one network as far as these data can tell."""
        return self.disagreement == 0 and self.distance < TOLERANCE

    @property
    def normalised(self) -> float:
        """`disagreement / (1 - accuracy)`: what the members' errors allow is taken out.

        0 where nobody disagrees, whatever the accuracy.
        """
        return self.disagreement / (1 - self.accuracy) if self.disagreement else 0.0

    def __str__(self) -> str:
        return (
            f"{self.members} members: disagreement {self.disagreement:.4f}, normalised "
            f"{self.normalised:.4f}; accuracy {self.accuracy:.4f}, of the ensemble "
            f"{self.ensemble_accuracy:.4f}, its NLL {self.ensemble_nll:.4f}; "
            f"KL {self.kl:.4g}, distance up to {self.distance:.4g}"
            f"{'; collapsed' if self.collapsed else ''}"
        )


def diversity(
    model: nn.Module,
    inputs: Any,
    targets: Tensor | None = None,
    *,
    likelihood: Likelihood | None = None,
    samples: int | None = None,
    seed: int | None = 0,
) -> Diversity:
    """Disagreement of the members' predictions, and a warning where they have become one.

    `disagreement = mean_{s<t} P(label_s != label_t)`, normalised by 1 - accuracy of a member as in
    Rank-1 BNNs (Dusenberry et al. 2020, section 3.5). Under a network index the draws of a member
    are averaged first; otherwise every sample is a member.

    Cost: one `lb.predict` with all samples of a batch kept, and S^2 comparisons an element.

    Args:
        model: A BayesianModel, or its DDP, FSDP2 or compiled wrapper.
        inputs: A tensor, a tuple of arguments, a dict of keywords, or a loader of (inputs,
            targets).
        targets: Labels [B, ...]; None where a loader gives them.
        likelihood: Categorical or Bernoulli; by default the one kept with the model.
        samples: Draws an example, as in `lb.predict`.
        seed: Key of the draws.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.BatchEnsemble(init_std=0.5))
        >>> x, y = torch.randn(32, 4), torch.randint(0, 3, (32,))
        >>> found = lb.diversity(model, x, y, likelihood=lb.Categorical())
        >>> found.members, found.collapsed
        (4, False)
    """
    inner = unwrap(model)
    chosen = _discrete(inner.likelihood if likelihood is None else likelihood)
    chosen = _Both() if isinstance(chosen, Bernoulli) else chosen
    key = int(torch.randint(2**62, ()).item()) if seed is None else seed  # one for all batches
    _check_random(inner, samples)
    sums = _Sums()
    for batch, target in _pairs(inputs, targets):
        kept = predict(
            model, batch, likelihood=chosen, samples=samples, seed=key, keep_samples=True
        ).samples
        assert kept is not None
        members = inner.method.index_members or inner.method.distinct_draws
        sums.add(*_elements(chosen, by_member(kept, members), target))
    found = sums.result()
    if found.collapsed:
        warnings.warn(_advice(found), CollapsedMembers, stacklevel=2)
    return found


class _Both(Bernoulli):
    """Keeps the probabilities of both labels, since 1 - P(y = 1) is 0 below 1e-16."""

    def samples(self, output: Tensor) -> Tensor:
        """P(y = 0) and P(y = 1), [S, B, ..., 2]."""
        return torch.stack([super().samples(-output), super().samples(output)], -1)

    def statistics(self, output: Tensor) -> Statistics:
        """Those of one probability."""
        return Bernoulli().statistics(output)


class _Sums:
    """Running sums over batches."""

    def __init__(self) -> None:
        self.members = self.elements = 0
        self.differ = self.right = self.kl = self.distance = 0.0
        self.ensemble_right = self.ensemble_nll = 0.0

    def add(self, probs: Tensor, target: Tensor) -> None:
        """Probabilities [S, M, C] of S members at M elements, and their labels [M]."""
        labels, count = probs.argmax(2), probs.shape[0]
        self.members, self.elements = count, self.elements + len(target)
        if len(target) == 0:
            return
        pairs = count * (count - 1)
        self.differ += float(label_disagreement(labels)) * len(target)
        self.right += float((labels == target).sum()) / count
        average = probs.mean(0)
        self.ensemble_right += float((average.argmax(1) == target).sum())
        self.ensemble_nll -= float(average.gather(1, target.long()[:, None]).log().sum())
        self.kl += float(_kl_sums(probs).sum()) / pairs
        distances = (float((row - probs).abs().sum(2).max()) / 2 for row in probs)
        self.distance = max(self.distance, *distances)

    def result(self) -> Diversity:
        """Averages over all elements."""
        if self.elements == 0:
            raise ConfigError("nothing to compare: expected at least one row with a label")
        n = self.elements
        return Diversity(
            members=self.members,
            disagreement=self.differ / n,
            accuracy=self.right / n,
            ensemble_accuracy=self.ensemble_right / n,
            ensemble_nll=self.ensemble_nll / n,
            kl=self.kl / n,
            distance=self.distance,
        )


def by_member(samples: Tensor, members: int) -> Tensor:
    """Average the draws of each member: draw t is of member t mod members, [S, ...] to [K, ...]."""
    if members < 2 or len(samples) <= members:
        return samples
    return torch.stack([samples[k::members].mean(0) for k in range(members)])


def _kl_sums(probs: Tensor) -> Tensor:
    """KL(p_s || p_t) of every ordered pair, summed over elements, [S, S]."""
    flat = probs.flatten(1)
    logs = flat.clamp_min(torch.finfo(flat.dtype).tiny).log()  # a 0 that underflow made
    own = (flat * logs).sum(1, keepdim=True)
    sums: Tensor = (own - flat @ logs.T).clamp_min(0)
    return sums.fill_diagonal_(0)


def _elements(likelihood: Likelihood, probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities [S, M, C] and labels [M] of the labelled elements."""
    target = target.to(probs.device)
    if isinstance(likelihood, Bernoulli):
        target = matched(target, probs[0, ..., 0])
        check_chances(target)
        return probs.flatten(1, -2), (target > 0.5).long().flatten()
    assert isinstance(likelihood, Categorical)
    labelled = is_label(target, likelihood.ignore_index)
    check_classes(torch.where(labelled, target, 0), probs[0])
    return probs.movedim(2, -1)[:, labelled], target[labelled]


def _pairs(inputs: Any, targets: Tensor | None) -> Iterator[tuple[Any, Tensor]]:
    if targets is not None:
        if not isinstance(inputs, Tensor | tuple | list | Mapping):
            raise ConfigError("a loader gives its own targets: write lb.diversity(model, loader)")
        yield inputs, targets
        return
    if isinstance(inputs, Tensor | Mapping) or not isinstance(inputs, Iterable):
        raise ConfigError(
            "diversity needs labels: lb.diversity(model, x, y), or a loader of (inputs, targets)"
        )
    for item in inputs:
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ConfigError(
                "diversity needs labels: expected a loader of (inputs, targets), found a batch of "
                f"type {type(item).__name__}"
            )
        yield item[0], item[1]


def _discrete(likelihood: Any) -> Likelihood:
    if isinstance(likelihood, Categorical | Bernoulli):
        return likelihood
    raise ConfigError(
        "diversity compares predicted labels: lb.diversity(..., likelihood=lb.Categorical()) or "
        f"lb.Bernoulli(); found {likelihood!r}"
    )


def _check_random(model: BayesianModel, samples: int | None) -> None:
    if not model.method.is_random:
        raise ConfigError(
            f"every draw of {model.method.name} is the same network: there are no members to "
            "compare"
        )
    default = model.method.default_samples
    count = default if samples is None else checked_count("samples", samples)
    if count < 2:
        raise ConfigError(
            f"diversity compares pairs: expected samples of at least 2, found {count}"
        )


def _advice(found: Diversity) -> str:
    return (
        f"the {found.members} members have collapsed to one network: no label differs, and no two "
        f"predictives by more than {found.distance:.2g} in total variation. Start them further "
        "apart (a larger init_std), keep the prior from pulling signs together (tied_sign=True, "
        "the prior at the tied sign), or train members on batches of their own (assign='split')"
    )
