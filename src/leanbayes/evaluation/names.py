"""Splits by name: what `Suite.of` and `--suite` understand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from torch import Tensor

from leanbayes.data import READERS, Data, read
from leanbayes.errors import ConfigError, DataError
from leanbayes.evaluation.attack import Attack
from leanbayes.evaluation.part import rows_at
from leanbayes.evaluation.shift import Shift
from leanbayes.evaluation.split import Split
from leanbayes.shifts import CORRUPTIONS, GROUPS, SEVERITIES
from leanbayes.shifts.registry import LEAST, check_name
from leanbayes.train.fields import nearest

CLEAN = "test"
SUITES: Final[Mapping[str, tuple[str, ...]]] = {
    "quick": (CLEAN,),
    "standard": (CLEAN, "corrupted", "ood"),
    "full": (CLEAN, "corrupted", "noise", "salt_and_pepper", "rotated", "ood", "pgd", "fgsm"),
}
LEVELS: Final[Mapping[str, tuple[float, ...]]] = {
    "noise": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    "salt_and_pepper": (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    "rotated": (15, 30, 45, 60, 75, 90, 105, 120, 135, 150, 165, 180),
}
SHIFTS: Final = {"noise": "mix_noise", "salt_and_pepper": "salt_and_pepper", "rotated": "rotate"}
PAIRS = "pairs"  # an extra part that is no foreign data


@dataclass(frozen=True, eq=False)
class Source:
    """What splits are made of; the arguments of `Suite.of`."""

    data: Data
    part: str
    rows: int | Mapping[str, int] | None
    foreign: Mapping[str, Any]
    levels: Mapping[str, Sequence[float]]
    attack: Attack
    samples: Mapping[str, int]

    @cached_property
    def clean(self) -> Any:
        """The clean part."""
        data = self.data
        parts = {"train": data.train, "validation": data.validation, "test": data.test}
        found = {**parts, **data.extra}.get(self.part)
        if found is None:
            raise ConfigError(f"{data.name} has no part {self.part!r} to evaluate on")
        return found

    @cached_property
    def pixels(self) -> Tensor | None:
        """The first input on the scale of pixels; None where inputs are not floating numbers."""
        x = rows_at(self.clean, [0])[0]
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return None
        return x if self.data.normalize is None else self.data.normalize.undo(x)

    @property
    def is_bounded(self) -> bool:
        """True for numbers in [0, 1], up to rounding."""
        x = self.pixels
        return x is not None and -1e-3 <= float(x.min()) <= float(x.max()) <= 1 + 1e-3

    @property
    def is_image(self) -> bool:
        """True for pixels [C, H, W] in [0, 1]."""
        shape = () if self.pixels is None else self.pixels.shape[1:]
        fits = len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= LEAST
        return fits and self.is_bounded

    @property
    def is_turned(self) -> bool:
        """True for images whose labels stay right when they are turned."""
        return self.is_image and self.data.task != "segmentation"

    def split(self, name: str, kind: Any, **more: Any) -> Split:
        """A split of the clean rows."""
        options = {"part": self.clean, "scale": self.data.normalize, **more}
        of = None if kind == "clean" else CLEAN
        return Split(name=name, kind=kind, of=of, **self.limits(name), **options)

    def limits(self, name: str) -> dict[str, Any]:
        """Rows and samples of a split, by the word that its name begins with."""
        word, rows = name.partition("/")[0], self.rows
        if not isinstance(rows, Mapping):
            rows = {} if rows is None or word in (CLEAN, "ood") else {word: rows}
        return {"rows": rows.get(word), "samples": self.samples.get(word)}

    def check_limits(self) -> None:
        """Refuse limits of splits that nobody knows."""
        given = {"rows": self.rows if isinstance(self.rows, Mapping) else {}}
        for name, words in {**given, "samples": self.samples, "levels": self.levels}.items():
            for word in words:
                if word not in MAKERS:
                    raise ConfigError(
                        f"{name}: no split is called {word!r}; {nearest(word, [*MAKERS])}"
                    )


def splits_of(source: Source, names: str | Sequence[str | Split]) -> tuple[str, list[Split]]:
    """The name of the suite, and its splits, each once."""
    words = _words(names)
    source.check_limits()
    found: dict[str, Split] = {}
    for word in words:
        for split in [word] if isinstance(word, Split) else _named(source, word):
            found.setdefault(split.name, split)
    name = ",".join(word.name if isinstance(word, Split) else word for word in words)
    return name, list(found.values())


def _words(names: str | Sequence[str | Split]) -> list[str | Split]:
    given = names.split(",") if isinstance(names, str) else list(names)
    words = [word if isinstance(word, Split) else str(word).strip() for word in given]
    if not any(words):
        known = ", ".join((*SUITES, *MAKERS))
        raise ConfigError(f"no split is named: expected one or more of {known}")
    return [word for word in words if word]


def _named(source: Source, word: str) -> Iterator[Split]:
    if word in SUITES:
        for name in SUITES[word]:
            if _fits(source, name):
                yield from MAKERS[name](source, "")
        return
    name, _, argument = word.partition(":")
    if name not in MAKERS:
        raise ConfigError(f"no split is called {name!r}; {nearest(name, [*SUITES, *MAKERS])}")
    if not _fits(source, name):
        raise ConfigError(f"split {word!r} does not fit the data: {NEEDS[name]}")
    yield from MAKERS[name](source, argument)


def _fits(source: Source, name: str) -> bool:
    return name not in FITS or FITS[name](source)


def _clean(source: Source, argument: str) -> Iterator[Split]:
    _no_argument(CLEAN, argument)
    yield source.split(CLEAN, "clean")


def _corrupted(source: Source, argument: str) -> Iterator[Split]:
    name, _, severity = argument.partition("/")
    main = [kind for group, kinds in GROUPS.items() if group != "extra" for kind in kinds]
    kinds = GROUPS.get(name, (name,)) if name else main
    for kind in kinds:
        check_name(kind)
        for level in (_whole(argument, severity),) if severity else SEVERITIES:
            yield _one_corrupted(source, Shift(kind, severity=level))


def _one_corrupted(source: Source, shift: Shift) -> Split:
    name = f"corrupted/{shift.name}/{shift.severity}"
    files = source.data.extra.get(f"{shift.name}-{shift.severity}")
    if files is None:
        return source.split(name, "corrupted", shift=shift)
    return source.split(name, "corrupted", shift=shift, part=files, made=False)


def _levelled(name: str) -> Callable[[Source, str], Iterator[Split]]:
    def make(source: Source, argument: str) -> Iterator[Split]:
        levels = source.levels.get(name, LEVELS[name])
        for level in [_number(f"{name}:{argument}", argument)] if argument else levels:
            shift = Shift(SHIFTS[name], level=float(level))
            yield source.split(f"{name}/{level:g}", "shifted", shift=shift)

    return make


def _foreign(source: Source, argument: str) -> Iterator[Split]:
    extra = {k: v for k, v in source.data.extra.items() if _is_foreign(k)}
    every = {**extra, **source.foreign}
    for name in [argument] if argument else every:
        found = every[name] if name in every else _read(name)
        scale = source.data.normalize
        if isinstance(found, Data):
            scale = found.normalize
            found = found.train if found.test is None else found.test
        more = source.limits(f"ood/{name}")
        yield Split(name=f"ood/{name}", kind="foreign", part=found, of=CLEAN, scale=scale, **more)


def _is_foreign(name: str) -> bool:
    return name != PAIRS and name.rpartition("-")[0] not in CORRUPTIONS


def _read(name: str) -> Data:
    if name not in READERS:
        raise ConfigError(f"ood:{name}: no data are called so; {nearest(name, list(READERS))}")
    try:
        return read(name)
    except (ConfigError, DataError) as error:
        raise ConfigError(
            f"ood:{name}: {error}. Give the data: lb.Suite.of(..., foreign={{{name!r}: "
            f"lb.data.read({name!r}, ...)}}), or --ood {name} --ood-root DIR"
        ) from None


def _attacked(name: Any) -> Callable[[Source, str], Iterator[Split]]:
    def make(source: Source, argument: str) -> Iterator[Split]:
        _no_argument(name, argument)
        yield source.split(name, "adversarial", attack=replace(source.attack, name=name))

    return make


def _no_argument(name: str, argument: str) -> None:
    if argument:
        raise ConfigError(f"split {name!r} takes no argument, found {name}:{argument}")


def _whole(word: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"corrupted:{word}: the severity is a whole number from 1 to 5")
    return int(text)


def _number(word: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{word}: expected a number after the colon") from None


MAKERS: Final[Mapping[str, Callable[[Source, str], Iterator[Split]]]] = {
    CLEAN: _clean,
    "corrupted": _corrupted,
    **{name: _levelled(name) for name in LEVELS},
    "ood": _foreign,
    **{name: _attacked(name) for name in ("pgd", "fgsm")},
}
IMAGES = "it needs images [C, H, W] of 1 or 3 channels with pixels in [0, 1] before normalisation"
BOUNDED = (
    "it needs floating numbers in [0, 1] before normalisation; of others write "
    "Suite.of(..., attack=lb.evaluation.Attack(bounds=None))"
)
NEEDS: Final = {
    "corrupted": IMAGES,
    "noise": "it needs floating numbers as inputs",
    "salt_and_pepper": "it needs floating numbers in [0, 1] before normalisation",
    "rotated": f"{IMAGES}, and labels of whole images",
    "pgd": BOUNDED,
    "fgsm": BOUNDED,
}


def _attackable(source: Source) -> bool:
    return source.is_bounded or (source.pixels is not None and source.attack.bounds is None)


FITS: Final[Mapping[str, Callable[[Source], bool]]] = {
    "corrupted": lambda source: source.is_image,
    "noise": lambda source: source.pixels is not None,
    "salt_and_pepper": lambda source: source.is_bounded,
    "rotated": lambda source: source.is_turned,
    "pgd": _attackable,
    "fgsm": _attackable,
}
