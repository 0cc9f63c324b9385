"""The KL as a gradient edit: when it comes, what it refuses, and that it never counts twice."""

import copy
import gc

import pytest
import torch
from torch import nn

import leanbayes as lb


def parts(**options):
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    model = lb.bayesianize(net, lb.MeanField(**options)).train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1, posterior_lr=0.2))
    batch = torch.randn(6, 4, dtype=torch.float64), torch.arange(6) % 3
    return model, optimizer, batch


def nll(model, batch):
    return lb.objective(model, batch, lb.Categorical(), include_kl=False).loss


def test_the_edit_comes_once_a_step_after_accumulation_and_clipping():
    model, optimizer, batch = parts(init_std=0.0)
    reference = copy.deepcopy(model)
    lb.attach_kl(optimizer, model, num_data=20)
    for _ in range(3):
        (nll(model, batch) / 3).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    clipped = {n: p.grad.clone() for n, p in model.named_parameters()}
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer.step()
    kl = dict(
        zip(
            dict(reference.named_parameters()),
            torch.autograd.grad(reference.kl() / 20, list(reference.parameters())),
            strict=True,
        )
    )
    for name, p in model.named_parameters():
        rate = 0.2 if "slots" in name else 0.1
        torch.testing.assert_close(p.detach(), before[name] - rate * (clipped[name] + kl[name]))


def test_a_step_within_autocast_adds_the_kl_in_full_precision():
    """As where a whole loop is within; three products a tensor lost half of their digits."""
    model = lb.bayesianize(nn.Linear(8, 6), lb.SharedEnsemble(members=2)).train()
    found = []
    for half in (False, True):
        optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.0))
        handle = lb.attach_kl(optimizer, model, num_data=1)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            optimizer.step()
        handle.remove()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
        optimizer.zero_grad()
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_gradients_are_made_where_the_forward_left_none():
    model, optimizer, _ = parts()
    lb.attach_kl(optimizer, model, num_data=20)
    optimizer.step()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_the_kl_cannot_count_twice():
    model, optimizer, batch = parts()
    handle = lb.attach_kl(optimizer, model, num_data=20)
    with pytest.raises(lb.ConfigError, match=r"count twice.*include_kl=False"):
        lb.objective(model, batch, lb.Categorical(), num_data=20)
    with pytest.raises(lb.ConfigError, match="attached already"):
        lb.attach_kl(optimizer, model, num_data=20)
    handle.remove()
    lb.objective(model, batch, lb.Categorical(), num_data=20)
    before = model.net[0].weight.detach().clone()
    optimizer.step()
    assert torch.equal(model.net[0].weight, before)  # no gradient, no edit any more


def test_a_copy_and_a_forgotten_optimiser_do_not_count_as_attached():
    model, optimizer, batch = parts()
    lb.attach_kl(optimizer, model, num_data=20)
    twin = copy.deepcopy(model)
    assert model.kl_attached
    assert not twin.kl_attached
    lb.objective(twin, batch, lb.Categorical(), num_data=20)
    del optimizer
    gc.collect()
    assert not model.kl_attached
    lb.objective(model, batch, lb.Categorical(), num_data=20)


def test_a_handle_that_is_kept_does_not_stand_for_its_optimiser():
    model, optimizer, batch = parts()
    handle = lb.attach_kl(optimizer, model, num_data=20)
    del optimizer
    gc.collect()
    assert handle.attached
    assert not model.kl_attached
    lb.objective(model, batch, lb.Categorical(), num_data=20)


def test_the_weight_may_be_a_schedule_of_the_step():
    model, optimizer, _ = parts()
    handle = lb.attach_kl(optimizer, model, num_data=20, kl_weight=lambda step: min(1, step / 2))
    sizes = []
    for _ in range(4):
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.0
        optimizer.step()
        sizes.append(model.net[0].weight.grad.abs().sum())
    assert sizes[0] == 0
    torch.testing.assert_close(sizes[1] * 2, sizes[2])
    torch.testing.assert_close(sizes[3], sizes[2])
    handle.kl_weight = 0.0
    optimizer.zero_grad()
    optimizer.step()
    assert model.net[0].weight.grad.abs().sum() == 0


def test_frozen_means_train_only_the_posterior():
    model, _, _ = parts()
    model.net.requires_grad_(False)
    for _, _, posterior, _ in model.posteriors():
        posterior.requires_grad_(True)
    groups = lb.param_groups(model, lr=0.1)
    assert [g["name"] for g in groups] == ["posterior"]
    optimizer = torch.optim.SGD(groups)
    lb.attach_kl(optimizer, model, num_data=20)
    before = model.net[0].weight.detach().clone()
    optimizer.step()
    assert torch.equal(model.net[0].weight, before)
    assert model.net[0].weight.grad is None


