"""Recipes: every row of the papers' tables has one, with its network, data and numbers."""

import math

import pytest

import leanbayes as lb
from leanbayes.experiments.fashion_widths import setting
from leanbayes.recipes import recipe, recipes

NAMES = sorted(recipes())


def rows(*keys, of):
    return {f"{of}{'-' if key else ''}{key}" for key in keys}


def test_every_row_of_the_tables_has_a_recipe():
    """Methods.md, section 2: a name for each line of the papers' tables."""
    tuned = ("", "pse", "reg", "pse-reg")
    expected = (
        rows(
            *tuned,
            *("map", "laplace", "dropout", "swag", "ensemble", "vbnn", "vbnn-pse"),
            of="bayesadapter-cifar10",
        )
        | rows(
            *tuned,
            *("map", "laplace", "dropout", "vbnn", "vbnn-pse", "pse-rank8", "pse-rank16"),
            of="bayesadapter-imagenet",
        )
        | rows(*tuned, "map", "dropout", of="bayesadapter-casia")
        | rows("", "k4", "k8", of="ibnn-imagenet")
        | rows("", "sgd", "vi", of="ibnn-fashion")
        | rows("", "norm", "map", "dropout", of="emp-imagenet")
        | rows("", "norm", of="ecmp-imagenet")
        | rows("", "map", "dropout", of="emp-cifar100")
        | rows("", "dropout", "ensemble", of="emp-regression")
        | {"ecmp-cifar100", "ecmp-regression", "pbn-imagenet"}
        | rows("", "cauchy", "map", "batch-ensemble", "ensemble", of="rank1-imagenet")
        | rows(
            *("", "cauchy", "map", "batch-ensemble", "embeddings", "vi", "ensemble"),
            of="rank1-physionet",
        )
    )
    for net in ("vgg16", "wrn"):
        for data in ("cifar10", "cifar100"):
            expected |= rows("", "k4", "k8", "sgd", "dropout", "vi", of=f"ibnn-{net}-{data}")
    for data in ("mnist", "cifar10-small", "svhn-small", "cifar10", "cityscapes"):
        expected |= rows("", "map", "vi", "ensemble", of=f"pbn-{data}")
    for data in ("cifar10", "cifar100"):
        words = ("", "cauchy", "map", "batch-ensemble", "dropout", "vi", "ensemble")
        expected |= rows(*words, "ensemble-28-5", of=f"rank1-{data}")
    more = {"ibnn-vgg16-cifar100-k24", "ibnn-vgg16-cifar100-k32"}
    more |= rows("gamma0.25", "gamma0.5", of="bayesadapter-cifar10-reg")
    assert set(NAMES) == expected | more


@pytest.mark.parametrize("name", NAMES)
def test_network_and_data_of_a_recipe_exist(name):
    found = recipe(name)
    for part, known in ((found.network, lb.models.MODELS), (found.data, lb.data.READERS)):
        for word in (part.name, part.small[0]):
            assert ":" in word or word in known
    assert found.data.small[0] == "made_up"
    assert found.trained == ("from a trained" in found.line or "of a trained" in found.line)
    assert found.trained or "from scratch" in found.line


def parameters(name, **more):
    part = recipe(name).network
    return sum(p.numel() for p in lb.models.create(part.name, **part.options, **more).parameters())


def test_networks_have_the_sizes_of_the_papers():
    assert parameters("rank1-cifar10-map", num_classes=10) == 36_479_194
    assert parameters("pbn-mnist") == 267_410
    assert parameters("emp-imagenet", num_classes=1000) == 11_689_512
    assert parameters("pbn-cityscapes", num_classes=20) == 31_380_180
    assert parameters("ibnn-vgg16-cifar10", num_classes=10) == 15_245_130
    assert parameters("ibnn-fashion", num_classes=10) == 41_806


def test_point_estimates_of_bayesadapter():
    config = recipe("bayesadapter-cifar10-map").config
    assert (config.epochs, config.lr, config.weight_decay, config.decay) == (200, 0.1, 2e-4, 0.2)
    assert [round(mark * 200) for mark in config.milestones] == [60, 120, 160]
    assert recipe("bayesadapter-casia-map").config.epochs == 90
    assert recipe("bayesadapter-cifar10-ensemble").config.epochs == 5 * 200
    assert recipe("bayesadapter-cifar10-vbnn").config == config
    assert recipe("bayesadapter-cifar10-vbnn").method == recipe("bayesadapter-cifar10").method


