"""The entries of the demo, in the order of its table."""

from __future__ import annotations

from collections.abc import Mapping

import leanbayes as lb
from leanbayes.cli.demo.entries import BASELINE, Ensemble, Entry, PostHoc, Scored
from leanbayes.cli.demo.setting import Settings


def _scales(settings: Settings) -> float:
    return settings.choices.scale_lr


def _composed(_settings: Settings) -> lb.Method:
    return lb.Compose([(lb.select.convs, lb.RankOne()), (lb.select.output, lb.MeanField())])


def _collection(settings: Settings) -> dict[str, float]:
    choices = settings.choices
    return {
        "lr": choices.swag_lr,
        "epochs": choices.swag_epochs,
        "collect_every": choices.swag_every,
        "weight_decay": settings.weight_decay,
    }


ENTRIES: tuple[Entry, ...] = (
    Entry(label="map", name=BASELINE, method=lambda _: lb.MAP()),
    Entry(label="mean_field", name="mean_field", method=lambda _: lb.MeanField(), rate=_scales),
    Scored(
        label="partial",
        name="partial",
        method=lambda s: lb.Partial(rate=s.choices.partial_rate),
        rate=_scales,
        note="scores every parameter in one pass over the training images first",
    ),
    Entry(
        label="shared_ensemble",
        name="shared_ensemble",
        method=lambda _: lb.SharedEnsemble(),
        every_member=True,
    ),
    Entry(label="implicit", name="implicit", method=lambda _: lb.Implicit()),
    Entry(label="rank_one normal", name="rank_one", method=lambda _: lb.RankOne()),
    Entry(
        label="rank_one cauchy",
        name="rank_one",
        method=lambda _: lb.RankOne(law="cauchy"),
    ),
    Entry(
        label="patching EMP",
        name="patching",
        method=lambda _: lb.Patching(),
        note="patches the output layer alone: LeNet has no norm layers",
    ),
    Entry(
        label="patching ECMP",
        name="patching",
        method=lambda _: lb.Patching(cross=True),
        note="patches the output layer alone: LeNet has no norm layers",
    ),
    Entry(
        label="compose",
        name="compose",
        method=_composed,
        note="rank_one on the convolutions, mean_field on the output layer",
    ),
    Entry(
        label="batch_ensemble",
        name="batch_ensemble",
        method=lambda _: lb.BatchEnsemble(),
        every_member=True,
    ),
    Entry(label="mc_dropout", name="mc_dropout", method=lambda _: lb.MCDropout()),
    Entry(label="drop_connect", name="drop_connect", method=lambda _: lb.DropConnect()),
    PostHoc(
        label="swag",
        name="swag",
        method=lambda _: lb.SWAG(),
        options=_collection,
        epochs=lambda s: s.choices.swag_epochs,
        note="collects iterates of SGD after the fine-tuning (epochs: {swag_epochs})",
    ),
    PostHoc(
        label="laplace diagonal",
        name="laplace",
        method=lambda s: lb.Laplace(prior_std=s.choices.laplace_prior_std),
        options=lambda s: {"seed": s.seed},
        note="measures curvature in one pass over the training images after the fine-tuning",
    ),
    PostHoc(
        label="laplace kronecker",
        name="laplace",
        method=lambda _: lb.Laplace(structure="kronecker"),
        options=lambda _: {"prior": "fit"},
        note="the same for the last layer alone",
    ),
    Ensemble(
        label="deep_ensemble",
        name="deep_ensemble",
        method=lambda s: lb.DeepEnsemble(members=s.choices.ensemble_members, assign="turns"),
        every_member=True,
        note="costs {ensemble_members} trainings and {ensemble_members} fine-tunings",
    ),
)


def lineup(known: Mapping[str, type[lb.Method]]) -> list[Entry]:
    """The entries of registered methods, then registered methods without one, as they come."""
    own = [entry for entry in ENTRIES if entry.name in known]
    other = sorted(set(known) - {entry.name for entry in ENTRIES})
    return [*own, *(_plain(name, known[name]) for name in other)]


def _plain(name: str, method: type[lb.Method]) -> Entry:
    return Entry(label=name, name=name, method=lambda _: method(), rate=_scales, own=False)
