"""Networks by dotted path, from timm and from transformers."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.models import create, maker

SOURCE = """
from torch import nn

class Net(nn.Linear):
    class Small(nn.Linear):
        def __init__(self, inputs=2):
            super().__init__(inputs, 1)

def doubled(width: int, classes: int = 3):
    return nn.Sequential(nn.Linear(4, 2 * width), nn.ReLU(), nn.Linear(2 * width, classes))

def no_network():
    return [1]

ready = nn.Linear(2, 2)
number = 3
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path, monkeypatch):
    """A package `own_nets` with a module `zoo` and one that needs what is not installed."""
    folder = tmp_path / "own_nets"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "zoo.py").write_text(SOURCE)
    (folder / "needy.py").write_text("import a_library_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "own_nets"]:
        del sys.modules[name]


def test_a_function_of_a_module_makes_the_network():
    net = create("own_nets.zoo:doubled", width=5)
    assert [(m.in_features, m.out_features) for m in (net[0], net[2])] == [(4, 10), (10, 3)]


def test_a_path_goes_into_classes():
    assert create("own_nets.zoo:Net.Small", inputs=7).in_features == 7
    assert maker("own_nets.zoo:Net.Small").__name__ == "Small"


def test_a_network_by_path_converts_as_one_of_the_zoo_does():
    torch.manual_seed(0)
    net = create("own_nets.zoo:doubled", width=5)
    model = lb.bayesianize(net, lb.MeanField(), example=torch.zeros(2, 4))
    assert model.report.added == 4 * 10 + 10 + 10 * 3 + 3


def test_an_unknown_or_missing_option_lists_those_there_are():
    with pytest.raises(TypeError, match=r"'own_nets.zoo:doubled': .*'wdith'.*: width, classes"):
        create("own_nets.zoo:doubled", width=5, wdith=5)
    with pytest.raises(TypeError, match="missing a required argument: 'width'"):
        create("own_nets.zoo:doubled")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_nets.zoo:doubledd", "own_nets.zoo has no attribute 'doubledd'; nearest: doubled"),
        ("own_nets.zoo:Net.Large", "no attribute 'Net.Large'"),
        ("own_nets.zo:doubled", "no module is called 'own_nets.zo'"),
        ("no_such_package.zoo:Net", "no module is called 'no_such_package'.*PYTHONPATH=."),
        ("own_nets.zoo:no_network", "made a list; expected a class or function"),
        ("own_nets.zoo:ready", "is a Linear; expected .* def ready"),
        ("own_nets.zoo:number", "is an int; expected"),
        (":Net", '"package.module:attribute"'),
        ("own_nets.zoo:", '"timm:NAME"'),
        (".zoo:Net", "is no path"),
    ],
)
def test_a_wrong_path_is_told_what_is_wrong_with_it(name, words):
    with pytest.raises(lb.ConfigError, match=words):
        create(name)


def test_what_a_module_itself_lacks_is_not_hidden():
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_installed"):
        create("own_nets.needy:Net")


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_a_library_that_is_not_installed_is_named_with_the_line_that_installs_it(
    library, monkeypatch
):
    monkeypatch.setitem(sys.modules, library, None)  # import says ModuleNotFoundError
    with pytest.raises(lb.ConfigError, match=f"not installed: pip install {library}"):
        create(f"{library}:anything")


def test_the_libraries_are_not_imported_with_leanbayes():
    assert {"timm", "transformers"}.isdisjoint(sys.modules)


@pytest.fixture
def timm(monkeypatch):
    """A stand-in with the three functions that are called."""
    fake = ModuleType("timm")
    known = ["resnet18", "resnet26"]
    fake.is_model = lambda name: name in known
    fake.list_models = lambda: known

    def create_model(name, pretrained=False, **options):
        net = nn.Linear(1, options.get("num_classes", 1000))
        net.made = (name, pretrained, options)
        return net

    fake.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", fake)


@pytest.mark.usefixtures("timm")
def test_timm_gets_the_name_and_the_options_and_loads_nothing_unasked():
    assert create("timm:resnet18", num_classes=5).made == ("resnet18", False, {"num_classes": 5})
    assert create("timm:resnet18.a1", pretrained=True).made == ("resnet18.a1", True, {})
    assert create("timm:hf-hub:some/where").made[0] == "hf-hub:some/where"


@pytest.mark.usefixtures("timm")
def test_a_name_that_timm_lacks_gets_the_nearest_ones():
    with pytest.raises(lb.ConfigError, match="no model 'resnet81'; nearest: resnet18"):
        create("timm:resnet81")


class Auto:
    """Records how a network was asked for."""

    @staticmethod
    def from_config(config):
        if config["name"] == "headless":
            raise ValueError("Unrecognized configuration class")
        net = nn.Linear(1, 1)
        net.made = ("fresh", config)
        return net

    @staticmethod
    def from_pretrained(name, **options):
        if name == "nowhere":
            raise OSError("nowhere is not a local folder")
        net = nn.Linear(1, 1)
        net.made = ("loaded", name, options)
        return net


@pytest.fixture
def transformers(monkeypatch):
    fake = ModuleType("transformers")
    fake.CONFIG_MAPPING = {"bert": None, "headless": None}
    fake.AutoModelForSequenceClassification = fake.AutoModelForImageClassification = Auto
    fake.AutoConfig = SimpleNamespace(
        for_model=lambda name, **options: {"name": name, "from": "kind", **options},
        from_pretrained=lambda name, **options: {"name": name, "from": "hub", **options},
    )
    monkeypatch.setitem(sys.modules, "transformers", fake)


@pytest.mark.usefixtures("transformers")
def test_transformers_builds_a_kind_of_model_from_its_settings_alone():
    made = create("transformers:bert", num_labels=3).made
    assert made == ("fresh", {"name": "bert", "from": "kind", "num_labels": 3})


@pytest.mark.usefixtures("transformers")
def test_transformers_reads_the_settings_of_a_checkpoint_and_its_weights_when_asked():
    made = create("transformers:some/vit", task="ImageClassification").made
    assert made == ("fresh", {"name": "some/vit", "from": "hub"})
    made = create("transformers:some/bert", pretrained=True, num_labels=3).made
    assert made == ("loaded", "some/bert", {"num_labels": 3})


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("bert", {"task": "ImageClass"}, "no head 'ImageClass'; nearest: ImageClassification"),
        ("bert", {"pretrained": True}, "'bert' is a kind of model and has no weights"),
        ("headless", {}, "transformers:headless': Unrecognized configuration class"),
        ("nowhere", {"pretrained": True}, "nowhere is not a local folder"),
    ],
)
def test_what_transformers_cannot_do_is_a_wrong_setting(name, options, words):
    with pytest.raises(lb.ConfigError, match=words):
        create(f"transformers:{name}", **options)
