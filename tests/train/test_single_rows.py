"""Batches of too few rows: one for a BatchNorm1d, fewer than members for an ensemble."""

from dataclasses import replace

import pytest
import torch
from fit_cases import model_of, problem, settings
from torch import nn

import leanbayes as lb


class Flat(nn.Sequential):
    """An MLP with BatchNorm1d, which takes no single row."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@pytest.mark.parametrize(("policy", "steps"), [("train", 4), ("refresh", 4), ("frozen", 5)])
def test_a_last_batch_of_one_row_is_left_out_where_batchnorm_cannot_take_it(policy, steps):
    config = settings(steps=None, epochs=1, batchnorm=policy)
    model = model_of(net=Flat())
    assert lb.fit(model, problem(49), lb.Categorical(), config=config).steps == steps


@pytest.mark.parametrize(
    ("assign", "policy", "steps"),
    [("split", "train", 4), ("split", "frozen", 5), ("turns", "train", 5)],
)
def test_a_last_batch_with_one_row_for_a_member_is_left_out_too(assign, policy, steps):
    """Members with statistics of their own: the first epoch ended in an error."""
    method = lb.DeepEnsemble(members=3, init_std=0.1, assign=assign)
    config = settings(steps=None, epochs=1, batchnorm=policy)
    model = model_of(method, net=Flat())
    assert lb.fit(model, problem(53), lb.Categorical(), config=config).steps == steps


def test_parts_of_a_batch_have_two_rows_for_each_member_with_statistics():
    method = lb.DeepEnsemble(members=3, init_std=0.1)
    config = settings(steps=1, batch_size=10, accumulate=3)
    weights = []
    for accumulate in (3, 1):  # 10 rows make one part of at least 6
        model = model_of(method, net=Flat())
        lb.fit(model, problem(), lb.Categorical(), config=replace(config, accumulate=accumulate))
        weights.append(model.net[1].weight.detach())
    assert torch.equal(*weights)


def test_batches_of_one_row_are_refused_where_batchnorm_cannot_take_them():
    with pytest.raises(lb.ConfigError, match="write batch_size=2 or more"):
        lb.fit(model_of(net=Flat()), problem(), lb.Categorical(), config=settings(batch_size=1))


@pytest.mark.parametrize("kind", ["drawn", "in turns"])
def test_batches_may_have_fewer_rows_than_members_that_need_none(kind):
    """They were refused, in a default of SharedEnsemble too, and short last ones left out."""
    drawn, turns = lb.SharedEnsemble(members=20), lb.DeepEnsemble(members=20, assign="turns")
    model = model_of(drawn if kind == "drawn" else turns)
    config = settings(steps=None, epochs=1)
    assert lb.fit(model, problem(49), lb.Categorical(), config=config).steps == 5


@pytest.mark.parametrize("samples", [1, 4])
def test_statistics_are_taken_of_batches_that_have_a_row_for_every_member(samples):
    """It failed when the training was over."""
    config = settings(steps=None, epochs=1, batchnorm="refresh", samples=samples)
    model = model_of(lb.RankOne(members=4))
    assert lb.fit(model, problem(49), lb.Categorical(), config=config).steps == 4
    assert model.net.norm.num_batches_tracked == 4


def test_iterates_of_swag_are_made_without_a_batch_of_one_row():
    """The training went well, and what is fitted after it failed."""
    config = settings(steps=None, epochs=1)
    options = {"config": config, "fitting": {"epochs": 3}}
    done = lb.adapt(Flat(), lb.SWAG(rank=2), problem(49), **options)
    assert done.measured["collected"] == 3
