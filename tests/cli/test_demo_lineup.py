import json
from dataclasses import dataclass, replace

import pytest
import torch

import leanbayes as lb
from leanbayes.cli.demo import setting
from leanbayes.cli.demo.entries import Task, training_steps
from leanbayes.cli.demo.lineup import ENTRIES, lineup
from leanbayes.cli.demo.tuning import train

BY_LABEL = {entry.label: entry for entry in ENTRIES}


class Ticks:
    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1


@pytest.fixture(scope="module")
def task():
    """Four batches of eight, a network after an epoch of them."""
    choices = setting.Choices(swag_epochs=5, swag_every=1, ensemble_members=3)
    settings = setting.Settings(
        seed=1, train_images=32, test_images=20, ood_images=10, epochs=1, tuning_epochs=1, batch=8,
        samples=3, choices=choices,
    )  # fmt: skip
    data = setting.Data.of(settings)
    with torch.random.fork_rng():
        yield Task(settings, data, train(settings, data, Ticks()))


def test_every_method_of_the_library_has_an_entry():
    own = {n for n, m in lb.methods().items() if m.__module__.startswith("leanbayes.")}
    assert {entry.name for entry in ENTRIES} == own
    assert lineup({})[:] == []
    assert [e.label for e in lineup({"map": lb.MAP})] == ["map"]


@pytest.mark.parametrize("label", list(BY_LABEL))
def test_an_entry_ticks_as_often_as_it_says_and_starts_from_the_same_network(task, label):
    entry, ticks = BY_LABEL[label], Ticks()
    model = entry.built(task, ticks)
    assert model.method.name == entry.name
    entry.fit(model, task, ticks)
    entry.finish(model, task, ticks)
    assert ticks.count == entry.steps(task.settings) + entry.more_steps(task.settings)
    assert not any(m is task.net for m in model.modules())


def test_a_mixture_predicts_with_a_multiple_of_its_members_and_points_with_each_once(task):
    def samples(label):
        entry = BY_LABEL[label]
        return entry.samples(entry.built(task, Ticks()), task.settings)

    assert samples("mean_field") == 3
    assert samples("implicit") == samples("rank_one cauchy") == 4
    assert (samples("map"), samples("batch_ensemble"), samples("deep_ensemble")) == (1, 4, 3)


def test_the_members_of_the_deep_ensemble_are_trained_as_the_network_was(task):
    ticks = Ticks()
    model = BY_LABEL["deep_ensemble"].built(task, ticks)
    assert ticks.count == 2 * training_steps(task.settings)
    for member, seed in ((0, 1), (1, 1001), (2, 2001)):
        alone = train(replace(task.settings, seed=seed), task.data, Ticks())
        torch.testing.assert_close(
            lb.collapse(model, member=member)(task.data.x[:4])
            if member
            else task.net(task.data.x[:4]),
            alone(task.data.x[:4]),
        )


def test_held_out_images_are_neither_trained_on_nor_test_images():
    settings = setting.Settings()
    data, held = (setting.Data.of(settings, held_out=flag) for flag in (False, True))
    assert torch.equal(data.x, held.x)
    full = lb.data.fashion_mini()
    assert settings.train_images + setting.HELD_OUT <= len(full.x_train)
    assert torch.equal(held.x_test, full.x_train[5000:])
    assert torch.equal(data.x_test, full.x_test)


def test_a_registered_method_without_an_entry_runs_with_default_arguments(
    leanbayes, tiny, tmp_path
):
    # Not named in the class statement: the registry of other tests stays as it is.
    @dataclass(frozen=True, kw_only=True)
    class Wide(lb.MeanField):
        init_std: float | None = 0.01

    @dataclass(frozen=True, kw_only=True)
    class Fussy(lb.MeanField):
        def __post_init__(self):
            raise lb.ConfigError("fussy needs a number: Fussy(number=1)")

    tiny("map", "mean_field", wide=Wide, fussy=Fussy)
    result = leanbayes("demo", "--smoke", "--out", tmp_path)
    assert result.code == 0, result.err
    figures = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert [m["label"] for m in figures["methods"]] == ["map", "mean_field", "wide"]
    assert figures["methods"][2]["parameters_added"] == 41_806
    assert figures["left_out"] == {"fussy": "fussy needs a number: Fussy(number=1)"}
    assert "left out: fussy (fussy needs a number: Fussy(number=1))" in result.out


def test_held_out_scores_say_so(leanbayes, tiny, tmp_path):
    tiny("map", "mean_field")
    result = leanbayes("demo", "--smoke", "--held-out", "--out", tmp_path)
    assert "Scores: 1,000 held-out training images" in result.out
    figures = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert figures["command"].endswith("--smoke --held-out")
