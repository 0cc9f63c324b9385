"""Write the reference, docs/methods.md and docs/reference.md, from the docstrings.

    python tools/make_reference.py

A test compares the pages with what this makes, so that they cannot fall behind the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import leanbayes as lb
from leanbayes.cli.words import explained
from leanbayes.select import Selector

DOCS = Path(__file__).resolve().parents[1] / "docs"
HEADS = ("Args:", "Attributes:", "Returns:", "Yields:", "Raises:", "Example:")
MADE = "Made from the docstrings by `make reference`."
THEMES = {
    "Convert and go back": ["bayesianize", "collapse", "BayesianModel", "ConversionReport", "Plan"],
    "Train by hand": ["objective", "Objective", "attach_kl", "param_groups", "refresh_batchnorm"],
    "Train by the trainer": [
        *("fit", "FitConfig", "FitResult", "Trainer", "adapt", "Adapted", "restore", "Runtime"),
        *("Callback", "Run", "TensorBoard", "MLflow", "fit_posterior"),
        *("recipe", "recipes", "Recipe"),
    ],
    "Be unsure of foreign data": ["OODRegularizer", "RegularizedObjective", "ood_inputs"],
    "Predict": [
        *("predict", "Prediction", "prediction.Classification", "prediction.BinaryClassification"),
        *("prediction.Regression", "predict_features", "verify", "Verification"),
    ],
    "Likelihoods": ["Categorical", "Bernoulli", "Gaussian", "HeteroscedasticGaussian"],
    "Calibrate, evaluate, look inside": [
        *("calibrate", "Calibration", "evaluate", "Suite", "diversity", "Diversity"),
        *("sensitivity", "landscape", "layer_map", "price", "Price"),
    ],
    "Save and load": ["save", "load"],
    "Extend": ["Method", "methods", "Host", "register_host"],
    "Errors": [
        *("LeanBayesError", "ConfigError", "ConversionError", "PlanError", "DataError"),
        *("TrainingError", "NonFinite", "OutOfMemory", "Interrupted", "CheckpointError"),
        "CollapsedMembers",
        "NotFitted",
    ],
}
# Of classes that are users' own handle: what is theirs to call; of others everything public.
CALLED = {
    "BayesianModel": ("forward", "kl", "kl_kind", "kl_attached", "posteriors", "sampling"),
    "Host": ("form", "base", "posterior", "factor_sizes"),
}
MODULES = ("attacks", "data", "evaluation", "metrics", "models", "schedule", "select", "shifts")


def methods_page() -> str:
    """A section a method: equation, paper, cost, fields, example."""
    words = (
        "# Methods\n\n"
        f"{MADE} All methods side by\n"
        "side: [README](../README.md#which-method); how to combine them:\n"
        "[how to](how-to.md#choose-a-method). Where the default is `None`, the value follows from\n"
        "`preset` or from other fields, as the description says."
    )
    found = sorted(lb.methods().values(), key=lambda cls: cls.__name__)
    own = [cls for cls in found if cls.__module__.startswith("leanbayes.")]
    return "\n\n".join([words, *(_method(cls) for cls in own)]) + "\n"


def reference_page() -> str:
    """Every other public name, by what it is for."""
    words = (
        f"# Reference\n\n{MADE} `lb` is `import leanbayes as lb`; the\n"
        "methods have a [page of their own](methods.md)."
    )
    parts = [words]
    for theme, names in THEMES.items():
        parts += [f"## {theme}", *(_entry(name) for name in names)]
    for name in MODULES:
        parts.append(_module(f"lb.{name}", getattr(lb, name)))
    return "\n\n".join(parts) + "\n"


def missing() -> set[str]:
    """Public names that no page has."""
    shown = {name for names in THEMES.values() for name in names} | set(MODULES)
    shown |= {cls.__name__ for cls in lb.methods().values()}
    public = {n for n, v in vars(lb).items() if not n.startswith("_") and _is_ours(v)}
    return public - shown


def _is_ours(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.removeprefix("leanbayes.") in MODULES
    return str(getattr(value, "__module__", "")).startswith("leanbayes.")


def _method(cls: type[lb.Method]) -> str:
    paper = "" if cls.paper == "-" else f"*{cls.paper}.* "
    facts = f"{paper}Cost: {cls.cost}. When: {cls.advice}."
    return f"## {cls.__name__}\n\n`lb.methods()[{cls.name!r}]`. {facts}\n\n{_body(cls)}"


def _entry(name: str) -> str:
    made = attrgetter(name)(lb)
    given = "" if inspect.isclass(made) and inspect.isabstract(made) else _signature(made)
    parts = [f"### lb.{name}", f"```text\nlb.{name}{given}\n```", _body(made), _members(made)]
    return "\n\n".join(part for part in parts if part)


def _members(made: Any) -> str:
    """Methods and properties of a class, by their first lines."""
    if not inspect.isclass(made):
        return ""
    own = {name: value for name, value in vars(made).items() if not name.startswith("_")}
    names = CALLED.get(made.__name__, own)
    found = [(name, own[name]) for name in names if _is_called(own[name])]
    return "\n".join(f"- `.{name}{_call(value)}`: {_first_line(value)}" for name, value in found)


def _is_called(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def _call(value: Any) -> str:
    """Its signature without `self`; a property has none."""
    if isinstance(value, property):
        return ""
    text = _signature(getattr(value, "__func__", value))
    return text if isinstance(value, staticmethod) else re.sub(r"^\((self|cls)(, )?", "(", text)


def _module(path: str, module: ModuleType) -> str:
    """First lines of its functions and classes."""
    lines = [
        f"- `{path}.{name}{_signature(value)}`: {_first_line(value)}"
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and _is_part(value, module)
    ]
    head = f"## {path}\n\n{inspect.cleandoc(module.__doc__ or '')}"
    return f"{head}\n\n" + "\n".join(lines)


def _is_part(value: Any, module: ModuleType) -> bool:
    """Its own functions and classes, not what it imports."""
    known = inspect.isfunction(value) or inspect.isclass(value)
    return known and f"{value.__module__}.".startswith(f"{module.__name__}.")


def _first_line(made: Any) -> str:
    return (inspect.getdoc(made) or "").partition("\n\n")[0].replace("\n", " ")


def _signature(made: Callable[..., Any]) -> str:
    """Names and defaults, on lines of a hundred characters."""
    if inspect.isclass(made) and issubclass(made, BaseException):
        return ""
    taken = inspect.signature(made).parameters.values()
    names = [_name(one) for one in taken]
    kinds = [one.kind for one in taken]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        names.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return f"({', '.join(names)})"


def _name(taken: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    default = _default(taken)
    return stars.get(taken.kind, "") + taken.name + ("" if default is None else f"={default}")


def _default(taken: inspect.Parameter) -> str | None:
    """As it is written; what has no short form is left to the words."""
    if taken.default is inspect.Parameter.empty:
        return None
    text = repr(taken.default)
    if isinstance(taken.default, Selector):
        return taken.default.op
    return "..." if "<" in text or len(text) > 40 else text


def _body(made: Any) -> str:
    """The docstring: paragraphs, a table of what it takes, an example."""
    sections = dict(_sections(inspect.getdoc(made) or ""))
    parts = [sections.pop("", "")]
    if "Args:" in sections or "Attributes:" in sections:
        parts.append(_table(made))
    parts += [
        f"{head} {' '.join(sections[head].split())}" for head in HEADS[2:5] if head in sections
    ]
    if "Example:" in sections:
        parts.append(f"```pycon\n{sections['Example:']}\n```")
    return "\n\n".join(part for part in parts if part)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The text before the first head, then every head with its lines."""
    head, lines = "", list[str]()
    for line in text.splitlines():
        if line in HEADS:
            yield head, inspect.cleandoc("\n".join(["", *lines])).strip()
            head, lines = line, []
        else:
            lines.append(line)
    yield head, inspect.cleandoc("\n".join(["", *lines])).strip()


