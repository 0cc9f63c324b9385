"""A model's checkpoint as read: checked bytes, parsed, not yet compared with a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from leanbayes.calibration import Calibration
from leanbayes.errors import CheckpointError
from leanbayes.likelihood import Likelihood, likelihood_from_json
from leanbayes.methods.base import Method, method_named
from leanbayes.storage import parse_json, parse_tensors, read_directory

TENSORS, DESCRIPTION = "model.safetensors", "leanbayes.json"
FORMAT = 1
MANY = 10_000


@dataclass(frozen=True)
class Saved:
    """What the two files of a checkpoint say; every property is checked when it is asked for."""

    path: Path
    tensors: dict[str, Tensor]
    description: dict[str, Any]

    @staticmethod
    def read(path: Path) -> Saved:
        """Read and check a directory."""
        files = read_directory(path)
        if set(files) != {TENSORS, DESCRIPTION}:
            raise CheckpointError(
                f"{path} holds {sorted(files)}; expected {TENSORS}, {DESCRIPTION}"
            )
        description = parse_json(path / DESCRIPTION, files[DESCRIPTION])
        if description.get("format") != FORMAT:
            raise CheckpointError(
                f"{path / DESCRIPTION} has format {description.get('format')!r}; this version of "
                f"leanbayes reads format {FORMAT}"
            )
        saved = Saved(path, parse_tensors(path / TENSORS, files[TENSORS]), description)
        saved.check_tensors()
        return saved

    def check_tensors(self) -> None:
        """Both files must say the same about type and shape of every tensor."""
        kinds = self._texts("tensors")
        for key in sorted({*kinds, *self.tensors}):
            found = kind_of(self.tensors[key]) if key in self.tensors else "nothing"
            if found != kinds.get(key):
                raise CheckpointError(
                    f"{self.path / TENSORS} is damaged: '{key[:80]}' is {found}; {DESCRIPTION} "
                    f"says {str(kinds.get(key))[:80]}"
                )

    @property
    def layers(self) -> dict[str, list[str]]:
        """Slots of every converted layer."""
        layers: dict[str, list[str]] = self._field("layers", dict)
        if not all(_are_texts(slots) for slots in layers.values()):
            raise self._wrong("layers")
        return layers

    @property
    def shared(self) -> list[tuple[str, str]]:
        """Layer and slot of tensors that a pass uses more than once."""
        pairs, layers = self._field("shared", list), self.layers
        for pair in pairs:
            if not (_are_texts(pair) and len(pair) == 2 and pair[1] in layers.get(pair[0], ())):
                raise self._wrong("shared")
        return [(name, slot) for name, slot in pairs]

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hashes of the network's tensors at conversion."""
        return self._texts("fingerprint")

    @property
    def ends(self) -> list[str] | None:
        """The first and the last layer as the example had it, which selectors may ask for."""
        names: list[str | None] = self._field("ends", list)
        if len(names) != 2 or not all(name is None or isinstance(name, str) for name in names):
            raise self._wrong("ends")
        known = [name for name in names if name is not None]
        return known if len(known) == 2 else None

    @property
    def aliases(self) -> dict[str, str]:
        """Names under which a stored tensor appears again."""
        aliases = self._texts("aliases")
        if not self.tensors.keys().isdisjoint(aliases):
            raise self._wrong("aliases")
        return aliases

    def method(self) -> Method:
        """The method, by its name and fields."""
        entry = self._field("method", dict)
        try:
            _check_counts(entry, max((max(t.shape, default=1) for t in self._own()), default=1))
            return method_named(str(entry.get("name"))).from_json(entry.get("fields", {}))
        except Exception as error:  # plain data from outside: a method may stumble over any of it
            raise CheckpointError(f"{self.path / DESCRIPTION}: {error}") from error

    def likelihood(self) -> Likelihood | None:
        """The likelihood that was kept with the model, if any."""
        entry = self.description.get("likelihood")
        try:
            return None if entry is None else likelihood_from_json(entry)
        except Exception as error:
            raise CheckpointError(f"{self.path / DESCRIPTION}: {error}") from error

    def calibration(self) -> Calibration | None:
        """What the model was calibrated by; checkpoints without it are as good."""
        entry = self.description.get("calibration")
        try:
            return None if entry is None else Calibration.from_json(entry)
        except Exception as error:
            raise CheckpointError(
                f"{self.path / DESCRIPTION} is damaged in 'calibration': {error}"
            ) from error

    def _own(self) -> list[Tensor]:
        return [tensor for key, tensor in self.tensors.items() if ".slots." in f".{key}"]

    def _field(self, name: str, kind: type) -> Any:
        value = self.description.get(name)
        if not isinstance(value, kind):
            raise CheckpointError(f"{self.path / DESCRIPTION} lacks '{name}'")
        return value

    def _texts(self, name: str) -> dict[str, str]:
        texts: dict[str, str] = self._field(name, dict)
        if not _are_texts(list(texts.values())):
            raise self._wrong(name)
        return texts

    def _wrong(self, name: str) -> CheckpointError:
        return CheckpointError(f"{self.path / DESCRIPTION} is damaged in '{name}'")


def kind_of(tensor: Tensor) -> str:
    """Type and shape in a word: `float32 64x3x3x3`."""
    sizes = "x".join(map(str, tensor.shape)) or "-"
    return f"{str(tensor.dtype).removeprefix('torch.')} {sizes}"


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _check_counts(entry: Any, largest: int) -> None:
    """Refuse members or ranks by the million that no tensor of the file has room for."""
    if isinstance(entry, list):
        for value in entry:
            _check_counts(value, largest)
    elif isinstance(entry, dict):
        for name, value in entry.items():
            many = isinstance(value, int) and value > max(largest + 1, MANY)
            if many and name in ("members", "rank"):
                raise CheckpointError(f"{name} = {value}, but no tensor has more than {largest}")
            _check_counts(value, largest)
