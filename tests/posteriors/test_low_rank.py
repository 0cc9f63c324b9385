"""Candidates `W * (L R)`: start, cheap passes, cross-entropy and its closed-form gradients."""

import math

import pytest
import torch
from mixture_cases import F64, by_row_or_group, check_loop, each_layer
from torch import nn

import leanbayes as lb
from leanbayes.noise import FreshNoise
from leanbayes.posteriors.low_rank import LowRankScale
from leanbayes.train import layout

SHAPES = {"linear": (5, 4), "conv1": (5, 4, 3), "conv2": (6, 2, 3, 3), "conv3": (2, 3, 2, 2, 2)}
variants = pytest.mark.parametrize(
    ("rank", "per_channel"), [(1, False), (1, True), (3, False), (3, True)]
)
layouts = pytest.mark.parametrize("turned", [False, True], ids=["plain", "channels_last"])
each_shape = pytest.mark.parametrize("shape", list(SHAPES.values()), ids=list(SHAPES))


def candidates(shape, members=4, **options):
    base = nn.Parameter(torch.randn(*shape, dtype=F64))
    return base, LowRankScale(base, members=members, spread=0.4, **options)


def products(base, q):
    """A_k in the shape of the tensor, entry by entry, [K, *shape]."""
    product = torch.einsum("kor,krc->koc", q.left, q.right)
    if product.shape[2] == base[0].numel():
        return product.reshape(len(product), *base.shape)
    dims = (1,) * (base.dim() - 2)
    return product.reshape(*product.shape, *dims).expand(len(product), *base.shape)


@each_layer
@by_row_or_group
@variants
def test_cheap_passes_equal_a_loop_over_candidates(layer_name, per_row, rank, per_channel):
    method = lb.SharedEnsemble(members=3, rank=rank, per_channel=per_channel, init_std=0.4)
    check_loop(layer_name, method, per_row)


@each_layer
@variants
def test_blocks_of_rows_equal_a_loop_over_candidates(layer_name, rank, per_channel):
    """Long blocks have a tensor a draw where there are several ranks."""
    method = lb.SharedEnsemble(members=3, rank=rank, per_channel=per_channel, init_std=0.4)
    check_loop(layer_name, method, per_row=False, rows=27)


@pytest.mark.parametrize("rank", [1, 8, 16])
@pytest.mark.parametrize("spread", [0.1, 0.2])
def test_entries_of_the_product_start_at_one_with_the_stated_spread(rank, spread):
    """T1.8: 'randomly' in the paper is mean 1 +- 0.01 and sd p +- 3 %, for every rank."""
    base = torch.zeros(60, 60)
    q = LowRankScale(base, members=200, rank=rank, spread=spread)
    product = q.left @ q.right
    assert product.mean().item() == pytest.approx(1.0, abs=0.01)
    assert product.std().item() == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize("rank", [1, 8, 16])
def test_factors_start_with_the_papers_moments(rank):
    q = LowRankScale(torch.zeros(100, 100), members=100, rank=rank, spread=0.2)
    variance = (math.sqrt(rank * 0.04 + 1) - 1) / rank
    for factor in (q.left, q.right):
        assert factor.mean().item() == pytest.approx(rank**-0.5, abs=0.005)
        assert factor.var().item() == pytest.approx(variance, rel=0.05)
    # (m^2 + v^2)^2 r - r m^4 = p^2: the variance of an entry of the product.
    assert rank * ((1 / rank + variance) ** 2 - rank**-2) == pytest.approx(0.04, rel=1e-9)


def test_without_spread_every_candidate_is_the_weight():
    base = torch.randn(5, 4)
    for rank in (1, 4):
        q = LowRankScale(base, members=3, rank=rank, spread=0.0)
        draws = q.draw(base, q.noise(base, 3, FreshNoise()))
        torch.testing.assert_close(draws, base.expand(3, -1, -1))


def test_factors_have_one_column_a_kernel_position_or_a_channel():
    base = torch.zeros(6, 2, 3, 3)
    assert LowRankScale(base, members=4, rank=3).right.shape == (4, 3, 18)
    assert LowRankScale(base, members=4, rank=3).left.shape == (4, 6, 3)
    assert LowRankScale(base, members=4, per_channel=True).right.shape == (4, 1, 2)


