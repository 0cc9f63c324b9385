"""`--dry-run`: what a run would be, without a step and without a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.budget import bytes_per_row
from leanbayes.cli.card import first_inputs
from leanbayes.cli.prepare import Prepared, prepare
from leanbayes.cli.settings_file import RunSettings
from leanbayes.cli.toml_text import toml_text
from leanbayes.model import BayesianModel
from leanbayes.train.adapt import converted
from leanbayes.train.config import FitConfig
from leanbayes.train.fields import listed

# Copies of a parameter that an optimiser keeps besides value and gradient.
STATES = {"SGD": 1, "RMSprop": 1, "Adagrad": 1}
MANY_STATES = 2  # Adam and its kin


def dry_run(settings: RunSettings, *, as_json: bool = False) -> str:
    """The settings as a file would hold them, with parameters and memory as comments."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.fit.seed)
        found = prepare(settings)
        found.arguments()  # whatever is wrong with them
        before = sum(p.numel() for p in found.net.parameters())
        model = converted(
            found.net, settings.method, found.data.train, found.likelihood, settings.fit
        )
        facts = {
            "parameters": {"before": before, "after": _count(model), "added": model.report.added},
            "memory": memory(model, found),
        }
    tables = resolved(found)
    if as_json:
        return json.dumps({"settings": tables, **facts})
    return f"{toml_text(tables)}\n\n{_comments(facts)}"


def resolved(found: Prepared) -> dict[str, Any]:
    """Every setting with the value that it has; what only words can say, as it was written."""
    settings, tables = found.settings, found.settings.tables
    model = {**tables["model"], "options": listed(found.card.model["options"])}
    fit = {f.name: getattr(settings.fit, f.name) for f in fields(FitConfig)}
    method = settings.method.to_json()["fields"]
    shown: dict[str, Any] = {"recipe": tables["recipe"]} if "recipe" in tables else {}
    shown |= {
        "model": model,
        "data": tables["data"],
        "method": {
            "name": settings.method.name,
            "fields": _plain(method) | dict(tables.get("method", {}).get("fields", {})),
        },
        "fit": _plain(fit) | dict(tables.get("fit", {})),
    }
    if settings.fitting:
        shown["method"]["fitting"] = listed(settings.fitting)
    return shown | ({"likelihood": tables["likelihood"]} if tables.get("likelihood") else {})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, words and lists of them; the rest has no form of its own in a file."""
    kinds = (bool, int, float, str)
    return {
        name: listed(value)
        for name, value in values.items()
        if isinstance(value, kinds)
        or (isinstance(value, list | tuple) and all(isinstance(item, kinds) for item in value))
    }


def memory(model: BayesianModel, found: Prepared) -> dict[str, int]:
    """Bytes, roughly: of the state, of a training step's activations, of a row in prediction."""
    fit, inputs = found.settings.fit, first_inputs(found.data.train, 2)
    states = STATES.get(fit.optimizer, MANY_STATES)
    tensors = sum(p.numel() * p.element_size() for p in model.parameters())
    buffers = sum(b.numel() * b.element_size() for b in model.buffers())
    rows = -(-fit.batch_size // fit.accumulate) * fit.samples
    model.eval()

    def once() -> None:
        with torch.no_grad():
            model(inputs)

    return {
        "state": tensors * (2 + states) + buffers,
        "step": rows * _outputs_per_row(model, inputs),
        "prediction_row": bytes_per_row(model.net, len(inputs), once),
    }


def _outputs_per_row(model: nn.Module, inputs: Tensor) -> int:
    """Bytes of all outputs of all modules without modules inside: what a backward pass keeps."""
    sizes: list[int] = []

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        tensors = (x for x in pytree.tree_leaves(output) if isinstance(x, Tensor))
        sizes.extend(x.numel() * x.element_size() for x in tensors)

    leaves = [m for m in model.modules() if not list(m.children()) or hasattr(m, "slots")]
    handles = [leaf.register_forward_hook(note) for leaf in leaves]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return -(-sum(sizes) // len(inputs))


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _comments(facts: Mapping[str, Mapping[str, int]]) -> str:
    counts, sizes = facts["parameters"], facts["memory"]
    return "\n".join(
        [
            f"# parameters: {counts['before']:,} before, {counts['after']:,} after",
            f"# memory, about: {_mega(sizes['state'])} for parameters, gradients and optimiser; "
            f"{_mega(sizes['step'])} for the activations",
            f"# of a step; {_mega(sizes['prediction_row'])} a row in prediction",
        ]
    )


def _mega(count: int) -> str:
    return f"{count / 2**20:,.3g} MB"
