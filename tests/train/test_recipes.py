"""Recipes: the papers' numbers, and that each trains."""

import json
import math

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.recipes import Recipe, recipe, recipes
from leanbayes.train.config import FitConfig
from leanbayes.train.optim import Rates, build_optimizer, kl_weight_at

NAMES = sorted(recipes())
# Rows of a table that are the paper's own, not what it is compared with.
OWN = [name for name in NAMES if recipe(name).method.paper == recipe(name).paper]


def converted(found):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )
    options = {}
    if found.method.looks_at_data:
        batch = torch.randn(8, 3, 4, 4), torch.randint(0, 3, (8,))
        options = {"data": [batch], "likelihood": lb.Categorical()}
    return lb.bayesianize(net, found.method, **options).train()


def rates_of(found, steps_per_epoch, epochs, name="base"):
    """The rate at the first step of some epochs."""
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [parameter], "name": name}], lr=1.0)
    rates = Rates(optimizer, found.config, found.config.total_steps(steps_per_epoch))
    return [rates.set(steps_per_epoch * epoch)[name] for epoch in epochs]


def test_names_and_lines():
    assert {"bayesadapter-cifar10", "ibnn-wrn-cifar10", "emp-imagenet", "pbn-mnist"} <= set(NAMES)
    assert all(line and "\n" not in line and len(line) < 140 for line in recipes().values())
    with pytest.raises(lb.ConfigError, match="did you mean 'rank1-cifar10'"):
        recipe("rank1-cifar")


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_goes_to_json_and_back(name):
    found = recipe(name)
    assert isinstance(found, Recipe)
    assert found.name == name
    assert found == recipe(name)
    config = json.loads(json.dumps(found.config.to_json(), allow_nan=False))
    assert FitConfig.from_json(config) == found.config
    method = json.loads(json.dumps(found.method.to_json(), allow_nan=False))
    assert type(found.method).from_json(method["fields"]) == found.method


@pytest.mark.parametrize("name", OWN)
def test_a_recipe_takes_a_step(name):
    found = recipe(name)
    # In float64: the papers' rates move a log-scale near -5.5 by less than float32 resolves.
    model = converted(found).double()
    config = found.config
    optimizer = build_optimizer(model, None, config)
    lb.attach_kl(optimizer, model, num_data=1000, kl_weight=kl_weight_at(config, 100))
    Rates(optimizer, config, 100).set(99)
    batch = torch.randn(32, 3, 4, 4).double(), torch.randint(0, 3, (32,))
    before = [p.detach().clone() for p in model.parameters()]
    options = {"samples": config.samples, "include_kl": False}
    if config.regularizer is None:
        loss = lb.objective(model, batch, lb.Categorical(), **options).loss
    else:
        ood = torch.randn(16, 3, 4, 4).double()
        objective = config.regularizer.objective(model, batch, ood, lb.Categorical(), **options)
        loss = objective.loss
    loss.backward()
    optimizer.step()
    after = list(model.parameters())
    assert loss.isfinite()
    assert all(p.isfinite().all() for p in after)
    # A copy that was not picked moves by its decay alone: one of zeros stays.
    for a, b in zip(before, after, strict=True):
        # A bias before a norm has no gradient but rounding.
        assert not torch.equal(a, b) or not (
            (config.weight_decay and a.any()) or b.grad.abs().max() > 1e-12
        )


def test_bayesadapter_mean_field_decays_as_equation_5():
    found = recipe("bayesadapter-cifar10")
    model = converted(found)
    optimizer = build_optimizer(model, None, found.config)
    lb.attach_kl(optimizer, model, num_data=50_000)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = {id(p): p.detach().clone() for p in model.parameters()}
    optimizer.step()
    for _, _, posterior, base in model.posteriors():
        (psi,) = posterior.parameters()
        torch.testing.assert_close(base.grad, 2e-4 * before[id(base)])
        expected = 2e-4 * (2 * before[id(psi)]).exp() - 1 / 50_000
        torch.testing.assert_close(psi.grad, expected)


def test_bayesadapter_schedules():
    found = recipe("bayesadapter-imagenet-pse")
    assert rates_of(found, 100, range(4)) == [1e-4] * 4
    new = rates_of(found, 100, [0, 2, 3.99], "posterior")
    assert new == pytest.approx([1e-3, 5.5e-4, 1e-4], rel=1e-3)
    assert found.config.nesterov is False
    assert recipe("bayesadapter-cifar10").config.nesterov is True
    assert (found.method.init_std, recipe("bayesadapter-cifar10-pse").method.init_std) == (0.1, 0.2)
    variances = [
        recipe(f"bayesadapter-{data}").method.resolved_prior_std() ** 2
        for data in ("cifar10", "imagenet", "casia")
    ]
    assert variances == pytest.approx([0.1, 0.0078, 0.0041], rel=0.01)


