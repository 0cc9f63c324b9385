"""Runs of `lb.fit` that come out alike whatever the number of processes, and two that do them.

What tells two processes from one is taken away, and nothing else: members belong to global rows,
and masks and indices of copies are numbers by (tensor, pass, global row). Spreads are 0.
"""

import sys
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.optimizer import register_optimizer_step_post_hook as after_steps
from torch.optim.optimizer import register_optimizer_step_pre_hook as before_steps

import leanbayes as lb
import two_processes as both
from leanbayes.noise import FreshNoise, key_seed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))
from nets import CLASSES, converted, default, gradients, silent

WORLD, BATCH, STEPS = both.WORLD, 64, 3
STRATEGIES, KLS = ("ddp", "fsdp2"), ("edit", "graph")
# FSDP2 warns of outputs on which it would lose its hooks; stock layers give such, too.
STOCK = r"FSDP2-wrapped module \(FSDP(Linear|(Bayesian)?(LSTM|GRU))\) returned a view"


def data(inputs, dtype):
    """Two batches of rows that look like the inputs of a network."""
    generator = torch.Generator().manual_seed(5)
    shape = 2 * BATCH, *inputs.shape[1:]
    if inputs.is_floating_point():
        x = torch.randn(shape, generator=generator, dtype=dtype)
    else:
        x = torch.randint(0, 7, shape, generator=generator)
    return x, torch.randint(0, CLASSES, (2 * BATCH,), generator=generator)


def settings(**options):
    """Two batches an epoch, so that the run sees two orders of the data."""
    base = {"steps": STEPS, "batch_size": BATCH, "lr": 0.05, "weight_decay": 0.01, "seed": 3}
    quiet = {"schedule": "constant", "log_every": 1, "progress": False, "device": "cpu"}
    return lb.FitConfig(**{**base, **quiet, **options})


def by_global_row(method, rank):
    """Row b of process r trains member (r * rows + b) mod K."""
    original = type(method).training_plan

    def training_plan(self, rows, samples=1, step=None):
        plan = original(self, rows, samples, step)
        if plan.component is None:
            return plan
        component = (rank * rows + torch.arange(rows)) % self.members
        return lb.Plan(groups=samples, per_row=True, component=component)

    return patch.object(type(method), "training_plan", training_plan)


def numbers_by_key(draw, rank, world):
    """Draws by (tensor, number of the pass); those of rows are the process's rows of all rows."""
    passes, part = Counter(), BATCH // world

    def numbers(_self, key, draws, shape, like):
        passes[key] += 1
        generator = torch.Generator().manual_seed(key_seed(0, key, passes[key]))
        by_row = draws == part
        found = draw(
            (BATCH if by_row else draws, *shape), generator=generator, dtype=torch.float64
        ).to(like.dtype)
        return found[rank * part : (rank + 1) * part] if by_row else found

    return numbers


@contextmanager
def alike(method, rank, world):
    """Within it nothing depends on how rows are spread over processes."""
    with ExitStack() as stack:
        stack.enter_context(by_global_row(method, rank))
        for name, draw in (("normal", torch.randn), ("uniform", torch.rand)):
            numbers = numbers_by_key(draw, rank, world)
            stack.enter_context(patch.object(FreshNoise, name, numbers))
        yield


class Record(lb.Callback):
    """The figures of every step; KL before the first step and gradients in it, whole."""

    def __init__(self, model):
        self.model, self.figures, self.first = model, [], {}

    def on_step(self, _run, figures):
        self.figures.append(dict(figures))

    def _before(self, _optimizer, _args, _kwargs):
        self.first.setdefault("kl", self.model.kl().detach())

    def _after(self, _optimizer, _args, _kwargs):
        self.first.setdefault("gradients", self._gradients())

    def _gradients(self):
        return {name: grad.clone() for name, grad in gradients(self.model).items()}

    @contextmanager
    def hooked(self):
        handles = before_steps(self._before), after_steps(self._after)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def jittered(model):
    """Members and copies that differ; spreads of e^-60 remain nothing."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(noise.to(parameter.dtype), alpha=0.05)
    return model


def quiet_run(method, name, strategy, *, kl="edit", rank=0, world=1, dtype=torch.float64):
    """What a run without noise comes to: KL and gradients at its start, figures, state."""
    method = silent(method) or method
    model, inputs = converted(method, name, dtype)
    record = Record(jittered(model))
    config = settings(strategy=strategy, kl=kl, batchnorm="frozen")
    with alike(model.method, rank, world), record.hooked():
        rows = data(inputs, dtype)
        lb.fit(model, rows, lb.Categorical(), config=config, callbacks=[record])
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {**record.first, "figures": record.figures, "state": state}


class Draws(lb.Callback):
    """After every step: one more pass as training makes it, on the same rows in all processes."""

    def __init__(self, model, rows):
        self.model, self.rows, self.found = model, rows, []

    def on_step(self, run, _figures):
        norms = [m for m in self.model.modules() if isinstance(m, _BatchNorm)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = 0.0  # running statistics are the run's own
        with torch.no_grad():
            plan = self.model.training_plan(len(self.rows), 1, run.step)
            self.found.append(self.model(self.rows, plan=plan))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def noisy_run(method, name, strategy):
    """Draws, validation and final state of a run as users start it; BatchNorm trains, too."""
    model, inputs = converted(method, name)
    x, y = data(inputs, torch.float32)
    draws = Draws(model, x[:BATCH])
    samples = max(2, method.members)
    config = settings(strategy=strategy, evaluate_every=1, evaluate_samples=samples)
    options = {"config": config, "callbacks": [draws], "validation": (x[:BATCH], y[:BATCH])}
    result = lb.fit(model, (x, y), lb.Categorical(), **options)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {"draws": torch.stack(draws.found), "history": result.history, "state": state}


def both_runs(rank, method_name, names):
    """Every cell of a method; work of one of two processes."""
    method = default(lb.methods()[method_name])
    found = {}
    for name in names:
        for strategy in STRATEGIES:
            for kl in KLS:
                options = {"kl": kl, "rank": rank, "world": WORLD}
                found[name, strategy, kl] = quiet_run(method, name, strategy, **options)
            found[name, strategy, "noisy"] = noisy_run(method, name, strategy)
    return found


@contextmanager
def strict_group(rank, folder):
    """A group in a process that, as pytest does for its own, takes warnings for errors."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", lb.NotFitted)  # what is drawn is the placeholder
    warnings.filterwarnings("ignore", STOCK)
    with both.process_group(rank, folder):
        yield


def two_processes(work, folder, *arguments, patience=2 * both.PATIENCE):
    """What `work(rank, *arguments)` gave in both, in a group that is open when it begins."""
    place = partial(strict_group, folder=str(folder))
    return both.two_processes(work, folder, *arguments, place=place, patience=patience)
