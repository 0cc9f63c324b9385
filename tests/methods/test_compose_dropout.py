"""Compose and the network's own dropout: taken, silenced or left, as parts do by themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes import select

X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, 3)).eval()


def _converted(method: lb.Method) -> lb.BayesianModel:
    return lb.bayesianize(_net(), method, example=X, likelihood=lb.Categorical())


def _names(model: lb.BayesianModel) -> list[str]:
    return [layer.name for layer in model.report.converted]


@pytest.mark.parametrize("existing", [True, False])
def test_a_part_takes_the_dropout_that_it_takes_by_itself(existing, tmp_path):
    method = lb.MCDropout(rate=0.2, where=select.output, existing=existing)
    alone, part = (_converted(m) for m in (method, lb.Compose([(select.everything, method)])))
    assert _names(alone) == _names(part) == (["2", "3"] if existing else ["3"])
    found = [lb.predict(m, X, seed=0, samples=8).probs for m in (alone, part)]
    assert torch.equal(*found)
    lb.save(part, tmp_path / "m.safetensors")
    again = lb.load(_net(), tmp_path / "m.safetensors")
    assert torch.equal(lb.predict(again, X, seed=0, samples=8).probs, found[0])


def test_dropout_is_a_layer_for_a_part_of_its_own():
    parts = [(select.dropouts, lb.MCDropout()), (select.output, lb.MeanField(init_std=0))]
    model = _converted(lb.Compose(parts))
    assert _names(model) == ["2", "3"]
    assert lb.predict(model, X, seed=0).epistemic.min() > 1e-4  # the masks' alone


def test_parts_that_take_no_dropout_leave_it_to_the_network():
    parts = [(~select.output, lb.MeanField()), (select.output, lb.MCDropout())]
    model = _converted(lb.Compose(parts))
    assert _names(model) == ["0", "3"]
    assert "dropout stays: 2" in str(model.report)
    assert type(model.net[2]) is nn.Dropout


def test_a_preset_silences_what_no_part_takes_and_collapse_brings_it_back():
    paper = lb.MeanField(preset="paper")
    model = _converted(lb.Compose([(select.everything, paper)]))
    assert model.net[2].p == 0
    assert lb.collapse(model)[2].p == 0.4
    taken = _converted(
        lb.Compose([(select.by_name("0"), paper), (select.dropouts, lb.MCDropout())])
    )
    assert taken.net[2].p == 0.4
    assert lb.predict(taken, X, seed=0).epistemic.min() > 1e-4
