import json
import sys

import pytest

import leanbayes as lb
from leanbayes.cli import app
from leanbayes.cli.table import filled, render


def test_help_names_every_command(leanbayes):
    result = leanbayes("--help")
    assert result.code == 0
    commands = {c.callback.__name__ for c in app.registered_commands}
    assert commands >= {"demo", "train", "adapt", "predict", "evaluate", "info", "launch"}
    assert commands >= {"methods", "models", "data"}
    for command in commands:
        assert f"  {command} " in result.out


def test_help_has_no_colour_codes(leanbayes, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in leanbayes("demo", "--help").out


def test_the_version_is_that_of_the_package(leanbayes):
    result = leanbayes("--version")
    assert (result.code, result.out) == (0, f"leanbayes {lb.__version__}\n")


def test_an_unknown_command_exits_with_2_and_offers_the_nearest(leanbayes):
    result = leanbayes("dmeo")
    assert result.code == 2
    assert "'dmeo'" in result.err
    assert "demo" in result.err
    assert result.out == ""


def test_an_unknown_option_exits_with_2(leanbayes):
    assert leanbayes("methods", "--colour").code == 2


def test_python_dash_m_is_the_same_command(python):
    result = python("-m", "leanbayes", "--version")
    assert (result.returncode, result.stdout) == (0, f"leanbayes {lb.__version__}\n")


def test_the_command_line_itself_does_not_import_torch(python):
    # An empty package in the place of leanbayes shows what leanbayes.cli adds on its own.
    program = (
        "import sys, types; from importlib.util import find_spec\n"
        "package = types.ModuleType('leanbayes')\n"
        "package.__path__ = find_spec('leanbayes').submodule_search_locations\n"
        "sys.modules['leanbayes'] = package\n"
        "import leanbayes.cli\n"
        "print([m for m in ('torch', 'numpy', 'matplotlib', 'rich') if m in sys.modules])\n"
    )
    result = python("-c", program)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lb.ConfigError, 2),
        (lb.ConversionError, 2),
        (lb.PlanError, 2),
        (lb.LeanBayesError, 2),
        (lb.errors.NonFinite, 3),
        (lb.errors.OutOfMemory, 4),
        (lb.CheckpointError, 5),
        (lb.errors.DataError, 5),
    ],
)
def test_an_error_of_leanbayes_is_marked_lines_and_an_exit_code(
    leanbayes, monkeypatch, error, code
):
    def fail():
        raise error("found this,\n    expected that")

    monkeypatch.setattr(lb, "methods", fail)
    result = leanbayes("methods")
    assert result.code == code
    assert result.err == "leanbayes: found this,\nleanbayes: expected that\n"
    assert result.out == ""


def test_any_other_error_is_not_hidden(monkeypatch):
    from leanbayes.cli import main

    def fail():
        raise RuntimeError("a defect")

    monkeypatch.setattr(lb, "methods", fail)
    monkeypatch.setattr(sys, "argv", ["leanbayes", "methods"])
    with pytest.raises(RuntimeError, match="a defect"):
        main()


@pytest.mark.parametrize("columns", [80, 120])
def test_methods_lists_every_method_within_the_terminal(leanbayes, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = leanbayes("methods").out
    assert max(map(len, text.splitlines())) <= columns
    blocks = text.strip().split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == sorted(lb.methods())
    for block, (_, method) in zip(blocks, sorted(lb.methods().items()), strict=True):
        words = " ".join(block.split())
        for fact in (f"paper {method.paper}", f"cost {method.cost}", f"use {method.advice}"):
            assert fact in words


def test_a_narrow_terminal_breaks_lines_between_words_and_hangs_them():
    text = filled("use    noise where the output feels it", 24, indent=2, hang=7)
    assert text.splitlines() == [
        "  use    noise where the",
        "         output feels it",
    ]


def test_methods_as_json_holds_the_same_facts(leanbayes):
    found = json.loads(leanbayes("methods", "--json").out)
    assert {m["name"]: (m["paper"], m["cost"], m["advice"]) for m in found} == {
        name: (m.paper, m.cost, m.advice) for name, m in lb.methods().items()
    }


def test_a_table_aligns_names_left_and_figures_right():
    text = render(["a", "figure"], [["long name", "1"], ["b", "22.5"]])
    assert text.splitlines() == [
        "a          figure",
        "-----------------",
        "long name       1",
        "b            22.5",
    ]
