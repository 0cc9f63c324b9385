"""Bootstrap intervals against scipy's, a loop with the same draws, and their coverage."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from leanbayes.errors import DataError
from leanbayes.metrics import accuracy, auroc, bootstrap, bootstrap_mean, ece
from leanbayes.metrics.resample import _indices


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_an_interval_of_a_mean_equals_a_loop(level):
    generator = torch.Generator().manual_seed(60)
    for number in range(200):
        values = torch.randn(1 + number % 30, dtype=torch.float64, generator=generator)
        draws = torch.Generator().manual_seed(number)
        rows = torch.randint(len(values), (40, len(values)), generator=draws).numpy()
        means = [values.numpy()[row].mean() for row in rows]
        expected = np.percentile(means, [50 * (1 - level), 50 * (1 + level)])
        found = bootstrap_mean(values, draws=40, level=level, seed=number)
        assert [found.low.item(), found.high.item()] == pytest.approx(expected.tolist())
        assert found.value.item() == pytest.approx(values.mean().item())


def test_an_interval_is_near_that_of_scipy():
    values = torch.randn(300, dtype=torch.float64, generator=torch.manual_seed(1)).exp()
    peer = stats.bootstrap(
        (values.numpy(),), np.mean, n_resamples=4000, method="percentile", rng=2
    ).confidence_interval
    found = bootstrap_mean(values, draws=4000)
    width = peer.high - peer.low
    assert found.low.item() == pytest.approx(peer.low, abs=0.05 * width)
    assert found.high.item() == pytest.approx(peer.high, abs=0.05 * width)


def test_intervals_cover_the_truth_as_often_as_they_say():
    generator = torch.Generator().manual_seed(61)
    covered = 0
    for seed in range(200):
        found = bootstrap_mean(
            torch.randn(50, generator=generator), draws=300, seed=seed, level=0.9
        )
        covered += bool(found.low <= 0 <= found.high)
    assert 0.82 < covered / 200 < 0.96


def test_a_metric_that_is_a_mean_has_the_interval_of_its_values(random_cases):
    probs, target = random_cases[59]
    hits = probs.argmax(1) == target
    single, whole = (
        bootstrap_mean(hits.double(), draws=50),
        bootstrap(accuracy, probs, target, draws=50),
    )
    for name in ("value", "low", "high"):
        assert getattr(single, name).item() == pytest.approx(getattr(whole, name).item(), abs=1e-14)


def test_rows_of_all_tensors_are_drawn_together_or_apart():
    x = torch.arange(10.0)
    assert bootstrap(lambda a, b: (a - b).abs().max(), x, x, draws=20).high.item() == 0
    apart = bootstrap(lambda a, b: (a - b).abs().max(), x, x, draws=20, together=False)
    assert apart.low.item() > 0
    found = bootstrap(auroc, x, x[:7] + 2, draws=100, together=False)
    assert found.low < found.value < found.high


def test_one_seed_gives_one_interval_and_another_another(random_cases):
    probs, target = random_cases[59]
    ends = [bootstrap(ece, probs, target, draws=30, seed=seed).high.item() for seed in (3, 3, 4)]
    assert ends[0] == ends[1] != ends[2]
    state = torch.get_rng_state()
    bootstrap_mean(torch.ones(9), draws=5)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is left alone


def test_draws_in_parts_are_all_made():
    parts = list(_indices(2**21, 5, 0, torch.device("cpu")))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert not torch.equal(parts[0][0], parts[0][1])


def test_one_example_and_equal_examples_have_no_width():
    for values in (torch.tensor([0.25]), torch.full((5,), 0.25)):
        found = bootstrap_mean(values, draws=10)
        assert (found.value.item(), found.low.item(), found.high.item()) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: bootstrap_mean(x * math.nan), "values holds 3 of 3 values that are NaN"),
        (lambda x: bootstrap_mean(x[:0]), "values is empty"),
        (lambda x: bootstrap_mean(x[None]), r"values has shape \(1, 3\)"),
        (lambda x: bootstrap_mean(x, draws=0), "draws = 0"),
        (lambda x: bootstrap_mean(x, level=95), "level = 95"),
        (lambda x: bootstrap(ece, x, x[:2]), r"tensors of \[3, 2\] rows; .*together=False"),
        (lambda _: bootstrap(ece), "no tensors"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call(torch.ones(3))
