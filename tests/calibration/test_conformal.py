"""Sets and intervals hold the truth as often as they promise, by the exact law of coverage."""

from fractions import Fraction

import pytest
import torch
from scipy.stats import betabinom
from torch import nn

import leanbayes as lb
from leanbayes.calibration import Conformal, class_scores, rank_of
from leanbayes.calibration.conformal import lots
from leanbayes.noise import key_seed

SPLITS, N, TEST = 200, 57, 100


def classes(rows, generator):
    """Labels by probabilities that the network gets wrong: it is far too sure."""
    logits = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    y = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return torch.softmax(3 * logits, 1), y


def check_law(hits, alpha, ties=False):
    """The number of hits of a split is beta-binomial; where scores may be equal, not less."""
    k = rank_of(N, Fraction(str(alpha)))
    law = betabinom(TEST, k, N + 1 - k)
    outside = 1e-3 / SPLITS / 2
    assert min(hits) >= law.ppf(outside)
    error = law.std() / SPLITS**0.5
    assert law.mean() / TEST >= 1 - alpha
    assert sum(hits) / SPLITS > law.mean() - 3.5 * error
    if ties:
        return
    assert sum(hits) / SPLITS < law.mean() + 3.5 * error
    assert max(hits) <= law.ppf(1 - outside)
    spread = torch.tensor(hits).double().std().item() / law.std()
    assert 0.8 < spread < 1.2


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
@pytest.mark.parametrize(("score", "randomised"), [("lac", False), ("aps", False), ("aps", True)])
def test_sets_cover_by_the_beta_binomial_law(score, randomised, alpha):
    generator, hits = torch.Generator().manual_seed(0), []
    for split in range(SPLITS):
        (p, y), (p_new, y_new) = (classes(rows, generator) for rows in (N, TEST))
        lot = torch.rand(N, generator=generator, dtype=torch.float64) if randomised else None
        scores = class_scores(p, score, lot)[torch.arange(N), y]
        sets = Conformal(scores, score, alpha, randomised).sets(p_new, None, split)
        hits.append(int(sets[torch.arange(TEST), y_new].sum()))
    check_law(hits, alpha, ties=score == "aps" and not randomised)  # the last class always has 1


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_intervals_cover_by_the_beta_binomial_law_for_each_target(alpha):
    """Noise that the model does not know, of a different size for each target."""
    generator, hits = torch.Generator().manual_seed(1), ([], [])
    net = nn.Linear(1, 2)
    model = lb.bayesianize(net, lb.MAP(), likelihood=lb.Gaussian(precision=4.0))
    size = torch.tensor([0.3, 5.0])

    def data(rows):
        x = torch.randn(rows, 1, generator=generator)
        noise = torch.empty(rows, 2).exponential_(generator=generator)
        return x, net(x).detach() + size * noise

    for _ in range(SPLITS):
        lb.calibrate(model, data(N), method="conformal", alpha=alpha, seed=0)
        x, y = data(TEST)
        low, high = lb.predict(model, x, seed=0).interval()
        for target in range(2):
            inside = (low <= y) & (y <= high)
            hits[target].append(int(inside[:, target].sum()))
    for found in hits:
        check_law(found, alpha)


@pytest.mark.parametrize(
    ("n", "alpha", "k"),
    [
        (9, "0.1", 9),
        (8, "0.1", 9),
        (19, "0.05", 19),
        (99, "0.43", 57),
        (99, "0.07", 93),
        (1, "0.5", 1),
    ],
)
def test_the_rank_is_exact(n, alpha, k):
    assert rank_of(n, Fraction(alpha)) == k


def test_scores_by_hand():
    p = torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(class_scores(p, "lac"), torch.tensor([[0.9, 0.4, 0.7]]).double())
    torch.testing.assert_close(class_scores(p, "aps"), torch.tensor([[1.0, 0.6, 0.9]]).double())
    half = class_scores(p, "aps", torch.tensor([0.5]))
    torch.testing.assert_close(half, torch.tensor([[0.95, 0.3, 0.75]]).double())


def test_thresholds_and_sets_by_hand():
    scores = torch.tensor([0.91, 0.1, 0.5, 0.3]).double()
    found = Conformal(scores, "lac", 0.4)
    assert found.threshold(Fraction(2, 5)) == scores[2]  # k = ceil(5 * 0.6) = 3
    p = torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.2, 0.6]], dtype=torch.float64)
    expected = torch.tensor([[True, False, False], [False, False, True]])
    assert torch.equal(found.sets(p, None, None), expected)
    assert torch.equal(found.sets(p, 0.2, None), p >= 0.1)  # k = 4: up to 0.91


def test_too_few_examples_give_everything_and_a_warning():
    model = lb.bayesianize(nn.Linear(4, 3), lb.MAP(), likelihood=lb.Categorical())
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    with pytest.warns(UserWarning, match="at least 9"):
        lb.calibrate(model, (x, y), method="conformal", alpha=0.1)
    with pytest.warns(UserWarning, match="cannot cover 0.9"):
        assert lb.predict(model, x).sets().all()
    assert not lb.predict(model, x).sets(0.8).all()
    lb.calibrate(model, (x[:8], y), method="conformal", alpha=0.2)  # k = ceil(9 * 0.8) = 8
    model = lb.bayesianize(nn.Linear(4, 1), lb.MAP(), likelihood=lb.Gaussian())
    with pytest.warns(UserWarning, match="8 held-out"):
        lb.calibrate(model, (x, x[:, :1]), method="conformal", alpha=0.1)
    with pytest.warns(UserWarning, match="8 held-out"):
        low, high = lb.predict(model, x).interval()
    assert (low == -torch.inf).all()
    assert (high == torch.inf).all()


