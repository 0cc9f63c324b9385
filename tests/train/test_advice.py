"""Words on labels, data, memory and posteriors: right, and only where they are due."""

import math
import warnings

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.errors import DataError, OutOfMemory
from leanbayes.train import spread
from leanbayes.train.advice import (
    LabelGuard,
    check_batch,
    check_labels,
    count_classes,
    is_out_of_memory,
    memory_advice,
    warn_batchnorm,
    warn_num_data,
)
from leanbayes.train.spread import posterior_words, sigma_statistics, warn_posterior


def linear(**options):
    return lb.bayesianize(nn.Linear(4, 3), lb.MeanField(**options)).train()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 2, 3], "label 3 at place 2 .*1 wrong.* expected 0 to 2.*3 outputs.*targets - 1"),
        ([0, 9, 9], "label 9 at place 1 .*2 wrong"),
        ([0, 255, 1], r"label 255 .*ignore_index=255"),
        ([-1, 0, 1], r"label -1 at place 0 .*ignore_index=-1"),
    ],
)
def test_labels_out_of_range_are_named_with_place_and_cure(labels, words):
    with pytest.raises(DataError, match=words):
        check_labels(torch.tensor(labels), lb.Categorical(), classes=3)


def test_labels_in_range_and_ignored_ones_pass():
    check_labels(torch.tensor([0, 2, -100]), lb.Categorical(), classes=3)
    check_labels(torch.tensor([[0, 255]]), lb.Categorical(ignore_index=255), classes=2)
    check_labels(torch.tensor([7]), lb.Categorical())
    check_labels(torch.empty(0, dtype=torch.long), lb.Categorical(), classes=3)
    check_labels(torch.tensor([0, 1], dtype=torch.uint8), lb.Categorical(), classes=2)
    # Compared as bytes, 200 would be -56, and label 0 above it.
    check_labels(torch.tensor([0, 9, -100], dtype=torch.int8), lb.Categorical(), classes=200)


def test_labels_of_other_kinds_are_checked_by_their_likelihood():
    with pytest.raises(DataError, match=r"whole-number labels, found torch.float32"):
        check_labels(torch.tensor([0.0]), lb.Categorical(), classes=3)
    check_labels(torch.tensor([0.0, 1.0]), lb.Bernoulli())
    with pytest.raises(DataError, match="0 or 1, found -1 to 1"):
        check_labels(torch.tensor([-1.0, 1.0]), lb.Bernoulli())


def test_targets_that_are_not_finite_are_left_to_the_guard_that_stops_all_processes():
    check_labels(torch.tensor([math.nan, 1.0]), lb.Bernoulli())
    check_labels(torch.tensor([[0.0], [math.inf]]), lb.Gaussian())


def test_the_guard_asks_the_network_for_its_classes_and_checks_every_batch():
    model, guard = linear(), LabelGuard(lb.Categorical())
    x = torch.randn(5, 4)
    guard.check((x, torch.tensor([0, 1, 2, 0, 1])), model)
    assert guard.classes == 3
    with pytest.raises(DataError, match="label 3 at place 4"):
        guard.check((x, torch.tensor([0, 1, 2, 0, 3])), model)


