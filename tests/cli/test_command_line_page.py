"""The pages on the command line: every option has words, every example calls what exists."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from leanbayes.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "command_line.md").read_text()
COMMANDS = get_command(app).commands
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def options_of(command):
    return {name for taken in command.params for name in (*taken.opts, *taken.secondary_opts)}


def calls():
    """Every line of a block of shell that calls a command, without its comment."""
    for page in PAGES:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.S | re.M)
        for block in (text for language, text in blocks if not language):
            for line in re.findall(r"^leanbayes \w.*$", block, flags=re.M):
                yield pytest.param(shlex.split(line, comments=True)[1:], id=f"{page.name}: {line}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_words(name):
    options = {option for option in options_of(COMMANDS[name]) if option.startswith("--")}
    missing = {o for o in options if not re.search(rf"{o}(?![\w-])", PAGE)}
    assert f"`{name}`" in PAGE
    assert not missing


@pytest.mark.parametrize("words", list(calls()))
def test_every_example_calls_what_exists(words):
    name, *rest = words
    own = rest[: next((i for i, w in enumerate(rest) if w in COMMANDS or w.endswith(".py")), None)]
    taken = own if name == "launch" else rest
    given = {word for word in taken if word.startswith("-")}
    assert given <= options_of(COMMANDS[name])
