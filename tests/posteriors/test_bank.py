"""Banks of copies: which copy an index picks, what trains, what it costs."""

import pytest
import torch
from mixture_cases import F64, by_row_or_group, check_loop, each_layer
from torch import nn

import leanbayes as lb
from leanbayes.noise import FreshNoise, KeyedNoise
from leanbayes.posteriors.bank import Bank

SCOPES = ["layer", "element", "input", "network"]
# 99.9 % points of chi-square by degrees of freedom.
CRITICAL = {1: 10.83, 2: 13.82, 4: 18.47}


def bank(*shape, members=5, **options):
    base = nn.Parameter(torch.randn(*shape, dtype=F64))
    q = Bank(base, members=members, **{"jitter": 0.5, **options})
    q.key = "layer.weight"
    return base, q


def chi_square(counts, expected):
    return ((counts - expected) ** 2 / expected).sum(0)


def picked(base, q, draws, component=None, source=None):
    """The copy that every entry of every draw came from."""
    noise = q.noise(base, draws, source or FreshNoise())
    same = q.draw(base, noise, component)[:, None] == q.values(base)
    assert (same.sum(1) == 1).all()
    return same.long().argmax(1)


def method(scope, **options):
    options = {"members": 3, "init_std": 0.4, "granularity": "row", **options}
    return lb.Patching(scope=scope, where="all", **options)


@each_layer
@by_row_or_group
@pytest.mark.parametrize("scope", SCOPES)
def test_picked_copies_equal_a_loop_over_written_out_weights(layer_name, scope, per_row):
    check_loop(layer_name, method(scope), per_row)


@each_layer
@pytest.mark.parametrize("scope", ["element", "input", "layer"])
def test_zero_copies_equal_a_loop_over_written_out_weights(layer_name, scope):
    check_loop(layer_name, method(scope, members=2, zero_copy=True, keep=0.7), True)


def test_the_base_is_copy_zero_and_the_bank_holds_the_others():
    base, q = bank(4, 3)
    assert q.values(base).shape == (5, 4, 3)
    assert torch.equal(q.values(base)[0], base)
    assert [p.shape for p in q.parameters()] == [(4, 4, 3)]
    _, zero = bank(4, 3, zero_copy=True)
    assert [p.shape for p in zero.parameters()] == [(3, 4, 3)]
    assert (zero.values(base)[-1] == 0).all()
    assert not list(bank(4, 3, members=2, zero_copy=True)[1].parameters())


def test_copies_start_at_the_base_with_relative_jitter():
    base = nn.Parameter(torch.full((20_000,), 2.0))
    q = Bank(base, members=3, jitter=0.05)
    assert q.further.std().item() == pytest.approx(0.1, rel=0.02)
    assert abs(q.further.mean() - 2) < 4 * 0.1 / 200
    assert torch.equal(Bank(base, members=3, jitter=0.0).values(base), base.expand(3, -1))


def test_one_index_a_layer_picks_whole_copies_uniformly():
    base, q = bank(3, 2)
    index = picked(base, q, 20_000)
    assert (index == index[:, :1, :1]).all()
    counts = torch.bincount(index[:, 0, 0], minlength=5).double()
    assert chi_square(counts, 4_000) < CRITICAL[4]


def test_one_index_an_element_picks_every_entry_uniformly_and_by_itself():
    base, q = bank(2, 3, members=3, index="element")
    index = picked(base, q, 20_000).flatten(1)
    counts = nn.functional.one_hot(index, 3).sum(0).double().T
    # Six entries: a Bonferroni-corrected 99.9 % point of chi-square with 2 degrees of freedom.
    assert (chi_square(counts, 20_000 / 3) < 17.4).all()
    pairs = torch.bincount(index[:, 0] * 3 + index[:, 4], minlength=9).double()
    assert chi_square(pairs, 20_000 / 9) < 26.12  # 8 degrees of freedom


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (3, 4, 2, 2)])
def test_one_index_an_input_unit_picks_its_whole_column(shape):
    base, q = bank(*shape, members=3, index="input")
    index = picked(base, q, 3_000)
    first = index.flatten(3)[:, :1, :, :1] if len(shape) > 2 else index[:, :1]
    assert (index.flatten(3) == first).all() if len(shape) > 2 else (index == first).all()
    units = first.reshape(3_000, 4)
    pairs = torch.bincount(units[:, 0] * 3 + units[:, 3], minlength=9).double()
    assert chi_square(pairs, 3_000 / 9) < 26.12


@pytest.mark.parametrize(("keep", "share"), [(0.9, 0.9), (None, 0.5)])
@pytest.mark.parametrize("index", ["layer", "element"])
def test_keep_is_the_probability_of_the_trained_copy(keep, share, index):
    base, q = bank(1, 1, members=2, zero_copy=True, keep=keep, index=index)
    found = (picked(base, q, 20_000) == 0).double().mean().item()
    assert abs(found - share) < 4 * (share * (1 - share) / 20_000) ** 0.5
    torch.testing.assert_close(q.mean(base), share * base, rtol=1e-12, atol=0)


