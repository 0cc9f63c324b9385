"""Settings files with random damage: valid, or one line a problem with the path of its key."""

import copy
import json
import random
import re
import warnings

import pytest

import leanbayes as lb
from leanbayes.cli.settings_file import merged, read_settings, settings_of

TABLES = {
    "model": {"name": "mlp", "options": {"inputs": 4, "hidden": [8, 8], "outputs": 3}},
    "data": {"name": "digits", "options": {"size": 28, "flip": True}},
    "method": {
        "name": "patching",
        "fields": {"members": 5, "where": {"or": ["norms", "output"]}, "prior_std": 0.5},
    },
    "fit": {
        "epochs": 3,
        "lr": 0.1,
        "posterior_lr": 0.2,
        "optimizer": "AdamW",
        "optimizer_options": {"betas": [0.9, 0.99]},
        "schedule": "step",
        "milestones": [0.25, 0.5],
        "kl_schedule": {"name": "linear_warmup", "steps": 10, "weight": 0.5},
        "regularizer": {"alpha": 1.0, "samples": 2},
        "folder": "runs/one",
        "device": "cpu",
    },
    "likelihood": {"name": "gaussian", "options": {"precision": 0.1}},
}
OTHERS = [
    *(-1, 0, 1, 2**31, 2**70, -(10**30), 0.5, -0.5, 1e308, 5e-324, float("nan"), float("inf")),
    *(True, False, "", "x", "auto", "None", "mean_field", "\u0000", "\U0001f40d", "a" * 200),
    *([], [[]], [1, "a", None], {}, {"name": "constant"}, {"": {}}, [{}], 1 + 2j, 16**6000),
]
PATH = re.compile(r"(\w|-|\.|\[\d+\]|'[^']*'|\"[^\"]*\")+: \S")
SECTIONS = "|".join(TABLES)


def places(node, path=()):
    """The paths of all values, tables and lists among them."""
    yield path
    if isinstance(node, dict | list):
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(inner, (*path, key))


def at(node, path):
    for key in path:
        node = node[key]
    return node


def damaged(rng):
    """The tables with one to four values changed, taken out, renamed or moved elsewhere."""
    tables = copy.deepcopy(TABLES)
    for _ in range(rng.randint(1, 4)):
        *front, last = rng.choice([p for p in places(tables) if p])
        node = at(tables, front)
        action = rng.choice(["change", "change", "drop", "rename", "add", "swap"])
        if action == "change":
            node[last] = copy.deepcopy(rng.choice(OTHERS))
        elif action == "swap":
            node[last] = copy.deepcopy(at(TABLES, rng.choice(list(places(TABLES)))))
        elif action == "drop":
            del node[last]
        elif isinstance(node, dict):
            key = str(last) if action == "rename" else rng.choice(["lr", "name", "x", "é", ""])
            spot = rng.randrange(len(key) + 1)
            node[key[:spot] + rng.choice("abz_- .") + key[spot:]] = node[last]
            if action == "rename":
                del node[last]
    return tables


def as_toml(value):
    """A writer that is good enough for these tables; what TOML has no word for fails."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {as_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return hex(abs(value))
    if isinstance(value, complex) or value is None:
        return "1979-05-27T07:32:00Z"
    return str(value) if isinstance(value, float) else json.dumps(value)


def garbled(rng):
    """The text of damaged tables with a few characters changed, too."""
    text = list("\n".join(f"{json.dumps(k)} = {as_toml(v)}" for k, v in damaged(rng).items()))
    for _ in range(rng.choice([0, 0, 1, 3])):
        spot = rng.randrange(len(text) + 1)
        text[spot : spot + rng.randint(0, 4)] = rng.choice(["", '"', "=", "[", "}", "\n", "0", "é"])
    return "".join(text)


def outcome(read):
    """'valid', or 'refused' with every line as it should be; anything else fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a setting may be legal and doubtful
        try:
            read()
        except lb.ConfigError as error:
            return str(error)
    return None


def check(said, first):
    for line in [] if said is None else said.split("\n"):
        assert PATH.match(line), line
        assert re.match(first, line), line
        assert len(line) < 2000


def run(count, folder):
    rng = random.Random(20_240_601)
    refused = 0
    for number in range(count):
        tables, text = damaged(rng), garbled(rng)
        said = outcome(lambda tables=tables: settings_of(tables))
        # What was a section may have any name now; a problem names it all the same.
        names = "|".join([SECTIONS, *(re.escape(str(key)) for key in tables)])
        check(said, rf"({names}|'|\")")
        path = folder / f"{number % 7}.toml"
        path.write_text(text, encoding="utf-8")
        written = outcome(lambda path=path: read_settings(path))
        if written is None or not written.startswith(f"{path}: is not TOML: "):
            check(written, "")
        change = f"{'.'.join(map(str, rng.choice(list(places(TABLES)))))}={rng.choice(OTHERS[:-2])}"
        outcome(lambda change=change: settings_of(merged(TABLES, [change])))
        refused += said is not None
    assert 0.5 * count < refused < count  # both ends are reached


@pytest.fixture(autouse=True)
def known_methods(monkeypatch):
    """The registry, looked up once: it searches the installed packages every time."""
    known = lb.methods()
    monkeypatch.setattr("leanbayes.cli.file_values.methods", lambda: known)


def test_300_damaged_settings_are_valid_or_refused_by_key(tmp_path):
    run(300, tmp_path)


@pytest.mark.slow
def test_5000_damaged_settings_are_valid_or_refused_by_key(tmp_path):
    run(5000, tmp_path)


def test_the_undamaged_settings_are_valid():
    assert settings_of(TABLES).fit.lr == 0.1
