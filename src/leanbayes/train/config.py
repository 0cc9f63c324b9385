"""The settings of a training run: plain frozen data, checked when they are made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from inspect import signature
from typing import Any, Final, Literal, Self

import torch

from leanbayes import schedule as schedules
from leanbayes.errors import ConfigError
from leanbayes.regularizer import OODRegularizer
from leanbayes.schedule import Schedule
from leanbayes.train.fields import check_fields, check_keys, listed, nearest, plain

Shape = Literal["constant", "cosine", "step", "linear"]
EPOCHS: Final = 10
# Least values of the numbers; all others may be 0.
COUNTS: Final = (
    *("batch_size", "ood_batch_size", "samples", "num_data", "accumulate", "alternate_every"),
    *("evaluate_every", "evaluate_samples", "patience", "save_every", "keep", "log_every"),
)
LEAST: Final = dict.fromkeys(COUNTS, 1)
OWN_OPTIONS: Final = ("lr", "weight_decay", "momentum", "nesterov")  # fields of FitConfig
# They need a closure, sparse gradients or matrices alone, or turn the loss round.
UNFIT: Final = ("Optimizer", "LBFGS", "SparseAdam", "Muon")
UNFIT_OPTIONS: Final = ("params", "maximize", "differentiable")


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Every number of a training run. `dataclasses.replace(config, lr=0.1)` gives a changed copy.

    Attributes:
        epochs: Passes over the data; ignored if `steps` is given. 0 trains nothing: `lb.adapt`
            then converts, and fits what is fitted after training.
        steps: Length of the run in steps of the optimiser, instead of `epochs`.
        batch_size: Rows of a step, all processes together; a DataLoader brings its own.
        optimizer: Name of a class of `torch.optim`.
        lr: Learning rate of the network's own parameters.
        posterior_lr: Learning rate of what the method added; `lr` if None.
        weight_decay: Weight decay of parameters that no prior acts on (`lb.param_groups`).
        momentum: Momentum of SGD.
        nesterov: Nesterov momentum in SGD; no effect without momentum.
        optimizer_options: Further keywords of the optimiser, such as betas.
        schedule: Course of the learning rate: `constant`; `cosine` or `linear`, which fall to
            `floor` times the rate; `step`, times `decay` at every milestone.
        posterior_schedule: The same for what the method added; as `schedule` if None.
        warmup: Steps in which all rates rise linearly from 0, on top of the schedule.
        milestones: Fractions of the run at which `step` acts, in ascending order.
        decay: Factor of `step`.
        span: Fractions of the run between which `cosine` and `linear` fall.
        floor: Where they end, as a fraction of the rate.
        samples: Draws for each example in a step.
        likelihood_of: `average` of the draws' log-likelihoods, or log of their `mixture`.
        num_data: Number of training data, which divides the KL; counted if None.
        kl_weight: Weight of the KL, after warm-up or schedule; 1 is Bayes.
        kl_warmup: Fraction of the run in which that weight rises linearly from 0.
        kl_schedule: One of `lb.schedule`, by step, instead of a warm-up; times `kl_weight`.
        kl: Whether the KL is an `edit` of the gradients (`lb.attach_kl`), or in the `graph`.
        clip: Largest norm of the gradient of the negative log-likelihood (with `kl="graph"` of the
            whole loss), over the parameters that a step moves; None does not clip.
        accumulate: Parts into which a batch is cut to save memory; a short batch into fewer, if
            members or BatchNorm need more rows.
        auto_batch: Cut batches into more parts when memory runs out.
        train: What is trained: `all`, the `posterior` alone, or both in turns: `alternate`.
        alternate_every: Epochs of a turn; the posterior has the first.
        ema: Decay of the moving average of the weights, such as 0.999.
        batchnorm: Running statistics move (`train`), stay (`frozen`), or move and are computed anew
            from data and draws at the end (`refresh`).
        regularizer: `lb.OODRegularizer`; needs `ood` data.
        ood_batch_size: OOD inputs of a step, all processes together; `batch_size` if None.
        evaluate_every: Steps between evaluations; an epoch if None.
        evaluate_samples: Draws of an evaluation; the method's default if None.
        monitor: The figure that chooses the best checkpoint: `nll`, `accuracy` of labels, or `rmse`
            of numbers.
        patience: Evaluations without a better figure after which the run ends.
        folder: Where the run is saved; nothing is written if None.
        save_every: Steps between checkpoints; an epoch if None.
        keep: How many of the newest checkpoints are kept, besides the best.
        resume: Go on with the newest valid checkpoint of the folder.
        seed: Seed of everything that is drawn.
        precision: `fp32`, or mixed precision with `bf16` or `fp16`.
        compile: Compile the network.
        channels_last: Lay kernels and images out channels last in memory, as convolutions on a GPU
            want them in half precision. The numbers are the same up to rounding.
        resident: Move training data that are tensors to the device once, not batch by batch; images
            of at most 256 values a channel are kept there as bytes.
        device: `auto`, or as torch names it.
        strategy: `auto` (one process, or DDP under torchrun), `single`, `ddp` or `fsdp2`.
        checkpoint_activations: Compute activations again in the backward pass to save memory.
        workers: Processes that load data.
        deterministic: Use only algorithms that give the same bits every time.
        log_every: Steps between records of figures.
        progress: None shows a bar on a terminal and lines elsewhere, True a bar everywhere, False
            nothing.

    Example:
        >>> config = FitConfig(steps=100, lr=0.1)
        >>> config.epochs, config.total_steps(steps_per_epoch=7)
        (None, 100)
        >>> FitConfig.from_json(config.to_json()) == config
        True
    """

    epochs: int | None = EPOCHS
    steps: int | None = None
    batch_size: int = 128
    optimizer: str = "SGD"
    lr: float = 1e-3
    posterior_lr: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.9
    nesterov: bool = True
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Shape = "cosine"
    posterior_schedule: Shape | None = None
    warmup: int = 0
    milestones: tuple[float, ...] = (0.5, 0.75)
    decay: float = 0.1
    span: tuple[float, float] = (0.0, 1.0)
    floor: float = 0.0
    samples: int = 1
    likelihood_of: Literal["average", "mixture"] = "average"
    num_data: int | None = None
    kl_weight: float = 1.0
    kl_warmup: float = 0.0
    kl_schedule: Schedule | None = None
    kl: Literal["edit", "graph"] = "edit"
    clip: float | None = None
    accumulate: int = 1
    auto_batch: bool = False
    train: Literal["all", "posterior", "alternate"] = "all"
    alternate_every: int = 1
    ema: float | None = None
    batchnorm: Literal["train", "frozen", "refresh"] = "train"
    regularizer: OODRegularizer | None = None
    ood_batch_size: int | None = None
    evaluate_every: int | None = None
    evaluate_samples: int | None = None
    monitor: str = "nll"
    patience: int | None = None
    folder: str | None = None
    save_every: int | None = None
    keep: int = 2
    resume: bool = True
    seed: int = 0
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    compile: bool = False
    channels_last: bool = False
    resident: bool = False
    device: str = "auto"
    strategy: Literal["auto", "single", "ddp", "fsdp2"] = "auto"
    checkpoint_activations: bool = False
    workers: int = 0
    deterministic: bool = False
    log_every: int = 100
    progress: bool | None = None

    def __post_init__(self) -> None:
        self._settle()
        check_fields(self, LEAST)
        _check_optimizer(self)
        _check_fractions(self)
        _check_span(self)
        _check_kl(self)
        _check_device(self.device)
        _check_clashes(self)
        if self.seed >= 2**32:
            raise ConfigError(f"seed must be below 2^32, found {self.seed!r}")

    def _settle(self) -> None:
        """Lists as tuples, paths as words; steps set the default number of epochs aside."""
        for name in ("milestones", "span"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        if isinstance(self.folder, os.PathLike):
            object.__setattr__(self, "folder", os.fspath(self.folder))
        if isinstance(self.optimizer_options, Mapping):
            options = plain("optimizer_options", self.optimizer_options)
            object.__setattr__(self, "optimizer_options", options)
        if self.steps is not None and self.epochs == EPOCHS:
            object.__setattr__(self, "epochs", None)
        if (self.steps is None) == (self.epochs is None):
            raise ConfigError(
                f"epochs or steps says how long a run is, one of them; found epochs={self.epochs!r}"
                f" and steps={self.steps!r}. Write steps=1000, epochs=None"
            )

    def total_steps(self, steps_per_epoch: int) -> int:
        """Steps of the whole run."""
        if self.epochs is None:
            assert self.steps is not None
            return self.steps
        return self.epochs * steps_per_epoch

    def to_json(self) -> dict[str, Any]:
        """Plain data: every field by name."""
        values = {f.name: listed(getattr(self, f.name)) for f in fields(self)}
        if self.kl_schedule is not None:
            values["kl_schedule"] = self.kl_schedule.to_json()
        if self.regularizer is not None:
            values["regularizer"] = asdict(self.regularizer)
        return values

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; fields that are missing have their default."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"settings are a table of names and values, found {data!r}")
        check_keys(data, [f.name for f in fields(cls)], "FitConfig")
        values = dict(data)
        for name, read in (("kl_schedule", _schedule), ("regularizer", _regularizer)):
            if isinstance(values.get(name), Mapping):
                values[name] = read(values[name])
        return cls(**values)


def _schedule(data: Mapping[str, Any]) -> Schedule:
    try:
        return schedules.from_json(data)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"kl_schedule is no schedule: {data!r} ({error})") from None