def test_bayesadapter_regularised_halves_the_clean_rows():
    found = recipe("bayesadapter-cifar10-pse-reg")
    assert found.config.batch_size == 128
    assert (found.config.regularizer.alpha, found.config.regularizer.gamma) == (3.0, None)


def test_ibnn_schedules_and_table_2():
    found = recipe("ibnn-vgg16-cifar100")
    assert (found.method.prior_std, found.method.init_std) == (0.3, 0.75)
    assert (found.method.kl, found.method.assign) == ("averaged_draw", "interleave")
    assert found.config.weight_decay == 3e-4
    expected = [0.05, 0.05, 0.05 * 0.505, 0.0005, 0.0005]
    assert rates_of(found, 391, [0, 150, 210, 270, 299]) == pytest.approx(expected)
    assert rates_of(found, 391, [0, 299], "posterior") == [1.6, 1.6]
    weight = kl_weight_at(found.config, 300 * 391)
    assert weight(100 * 391) == pytest.approx(0.5, abs=1e-4)
    assert weight(200 * 391) == 1.0


def test_ibnn_on_a_trained_network():
    found = recipe("ibnn-imagenet")
    assert rates_of(found, 5005, [0, 6, 8, 10, 14], "posterior") == pytest.approx(
        [0.2, 0.2, 0.125, 0.05, 0.05]
    )
    assert rates_of(found, 5005, [0, 14]) == [1e-4, 1e-4]


@pytest.mark.parametrize("name", ["emp-cifar100", "ecmp-imagenet"])
def test_patches_and_shared_layers_decay_alike_as_in_the_paper(name):
    found = recipe(name)
    model = converted(found)
    optimizer = build_optimizer(model, None, found.config)
    num_data = 50_000 if "cifar" in name else 1_281_167
    lb.attach_kl(optimizer, model, num_data=num_data)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = {id(p): p.detach().clone() for p in model.parameters()}
    optimizer.step()
    for group in optimizer.param_groups:
        for p in group["params"]:  # what Adam sees: the edit, and the decay of the group
            seen = p.grad + group["weight_decay"] * before[id(p)]
            torch.testing.assert_close(seen, 0.002 / 256 * before[id(p)])


def test_patches_of_elements_or_layers():
    assert recipe("emp-imagenet").method.scope == "layer"
    assert recipe("ecmp-imagenet").method.scope == "element"
    assert recipe("ecmp-imagenet-norm").method.where == "norm"
    assert recipe("emp-regression").config.kl_weight == 0.0


def test_partial_networks_have_an_undivided_kl_from_a_fifth_to_a_hundredth():
    for name, num_data, spe in (("pbn-mnist", 60_000, 1200), ("pbn-cifar10", 50_000, 250)):
        found = recipe(name)
        total = found.config.total_steps(spe)
        weight = kl_weight_at(found.config, total)
        assert weight(0) / num_data == pytest.approx(0.2)
        assert weight(total) / num_data == pytest.approx(0.01)
        assert found.config.samples == 5
        assert found.method.kl_reduction == "tensor_mean"
    warm = rates_of(found, 250, [0, 4.996, 29, 30, 99])
    assert warm == pytest.approx([1.6 / 1250, 1.6, 1.6, 0.16, 0.16])


@pytest.mark.parametrize(("name", "rows"), [("cityscapes", 2975), ("svhn-small", 73_257)])
def test_partial_networks_train_on_the_usual_splits(name, rows):
    """T3.6: the paper prints 4500 images of Cityscapes and 732K of SVHN."""
    found = recipe(f"pbn-{name}")
    steps_per_epoch = -(-rows // found.config.batch_size)
    assert found.config.kl_weight == rows
    assert f"counts {steps_per_epoch} steps an epoch" in found.notes


def test_rank_one_schedules():
    cifar, imagenet = recipe("rank1-cifar10"), recipe("rank1-imagenet-cauchy")
    expected = [0.1, 0.1, 0.02, 0.004, 0.0008]
    assert rates_of(cifar, 390, [1, 99, 100, 200, 225]) == pytest.approx(expected)
    expected = [0.4, 0.04, 0.004, 0.0004]
    assert rates_of(imagenet, 1251, [5, 45, 90, 120]) == pytest.approx(expected)
    assert kl_weight_at(cifar.config, 250 * 390)(100 * 390 - 1) == pytest.approx(0.5)
    assert kl_weight_at(imagenet.config, 135 * 1251)(90 * 1251 - 1) == pytest.approx(1.0)
    assert cifar.method.default_samples == 4
    assert imagenet.method.default_samples == 16
    assert (imagenet.method.init_signs, imagenet.method.prior_std) == (0.75, 0.05)
    assert math.isclose(cifar.config.weight_decay, 2e-4)