def test_counting_classes_leaves_no_trace():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 7))
    model = lb.bayesianize(net, lb.MeanField()).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    found = count_classes(model, torch.randn(5, 8), lambda x: x[:, :4] + torch.rand(1))
    assert found == 7
    assert torch.equal(torch.get_rng_state(), state) is False  # our own randn above
    state = torch.get_rng_state()
    count_classes(model, torch.ones(5, 8), lambda x: x[:, :4] + torch.rand(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert net[1].training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_classes_of_dense_outputs_are_those_of_dim_1():
    model = lb.bayesianize(nn.Conv2d(3, 5, 1), lb.MeanField())
    assert count_classes(model, torch.zeros(2, 3, 4, 4)) == 5


def test_rows_that_are_not_finite_are_listed():
    x = torch.zeros(9, 2)
    check_batch((x, {"index": torch.arange(3)}))
    x[[1, 2, 4, 5, 6, 8], 0] = math.nan
    with pytest.raises(DataError, match=r"6 of 9 rows \(rows 1, 2, 4, 5, 6, ... of the batch\)"):
        check_batch((x,))
    check_batch(torch.full((3,), 3e38))  # large, finite, and its sum is not


def test_a_wrong_number_of_data_is_reported_with_both_figures_and_the_effect():
    with pytest.warns(UserWarning, match=r"num_data=50 .* hold 1000: .* counts 20 times as much"):
        warn_num_data(50, 1000)
    with pytest.warns(UserWarning, match=r"only 0.1 times"):
        warn_num_data(1000, 100)
    warn_num_data(100, 100)


def test_cut_batches_are_reported_where_batchnorm_sees_them():
    net = nn.Sequential(nn.BatchNorm1d(4))
    with pytest.warns(UserWarning, match="128 rows .* in 4 parts.* over 32 rows"):
        warn_batchnorm(net, 128, 4)
    warn_batchnorm(net.eval(), 128, 4)
    warn_batchnorm(nn.Linear(2, 2), 128, 4)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_running_out_of_memory_is_known_in_all_its_words(error):
    assert is_out_of_memory(error)


def test_a_real_allocation_that_fails_is_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**61, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_other_errors_are_not_taken_for_it():
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_the_advice_quotes_the_error_and_halves_the_batch():
    advice = memory_advice(RuntimeError("CUDA out of memory.\nTraceback"), 64)
    assert isinstance(advice, OutOfMemory)
    for words in ("64 rows", "(CUDA out of memory)", "batch_size=32", "auto_batch=True"):
        assert words in str(advice)
    assert "Traceback" not in str(advice)
    assert "auto_batch" not in str(memory_advice(MemoryError(), 1))


@torch.no_grad()
def every_sigma(model):
    stds = []
    for _, _, q, base in model.posteriors():
        if hasattr(q, "std"):
            stds.append(q.std(base).flatten())
        elif hasattr(q, "rho"):
            stds.append(nn.functional.softplus(q.rho).flatten())
    sigma = torch.cat(stds)
    return sigma[sigma > 0]


@pytest.mark.parametrize(
    "method", [lb.MeanField(), lb.RankOne(), lb.Partial(rate=0.3, criterion="magnitude")]
)
def test_statistics_are_those_of_all_scales(method):
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model = lb.bayesianize(net, method)
    with torch.no_grad():
        for _, _, q, _ in model.posteriors():
            for name, p in q.named_parameters():
                if name in ("log_std", "rho"):
                    p.add_(torch.randn_like(p))
    found, sigma = sigma_statistics(model), every_sigma(model)
    assert found["sigma_min"] == pytest.approx(float(sigma.min()))
    assert found["sigma_median"] == pytest.approx(float(sigma.median()))
    assert found["sigma_max"] == pytest.approx(float(sigma.max()))


def test_large_networks_give_the_median_of_evenly_spaced_entries(monkeypatch):
    model = linear()
    q = next(q for _, slot, q, _ in model.posteriors() if slot == "weight")
    with torch.no_grad():
        q.log_std.copy_(torch.linspace(-6, -5, 12).reshape(3, 4))
    monkeypatch.setattr(spread, "SAMPLE", 5)
    found, sigma = sigma_statistics(model), every_sigma(model)
    assert found["sigma_min"] == pytest.approx(float(sigma.min()))
    assert found["sigma_max"] == pytest.approx(float(sigma.max()))
    assert math.exp(-6) < found["sigma_median"] < math.exp(-5)


def test_the_padding_row_of_an_embedding_does_not_count():
    model = lb.bayesianize(nn.Embedding(5, 2, padding_idx=0), lb.MeanField())
    with torch.no_grad():
        next(model.posteriors())[2].log_std[0] = 3.0
    assert sigma_statistics(model)["sigma_max"] <= math.exp(-5)


@pytest.mark.parametrize("method", [lb.MAP(), lb.MCDropout(), lb.BatchEnsemble()])
def test_methods_without_trained_scales_have_no_statistics_and_no_alarm(method):
    model = lb.bayesianize(nn.Sequential(nn.Linear(4, 3)), method)
    assert sigma_statistics(model) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_posterior({}, model) == {}


def test_a_posterior_that_collapses_or_explodes_is_reported_once_with_cures():
    model = linear(init_std=0.05)
    start = sigma_statistics(model)
    assert warn_posterior(start, model) == start
    for _, _, q, _ in model.posteriors():
        q.set_std(1e-5)
    with pytest.warns(UserWarning, match=r"collapsed: .* from 0.05 to 1e-05 .*kl_weight"):
        after = warn_posterior(start, model)
    warn_posterior(after, model)  # silent: said once
    for _, _, q, _ in model.posteriors():
        q.set_std(20.0)
    with pytest.warns(UserWarning, match=r"exploded: .* is 20, 20 times .*posterior_lr"):
        warn_posterior(start, model)


def figures(sigma, prior_std=1.0):
    return {"sigma_median": sigma, "sigma_to_prior": sigma / prior_std}


@pytest.mark.parametrize(
    ("start", "now", "words"),
    [
        (0.004, 0.0011, ""),  # well determined, as with a million data
        (0.004, 0.0003, "collapsed"),
        (1e-4, 2e-5, ""),  # narrow from the start: a choice
        (1e-4, 0.9e-7, "collapsed"),
        (0.0, 0.0, ""),
        (0.1, 9.0, ""),
        (0.1, 11.0, "exploded"),
    ],
)
def test_the_limits_of_what_is_reported(start, now, words):
    found = posterior_words(figures(start), figures(now))
    assert words in found
    assert bool(words) == bool(found)
