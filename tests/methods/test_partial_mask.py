"""The mask of Partial: the global top of the scores, which stays wherever the model goes."""

import copy
import json

import numpy as np
import pytest
import torch
from partial_cases import batch, masks, partial, size, small
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import leanbayes as lb


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1, 0.333, 1.0])
def test_exactly_round_rate_n_scales_are_added(rate):
    net = small()
    n = size(net)
    model = partial(net, rate)
    scales = [p for name, p in model.named_parameters() if name.endswith("rho")]
    assert sum(p.numel() for p in scales) == round(rate * n) == model.report.added
    assert size(model) == n + round(rate * n)
    assert all(len(p) for p in scales)  # no slot without a random entry
    per_layer = {layer.name: layer.added for layer in model.report.converted}
    for name, entries in masks(model).items():
        per_layer[name.rpartition(".")[0]] -= len(entries)
    assert set(per_layer.values()) == {0}


def test_parameters_are_one_plus_rate_times_the_network():
    """P17 and P19: 49.5 % below a mean field of everything at 1 %, 45 % at 10 %."""
    net = lb.models.create("mlp", inputs=784, hidden=(300, 100), outputs=10)
    n = size(net)
    assert n == 266_610
    for rate, saved in ((0.01, 0.495), (0.05, 0.475), (0.1, 0.45)):
        model = partial(copy.deepcopy(net), rate)
        assert size(model) == n + round(rate * n)
        assert 1 - size(model) / (2 * n) == pytest.approx(saved, abs=1e-5)


def test_the_mask_is_the_global_top_by_a_stable_sort():
    net = small()
    torch.manual_seed(5)
    # Whole numbers: many ties, which go to the entry that comes first.
    scores = {n: torch.randint(0, 6, p.shape).double() for n, p in net.named_parameters()}
    count = round(0.3 * size(net))
    flat = np.concatenate([s.numpy().ravel() for s in scores.values()])
    top = np.sort(np.argsort(-flat, kind="stable")[:count])
    model = lb.bayesianize(net, lb.Partial(rate=0.3), scores=scores)
    found, start = [], 0
    chosen = masks(model)
    for name, score in scores.items():
        found.append(chosen.get(name, torch.zeros(0)).numpy() + start)
        start += score.numel()
    assert np.array_equal(np.concatenate(found), top)


def test_tensors_without_a_selected_entry_have_no_slot():
    net = small()
    scores = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
    scores["fc.weight"] += 1
    model = lb.bayesianize(net, lb.Partial(rate=24 / size(net)), scores=scores)
    assert [q.key for _, _, q, _ in model.posteriors()] == ["fc.weight"]
    assert torch.equal(masks(model)["fc.weight"], torch.arange(24))
    assert {s.name for s in model.report.skipped} == {"conv", "norm", "head"}


def test_data_and_scores_give_the_same_mask():
    x, y = batch()
    loader = [(x[:4], y[:4]), (x[4:], y[4:])]
    for criterion in ("output_jacobian", "fisher", "loss_grad"):
        options = {"rate": 0.3, "criterion": criterion, "seed": 3}
        one = lb.bayesianize(
            small(), lb.Partial(**options), data=loader, likelihood=lb.Categorical(), example=x
        )
        scores = lb.sensitivity(small(), loader, lb.Categorical(), criterion=criterion, seed=3)
        two = lb.bayesianize(small(), lb.Partial(**options), scores=scores)
        assert masks(one).keys() == masks(two).keys()
        assert all(torch.equal(v, masks(two)[k]) for k, v in masks(one).items())
        assert isinstance(one.likelihood, lb.Categorical)


def test_the_stem_can_be_kept_out_of_the_candidates():
    net, (x, _) = small(), batch()
    model = lb.bayesianize(
        net, lb.Partial(rate=0.5, criterion="random", exclude_stem=True), example=x
    )
    assert not any(key.startswith("conv.") for key in masks(model))
    own = size(net.conv)
    assert model.report.added == round(0.5 * (model.report.base - own))


