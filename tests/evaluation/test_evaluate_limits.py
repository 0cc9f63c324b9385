"""Rows and samples of some splits alone, and the disagreement of draws."""

import pytest
import torch
from evaluation_cases import data, evaluate, images, network, timeless, trained

import leanbayes as lb
from leanbayes import metrics

NAMES = "test,corrupted:fog/3,noise:0.4,pgd"


def test_rows_by_the_first_word_of_a_name():
    suite = lb.Suite.of(data(), NAMES, rows={"corrupted": 40, "pgd": 10})
    counts = {split.name: split.count for split in suite.splits}
    assert counts == {"test": 70, "corrupted/fog/3": 40, "noise/0.4": 70, "pgd": 10}


def test_samples_of_a_split_are_its_own():
    x, _ = data().test
    suite = lb.Suite.of(
        data(), "test,corrupted:fog/3,ood:other", samples={"corrupted": 2, "ood": 3},
        foreign={"other": (x.flip(3), torch.zeros(len(x)).long())},
    )  # fmt: skip
    found = evaluate(trained(), suite, samples=4)["splits"]
    assert [found[name].get("samples") for name in found] == [None, 2, 3]
    fewer = evaluate(trained(), lb.Suite.of(data(), "test,corrupted:fog/3"), samples=2)["splits"]
    name = "corrupted/fog/3"
    assert found[name]["figures"] == fewer[name]["figures"]
    assert found["test"]["figures"] != fewer["test"]["figures"]
    other = lb.predict(trained(), x.flip(3), samples=3, seed=5)
    assert found["ood/other"]["figures"]["total"] == pytest.approx(float(other.total.mean()))


def test_fewer_samples_than_members_need_no_warning_where_a_split_asks_for_them():
    model = lb.bayesianize(network(), lb.SharedEnsemble(members=4), likelihood=lb.Categorical())
    suite = lb.Suite.of(data(), "test,noise:0.4,pgd", rows=8, samples={"noise": 2, "pgd": 2})
    found = evaluate(model, suite, samples=4)["splits"]
    assert found["pgd"]["samples"] == 2


@pytest.mark.parametrize("limits", [{"rows": {"fog": 3}}, {"samples": {"corupted": 3}}])
def test_limits_of_unknown_splits_are_refused(limits):
    with pytest.raises(lb.ConfigError, match="no split is called"):
        lb.Suite.of(data(), "test", **limits)


def test_limits_must_be_whole_numbers():
    with pytest.raises(lb.ConfigError, match="samples must be a whole number"):
        lb.Suite.of(data(), "test,noise:0.4", samples={"noise": 0})


def test_a_file_of_other_samples_is_not_gone_on_with(tmp_path):
    path = tmp_path / "found.json"
    suites = [lb.Suite.of(data(), "test,noise:0.4", samples={"noise": n}) for n in (2, 3)]
    first = evaluate(trained(), suites[0], out=path)
    assert timeless(evaluate(trained(), suites[0], out=path)) == timeless(first)
    with pytest.raises(lb.ConfigError, match="samples"):
        evaluate(trained(), suites[1], out=path)


def test_disagreement_is_that_of_all_rows_whatever_the_batches():
    suite = lb.Suite.of(data(), "test")
    x, y = data().test
    p = lb.predict(trained(), x, samples=4, seed=5, keep_samples=True)
    expected = float(metrics.normalised_disagreement(p.samples, y))
    for size in (7, 70):
        figures = evaluate(trained(), suite, batch_size=size)["splits"]["test"]["figures"]
        assert figures["disagreement_normalised"] == pytest.approx(expected)
    assert expected > 0


def test_a_point_has_no_disagreement():
    model = lb.bayesianize(network(), lb.MAP(), likelihood=lb.Categorical())
    figures = evaluate(model, lb.Suite.of(data(), "test"), samples=1)["splits"]["test"]["figures"]
    assert "disagreement" not in figures


ENSEMBLES = {
    "points": lb.BatchEnsemble(members=3, init_std=0.7),
    "networks": lb.DeepEnsemble(members=3),
    "patches": lb.Patching(members=3, scope="network", where="all", init_std=0.7),
    "parts": lb.Compose([(lb.select.output, lb.SharedEnsemble(members=3, init_std=0.9))]),
    "fixed draws": lb.SWAG(rank=0, draws=3, init_std=0.3),
}


@pytest.mark.parametrize("method", ENSEMBLES.values(), ids=ENSEMBLES)
def test_draws_that_repeat_have_nothing_to_disagree_on(method):
    """Of seven draws of three members those of one member are the same network."""
    torch.manual_seed(0)
    model = lb.bayesianize(network(), method, likelihood=lb.Categorical(), example=data().test[0])
    once, often = (
        evaluate(model, lb.Suite.of(data(), "test"), samples=n)["splits"]["test"]["figures"]
        for n in (3, 7)
    )
    assert once["disagreement"] > 0
    for name in ("disagreement", "draw_accuracy", "disagreement_normalised"):
        assert often[name] == pytest.approx(once[name]), name
    x, y = data().test
    assert lb.diversity(model, x, y, samples=7).disagreement == pytest.approx(once["disagreement"])


def test_draws_repeat_only_where_those_of_all_parts_do():
    points = lb.select.output, lb.BatchEnsemble(members=3)
    fresh = lb.select.norms, lb.MeanField()
    still = lb.select.norms, lb.MAP()
    found = [lb.Compose([points, other]).distinct_draws for other in (fresh, still)]
    assert found == [0, 3]
    assert lb.Compose([still]).distinct_draws == 0


def test_an_ensemble_of_one_has_no_disagreement():
    method = lb.BatchEnsemble(members=1)
    model = lb.bayesianize(network(), method, likelihood=lb.Categorical())
    figures = evaluate(model, lb.Suite.of(data(), "test"), samples=4)["splits"]["test"]["figures"]
    assert "disagreement" not in figures


def test_two_classes_disagree_by_their_sign():
    x, y = images(30)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(81, 1))
    model = lb.bayesianize(net, lb.MeanField(init_std=0.5), likelihood=lb.Bernoulli())
    part = (x, (y == 0).long()[:, None])
    whole = lb.data.Data(name="two", task="binary", train=None, test=part, classes=("no", "yes"))
    figures = evaluate(model, lb.Suite.of(whole, "test"))["splits"]["test"]["figures"]
    p = lb.predict(model, x, samples=4, seed=5, keep_samples=True)
    two = torch.stack([1 - p.samples[..., 0], p.samples[..., 0]], 2)
    assert figures["disagreement"] == pytest.approx(float(metrics.disagreement(two)))
