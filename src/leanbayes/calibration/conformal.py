"""Split conformal prediction: sets and intervals that hold the truth with a known probability.

A score says how badly a target fits a prediction. Of n held-out scores take the k-th smallest,

    k = ceil((n + 1) (1 - alpha)),      {y : score(x, y) <= score_(k)}

holds the target of a new example with a probability of at least 1 - alpha (and at most
1 - alpha + 1 / (n + 1) where no scores are equal), whatever the network and the data, as long as
the new example and the held-out ones are exchangeable (Vovk et al. 2005; Lei et al. 2018). Scores:

    lac     1 - p(y): the smallest sets on average (Sadinle et al. 2019)
    aps     the probability of all classes before y, sorted, plus u p(y), with u = 1, or drawn
            from U(0, 1): adapts to hard examples (Romano et al. 2020)
    scaled  |y - mean| / std of a regression
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from leanbayes.errors import ConfigError

Score = Literal["lac", "aps", "scaled"]
MOST = 200_000  # scores that are kept with a model


@dataclass(frozen=True, eq=False)
class Conformal:
    """Held-out scores and how they were made; any level can be asked for later.

    Attributes:
        scores: In rising order, float64, [N], of several targets [N, T].
        score: `lac` and `aps` of classes, `scaled` of numbers.
        alpha: Probability of a miss, where none is named.
        randomised: u of `aps` is drawn.
    """

    scores: Tensor
    score: Score
    alpha: float
    randomised: bool = False

    def __post_init__(self) -> None:
        exact(self.alpha)
        if self.score not in get_args(Score):
            raise ConfigError(f"score is one of {', '.join(get_args(Score))}; found {self.score!r}")
        if self.randomised and self.score != "aps":
            raise ConfigError(f"only score='aps' is randomised, not {self.score!r}")
        if self.scores.dim() not in (1, 2) or not 0 < self.scores.numel() <= MOST:
            raise ConfigError(
                f"{tuple(self.scores.shape)} scores: expected 1 to {MOST:,}. A part of the data, "
                "taken at random, gives the same guarantee"
            )
        if not bool((self.scores.isfinite() & (self.scores >= 0)).all()):
            raise ConfigError("scores must be finite and not negative")
        object.__setattr__(self, "scores", self.scores.detach().cpu().double().sort(0).values)

    def threshold(self, alpha: Fraction) -> Tensor:
        """The k-th smallest score; infinite, with a warning, where there are fewer."""
        n = len(self.scores)
        k = rank_of(n, alpha)
        if k <= n:
            return self.scores[k - 1]
        warnings.warn(
            f"{n} held-out examples cannot cover {float(1 - alpha):.6g}: that takes at least "
            f"{math.ceil(1 / alpha) - 1}. Every answer is taken in; give more data, or a larger "
            "alpha",
            stacklevel=5,
        )
        return torch.full(self.scores.shape[1:], torch.inf, dtype=torch.float64)

    def sets(self, probs: Tensor, alpha: float | None, seed: int | None) -> Tensor:
        """Which classes are in the set of each row: booleans [B, C] for probabilities [B, C]."""
        if self.score == "scaled" or probs.dim() != 2:
            raise ConfigError(
                f"score {self.score!r} and probabilities {tuple(probs.shape)}: sets need one label "
                "a row, and a model that was calibrated on labels"
            )
        limit = self.threshold(exact(self.alpha if alpha is None else alpha))
        lot = lots(len(probs), seed) if self.randomised else None
        return class_scores(probs, self.score, lot) <= limit.to(probs)

    def reach(self, q: float | None) -> Tensor:
        """How many standard deviations an interval of probability q goes to each side."""
        if self.score != "scaled":
            raise ConfigError(f"score {self.score!r} is one of labels: write p.sets(alpha)")
        return self.threshold(exact(self.alpha) if q is None else 1 - exact(q, "q"))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "score": self.score,
            "alpha": self.alpha,
            "randomised": self.randomised,
            "scores": self.scores.tolist(),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Conformal:
        """The object again, or a ConfigError."""
        wanted = {"score", "alpha", "randomised", "scores"}
        if not isinstance(data, dict) or set(data) != wanted:
            raise ConfigError(f"conformal must hold {sorted(wanted)}, found {_shown(data)}")
        if not isinstance(data["randomised"], bool) or not isinstance(data["scores"], list):
            raise ConfigError("conformal needs a list of scores, and true or false for randomised")
        try:
            scores = torch.tensor(data["scores"], dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ConfigError("the scores of conformal are no numbers") from None
        found = Conformal(scores, data["score"], data["alpha"], data["randomised"])
        if not torch.equal(found.scores, scores):
            raise ConfigError("the scores of conformal do not rise")
        return found


def class_scores(probs: Tensor, score: Score, lot: Tensor | None = None) -> Tensor:
    """The score of every class, [B, C]; `lot` [B] in [0, 1] is the u of `aps`, 1 without.

    Example:
        >>> p = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
        >>> class_scores(p, "aps")
        tensor([[1.0000, 0.5000, 0.8000]], dtype=torch.float64)
    """
    if score == "lac":
        return 1 - probs
    ranked, order = probs.sort(dim=1, descending=True, stable=True)
    before = ranked.cumsum(1) - ranked
    own = ranked if lot is None else ranked * lot.to(ranked).unsqueeze(1)
    return torch.empty_like(probs).scatter_(1, order, before + own)


def rank_of(n: int, alpha: Fraction) -> int:
    """`ceil((n + 1)(1 - alpha))`, in whole numbers: floats would miss it by one at times."""
    return n + 1 - math.floor((n + 1) * alpha)


def exact(level: Any, name: str = "alpha") -> Fraction:
    """A probability as it is written, 0.1 as 1 / 10."""
    if not (isinstance(level, float) and 0 < level < 1):
        raise ConfigError(f"{name} must lie between 0 and 1, found {level!r}")
    return Fraction(repr(float(level)))


def lots(rows: int, seed: int | None) -> Tensor:
    """Numbers of U(0, 1), from a seed or from the global generator."""
    source = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.rand(rows, generator=source, dtype=torch.float64)


def _shown(data: Any) -> str:
    return str(sorted(data) if isinstance(data, dict) else data)[:80]