def test_layers_whose_posterior_is_frozen_need_no_optimiser():
    """It was taken for one from before the conversion, and `fit` refused a new head."""
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    model = lb.bayesianize(net, lb.MeanField(select=lb.select.by_name("0")))
    net[0].requires_grad_(False)
    batch = torch.randn(6, 4), torch.arange(6) % 3
    before = [p.clone() for p in net[0].parameters()]
    lb.fit(model, batch, lb.Categorical(), config=lb.FitConfig(steps=2, batch_size=3))
    assert all(torch.equal(*pair) for pair in zip(before, net[0].parameters(), strict=True))


def test_an_optimiser_of_other_parameters_is_refused():
    model, _, _ = parts()
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(lb.ConfigError, match="holds none of the model's random parameters"):
        lb.attach_kl(other, model, num_data=20)


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_gradients_are_unscaled_before_the_edit_or_refused(fused):
    """A fused optimiser unscales inside step(), where the edit would vanish silently."""
    net = nn.Linear(4, 3)
    model = lb.bayesianize(net, lb.MeanField(init_std=0.0)).train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=1.0), fused=fused)
    lb.attach_kl(optimizer, model, num_data=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    batch = torch.randn(6, 4), torch.arange(6) % 3
    weight = net.weight.detach().clone()
    loss = nll(model, batch)
    expected = weight - torch.autograd.grad(loss, net.weight, retain_graph=True)[0] - weight / 2
    scaler.scale(loss).backward()
    if fused:
        with pytest.raises(lb.ConfigError, match=r"scaler\.unscale_\(optimizer\)"):
            scaler.step(optimizer)
        optimizer.grad_scale = optimizer.found_inf = None
        assert torch.equal(net.weight, weight)
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    torch.testing.assert_close(net.weight.detach(), expected)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_leaves_out_does_not_count(fused):
    """A fused optimiser is called all the same, and passes over the step by itself."""
    model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField()).train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=1.0), fused=fused)
    handle = lb.attach_kl(optimizer, model, num_data=2, kl_weight=lambda step: step + 1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    batch = torch.randn(6, 4), torch.arange(6) % 3
    before = model.net.weight.detach().clone()
    for factor, steps in ((float("inf"), 0), (1.0, 1), (float("inf"), 1), (1.0, 2)):
        optimizer.zero_grad()
        scaler.scale(nll(model, batch) * factor).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert handle.steps == steps
        assert torch.equal(model.net.weight, before) == (steps == 0)
        assert handle.weight() == steps + 1


def test_a_network_whose_only_noise_is_its_own_dropout_can_be_trained():
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    data = torch.randn(32, 4), torch.arange(32) % 3
    config = lb.FitConfig(epochs=1, batch_size=16, progress=False)
    before = net[0].weight.detach().clone()
    lb.adapt(net, lb.MCDropout(where=lb.select.nothing), data, config=config)
    assert not torch.equal(net[0].weight, before)


def test_an_optimiser_from_before_the_conversion_is_told_of():
    net = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(net.parameters())
    model = lb.bayesianize(net, lb.MeanField())
    handle = lb.attach_kl(optimizer, model, num_data=20)
    with pytest.warns(UserWarning, match=r"none of the 2 parameters that the conversion added"):
        optimizer.step()
    optimizer.step()  # once is enough
    handle.remove()
    for _, _, posterior, _ in model.posteriors():
        posterior.requires_grad_(False)
    lb.attach_kl(optimizer, model, num_data=20)
    optimizer.zero_grad()
    optimizer.step()  # on purpose: nothing to say


@pytest.mark.parametrize("method", [lb.MeanField(), lb.RankOne(members=2), lb.Patching(members=2)])
def test_a_loss_of_the_mean_network_is_told_of(method):
    """As of a network of `from_pretrained`, in eval(), or one that is called beside its model."""
    x, y = torch.randn(6, 4), torch.arange(6) % 3

    def step(loss):
        net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))
        model = lb.bayesianize(net.eval(), method, example=x)
        optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1))
        lb.attach_kl(optimizer, model, num_data=20)
        for _ in range(2):
            loss(model).backward()
            optimizer.step()

    with pytest.warns(UserWarning, match=r"mean network.*found the model in eval\(\)") as once:
        step(lambda model: nn.functional.cross_entropy(model(x), y))
    assert len(once) == 1
    with pytest.warns(UserWarning, match=r"found the model in train\(\)\)\. Call the model"):
        step(lambda model: nn.functional.cross_entropy(model.train().net(x), y))
    step(lambda model: nn.functional.cross_entropy(model.train()(x), y))
    step(lambda model: nll(model, (x, y)))
    step(lambda model: 0 * model.train().net(x).sum())  # as a checkpoint makes optimiser states


def shared_out(model, **options):
    """An optimiser of the network's own parameters, and one of those that the conversion added."""
    added = {id(p) for _, _, q, _ in model.posteriors() for p in q.parameters()}
    parameters = list(model.parameters())
    return [
        torch.optim.SGD([p for p in parameters if (id(p) in added) == is_added], **options)
        for is_added in (False, True)
    ]