def test_intervals_of_any_level_and_those_without_calibration():
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Linear(2, 1), lb.MeanField(init_std=0.3), likelihood=lb.Gaussian())
    x, y = torch.randn(39, 2), torch.randn(39)
    raw = lb.predict(model, x, samples=5, seed=1)
    lb.calibrate(model, (x, y), method="conformal", alpha=0.2, samples=5, seed=1)
    p = lb.predict(model, x, samples=5, seed=1)
    ratio = ((y[:, None] - raw.mean).abs() / raw.std).flatten().sort().values
    for q, k in ((None, 32), (0.8, 32), (0.95, 38), (0.5, 20)):
        low, high = p.interval(q)
        torch.testing.assert_close(high, raw.mean + ratio[k - 1] * raw.std)
        torch.testing.assert_close(low, raw.mean - ratio[k - 1] * raw.std)
    plain = lb.predict(model, x, samples=5, seed=1, calibrated=False)
    assert torch.equal(plain.interval()[0], raw.interval(0.95)[0])
    assert torch.equal(p.mean, raw.mean)
    joined = type(p).cat([p, p]).to("cpu")
    assert joined.interval()[0].shape == (78, 1)


def test_sets_follow_the_temperature_that_was_there():
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField(init_std=0.9), likelihood=lb.Categorical())
    x = torch.randn(60, 4)
    y = torch.multinomial(torch.softmax(model.net(x).detach(), 1), 1).squeeze(1)
    kept = lb.calibrate(model, (x[:30], y[:30]), samples=4, seed=0)
    both = lb.calibrate(model, (x[30:], y[30:]), method="conformal", score="aps", samples=4, seed=0)
    assert both.temperature == kept.temperature
    p = lb.predict(model, x[30:], samples=4, seed=0)
    scores = class_scores(p.probs, "aps")[torch.arange(30), y[30:]]
    torch.testing.assert_close(both.conformal.scores, scores.sort().values)
    assert p.sets()[torch.arange(30), y[30:]].double().mean() >= 0.9
    assert lb.calibrate(model, (x[:30], y[:30]), samples=4, seed=0).conformal is None


def test_randomised_sets_repeat_by_seed_and_binary_labels_have_two_columns():
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Linear(4, 1), lb.MAP(), likelihood=lb.Bernoulli())
    x, y = torch.randn(40, 4), torch.randint(0, 2, (40,))
    options = {"method": "conformal", "score": "aps", "randomised": True, "alpha": 0.3}
    lb.calibrate(model, (x, y), seed=0, **options)
    p = lb.predict(model, x)
    assert p.sets().shape == (40, 2)
    assert torch.equal(p.sets(seed=3), p.sets(seed=3))
    assert not torch.equal(p.sets(seed=3), p.sets(seed=4))


def test_held_out_scores_and_sets_of_one_seed_draw_different_numbers():
    """The same ones would tie the score of a held-out example to that of a new one."""
    torch.manual_seed(0)
    model = lb.bayesianize(nn.Linear(4, 3), lb.MAP(), likelihood=lb.Categorical())
    x, y = torch.randn(40, 4), torch.arange(40) % 3
    found = lb.calibrate(model, (x, y), method="conformal", score="aps", randomised=True, seed=5)
    probs = lb.predict(model, x, calibrated=False).probs.double()
    as_in_sets = class_scores(probs, "aps", lots(40, 5))[torch.arange(40), y].sort().values
    again = class_scores(probs, "aps", lots(40, key_seed(5, "calibrate", 0)))
    torch.testing.assert_close(found.conformal.scores, again[torch.arange(40), y].sort().values)
    assert (found.conformal.scores - as_in_sets).abs().max() > 0.01


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "isotonic"}, "method is 'temperature' or 'conformal'"),
        ({"alpha": 0.0}, "alpha must lie between 0 and 1"),
        ({"alpha": 1.5}, "alpha must lie between 0 and 1"),
        ({"score": "scaled"}, "of labels it is 'lac' or 'aps'"),
        ({"score": "raps"}, "score is one of lac, aps, scaled"),
        ({"randomised": True}, "only score='aps' is randomised"),
        ({"validation": 3}, "a Dataset or a loader"),
        ({"validation": []}, "empty"),
        ({"validation": (torch.zeros(3, 4), torch.zeros(2, dtype=torch.long))}, "2 targets"),
    ],
)
def test_wrong_arguments_leave_no_calibration(change, words):
    model = lb.bayesianize(nn.Linear(4, 3), lb.MAP(), likelihood=lb.Categorical())
    given = {"validation": (torch.randn(20, 4), torch.arange(20) % 3), "method": "conformal"}
    given |= change
    with pytest.raises((lb.ConfigError, lb.DataError), match=words):
        lb.calibrate(model, given.pop("validation"), **given)
    assert model.calibration is None


def test_what_cannot_be_covered_says_so():
    net = nn.Conv2d(1, 3, 1)
    model = lb.bayesianize(net, lb.MAP(), likelihood=lb.Categorical())
    x, y = torch.randn(4, 1, 2, 2), torch.zeros(4, 2, 2, dtype=torch.long)
    with pytest.raises(lb.ConfigError, match="not exchangeable"):
        lb.calibrate(model, (x, y), method="conformal")
    with pytest.raises(lb.ConfigError, match="sets need a calibrated model"):
        lb.predict(model, x).sets()
    lb.calibrate(model, (x, torch.randint(0, 3, (4, 2, 2))))
    with pytest.raises(lb.ConfigError, match="calibrated for classes"):
        lb.predict(model, x, likelihood=lb.Gaussian())
