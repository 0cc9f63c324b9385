"""A run in a TOML file: what it becomes, and how everything that is wrong is said."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import leanbayes as lb
from leanbayes.cli.settings_file import Named, merged, read_settings, settings_of
from leanbayes.train.config import FitConfig

TEXT = """
[model]
name = "resnet18"
options = { width = 16, num_classes = 10, stem = "cifar" }

[data]
name = "fashion_mini"
options = { split = 0.1 }

[method]
name = "mean_field"
[method.fields]
prior_std = 2
init_log_std = [-6.0, -5]
select = "convs+output"

[fit]
steps = 100
lr = 1e-4
milestones = [0.25, 0.5]
optimizer_options = { foreach = false }
regularizer = { alpha = 2.0, gamma = 0.5 }
kl_schedule = { name = "linear_warmup", steps = 50 }

[likelihood]
name = "categorical"
"""
SMALL = {"model": {"name": "lenet"}, "data": {"name": "digits"}, "method": {"name": "map"}}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(TEXT)
    return path


def lines(**tables):
    """What is said of the small settings with some tables changed."""
    with pytest.raises(lb.ConfigError) as error:
        settings_of({**SMALL, **tables})
    return str(error.value).splitlines()


def test_a_file_becomes_settings(file):
    found = read_settings(file)
    assert found.model == Named("resnet18", {"width": 16, "num_classes": 10, "stem": "cifar"})
    assert found.data == Named("fashion_mini", {"split": 0.1})
    assert found.method == lb.MeanField(
        prior_std=2.0, init_log_std=(-6.0, -5.0), select=lb.select.convs | lb.select.output
    )
    assert found.fit == FitConfig(
        steps=100,
        lr=1e-4,
        milestones=(0.25, 0.5),
        optimizer_options={"foreach": False},
        regularizer=lb.OODRegularizer(alpha=2.0, gamma=0.5),
        kl_schedule=lb.schedule.linear_warmup(steps=50),
    )
    assert isinstance(found.likelihood, lb.Categorical)
    assert lb.models.create(found.model.name, **found.model.options).fc.out_features == 10


def test_what_is_left_out_has_its_default():
    found = settings_of(SMALL)
    assert found.fit == FitConfig(optimizer="Adam")  # from scratch; of weights that of FitConfig
    assert settings_of(SMALL, scratch=False).fit == FitConfig()
    assert found.method == lb.MAP()
    assert isinstance(found.likelihood, lb.Categorical)
    assert found.model.options == {}


def test_every_method_of_the_registry_comes_from_a_file_with_its_own_fields():
    for name, cls in lb.methods().items():
        if name == "compose" or not cls.__module__.startswith("leanbayes"):
            continue
        plain = {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in cls().to_json()["fields"].items()
            if v is not None and not isinstance(v, dict)
        }
        assert settings_of({**SMALL, "method": {"name": name, "fields": plain}}).method == cls()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("norms", lb.select.norms),
        ("norms + output", lb.select.norms | lb.select.output),
        ({"name": ["layer4.*", "fc"]}, lb.select.by_name("layer4.*", "fc")),
        ({"type": ["Linear"]}, lb.select.by_type("Linear")),
        ({"not": "norms"}, ~lb.select.norms),
        ({"and": ["convs", {"not": "stem"}]}, lb.select.convs & ~lb.select.stem),
        ({"or": ["convs", "linears"]}, lb.select.convs | lb.select.linears),
    ],
)
def test_layers_are_written_as_words_and_tables(written, meant):
    table = {"name": "mean_field", "fields": {"select": written}}
    assert settings_of({**SMALL, "method": table}).method.select == meant
    table = {"name": "patching", "fields": {"where": written}}
    assert settings_of({**SMALL, "method": table}).method.where == meant


def test_a_word_of_the_method_itself_goes_before_layers():
    table = {"name": "patching", "fields": {"where": "norm+output"}}
    assert settings_of({**SMALL, "method": table}).method == lb.Patching()


def test_a_composition_is_a_list_of_parts():
    parts = [
        {"select": "norms", "name": "patching", "fields": {"where": "norm"}},
        {"select": "output", "name": "mean_field"},
    ]
    found = settings_of({**SMALL, "method": {"name": "compose", "fields": {"parts": parts}}})
    expected = [
        (lb.select.norms, lb.Patching(where="norm")),
        (lb.select.output, lb.MeanField()),
    ]
    assert found.method == lb.Compose(expected)
    parts[1]["fields"] = {"prior_std": "wide"}
    parts[0]["select"] = "norm"
    said = lines(method={"name": "compose", "fields": {"parts": parts}})
    assert said[0].startswith("method.fields.parts[0].select: no layers are called 'norm'; did")
    assert said[1].startswith("method.fields.parts[1].fields.prior_std: input should be a valid nu")


def test_schedules_nest():
    inner = {"name": "annealed", "steps": 10}
    table = {"kl_schedule": {"name": "tempered", "schedule": inner, "temperature": 0.5}}
    expected = lb.schedule.tempered(lb.schedule.annealed(steps=10), 0.5)
    assert settings_of({**SMALL, "fit": table}).fit.kl_schedule == expected
    table["kl_schedule"]["schedule"] = 2.0
    assert settings_of({**SMALL, "fit": table}).fit.kl_schedule(3) == 1.0


def test_a_likelihood_has_options():
    table = {"name": "gaussian", "options": {"precision": 0.1, "learn": True}}
    found = settings_of({**SMALL, "likelihood": table}).likelihood.settings()
    assert found.items() >= table["options"].items()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"fitt": {}}, "fitt: unknown; did you mean 'fit'?"),
        ({"fit": {"lrr": 1}}, "fit.lrr: unknown; did you mean 'lr'?"),
        ({"fit": {"lr": "fast"}}, "fit.lr: input should be a valid number, found 'fast'"),
        ({"fit": {"lr": -1.0}}, "fit.lr: lr must be a finite number of at least 0, found -1.0"),
        ({"fit": {"lr": float("nan")}}, "fit.lr: lr holds numbers"),
        ({"fit": {"epochs": 2.5}}, "fit.epochs: input should be a valid integer"),
        ({"fit": {"epochs": True}}, "fit.epochs: input should be a valid integer, found True"),
        ({"fit": {"nesterov": 1}}, "fit.nesterov: input should be a valid boolean, found 1"),
        ({"fit": {"milestones": [0.5, "x"]}}, "fit.milestones[1]: input should be a valid number"),
        ({"fit": {"train": "some"}}, "fit.train: input should be 'all', 'posterior' or 'altern"),
        ({"fit": {"optimizer": "SDG"}}, "fit.optimizer: optimizer 'SDG' is none that lb.fit uses"),
        ({"fit": {"regularizer": {"alfa": 1}}}, "fit.regularizer.alfa: unknown; did you mean 'al"),
        ({"fit": {"regularizer": {"gamma": 0.75}}}, "fit.regularizer.gamma: gamma=0.75 is inert"),
        ({"fit": {"kl_schedule": {"name": "lin"}}}, "fit.kl_schedule.name: no such name as 'lin'"),
        ({"fit": {"kl_schedule": {"name": "annealed"}}}, "fit.kl_schedule.steps: a schedule has"),
        ({"fit": {"kl_schedule": 1.0}}, "fit.kl_schedule: expected a table, found 1.0"),
        ({"fit": []}, "fit: expected a table, found []"),
        ({"model": {}}, "model.name: missing; expected one of 'alexnet', 'lenet'"),
        ({"model": {"name": "lennet"}}, "model.name: no such name as 'lennet'; did you mean 'len"),
        ({"model": {"name": 3}}, "model.name: expected a word, found 3"),
        ({"model": {"name": "lenet", "options": {"w": 1}}}, "model.options.w: unknown; expected"),
        ({"model": {"name": "mlp", "options": {"inputs": 1, "outputs": 2}}},
         "model.options.hidden: missing; it has no default"),
        ({"method": {"name": "mean_feild"}}, "method.name: no such name as 'mean_feild'; did you"),
        ({"method": {"name": "map", "feilds": {}}}, "method.feilds: unknown; did you mean 'fields"),
        ({"method": {"name": "mean_field", "fields": {"prior_std": -1.0}}},
         "method.fields.prior_std: prior_std must be a positive number"),
        ({"method": {"name": "mean_field", "fields": {"select": 3}}},
         "method.fields.select: expected a word such as"),
        ({"method": {"name": "mean_field", "fields": {"select": {"xor": []}}}},
         "method.fields.select.xor: unknown; did you mean 'or'?"),
        ({"likelihood": {"name": "poisson"}}, "likelihood.name: no such name as 'poisson'"),
        ({"data": {"name": "x", "options": {"a b": 3, "c": 1j}}}, "data.options: options.c holds"),
    ],
)  # fmt: skip
def test_a_problem_is_said_in_one_line_with_the_path_of_its_key(tables, said):
    (line,) = lines(**tables)
    assert line.startswith(said)


def test_all_problems_are_said_at_once():
    said = lines(
        model={"name": "lenett"},
        method={"name": "rank_one", "fields": {"law": "laplace", "members": "four"}},
        fit={"lr": "x", "epochz": 3},
        odd={},
    )
    assert [line.split(":")[0] for line in said] == [
        "odd", "model.name", "method.fields.law", "method.fields.members", "fit.epochz", "fit.lr",
    ]  # fmt: skip


def test_data_may_be_one_of_some_names():
    assert settings_of(SMALL, data_names=["digits", "letters"]).data.name == "digits"
    with pytest.raises(lb.ConfigError, match=r"data\.name: no such name as 'digits'; did you mean"):
        settings_of(SMALL, data_names=["digit_s", "letters"])


def test_values_are_set_from_the_command_line(file):
    changes = ["fit.lr=0.5", "fit.train=posterior", "fit.clip=1", "method.fields.prior_std=none"]
    changes += ["model.options.width=8", 'fit.folder="runs/a=b"', "fit.milestones=[0.1, 0.2]"]
    found = read_settings(file, changes)
    assert (found.fit.lr, found.fit.train, found.fit.clip) == (0.5, "posterior", 1.0)
    assert (found.fit.folder, found.fit.milestones) == ("runs/a=b", (0.1, 0.2))
    assert found.method.prior_std is None
    assert found.model.options["width"] == 8


def test_setting_leaves_the_given_tables_alone():
    tables = {"fit": {"regularizer": {"alpha": 1.0}}}
    assert merged(tables, ["fit.regularizer.alpha=2"])["fit"]["regularizer"]["alpha"] == 2
    assert tables == {"fit": {"regularizer": {"alpha": 1.0}}}
    assert merged({}, ["a.b.c=1\nd=2"]) == {"a": {"b": {"c": "1\nd=2"}}}


@pytest.mark.parametrize("change", ["fit.lr", "=3", "fit..lr=3", "fit.=3", ".=3", ""])
def test_a_change_without_a_path_or_a_value_is_refused(change):
    with pytest.raises(lb.ConfigError, match=f"^--set {re.escape(change)}: expected a path"):
        merged({}, [change])


def test_a_change_below_a_value_is_refused():
    with pytest.raises(lb.ConfigError, match=r"^fit\.lr: --set fit\.lr\.x=1 needs a table here"):
        merged({"fit": {"lr": 0.1}}, ["fit.lr.x=1"])


@pytest.mark.parametrize(
    "content",
    [b"[fit", b"a = ", b"a = 1\na = 2", b"\xff\xfe", b"a=" + b"[" * 30_000, b"a=" + b"9" * 5000],
)
def test_a_file_that_is_not_toml_is_refused_by_its_name(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(lb.ConfigError, match=r"run\.toml: "):
        read_settings(path)


def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path, Path("a\0b")):
        with pytest.raises(lb.ConfigError, match=re.escape(str(path))):
            read_settings(path)


def test_numbers_of_thousands_of_digits_are_refused():
    huge = 16**6000
    assert lines(fit={"lr": huge})[0].startswith("fit.lr: ")
    assert lines(fit=huge) == ["fit: expected a table, found a huge number"]


def test_pydantic_is_loaded_only_when_a_file_is_read():
    code = "import leanbayes.cli.settings_file, sys; print('pydantic' in sys.modules)"
    source = str(Path(lb.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("more", "optimizer"),
    [
        ({}, "Adam"),
        ({"fit": {"epochs": 3}}, "Adam"),
        ({"fit": {"lr": 0.1}}, "SGD"),
        ({"fit": {"optimizer": "AdamW"}}, "AdamW"),
        ({"model": {"name": "lenet", "weights": "net.pt"}}, "SGD"),
    ],
)
def test_a_network_without_weights_is_trained_by_adam_unless_something_is_said(more, optimizer):
    """The usual rate, 1e-3 of SGD, fine-tunes; from scratch it leaves a network at chance."""
    tables = {"model": {"name": "lenet"}, "data": {"name": "digits"}, "method": {"name": "map"}}
    assert settings_of({**tables, **more}).fit.optimizer == optimizer
    assert settings_of({**tables, **more}, scratch=False).fit.optimizer != "Adam"