def _regularizer(data: Mapping[str, Any]) -> OODRegularizer:
    check_keys(data, [f.name for f in fields(OODRegularizer)], "regularizer")
    try:
        return OODRegularizer(**data)
    except TypeError as error:
        raise ConfigError(f"regularizer has a value of the wrong type: {error}") from None


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of `torch.optim` with this name."""
    known = [
        word
        for word, cls in vars(torch.optim).items()
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and word not in UNFIT
    ]
    if name not in known:
        raise ConfigError(f"optimizer {name!r} is none that lb.fit uses; {nearest(name, known)}")
    found: type[torch.optim.Optimizer] = getattr(torch.optim, name)
    return found


def _check_optimizer(config: FitConfig) -> None:
    taken = signature(optimizer_class(config.optimizer)).parameters
    known = [name for name in taken if name not in (*OWN_OPTIONS, *UNFIT_OPTIONS)]
    for name in config.optimizer_options:
        if name in OWN_OPTIONS and (name in ("lr", "weight_decay") or config.optimizer == "SGD"):
            raise ConfigError(f"optimizer_options.{name} is a setting by itself: write {name}=...")
        if name not in known and not (name in OWN_OPTIONS and name in taken):
            words = f"{config.optimizer} takes no {name!r}; {nearest(name, known)}"
            raise ConfigError(f"optimizer_options: {words}")
    if config.weight_decay and "weight_decay" not in taken:
        raise ConfigError(f"weight_decay is unknown to {config.optimizer}: write 0, or AdamW")


def _check_fractions(config: FitConfig) -> None:
    for name in ("kl_warmup", "floor", "decay"):
        if getattr(config, name) > 1:
            raise ConfigError(f"{name} is a fraction from 0 to 1, found {getattr(config, name)!r}")
    for name in ("momentum", "ema"):
        value = getattr(config, name)
        if value is not None and value >= 1:
            raise ConfigError(f"{name} is at least 0 and below 1, found {value!r}")
    if config.clip == 0:
        raise ConfigError("clip must be a positive norm (None does not clip), found 0")


def _check_span(config: FitConfig) -> None:
    marks = config.milestones
    if list(marks) != sorted(set(marks)) or not all(0 < mark < 1 for mark in marks):
        raise ConfigError(
            f"milestones are fractions of the run between 0 and 1 that ascend, found {marks!r}"
        )
    span: tuple[float, ...] = config.span
    if len(span) != 2 or not 0 <= span[0] < span[1] <= 1:
        raise ConfigError(
            f"span is two fractions of the run, from 0 to 1, that ascend; found {span!r}"
        )


def _check_kl(config: FitConfig) -> None:
    if config.kl_schedule is not None and config.kl_warmup:
        raise ConfigError(
            f"kl_warmup={config.kl_warmup!r} and kl_schedule both shape the weight of the KL: give "
            "one of them"
        )


def _check_clashes(config: FitConfig) -> None:
    if config.compile and config.checkpoint_activations:
        raise ConfigError(
            "compile and checkpoint_activations do not go together: a graph would break at every "
            "block that is computed again. Choose one of them"
        )
    if config.channels_last and config.strategy == "fsdp2":
        raise ConfigError(
            "channels_last and strategy='fsdp2' do not go together: shards are cut from plain rows "
            "of memory. Choose one of them"
        )


def _check_device(name: str) -> None:
    try:
        if name != "auto":
            torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"device is 'auto', 'cpu', 'cuda', 'cuda:1' or another of torch's; found {name!r}"
        ) from None


def checked_config(config: Any) -> FitConfig:
    """The settings, or an error for a dict of them."""
    if isinstance(config, FitConfig):
        return config
    raise ConfigError(
        f"config is a {type(config).__name__}; expected an lb.FitConfig. Write "
        "config=lb.FitConfig(epochs=10, ...), of a dict lb.FitConfig(**settings)"
    )
