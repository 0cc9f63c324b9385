"""Every file of results that an experiment has written: one row of it runs again, small.

The settings are those of the file; the data are made up in the format of the real ones.
"""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from leanbayes.cli.file_values import Reader
from leanbayes.experiments import EXPERIMENTS

RESULTS = Path(__file__).parents[2] / "results"
# What the command adds to a row.
ADDED = {"command", "commit", "environment", "label", "seconds"}
# What rows of older files do not have.
LATER = {"start"}


def records():
    """The files of experiments; others come from benchmarks."""
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text())
        if isinstance(found, dict) and "experiment" in found:
            yield pytest.param(found, id=path.stem)


def images(generator, shape):
    """Arrays of ten classes, [N, *shape] each."""
    found = {}
    for part, count in (("train", 120), ("test", 60)):
        found[f"x_{part}"] = generator.integers(0, 256, (count, *shape), np.uint8)
        found[f"y_{part}"] = (np.arange(count) % 10).astype(np.uint8)
    return found


def write(path, arrays):
    """An npz file, packed where its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.with_suffix("") if path.suffix == ".xz" else path
    np.savez(plain, **arrays)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(plain.read_bytes()))


def grey(root, settings, generator):
    """Files where the settings say; the idx files of a whole run become npz files."""
    given = {key: settings[key] or f"{key}.npz" for key in ("images", "foreign") if key in settings}
    for name in given.values():
        write(root / name, images(generator, (28, 28)))
    return {"root": str(root), **given, **({"keep": ""} if "keep" in settings else {})}


def colours(root, settings, generator):  # noqa: ARG001
    write(root / "images.npz", images(generator, (32, 32, 3)))
    return {"root": str(root / "images.npz"), "reader": "npz", "weights": "", "keep": ""}


def small_colours(root, settings, generator):  # noqa: ARG001
    write(root / "images.npz", images(generator, (32, 32, 3)))
    return {"root": str(root / "images.npz"), "reader": "npz", "keep": ""}


def tables(root, settings, generator):
    x = generator.normal(size=(60, 3))
    tests = np.stack([np.sort(generator.choice(60, 6, replace=False)) for _ in range(20)])
    for name in settings["sets"]:
        np.savez(root / f"{name}.npz", X=x, y=x.sum(1), test_idx=tests)
    return {"root": str(root)}


MAKERS = {
    "toy": lambda *_: {},
    "uci": tables,
    "mnist-rates": grey,
    "fashion-widths": grey,
    "verification": colours,
    "adversarial-ood": lambda *_: {"keep": ""},
    "ablations": small_colours,
}


@pytest.mark.parametrize("record", list(records()))
def test_a_row_of_the_file_runs_again(record, tmp_path):
    name, settings = record["experiment"], record["settings"]
    assert name in MAKERS, f"write a function that makes small data for {name!r} into MAKERS"
    made = MAKERS[name](tmp_path, settings, np.random.default_rng(0))
    reader = Reader()
    small = {**settings, **made, "smoke": True, "device": "cpu"}
    experiment = reader.build(EXPERIMENTS[name], small, name)
    assert not reader.problems
    stored = {row["label"]: row for row in record["rows"]}
    label, work = next((label, work) for label, work in experiment.parts() if label in stored)
    found = work()
    had = stored[label].keys() - ADDED
    assert found.keys() == had | (found.keys() & (ADDED | LATER))
    if "method" in found:
        assert found["method"]["name"] == stored[label]["method"]["name"]
    json.dumps(found)  # plain data