def _table(made: Any) -> str:
    """What it takes, by its own words and those of its parents; then its other attributes."""
    words: dict[str, str] = {}
    for base in reversed(made.__mro__ if inspect.isclass(made) else [made]):
        words |= explained(base)
    taken = inspect.signature(made).parameters
    rows = [(n, _type(p), _default(p), words[n]) for n, p in taken.items() if n in words]
    rows += [(n, "", None, said) for n, said in explained(made).items() if n not in taken]
    return "\n".join(["| name | type | default | |", "|---|---|---|---|", *map(_row, rows)])


def _row(cells: tuple[str, str, str | None, str]) -> str:
    name, kind, default, said = cells
    code = [f"`{text}`" if text else "" for text in (name, kind, default or "")]
    return "| " + " | ".join(text.replace("|", "\\|") for text in (*code, said)) + " |"


def _type(taken: inspect.Parameter) -> str:
    """As the source has it."""
    kind = taken.annotation
    if kind is inspect.Parameter.empty:
        return ""
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", kind if isinstance(kind, str) else _named(kind))


def _named(kind: Any) -> str:
    return str(kind) if not inspect.isclass(kind) else kind.__name__


def write(pages: Iterable[tuple[str, str]]) -> None:
    """Write every page into docs."""
    for name, text in pages:
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write([("methods.md", methods_page()), ("reference.md", reference_page())])