@each_shape
@variants
def test_draws_and_means_are_the_written_out_candidates(shape, rank, per_channel):
    base, q = candidates(shape, rank=rank, per_channel=per_channel)
    expected = products(base, q) * base
    component = torch.tensor([3, 1, 1, 0])
    draws = q.draw(base, q.noise(base, 4, FreshNoise()), component)
    torch.testing.assert_close(draws, expected[component], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(q.mean(base, 2), expected[2], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(q.mean(base), expected.mean(0), rtol=1e-12, atol=1e-12)


@each_shape
@variants
def test_cross_entropy_is_the_square_of_every_candidate(shape, rank, per_channel):
    base, q = candidates(shape, rank=rank, per_channel=per_channel, prior_std=0.3)
    squares = (products(base, q) * base).square().flatten(1).sum(1)
    torch.testing.assert_close(q.kl(base), squares / (2 * 0.09), rtol=1e-12, atol=0)


@layouts
@each_shape
@variants
def test_the_edit_is_eq_6_with_the_sign_of_a_minimiser(shape, rank, per_channel, turned):
    """T1.1: the gradient of (decay / 2K) sum_k |A_k * W|^2 by autograd of the written-out sum."""
    decay, num_data = 2e-4, 50_000
    prior_std = 1 / math.sqrt(decay * num_data)
    base, q = candidates(shape, rank=rank, per_channel=per_channel, prior_std=prior_std)
    base.data = layout.turned(base.data) if turned else base.data
    targets = [base, q.left, q.right]
    squares = (products(base, q) * base).square().flatten(1).sum(1)
    expected = torch.autograd.grad(decay / (2 * 4) * squares.sum(), targets)
    by_kl = torch.autograd.grad(q.kl(base).mean() / num_data, targets)
    base.grad = torch.ones_like(base)
    LowRankScale.add_kl_grads([(q, base)], 1 / num_data, lambda p: p.requires_grad)
    base.grad -= 1
    for target, a, b in zip(targets, expected, by_kl, strict=True):
        torch.testing.assert_close(target.grad, a, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-15)


def test_frozen_parameters_are_not_edited():
    base, q = candidates((5, 4))
    base.requires_grad_(False)
    LowRankScale.add_kl_grads([(q, base)], 1.0, lambda p: p.requires_grad)
    assert base.grad is None
    assert q.left.grad.abs().min() > 0


@variants
def test_the_edit_works_in_bfloat16(rank, per_channel):
    """`.to(bfloat16)` casts the factors; the edit upcasts as the cross-entropy does."""
    base = nn.Parameter(torch.randn(6, 4, 3, 3))
    q = LowRankScale(base, members=3, rank=rank, per_channel=per_channel)
    LowRankScale.add_kl_grads([(q, base)], 1.0, lambda p: p.requires_grad)
    exact = [p.grad.clone() for p in (base, q.left, q.right)]  # a cast would cast them too
    half = nn.Parameter(base.detach().bfloat16())
    q = q.bfloat16()
    q.zero_grad()
    LowRankScale.add_kl_grads([(q, half)], 1.0, lambda p: p.requires_grad)
    for found, reference in zip((half.grad, q.left.grad, q.right.grad), exact, strict=True):
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), reference, rtol=0.06, atol=0.06)


def test_half_precision_cross_entropy_is_summed_in_float32():
    base = torch.randn(60, 60)
    q = LowRankScale(base, members=3)
    exact = q.kl(base)
    half = q.bfloat16().kl(base.bfloat16())
    assert half.dtype == torch.float32
    assert ((half / exact - 1).abs() < 0.02).all()


def test_only_drawn_candidates_get_a_gradient_and_the_shared_weight_always():
    base, q = candidates((5, 4))
    q.draw(base, torch.zeros(2), torch.tensor([2, 0])).square().sum().backward()
    assert (q.left.grad.flatten(1).abs().sum(1) > 0).tolist() == [True, False, True, False]
    assert (q.right.grad.flatten(1).abs().sum(1) > 0).tolist() == [True, False, True, False]
    assert base.grad.abs().min() > 0
