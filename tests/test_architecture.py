"""The rules of the house, read off the source: who may import whom, how long a file may be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "leanbayes"
FILES = sorted(SOURCE.rglob("*.py"))

# A module may import modules of a lower rank, or of its own package. The longest match counts.
RANKS = {
    "counts": 1,
    "devices": 0,
    "errors": 0,
    "forms": 0,
    "noise": 0,
    "report": 0,
    "untouched": 0,
    "arguments": 1,
    "version": 0,
    "prediction": 1,
    "metrics": 1,
    "models": 1,
    "data": 1,
    "linearise": 1,
    "plan": 1,
    "schedule": 1,
    "fused": 0,
    "ops": 1,
    "jpeg": 1,
    "degrade": 2,
    "shifts": 3,
    "calls": 2,
    "batches": 2,
    "calibration": 2,
    "verification": 2,
    "likelihood": 2,
    "moments": 2,
    "rows_apart": 2,
    "posteriors": 2,
    "layers": 3,
    "ahead": 3,
    "sensitivity": 3,
    "select": 4,
    "surgery": 5,
    "methods": 5,
    "settle": 6,
    "model": 6,
    "reads": 6,
    "liveness": 7,
    "budget": 7,
    "modes": 7,
    "refresh": 7,
    "groups": 7,
    "objective": 7,
    "prefix": 7,
    "enumeration": 7,
    "convert": 8,
    "edit": 8,
    "fitting": 8,
    "predict": 8,
    "regularizer": 8,
    "storage": 1,
    "saved": 6,
    "attacks": 9,
    "calibrate": 9,
    "checkpoint": 9,
    "diversity": 9,
    "features": 9,
    "price": 9,
    "landscape": 9,
    "layer_map": 7,
    "train": 10,
    "experiments": 12,
    "recipes": 11,
    "records": 11,
    "evaluation": 12,
    "reporting": 12,
    "": 13,  # the package's own __init__: public names
    "serving": 14,
    "cli": 15,
    "__main__": 16,
}


def module_name(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def rank_of(module):
    top = module.split(".")[0]
    assert top in RANKS, f"{module} has no rank: add it to RANKS"
    return RANKS[top]


def imported_modules(path):
    """Modules of leanbayes that a file imports, at its top level or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in full:
            if name.split(".")[0] == "leanbayes":
                yield inner_module(name.split(".")[1:])


def inner_module(parts):
    """The module in a dotted name that may end in something defined there."""
    while parts and not ((SOURCE / "/".join(parts)).is_dir() or module_file(parts).is_file()):
        parts = parts[:-1]
    return ".".join(parts)


def module_file(parts):
    return SOURCE.joinpath(*parts).with_suffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path):
    name = module_name(path)
    for imported in imported_modules(path):
        same_room = name and imported.split(".")[0] == name.split(".")[0]
        assert same_room or rank_of(imported) < rank_of(name), f"{name} imports {imported}"


@pytest.mark.parametrize(
    "path",
    [
        p
        for folder in ("src", "tests", "benchmarks", "examples")
        for p in (ROOT / folder).rglob("*.py")
    ],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_no_file_is_longer_than_400_lines(path):
    assert len(path.read_text().splitlines()) <= 400


def test_distributions_do_not_know_layers_nor_layers_distributions():
    for path in (SOURCE / "posteriors").glob("*.py"):
        assert not any(m.startswith("layers") for m in imported_modules(path)), path.name
    for path in (SOURCE / "layers").glob("*.py"):
        for module in imported_modules(path):
            assert not module.startswith("posteriors") or module == "posteriors.base", path.name


def test_no_drawer_for_everything():
    names = {path.stem for path in FILES}
    assert names.isdisjoint({"utils", "helpers", "common", "misc"})


def test_import_changes_nothing_global_and_needs_no_heavy_library():
    code = """
import sys, logging, random, torch
before = (torch.get_rng_state().sum(), torch.get_default_dtype(), random.getstate(),
          torch.get_num_threads(), len(logging.root.handlers))
import leanbayes
after = (torch.get_rng_state().sum(), torch.get_default_dtype(), random.getstate(),
         torch.get_num_threads(), len(logging.root.handlers))
assert all((a == b) if not torch.is_tensor(a) else bool(a == b) for a, b in zip(before, after))
assert not torch.cuda.is_initialized()
heavy = {"matplotlib", "torchmetrics", "torchvision", "sklearn", "pydantic", "typer"}
print(sorted(heavy & set(sys.modules)))
"""
    path = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "path",
    [*(SOURCE / "ops").glob("*.py"), *(SOURCE / "layers").glob("*.py")],
    ids=lambda path: path.name,
)
def test_nothing_in_a_graph_matches_class_patterns(path):
    """Dynamo of torch 2.11 breaks the graph there, and a compiled network is slower than none."""
    patterns = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.MatchClass)]
    assert not patterns
