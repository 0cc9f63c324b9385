"""FitConfig: what it refuses, what it settles, and that it survives JSON."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import leanbayes as lb
from leanbayes.train.config import UNFIT, FitConfig

FULL = {
    "epochs": 3,
    "optimizer": "AdamW",
    "optimizer_options": {"betas": (0.9, 0.95), "eps": 1e-6},
    "posterior_lr": 0.5,
    "posterior_schedule": "linear",
    "milestones": (0.1, 0.9),
    "span": (0.25, 0.75),
    "kl_schedule": lb.schedule.tempered(lb.schedule.linear_warmup(steps=7), 0.5),
    "regularizer": lb.OODRegularizer(alpha=2.0, gamma=None, samples=3),
    "folder": "runs/one",
    "progress": False,
    "clip": 1.5,
}
BAD = {
    "epochs": [-1, 2.0, True, "3"],
    "batch_size": [0, None, 1.5],
    "optimizer": ["sgd", "LBFGS", "SparseAdam", "Optimizer", "", 3],
    "lr": [-1e-3, float("nan"), float("inf"), "0.1", True, None, 10**400],
    "posterior_lr": [-1.0, "x"],
    "weight_decay": [-1.0],
    "momentum": [1.0, -0.1],
    "nesterov": [1, None],
    "optimizer_options": [3, {"betaz": 1}, {"lr": 0.1}, {"maximize": True}, {"x": object()}],
    "schedule": ["cosin", None, 3],
    "posterior_schedule": ["exponential"],
    "warmup": [-1, 0.5],
    "milestones": [(0.75, 0.5), (0.5, 0.5), (0.0,), (1.0,), ("a",), 0.5],
    "decay": [-0.1, 1.5],
    "span": [(0.5,), (0.9, 0.1), (0.5, 0.5), (-0.1, 1.0), (0.0, 1.1)],
    "floor": [-0.1, 1.1],
    "samples": [0],
    "likelihood_of": ["mean"],
    "num_data": [0],
    "kl_weight": [-1.0],
    "kl_warmup": [1.5],
    "kl_schedule": [0.5, lambda _step: 1.0],
    "kl": ["loss"],
    "clip": [0, 0.0, -1.0],
    "accumulate": [0],
    "train": ["some"],
    "alternate_every": [0],
    "ema": [1.0, -0.5],
    "regularizer": ["yes"],
    "monitor": ["", None],
    "patience": [0],
    "folder": ["", "a\0b", 3],
    "keep": [0],
    "seed": [-1, 2**32, 0.5],
    "precision": ["bf17"],
    "device": ["gpu9000", ""],
    "strategy": ["dp"],
    "workers": [-1],
    "log_every": [0],
    "progress": ["yes"],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in BAD.items() for v in vs])
def test_a_wrong_value_is_refused_by_the_name_of_its_field(name, value):
    with pytest.raises(lb.ConfigError, match=rf"^{name}\b"):
        FitConfig(**{name: value})


def test_words_that_are_almost_right_get_the_nearest():
    with pytest.raises(lb.ConfigError, match="did you mean 'cosine'"):
        FitConfig(schedule="cosin")
    with pytest.raises(lb.ConfigError, match="did you mean 'AdamW'"):
        FitConfig(optimizer="Adamw")
    with pytest.raises(lb.ConfigError, match="did you mean 'betas'"):
        FitConfig(optimizer="Adam", optimizer_options={"beta": (0.9, 0.99)})


def test_a_run_has_epochs_or_steps():
    assert FitConfig().total_steps(7) == 70
    assert FitConfig(epochs=3).total_steps(7) == 21
    by_step = replace(FitConfig(), steps=5)
    assert by_step.epochs is None
    assert by_step.total_steps(7) == 5
    with pytest.raises(lb.ConfigError, match="epochs=3 and steps=5"):
        FitConfig(epochs=3, steps=5)
    with pytest.raises(lb.ConfigError, match="epochs=None and steps=None"):
        FitConfig(epochs=None)


@pytest.mark.parametrize(
    "both",
    [
        {"compile": True, "checkpoint_activations": True},
        {"channels_last": True, "strategy": "fsdp2"},
    ],
    ids=" and ".join,
)
def test_settings_that_exclude_each_other_are_refused_by_name(both):
    with pytest.raises(lb.ConfigError, match=" and ".join(both)):
        FitConfig(**both)


def test_two_shapes_of_the_kl_weight_are_refused():
    with pytest.raises(lb.ConfigError, match=r"kl_warmup=0\.5 and kl_schedule"):
        FitConfig(kl_warmup=0.5, kl_schedule=lb.schedule.constant())


@pytest.mark.parametrize("settings", [{}, {"steps": 9}, FULL], ids=["default", "steps", "full"])
def test_json_and_back_is_the_same(settings):
    config = FitConfig(**settings)
    text = json.dumps(config.to_json(), allow_nan=False)
    assert FitConfig.from_json(json.loads(text)) == config
    assert config.to_json().keys() == {f.name for f in fields(FitConfig)}


def test_json_may_leave_fields_out():
    assert FitConfig.from_json({"lr": 0.25}) == FitConfig(lr=0.25)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"lrr": 1.0}, "no setting 'lrr'; did you mean 'lr'"),
        ({"batchsize": 1}, "did you mean 'batch_size'"),
        ([1, 2], "table of names"),
        ({"kl_schedule": {"name": "Constant"}}, "kl_schedule is no schedule"),
        ({"kl_schedule": {"name": [], "fields": {}}}, "kl_schedule is no schedule"),
        ({"kl_schedule": {"name": "StepWarmup", "fields": {"stepz": 3}}}, "no schedule"),
        ({"kl_schedule": {"name": "Exploding", "fields": {}}}, "unknown schedule 'Exploding'"),
        ({"regularizer": {"alfa": 3.0}}, "did you mean 'alpha'"),
        ({"regularizer": {"alpha": "3"}}, "regularizer has a value of the wrong type"),
        ({"optimizer_options": {"foreach": {1: 2}}}, "optimizer_options"),
    ],
)
def test_foreign_json_is_refused_in_words(data, words):
    with pytest.raises(lb.ConfigError, match=re.escape(words)):
        FitConfig.from_json(data)


def test_lists_and_paths_are_taken_as_tuples_and_words():
    config = FitConfig(milestones=[0.3], span=[0.0, 0.5], folder=Path("runs") / "a")
    assert (config.milestones, config.span) == ((0.3,), (0.0, 0.5))
    assert config.folder == str(Path("runs") / "a")


def test_the_options_are_a_copy():
    options = {"eps": 1e-6}
    config = FitConfig(optimizer="Adam", optimizer_options=options)
    options["eps"] = 1.0
    assert config.optimizer_options == {"eps": 1e-6}


def test_every_other_optimiser_of_torch_is_known():
    classes = {
        name
        for name, cls in vars(torch.optim).items()
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)
    }
    for name in classes - set(UNFIT):
        assert FitConfig(optimizer=name).optimizer == name


def test_a_decay_that_the_optimiser_does_not_know_is_refused():
    with pytest.raises(lb.ConfigError, match="weight_decay is unknown to Rprop"):
        FitConfig(optimizer="Rprop", weight_decay=1e-4)


def test_momentum_of_other_optimisers_is_an_option():
    config = FitConfig(optimizer="RMSprop", optimizer_options={"momentum": 0.5})
    assert config.optimizer_options == {"momentum": 0.5}
    with pytest.raises(lb.ConfigError, match=r"optimizer_options\.momentum is a setting by itself"):
        FitConfig(optimizer_options={"momentum": 0.5})


def test_every_field_is_explained():
    explained = re.findall(r"^ {8}(\w+): ", FitConfig.__doc__, re.MULTILINE)
    assert explained == [f.name for f in fields(FitConfig)]