def test_what_is_fitted_afterwards_trains_nothing():
    for row in ("laplace", "swag"):
        found = recipe(f"bayesadapter-cifar10-{row}")
        assert (found.config.lr, found.config.steps, found.config.batchnorm) == (0.0, 1, "frozen")
    assert found.method.rank == 20
    assert found.fitting == {"weight_decay": 2e-4}
    prior = recipe("bayesadapter-cifar10-laplace").method.resolved_prior_std()
    assert prior**2 == pytest.approx(0.1)


def test_dropout_stands_where_the_papers_have_it():
    wide = lb.models.create("wide_resnet", depth=10, width=1)
    model = lb.bayesianize(wide, recipe("bayesadapter-cifar10-dropout").method)
    names = [layer.name for layer in model.report.converted]
    assert names == [f"stage{stage}.0.conv2" for stage in (1, 2, 3)]
    deep = lb.models.create("resnet50", width=4, num_classes=3)
    model = lb.bayesianize(deep, recipe("bayesadapter-imagenet-dropout").method)
    assert len(model.report.converted) == 2 * (3 + 4 + 6 + 3)
    assert {layer.slots for layer in model.report.converted} == {("out_mask",)}
    small = recipe("ibnn-vgg16-cifar10-dropout")
    net = lb.models.create(small.network.name, **small.network.options, width=1)
    model = lb.bayesianize(net, small.method)
    converted = {layer.name: layer.slots for layer in model.report.converted}
    assert converted == {"classifier.1": ("in_scale",), "classifier.4": ("in_scale",)}
    point = recipe("ibnn-vgg16-cifar10-sgd").network
    plain = lb.models.create(point.name, **point.options, width=1).classifier
    assert [plain[at].p for at in (0, 3)] == [0.5, 0.5]  # before the same two layers
    assert recipe("emp-imagenet-dropout").method.rate == 0.005


def test_ibnn_rows():
    names = [name for name in NAMES if name.startswith("ibnn-vgg16-cifar100")]
    names = [name for name in names if recipe(name).method.name == "implicit"]
    members = {name: recipe(name).method.members for name in names}
    assert sorted(members.values()) == [4, 8, 16, 24, 32]
    assert all(name.endswith(f"k{count}") or count == 16 for name, count in members.items())
    vi = recipe("ibnn-wrn-cifar10-vi")
    assert (vi.config.optimizer, vi.config.lr, vi.method.estimator) == ("Adam", 1e-3, "shared")
    assert vi.method.init_log_std == (math.log(0.014), math.log(0.016))
    for row, name in (("", "implicit"), ("-sgd", "map"), ("-vi", "vi")):
        method, config = setting(name)
        found = recipe(f"ibnn-fashion{row}")
        assert found.config.lr == config.lr
        assert found.config.posterior_lr == config.posterior_lr
        assert found.method.name == method.name


def test_pbn_rows():
    found = recipe("pbn-cityscapes")
    assert (found.method.rate, found.config.epochs, found.config.lr) == (0.01, 150, 0.1)
    assert (found.config.decay, recipe("pbn-cityscapes-vi").config.epochs) == (0.5, 600)
    assert recipe("pbn-imagenet").method.rate == 0.01
    point, noisy = recipe("pbn-cifar10-map").config, recipe("pbn-cifar10").config
    assert (point.epochs, noisy.epochs) == (50, 100)
    assert [c.milestones[0] * c.epochs for c in (point, noisy)] == [30, 30]
    five = recipe("pbn-cifar10-ensemble")
    assert (five.config.epochs, five.config.warmup) == (250, 5 * 5 * 250)
    assert recipe("pbn-mnist-vi").method.rate == 1.0


def test_rank_one_rows():
    members = recipe("rank1-cifar10-batch-ensemble")
    assert (members.method.init_std, members.method.assign) == (0.5, "tile")
    assert members.config.posterior_lr == members.config.lr / 2
    point = recipe("rank1-cifar100-map").config
    assert [round(mark * point.epochs) for mark in point.milestones] == [80, 160, 180]
    assert recipe("rank1-cifar10-ensemble-28-5").network.options["width"] == 5
    (_, embedded), (_, rest) = recipe("rank1-physionet-cauchy").method.parts
    assert (embedded.name, rest.name, rest.law) == ("mean_field", "rank_one", "cauchy")
    assert recipe("rank1-physionet").config.evaluate_samples == 25