def test_selected_layers_give_the_candidates():
    model = partial(rate=0.5, select=lb.select.norms | lb.select.output)
    assert model.report.added == round(0.5 * (8 + 21))
    assert {c.name for c in model.report.converted} <= {"norm", "head"}


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6, padding_idx=2)
        self.words = nn.Linear(6, 7, bias=False)
        self.words.weight = self.embed.weight

    def forward(self, ids):
        return self.words(self.embed(ids)).mean(1)


def test_tied_tensors_count_once_and_the_padding_row_is_no_candidate(tmp_path):
    model = partial(Language(), rate=1.0)
    (posterior,) = (q for _, _, q, _ in model.posteriors())
    expected = [i for i in range(42) if not 12 <= i < 18]
    assert posterior.entries.tolist() == expected
    lb.save(model, tmp_path / "saved")
    again = lb.load(Language(), tmp_path / "saved")
    assert again.net.words.slots["weight"] is again.net.embed.slots["weight"]
    assert torch.equal(masks(again)["embed.weight"], posterior.entries)


def trained_mask_survives(model, twin):
    assert masks(model).keys() == masks(twin).keys()
    for key, entries in masks(model).items():
        assert entries.dtype == torch.int64
        assert torch.equal(entries, masks(twin)[key])


def test_masks_survive_copies_types_state_and_averages():
    """T3.8."""
    model = partial()
    trained_mask_survives(model, copy.deepcopy(model))
    trained_mask_survives(model, copy.deepcopy(model).to(torch.bfloat16).to(torch.float32))
    other = partial(small(seed=7), criterion="random")
    again = partial(small(seed=8), criterion="random")
    again.load_state_dict(other.state_dict(), strict=True)
    trained_mask_survives(other, again)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    for _ in range(3):
        average.update_parameters(model)
    trained_mask_survives(model, average.module)


@pytest.mark.parametrize("posterior_only", [False, True])
def test_a_loaded_mask_comes_from_the_file(tmp_path, posterior_only):
    model = partial()
    x, _ = batch()
    lb.save(model, tmp_path / "saved", posterior_only=posterior_only)
    description = json.loads((tmp_path / "saved" / "leanbayes.json").read_text())
    assert "entries" not in json.dumps(description["method"])  # the mask is a tensor of the file
    # Other weights would give another mask by magnitude.
    net = small(seed=0 if posterior_only else 9)
    again = lb.load(net, tmp_path / "saved")
    trained_mask_survives(model, again)
    assert again.method == model.method
    probs = [lb.predict(m, x, likelihood=lb.Categorical(), seed=1).probs for m in (model, again)]
    assert torch.equal(*probs)


def test_json_holds_no_mask():
    model = partial(select=lb.select.linears, init_rho=(-4.0, 0.2))
    entry = model.method.to_json()
    assert lb.methods()[entry["name"]].from_json(entry["fields"]) == model.method
    assert all(not isinstance(v, torch.Tensor) for v in entry["fields"].values())
    assert not hasattr(copy.deepcopy(model).method, "_masks")


def test_bad_data_are_refused_in_words_and_leave_the_network():
    net, (x, y) = small(), batch()
    wrong = {n: torch.ones_like(p) for n, p in net.named_parameters()}
    cases = [
        ({}, "data=loader, likelihood="),
        ({"data": [(x, y)]}, "needs a likelihood"),
        ({"data": [], "likelihood": lb.Categorical()}, "saw no datum"),
        ({"scores": {}}, r"expected \(4, 1, 3, 3\) for 'conv.weight', found none"),
        ({"scores": {**wrong, "fc.bias": torch.ones(5)}}, r"found shape \(5,\)"),
        ({"scores": {**wrong, "fc.bias": torch.full((6,), torch.nan)}}, "not finite"),
    ]
    for given, words in cases:
        with pytest.raises(lb.ConfigError, match=words):
            lb.bayesianize(net, lb.Partial(rate=0.3), **given)
    with pytest.raises(lb.ConfigError, match="of 99 parameters is not one"):
        partial(net, rate=0.001)
    with pytest.raises(lb.ConversionError, match="selects none"):
        partial(net, select=lb.select.nothing)
    assert type(net.conv) is nn.Conv2d