def test_two_optimisers_add_the_kl_of_their_own_parameters():
    """The KL of a Gaussian has a gradient by entry: in turn is the same as at once."""
    model, _, batch = parts(init_std=0.1)
    states = []
    for twin, split in ((copy.deepcopy(model), False), (model, True)):
        whole = [torch.optim.SGD(twin.parameters(), lr=0.1)]
        optimizers = shared_out(twin, lr=0.1) if split else whole
        handles = [lb.attach_kl(o, twin, num_data=20, kl_weight=0.5) for o in optimizers]
        torch.manual_seed(1)
        for _ in range(2):
            nll(twin, batch).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        assert [h.steps for h in handles] == [2] * len(optimizers)
        states.append(torch.cat([p.detach().flatten() for p in twin.parameters()]))
    torch.testing.assert_close(*states, rtol=1e-14, atol=0.0)


def test_no_parameter_gets_the_kl_of_two_optimisers():
    model, both, batch = parts()
    weights, scales = shared_out(model, lr=0.1)
    first, second = (lb.attach_kl(o, model, num_data=20) for o in (weights, scales))
    for optimizer in (weights, scales):
        with pytest.raises(lb.ConfigError, match="attached already"):
            lb.attach_kl(optimizer, model, num_data=20)
    third = lb.attach_kl(both, model, num_data=20)
    assert model.edits() == [third]
    before = [p.detach().clone() for p in model.parameters()]
    for optimizer, handle in ((weights, first), (scales, second)):
        with pytest.raises(lb.ConfigError, match=r"another optimiser adds the KL.*this one again"):
            optimizer.step()
        handle.remove()
        optimizer.step()  # without a KL, as was asked for
    assert all(map(torch.equal, before, model.parameters()))
    with pytest.raises(lb.ConfigError, match="count twice"):
        lb.objective(model, batch, lb.Categorical(), num_data=20)
    third.remove()
    lb.objective(model, batch, lb.Categorical(), num_data=20)


def test_the_optimiser_of_a_second_fit_takes_the_kl_over():
    """A trainer or a schedule of rates kept the first one alive, and the second was refused."""
    model, _, batch = parts(init_std=0.1)
    states = []
    for twin, removed in ((copy.deepcopy(model), True), (model, False)):
        kept = []
        for _ in range(2):  # as a cell of a notebook that runs twice
            optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
            handle = lb.attach_kl(optimizer, twin, num_data=20)
            kept.append(torch.optim.lr_scheduler.StepLR(optimizer, 1))
            torch.manual_seed(1)
            nll(twin, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            assert handle.steps == 1
            if removed:
                handle.remove()
        states.append(torch.cat([p.detach().flatten() for p in twin.parameters()]))
    assert torch.equal(*states)
    with pytest.raises(lb.ConfigError, match="another optimiser adds the KL"):
        kept[0].optimizer.step()
    back = lb.attach_kl(kept[0].optimizer, model, num_data=20)
    kept[0].optimizer.step()
    assert (back.steps, model.edits()) == (1, [back])


def test_a_refused_optimiser_takes_nothing_over():
    model, optimizer, _ = parts()
    handle = lb.attach_kl(optimizer, model, num_data=20)
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    for other, number in ((second, None), (torch.optim.LBFGS(model.parameters()), 20)):
        with pytest.raises(lb.ConfigError):
            lb.attach_kl(other, model, num_data=number)
    optimizer.step()
    assert (handle.steps, model.edits()) == (1, [handle])


def test_a_model_without_a_kl_takes_two_optimisers_too():
    model = lb.bayesianize(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)), lb.MAP())
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model.net]
    for optimizer in optimizers:
        lb.attach_kl(optimizer, model, num_data=20)
    with pytest.raises(lb.ConfigError, match="attached already"):
        lb.attach_kl(optimizers[0], model, num_data=20)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_is_edited_after_it_has_made_the_gradients(by_name):
    """As Lightning steps: `zero_grad` in the closure would take an earlier edit away."""
    states = []
    for way in ("plain", "closure"):
        torch.manual_seed(1)
        model, optimizer, batch = parts(init_std=0.1)
        handle = lb.attach_kl(optimizer, model, num_data=20)

        def closure(model=model, optimizer=optimizer, batch=batch):
            optimizer.zero_grad()
            loss = nll(model, batch)
            loss.backward()
            return loss

        for _ in range(2):
            if way == "plain":
                closure()
                optimizer.step()
            else:
                optimizer.step(closure=closure) if by_name else optimizer.step(closure)
        assert handle.steps == 2
        states.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*states)


def test_lbfgs_is_refused_for_its_losses_lack_the_kl():
    model, _, _ = parts()
    with pytest.raises(lb.ConfigError, match=r"LBFGS compares losses.*attach nothing"):
        lb.attach_kl(torch.optim.LBFGS(model.parameters()), model, num_data=20)
