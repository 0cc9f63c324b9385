"""The Rank-1 paper's mortality table, on PhysioNet 2012: MIMIC-III is not free to read.

Where the numbers come from (P: the paper, I: inferred).

- An LSTM that embeds events; four members with factors on it, a mean-field Gaussian over the
  embeddings that all members share; 25 draws: P, section 4.3.
- Prior scale, and everything about the training: I, chosen on the validation part of set a; the
  paper's are not public. `results/configs/physionet.toml` holds the same numbers.
"""

from __future__ import annotations

from dataclasses import replace

from leanbayes.methods.base import Method
from leanbayes.methods.batch_ensemble import BatchEnsemble
from leanbayes.methods.compose import Compose
from leanbayes.methods.deep_ensemble import DeepEnsemble
from leanbayes.methods.map import MAP
from leanbayes.methods.mean_field import MeanField
from leanbayes.methods.rank_one import RankOne
from leanbayes.posteriors.factors import Law
from leanbayes.recipes import parts
from leanbayes.recipes.rank1 import PAPER
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.select import embeddings
from leanbayes.train.config import FitConfig

KEY = "rank1-physionet"
MEMBERS = 4


def _rank_one(law: Law) -> Method:
    rest = RankOne(members=MEMBERS, law=law)
    return Compose([(embeddings, MeanField()), (~embeddings, rest)])


METHODS: dict[str, tuple[str, Method]] = {
    "": ("Rank-1 BNN, Gaussian", _rank_one("normal")),
    "-cauchy": ("Rank-1 BNN, Cauchy", _rank_one("cauchy")),
    "-map": ("Rank-1's baseline, point estimate", MAP()),
    "-batch-ensemble": ("Rank-1's baseline, BatchEnsemble", BatchEnsemble(members=MEMBERS)),
    "-embeddings": ("Rank-1's baseline, Bayesian embeddings", MeanField(select=embeddings)),
    "-vi": ("Rank-1's baseline, fully Bayesian", MeanField()),
    "-ensemble": ("Rank-1's baseline, deep ensemble", DeepEnsemble(members=MEMBERS)),
}
CONFIG = FitConfig(
    epochs=12,
    batch_size=128,
    optimizer="Adam",
    lr=1e-3,
    weight_decay=1e-4,
    schedule="cosine",
    clip=1.0,
    evaluate_samples=25,
)


def _build(name: str) -> Recipe:
    words, method = METHODS[name.removeprefix(KEY)]
    points = method.default_samples if isinstance(method, DeepEnsemble | BatchEnsemble) else 25
    return Recipe(
        name=name,
        method=method,
        config=replace(CONFIG, evaluate_samples=1 if isinstance(method, MAP) else points),
        network=parts.LSTM,
        data=parts.PHYSIONET,
        paper=PAPER,
        notes=f"{words}, from scratch: an LSTM of events on PhysioNet 2012\n"
        "In the place of MIMIC-III. The training is ours: the paper's is not public.",
    )


RECIPES: Recipes = {f"{KEY}{word}": _build for word in METHODS}
