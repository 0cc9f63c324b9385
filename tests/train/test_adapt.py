"""`lb.adapt`: every kind of method in one call, and what it equals step by step."""

import copy
import json
from dataclasses import replace
from itertools import chain

import pytest
import torch
from fit_cases import At, Net, digest, problem, settings
from torch import nn

import leanbayes as lb
from leanbayes.train.data import Batches
from leanbayes.train.feed import Loader
from leanbayes.train.members import starts

CPU = torch.device("cpu")


class CrashError(Exception):
    pass


def crash():
    raise CrashError


def fresh(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Net()


def loader(config):
    return Loader(Batches(problem(), batch_size=config.batch_size, seed=config.seed), CPU)


def adapted(method, config=None, **options):
    torch.manual_seed(5)
    return lb.adapt(fresh(), method, problem(), config=config or settings(), **options)


def step_by_step(method, config=None, **options):
    """The same with `bayesianize` and `fit`."""
    config = config or settings()
    torch.manual_seed(5)
    model = lb.bayesianize(fresh(), method, example=problem()[0][:12], **options)
    return model, lb.fit(model, problem(), lb.Categorical(), config=config)


@pytest.mark.parametrize("name", ["mean_field", "shared_ensemble", "patching", "deep_ensemble"])
def test_adapt_is_bayesianize_and_fit_bit_for_bit(name):
    method = lb.methods()[name](**({} if name == "mean_field" else {"members": 3}))
    done = adapted(method)
    model, result = step_by_step(method)
    assert digest(done.model) == digest(model)
    assert replace(done.result, seconds=0.0) == replace(result, seconds=0.0)
    assert done.report == model.report
    assert (done.measured, done.figures) == ({}, {})
    assert isinstance(done.model.likelihood, lb.Categorical)


def test_partial_takes_the_most_sensitive_weights_of_the_data():
    config = settings()
    method = lb.Partial(rate=0.1)
    done = adapted(method)
    scores = lb.sensitivity(fresh(), loader(config), lb.Categorical())
    model, _ = step_by_step(method, scores=scores)
    assert digest(done.model) == digest(model)
    flat = torch.cat([score.flatten() for score in scores.values()])
    least = flat.topk(round(0.1 * len(flat))).values.min()
    for name, score in scores.items():
        host, _, slot = name.rpartition(".")
        slots = done.model.net.get_submodule(host).slots
        entries = slots[slot].entries if slot in slots else torch.empty(0, dtype=torch.long)
        assert entries.tolist() == (score.flatten() >= least).nonzero().flatten().tolist()


def test_swag_collects_after_the_training_and_refreshes_batchnorm():
    options = {"epochs": 6, "lr": 0.05}
    done = adapted(lb.SWAG(rank=4), fitting=options)
    config = settings()
    model, _ = step_by_step(lb.SWAG(rank=4))
    trained = copy.deepcopy(model.state_dict())
    measured = lb.fit_posterior(model, loader(config), lb.Categorical(), **options)
    assert digest(done.model) == digest(model)
    assert done.measured == measured
    assert measured["collected"] == 6
    slot = done.model.net.hidden.slots["weight"]
    assert slot.deviations.std(0).min() > 0  # six epochs in six orders: iterates that differ
    assert not torch.equal(model.net.norm.running_mean, trained["net.norm.running_mean"])
    lb.refresh_batchnorm(model, loader(config))
    mean = done.model.net.norm.running_mean
    torch.testing.assert_close(mean, model.net.norm.running_mean, rtol=1e-4, atol=1e-5)


def test_every_pass_of_a_fit_after_training_has_its_own_order():
    found = loader(settings())
    first, second = ([y.tolist() for _, y in found] for _ in range(2))
    assert first != second
    assert sorted(chain(*first)) == sorted(chain(*second))
    assert [y.tolist() for _, y in loader(settings())] == first


def test_laplace_is_fitted_to_the_trained_network():
    config = settings()
    done = adapted(
        lb.Laplace(prior_std=0.05), fitting={"probes": 3}, validation=problem(30, seed=1)
    )
    model, _ = step_by_step(lb.Laplace(prior_std=0.05))
    before = digest(model)
    torch.manual_seed(config.seed)
    measured = lb.fit_posterior(model, loader(config), lb.Categorical(), probes=3)
    assert digest(done.model) == digest(model) != before
    assert done.measured == measured
    assert measured["num_data"] == 48
    # The figures are those of the fitted posterior, not of the point estimate in the history.
    x, y = problem(30, seed=1)
    p = lb.predict(model, x, likelihood=lb.Categorical(), seed=config.seed)
    assert done.figures["nll"] == pytest.approx(-p.log_prob(y).mean().item(), rel=1e-5)
    assert done.figures["nll"] != done.result.history[-1]["nll"]


ENSEMBLES = {
    "fresh": lb.DeepEnsemble(members=3),
    "factory": lb.DeepEnsemble(members=3, factory=Net),
    "jittered": lb.DeepEnsemble(members=3, init_std=0.1),
}


@pytest.mark.parametrize("kind", ENSEMBLES)
def test_members_in_turn_are_networks_trained_alone(kind):
    method, config = ENSEMBLES[kind], settings(seed=2)
    done = adapted(method, config, members="in_turn")
    begun = starts(fresh(), method, 2)
    assert digest(begun[0]) == digest(fresh())
    for k, start in enumerate(begun):
        if kind == "jittered":
            torch.testing.assert_close(start.head.weight, fresh().head.weight, rtol=0.6, atol=0)
        alone = lb.bayesianize(start, lb.MAP())
        lb.fit(alone, problem(), lb.Categorical(), config=replace(config, seed=2 + k))
        assert digest(lb.collapse(done.model, member=k)) == digest(lb.collapse(alone))
    assert len({digest(lb.collapse(done.model, member=k)) for k in range(3)}) == 3
    found = done.model.method.to_json()["fields"]
    assert found == method.to_json()["fields"]
    probs = lb.predict(done.model, problem()[0], samples=3, seed=0).probs
    torch.testing.assert_close(probs.sum(1), torch.ones(48, dtype=probs.dtype))


def test_by_process_in_a_single_process_is_in_turn():
    method = lb.DeepEnsemble(members=2)
    found = [adapted(method, members=members) for members in ("in_turn", "by_process")]
    assert digest(found[0].model) == digest(found[1].model)


def test_an_ensemble_that_was_trained_in_turn_is_saved_and_loaded(tmp_path):
    done = adapted(lb.DeepEnsemble(members=2, factory=Net), members="in_turn")
    lb.save(done.model, tmp_path / "model")
    assert digest(lb.load(fresh(1), tmp_path / "model").net) == digest(done.model.net)


CASES = {
    "mean_field": {"method": lb.MeanField()},
    "partial": {"method": lb.Partial(rate=0.1)},
    "swag": {"method": lb.SWAG(rank=2), "fitting": {"epochs": 3}},
    "laplace": {"method": lb.Laplace(prior_std=0.05)},
    "in_turn": {"method": lb.DeepEnsemble(members=2), "members": "in_turn"},
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_call_goes_on_and_a_finished_one_stays_as_it_is(case, tmp_path):
    options = {**CASES[case], "validation": problem(24, seed=1)}

    def run(folder, *callbacks):
        config = settings(folder=str(tmp_path / folder), save_every=3, log_every=1)
        return adapted(config=config, callbacks=callbacks, **options)

    whole = run("whole")
    with pytest.raises(CrashError):
        run("cut", At(7, crash))
    for _ in range(2):
        again = run("cut")
        assert digest(again.model) == digest(whole.model)
        assert (again.measured, again.figures) == (whole.measured, whole.figures)
        assert again.result.history == whole.result.history
    reports = [(tmp_path / name / "report.json").read_bytes() for name in ("whole", "cut")]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("case", ["swag", "laplace"])
def test_a_crash_while_fitting_costs_no_training(case, tmp_path, monkeypatch):
    from leanbayes.train import adapt as module

    config = settings(folder=str(tmp_path / "run"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "fit_posterior", lambda *_, **__: crash())
        with pytest.raises(CrashError):
            adapted(config=config, **CASES[case])
    taken = []

    class Counting(lb.Callback):
        def on_step(self, run, _figures):
            taken.append(run.step)

    again = adapted(config=config, callbacks=[Counting()], **CASES[case])
    assert taken == []
    assert digest(again.model) == digest(adapted(**CASES[case]).model)


def test_the_report_tells_what_was_converted_and_found(tmp_path):
    config = settings(folder=str(tmp_path / "run"))
    done = adapted(lb.Laplace(prior_std=0.05), config, validation=problem(24, seed=1))
    found = json.loads((tmp_path / "run" / "report.json").read_text())
    assert found["conversion"]["added"] == done.report.added
    assert [c["name"] for c in found["conversion"]["converted"]] == [
        "conv",
        "norm",
        "hidden",
        "head",
    ]
    assert found["result"]["steps"] == 10
    assert found["measured"] == done.measured
    assert found["figures"] == done.figures


def test_without_a_config_batchnorm_is_refreshed():
    x, y = problem()
    done = lb.adapt(fresh(), lb.MAP(), (x, y), callbacks=())
    conv = done.model.net.conv
    with torch.no_grad():
        inside = nn.functional.conv2d(x, conv.weight, conv.bias, padding=1).mean((0, 2, 3))
    torch.testing.assert_close(done.model.net.norm.running_mean, inside, rtol=1e-4, atol=1e-5)


class WithToken(Net):
    """A parameter of its own, outside any layer."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return super().forward(x + self.token)


def test_members_cannot_train_apart_what_they_share():
    net, method = WithToken(), lb.DeepEnsemble(members=2)
    with pytest.raises(lb.ConfigError, match=r"\(token\).*members='together'"):
        lb.adapt(net, method, problem(), config=settings(), members="in_turn")
    net.token.requires_grad_(False)
    lb.adapt(net, method, problem(), config=settings(steps=2), members="in_turn")


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (lb.MeanField(), {"members": "in_turn"}, "for lb.DeepEnsemble, found mean_field"),
        (lb.DeepEnsemble(), {"members": "apart"}, "together, in_turn, by_process; found 'apart'"),
        (lb.MeanField(), {"fitting": {"epochs": 2}}, "mean_field learns its posterior in training"),
        (lb.SWAG(), {"fitting": {"epoch": 2}}, "swag has no option epoch"),
        (lb.Laplace(prior_std=0.05), {"fitting": {"probes": 0}}, "probes must be at least 1"),
    ],
)
def test_wrong_use_is_said_before_anything_is_trained(method, options, words):
    net = fresh()
    before = digest(net)
    with pytest.raises(lb.ConfigError, match=words):
        lb.adapt(net, method, problem(), config=settings(), **options)
    assert digest(net) == before
    assert type(net.conv) is nn.Conv2d


@pytest.mark.parametrize("length", [{"epochs": 0}, {"steps": 0}])
def test_no_step_leaves_the_network_and_fits_what_is_fitted_afterwards(length):
    torch.manual_seed(0)
    net, x, y = torch.nn.Linear(4, 3), torch.randn(40, 4), torch.randint(0, 3, (40,))
    before = net.weight.detach().clone()
    config = lb.FitConfig(**length, progress=False)
    done = lb.adapt(net, lb.Laplace(prior_std=0.05), (x, y), config=config)
    assert done.result.steps == 0
    assert torch.equal(net.weight, before)
    assert done.measured["num_data"] == 40
    assert lb.predict(done.model, x, samples=20, seed=0).epistemic.mean() > 0
