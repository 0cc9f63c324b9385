"""Recipes on the command line: a list, a page that is a settings file, and a run of seconds."""

import json
import tomllib

import pytest

import leanbayes as lb
from leanbayes.cli.settings_file import settings_of
from leanbayes.recipes import recipe, recipes

NAMES = sorted(recipes())
# Variants of a row have names beside each other: one in five runs in `make test`.
EVERY = [
    pytest.param(name, marks=() if at % 5 == 0 else pytest.mark.slow)
    for at, name in enumerate(NAMES)
]


# A network of four steps has no weights that a wide law could keep.
@pytest.mark.filterwarnings("ignore:.*draws are far from what was trained")
@pytest.mark.parametrize("name", EVERY)
def test_a_recipe_runs_in_small_on_made_up_data(leanbayes, name):
    word = "adapt" if recipe(name).trained else "train"
    result = leanbayes(word, "--recipe", name, "--smoke", "--json", "--set", "fit.progress=false")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["result"]["steps"] == 4
    assert found["method"] == json.loads(json.dumps(recipe(name).method.to_json()))
    assert all(value == value for value in found["figures"].values())
    assert found["figures"]


def test_the_list_has_every_name_and_line(leanbayes):
    text = leanbayes("recipes").out
    for name, line in recipes().items():
        assert f"{name}\n" in text
        assert " ".join(line.split()) in " ".join(text.split())
    found = json.loads(leanbayes("recipes", "--json").out)
    assert [each["name"] for each in found] == NAMES


@pytest.mark.parametrize("name", ["pbn-mnist", "rank1-physionet", "emp-regression"])
def test_the_page_of_a_recipe_is_a_settings_file(leanbayes, name):
    found, wanted = settings_of(tomllib.loads(leanbayes("recipes", name).out)), recipe(name)
    assert (found.method, found.fit) == (wanted.method, wanted.config)
    assert (found.model.name, found.data.name) == (wanted.network.name, wanted.data.name)
    facts = json.loads(leanbayes("recipes", name, "--json").out)
    assert facts["fit"] == json.loads(json.dumps(wanted.config.to_json()))


def test_an_unknown_recipe_exits_with_2_and_the_nearest_name(leanbayes):
    for words in (["recipes", "pbn-mnis"], ["train", "--recipe", "pbn-mnis", "--smoke"]):
        result = leanbayes(*words)
        assert result.code == 2
        assert "did you mean 'pbn-mnist'" in result.err


def test_a_recipe_fills_in_what_the_tables_leave_out():
    found = settings_of({"recipe": "emp-cifar100", "data": {"options": {"root": "here"}}})
    assert (found.model.name, found.data.name) == ("pyramidnet110_270", "cifar100")
    assert (found.data.options, found.augment) == ({"root": "here"}, "crop+flip")
    other = settings_of({"recipe": "emp-cifar100", "data": {"name": "digits"}})
    assert (other.data.name, other.augment) == ("digits", None)
    other = settings_of({"recipe": "emp-regression", "data": {"name": "digits"}})
    assert other.likelihood.settings() == lb.Categorical().settings()
    assert "likelihood" not in other.tables
    swag = {"recipe": "bayesadapter-cifar10-swag"}
    assert settings_of(swag).fitting == {"weight_decay": 2e-4}
    assert settings_of({**swag, "method": {"name": "map"}}).fitting == {}


def test_noise_of_the_regressions_is_in_raw_units():
    from leanbayes.cli.prepare import prepare

    tables = {"recipe": "emp-regression", **recipe("emp-regression").tables(small=True)}
    ready = prepare(settings_of(tables))
    settings = ready.likelihood.settings()
    assert (settings["precision"], settings["target_mean"], settings["target_std"]) == (0.1, 0, 1)


def test_a_smoke_run_of_given_data_takes_a_few_of_them(leanbayes):
    words = ["--data", "fashion_mini", "--model", "lenet", "--method", "mean_field"]
    result = leanbayes("train", *words, "--smoke", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["result"]["steps"] == 4
    result = leanbayes("train", "--data", "fashion_mini", "--recipe", "ibnn-fashion", "--smoke")
    assert result.code == 0, result.err
