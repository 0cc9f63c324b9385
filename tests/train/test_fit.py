"""The loop: what a step does, what the settings change, what comes out."""

import copy
import math

import pytest
import torch
from fit_cases import digest, model_of, problem, settings
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb
from leanbayes.train.data import Batches


def test_a_run_is_the_bare_loop_bit_for_bit():
    x, y = problem()
    model, bare = model_of(), model_of()
    lb.fit(model, (x, y), lb.Categorical(), config=settings(seed=3))

    torch.manual_seed(3)
    opt = torch.optim.SGD(lb.param_groups(bare, lr=0.05), lr=0.05, momentum=0.9, nesterov=True)
    handle = lb.attach_kl(opt, bare, num_data=len(x))
    batches, step = Batches((x, y), batch_size=12, seed=3), 0
    bare.train()
    while step < 10:
        for batch in batches.epoch(step // batches.steps_per_epoch):
            lb.objective(bare, batch, lb.Categorical(), include_kl=False).loss.backward()
            opt.step()
            opt.zero_grad()
            step += 1
            if step == 10:
                break
    handle.remove()
    assert digest(model) == digest(bare)


def test_training_improves_the_predictive():
    train, test = problem(300), problem(200, seed=1)
    model = model_of()

    def nll():
        found = lb.predict(model, test[0], likelihood=lb.Categorical(), samples=10, seed=0)
        return -found.log_prob(test[1]).mean().item()

    before = nll()
    result = lb.fit(
        model, train, lb.Categorical(), validation=test, config=settings(steps=None, epochs=15)
    )
    assert nll() < 0.6 * before
    assert result.steps == 15 * 25
    assert result.best == min(row["nll"] for row in result.history)
    assert result.history[-1]["accuracy"] > 0.7


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    found = []
    for seed in (0, 0, 1):
        model = model_of()
        lb.fit(model, problem(), lb.Categorical(), config=settings(seed=seed))
        found.append(digest(model))
    assert found[0] == found[1] != found[2]


def test_parts_of_a_batch_add_up_to_the_batch():
    found = []
    for accumulate in (1, 3, 5):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        x, y = problem()
        model = lb.bayesianize(net, lb.MAP())
        lb.fit(model, (x.double(), y), lb.Categorical(), config=settings(accumulate=accumulate))
        found.append([p.detach() for p in model.parameters()])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_kl_counts_the_same_in_the_graph_and_as_an_edit():
    found = []
    for kl in ("edit", "graph"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
            model = lb.bayesianize(net, lb.MeanField())
        x, y = problem()
        config = settings(kl=kl, kl_weight=0.7, kl_warmup=0.5)
        lb.fit(model, (x.double(), y), lb.Categorical(), config=config)
        found.append([p.detach() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_only_the_posterior_trains_where_told_so():
    model = model_of()
    before = copy.deepcopy(model.state_dict())
    lb.fit(
        model, problem(), lb.Categorical(), config=settings(train="posterior", batchnorm="frozen")
    )
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == (".slots." not in name), name


def test_phases_alternate_and_momentum_moves_nothing_at_rest():
    model, seen = model_of(), []

    class Watching(lb.Callback):
        def on_step(self, _run, _figures):
            seen.append(copy.deepcopy(model.state_dict()))

    config = settings(train="alternate", batchnorm="frozen", log_every=1, steps=12)
    start = copy.deepcopy(model.state_dict())
    lb.fit(model, problem(), lb.Categorical(), config=config, callbacks=[Watching()])
    for step, (a, b) in enumerate(zip([start, *seen], seen, strict=False)):
        posterior = (step // 4) % 2 == 0  # four steps an epoch
        for name in a:
            if "norm" not in name or name.endswith(("weight", "bias")):
                moved = not torch.equal(a[name], b[name])
                assert moved == ((".slots." in name) == posterior) or not moved, (step, name)


@pytest.mark.parametrize("policy", ["train", "frozen", "refresh"])
def test_batchnorm_statistics_follow_the_policy(policy):
    model, (x, y) = model_of(), problem()
    start = model.net.norm.running_mean.clone()
    lb.fit(model, (x, y), lb.Categorical(), config=settings(batchnorm=policy))
    mean = model.net.norm.running_mean
    if policy == "frozen":
        assert torch.equal(mean, start)
    else:
        assert not torch.equal(mean, start)
    if policy == "refresh":  # the mean of the draws is that of the mean network, but for chance
        with torch.no_grad():
            inside = F.conv2d(x, model.net.conv.weight, model.net.conv.bias, padding=1)
        torch.testing.assert_close(mean, inside.mean((0, 2, 3)), rtol=0.02, atol=0.002)


def test_statistics_are_computed_anew_under_draws_and_repeat():
    """Members far apart: activations vary by more than those of the mean network."""
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        model, (x, y) = model_of(lb.BatchEnsemble(members=4, init_std=0.8)), problem()
        torch.manual_seed(len(found))  # what was drawn before has no part in it
        config = settings(batchnorm="refresh", lr=0.0, posterior_lr=0.0, weight_decay=0.0)
        lb.fit(model, (x, y), lb.Categorical(), config=config)
        found.append(model.net.norm.running_var.clone())
    assert torch.equal(*found)
    lb.refresh_batchnorm(model, [x])
    assert (found[0] > 1.2 * model.net.norm.running_var).all()


def test_statistics_are_computed_anew_on_what_training_saw():
    """Cut-outs move the statistics; those of plain images fit no weights that learnt with them."""
    model, (x, y) = model_of(lb.MAP()), problem()
    config = settings(batchnorm="refresh", lr=0.0, weight_decay=0.0)
    lb.fit(model, (x, y), lb.Categorical(), config=config, augment=lambda x: 3 * x + 1)
    with torch.no_grad():
        inside = F.conv2d(3 * x + 1, model.net.conv.weight, model.net.conv.bias, padding=1)
    torch.testing.assert_close(model.net.norm.running_mean, inside.mean((0, 2, 3)))
    torch.testing.assert_close(model.net.norm.running_var, inside.var((0, 2, 3)))


def test_the_average_of_the_weights_is_what_remains():
    model, seen = model_of(lb.MAP()), []

    class Watching(lb.Callback):
        def on_step(self, _run, _figures):
            seen.append(model.net.head.weight.detach().double().clone())

    start = model.net.head.weight.detach().double().clone()
    config = settings(ema=0.9, log_every=1)
    lb.fit(model, problem(), lb.Categorical(), config=config, callbacks=[Watching()])
    expected = start
    for value in seen:
        expected = 0.9 * expected + 0.1 * value
    torch.testing.assert_close(model.net.head.weight.double(), expected, rtol=1e-5, atol=1e-6)


def test_early_stopping_keeps_the_best(tmp_path):
    x, y = problem(24)
    noise = torch.randint(0, 3, (60,))
    config = settings(
        epochs=60, steps=None, lr=0.3, patience=3, folder=str(tmp_path / "run"), keep=1
    )
    result = lb.fit(
        model_of(), (x, y), lb.Categorical(), validation=(problem(60)[0], noise), config=config
    )
    assert "no better nll in 3" in result.stopped
    assert result.steps < 60 * 2
    best = min(result.history, key=lambda row: row["nll"])
    assert (result.best, result.best_step) == (best["nll"], best["step"])


def test_patience_without_validation_data_is_refused():
    with pytest.raises(lb.ConfigError, match="there are none: give validation="):
        lb.fit(model_of(), problem(), lb.Categorical(), config=settings(patience=2))


@pytest.mark.parametrize("monitor", ["acc", "rmse"])
def test_a_figure_that_does_not_exist_is_refused_before_the_run(monitor, tmp_path):
    config, data = settings(monitor=monitor, folder=str(tmp_path / "run")), problem()
    with pytest.raises(lb.ConfigError, match=f"nll, accuracy; found '{monitor}'"):
        lb.fit(model_of(), data, lb.Categorical(), validation=data, config=config)
    assert not (tmp_path / "run").exists()  # it would have to be gone on with as it is


@pytest.mark.parametrize("broken", [(1,), (1, 2, 3)])
def test_figures_that_are_no_numbers_are_never_the_best(broken):
    """The validation data have a missing value in the first evaluation alone, or in all three."""
    x, y = problem(24)

    class Breaking(lb.Callback):
        evaluations = 1

        def on_step(self, *_):
            held[0][0].flatten()[0] = torch.nan if self.evaluations in broken else 0.0

        def on_evaluate(self, *_):
            self.evaluations += 1

    held = x.clone(), y
    config = settings(epochs=3, steps=None, log_every=1)
    with pytest.warns(UserWarning, match="nll of the validation data is nan"):
        result = lb.fit(
            model_of(),
            (x, y),
            lb.Categorical(),
            validation=held,
            config=config,
            callbacks=[Breaking()],
        )
    finite = [row["nll"] for row in result.history if row["nll"] == row["nll"]]
    assert len(finite) == 3 - len(broken)
    assert result.best == min(finite, default=None)


def test_validation_data_without_a_label_have_no_figures():
    """They had an nll of 0, the best there is, and patience ended the run."""
    data, config = problem(24), settings(epochs=2, steps=None)
    held = data[0], torch.full_like(data[1], -100)
    with pytest.warns(UserWarning, match=r"nll .* is nan.*has a label"):
        result = lb.fit(model_of(), data, lb.Categorical(), validation=held, config=config)
    assert result.best is None
    assert all(math.isnan(row["nll"]) and math.isnan(row["accuracy"]) for row in result.history)


def test_the_regulariser_takes_its_own_loader():
    torch.manual_seed(0)
    far = 5 * torch.randn(40, 1, 4, 4)
    found = []
    for regularizer in (None, lb.OODRegularizer(alpha=20.0, gamma=0.6)):
        model = model_of(lb.MeanField(init_log_std=(-4, -3.5)))
        ood = None if regularizer is None else (far, torch.zeros(40))
        config = settings(steps=80, regularizer=regularizer, lr=0.02, posterior_lr=0.1)
        lb.fit(model, problem(), lb.Categorical(), ood=ood, config=config)
        p = lb.predict(model, far, likelihood=lb.Categorical(), samples=20, seed=0)
        found.append(p.epistemic.mean().item())
    assert found[1] > 1.5 * found[0]
    with pytest.raises(lb.ConfigError, match="go together"):
        lb.fit(model_of(), problem(), lb.Categorical(), ood=(far, far))


def test_ood_inputs_are_augmented_as_training_inputs_are():
    x, y = problem(24)
    seen = []

    def half(inputs):
        seen.append(inputs.detach().clone())
        return inputs / 2

    config = settings(steps=1, regularizer=lb.OODRegularizer(alpha=1.0, gamma=0.6))
    ood = (torch.full_like(x, 3.0), y)
    lb.fit(model_of(), (x, y), lb.Categorical(), ood=ood, config=config, augment=half)
    assert [bool((inputs == 3).all()) for inputs in seen[-2:]] == [False, True]


@pytest.mark.parametrize("name", sorted(lb.methods()))
def test_every_method_trains(name):
    if name == "compose":
        method = lb.Compose([(lb.select.norms, lb.Patching(where="norm", members=3))])
    elif name == "partial":
        method = lb.Partial(rate=0.2, criterion="magnitude")
    else:
        method = lb.methods()[name]()
    model = model_of(method)
    before = copy.deepcopy(model.state_dict())
    config = settings(epochs=2, steps=None, batch_size=24)
    result = lb.fit(model, problem(48), lb.Categorical(), config=config)
    assert result.steps == 4
    after = model.state_dict()
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert all(v.isfinite().all() for v in after.values() if v.is_floating_point())
    probs = lb.predict(model, problem()[0], samples=20, seed=0).probs  # the likelihood was kept
    torch.testing.assert_close(probs.sum(1), torch.ones(48, dtype=probs.dtype))


def test_wrong_num_data_is_said_with_both_figures():
    with pytest.warns(UserWarning, match="480.*48|48.*480"):
        lb.fit(model_of(), problem(), lb.Categorical(), config=settings(num_data=480, steps=1))


def test_labels_out_of_range_are_named():
    x, y = problem()
    y = y.clone()
    y[7] = 5
    with pytest.raises(lb.DataError, match="5"):
        lb.fit(model_of(), (x, y), lb.Categorical(), config=settings())


def test_gradient_clipping_bounds_the_step():
    model = model_of(lb.MAP())
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    config = settings(steps=1, clip=1e-3, lr=1.0, momentum=0.0, nesterov=False)
    lb.fit(model, problem(), lb.Categorical(), config=config)
    moved = math.sqrt(
        sum((p.detach() - before[n]).square().sum().item() for n, p in model.named_parameters())
    )
    assert moved == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("wrong", [[lb.Callback], lb.Callback(), [print]])
def test_what_is_no_list_of_callbacks_is_refused(wrong):
    with pytest.raises(lb.ConfigError, match=r"callbacks is a list of objects.*MyCallback\(\)\]"):
        lb.fit(model_of(), problem(), lb.Categorical(), config=settings(), callbacks=wrong)


def test_a_dict_is_no_config():
    for train in (
        lambda config: lb.fit(model_of(), problem(), lb.Categorical(), config=config),
        lambda config: lb.adapt(torch.nn.Linear(4, 3), lb.MAP(), problem(), config=config),
    ):
        with pytest.raises(lb.ConfigError, match=r"config is a dict.*FitConfig\(\*\*settings\)"):
            train({"epochs": 1})


def test_after_an_error_the_same_model_is_trained_again():
    """The error holds the run, the run its optimiser, and that one added the KL already."""
    x, y = problem()
    broken, model = x.clone(), model_of()
    broken[0] = math.nan
    try:
        lb.fit(model, (broken, y), lb.Categorical(), config=settings())
    except lb.NonFinite:
        assert not model.kl_attached
        assert lb.fit(model, (x, y), lb.Categorical(), config=settings()).steps == 10


def test_gradients_from_before_the_run_are_no_part_of_its_first_step():
    found = []
    for before in (False, True):
        model = model_of()
        if before:
            model.net(problem()[0]).sum().backward()
            model.net.load_state_dict(model_of().net.state_dict())  # statistics have moved
        lb.fit(model, problem(), lb.Categorical(), config=settings())
        found.append(digest(model))
    assert found[0] == found[1]


@pytest.mark.parametrize(("method", "repeats"), [(None, 1), (lb.RankOne(assign="tile"), 4)])
def test_callbacks_know_the_rows_of_a_step(method, repeats):
    """A DataLoader has a batch size of its own, and `rate` counted that of the config."""
    seen = []

    class Seen(lb.Callback):
        def on_start(self, run):
            seen.append(run.rows_per_step)

    loader = DataLoader(TensorDataset(*problem()), batch_size=6)
    config = settings(steps=1, samples=2)
    lb.fit(model_of(method), loader, lb.Categorical(), config=config, callbacks=[Seen()])
    assert seen == [6 * 2 * repeats]


@pytest.mark.parametrize("train", ["posterior", "alternate"])
def test_what_rests_is_no_part_of_the_norm_that_is_clipped(train):
    """As with frozen parameters: the gradients of the network, a hundred times larger, ruled."""
    found = []
    for frozen in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
            model = lb.bayesianize(net, lb.MeanField())
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".slots." in name or not frozen)
        x, y = problem()
        config = settings(steps=4, clip=1e-3, train="all" if frozen else train)  # one epoch
        lb.fit(model, (x.double(), y), lb.Categorical(), config=config)
        found.append(torch.cat([q.log_std.detach().flatten() for _, _, q, _ in model.posteriors()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)