def test_a_network_index_takes_the_plans_component():
    base, q = bank(3, 2, index="network")
    component = torch.tensor([4, 0, 2, 2])
    assert torch.equal(picked(base, q, 4, component)[:, 0, 0], component)
    assert (q.members, q.copies) == (5, 5)
    assert (bank(3, 2)[1].members, bank(3, 2)[1].copies) == (0, 5)


def test_tensors_of_a_layer_share_the_key_of_a_layer_index_only():
    weight, bias = bank(3, 2)[1], bank(3)[1]
    weight.key, bias.key = "stem.conv.weight", "stem.conv.bias"
    assert weight.noise_key == bias.noise_key == "stem.conv#index"
    weight.index = bias.index = "element"
    assert (weight.noise_key, bias.noise_key) == (weight.key, bias.key)


@pytest.mark.parametrize("index", ["layer", "network"])
def test_copies_that_are_not_drawn_get_no_gradient(index):
    base, q = bank(4, 3, index=index)
    component = torch.tensor([3, 1])
    noise = torch.tensor([0.7, 0.3], dtype=F64)  # copies 3 and 1 of five
    q.draw(base, noise, component).square().sum().backward()
    sizes = q.further.grad.abs().sum((1, 2))
    assert (sizes > 0).tolist() == [True, False, True, False]  # copies 1 to 4
    assert base.grad is None or (base.grad == 0).all()


def test_entries_that_are_not_drawn_get_no_gradient():
    base, q = bank(4, 3, index="element")
    noise = q.noise(base, 1, FreshNoise())
    index = q.picks(noise, None)[0]
    q.draw(base, noise).square().sum().backward()
    grads = torch.cat([base.grad[None], q.further.grad])
    expected = nn.functional.one_hot(index, 5).permute(2, 0, 1).bool()
    assert torch.equal(grads != 0, expected)


def test_cross_entropy_is_the_mean_over_the_copies():
    """T4.4: p_k = 1 / K a copy; the zero copy costs nothing but takes its share."""
    base, q = bank(4, 3, prior_std=0.3)
    squares = q.values(base).square().sum((1, 2)) / (2 * 0.09)
    torch.testing.assert_close(q.kl(base), squares.mean(), rtol=1e-12, atol=0)
    _, network = bank(4, 3, prior_std=0.3, index="network")
    network.load_state_dict(q.state_dict())
    torch.testing.assert_close(network.kl(base), squares, rtol=1e-12, atol=0)
    grad = torch.autograd.grad(q.kl(base), [base, q.further])
    torch.testing.assert_close(grad[0], base / (5 * 0.09), rtol=1e-12, atol=0)
    torch.testing.assert_close(grad[1], q.further / (5 * 0.09), rtol=1e-12, atol=0)
    assert bank(4, 3, prior_std=None)[1].kl(base) == 0


@pytest.mark.parametrize(("keep", "share"), [(None, 0.5), (0.9, 0.9), (0.2, 0.2)])
def test_cross_entropy_of_a_dropped_tensor_is_keep_times_its_square(keep, share):
    """sum_k p_k |theta_k|^2 / 2 with p_0 = keep: Gal's (keep / 2) tau |M|^2."""
    base, q = bank(4, 3, members=2, zero_copy=True, keep=keep, index="element")
    expected = share * base.square().sum() / 2
    torch.testing.assert_close(q.kl(base), expected, rtol=1e-12, atol=0)


def test_mean_is_the_average_of_the_copies_or_one_of_them():
    base, q = bank(4, 3)
    torch.testing.assert_close(q.mean(base), q.values(base).mean(0), rtol=1e-12, atol=1e-12)
    assert torch.equal(q.mean(base, 3), q.values(base)[3])
    _, same = bank(4, 3, jitter=0.0)
    same.further.data.copy_(base.expand(4, -1, -1))
    assert torch.equal(same.mean(base), base)


def test_keyed_picks_depend_on_seed_layer_and_sample_alone():
    base, q = bank(3, 2)
    whole = picked(base, q, 40, source=KeyedNoise(5, range(40)))
    for sample in (39, 0, 17):
        alone = picked(base, q, 1, source=KeyedNoise(5, [sample]))
        assert torch.equal(alone[0], whole[sample])
    q.key = "layer.bias"  # same layer, same index
    assert torch.equal(picked(base, q, 40, source=KeyedNoise(5, range(40))), whole)
    q.key = "other.weight"
    assert not torch.equal(picked(base, q, 40, source=KeyedNoise(5, range(40))), whole)


@pytest.mark.parametrize("index", ["layer", "element"])
def test_a_rounded_network_picks_the_same_copies(index):
    """As masks do: uniform numbers are drawn and compared in float32 whatever the type."""
    base, q = torch.randn(4, 3), Bank(torch.zeros(4, 3), index=index)
    single = q.picks(q.noise(base, 1_000, KeyedNoise(5, range(1_000))), None)
    for dtype in (torch.bfloat16, torch.float16):
        rounded = q.noise(base.to(dtype), 1_000, KeyedNoise(5, range(1_000)))
        assert torch.equal(q.picks(rounded, None), single)


def test_random_numbers_count_indices_not_entries():
    base = nn.Parameter(torch.zeros(4, 3, 2))
    counts = {i: Bank(base, index=i).random_dimensions(base) for i in SCOPES}
    assert counts == {"layer": 1, "element": 24, "input": 3, "network": 0}
