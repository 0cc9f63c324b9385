"""PhysioNet 2012: stays in intensive care as sequences of event ids."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leanbayes.data.dataset import Data
from leanbayes.data.files import find, found, load_arrays
from leanbayes.errors import ConfigError, DataError

Whole = NDArray[np.int64]
Values = NDArray[np.float64]
Edges = tuple[tuple[float, ...], ...]

# What is known at admission comes first: it heads every sequence and is never cut off.
DESCRIPTORS: Final = ("Age", "Gender", "Height", "ICUType")
VARIABLES: Final = (
    *DESCRIPTORS,
    *("Weight", "GCS", "HR", "NIDiasABP", "NIMAP", "NISysABP", "RespRate", "Temp", "Urine", "HCT"),
    *("BUN", "Creatinine", "Glucose", "HCO3", "Mg", "Platelets", "K", "Na", "WBC", "pH", "PaCO2"),
    *("PaO2", "DiasABP", "FiO2", "MAP", "MechVent", "SysABP", "SaO2", "Albumin", "ALP", "ALT"),
    *("AST", "Bilirubin", "Lactate", "Cholesterol", "TroponinI", "TroponinT"),
)
UNKNOWN_IS_MINUS_ONE: Final = len(DESCRIPTORS) + 1  # descriptors and Weight
HOURS: Final = 48


@dataclass(frozen=True, eq=False)
class Stays:
    """Events of N stays, stay by stay in the order of time.

    Attributes:
        stay: Index of the stay of each event [E], ascending.
        minute: Since admission [E]; -1 for descriptors.
        variable: Index into VARIABLES [E].
        value: What was measured [E].
        death: Whether the patient died in hospital [N].
    """

    stay: Whole
    minute: Whole
    variable: Whole
    value: Values
    death: Whole


@dataclass(frozen=True, kw_only=True, eq=False)
class EventData(Data):
    """Data of event sequences, with what later stays need to be encoded alike.

    Attributes:
        edges: Upper ends of the bins of each variable but the last one, ascending.
        bins: Most bins of a variable.
        window: Minutes in which a variable counts once.
    """

    edges: Edges = ()
    bins: int = 10
    window: int = 120

    @property
    def events(self) -> int:
        """Number of event ids, for `lb.models.create("lstm_classifier", events=...)`."""
        return 1 + len(self.edges) * self.bins

    def card(self) -> dict[str, Any]:
        """As `Data.card`, with the encoding."""
        edges = [list(row) for row in self.edges]
        code = {"events": self.events, "bins": self.bins, "window": self.window, "edges": edges}
        return super().card() | code


def physionet2012(
    *,
    root: str,
    bins: int = 10,
    length: int = 256,
    window: int = 120,
    validation: int = 800,
    seed: int = 0,
) -> EventData:
    """Read PhysioNet 2012: does a patient in intensive care die in hospital? 2 x 4,000 stays.

    I. Silva et al., "Predicting In-Hospital Mortality of ICU Patients", Computing in Cardiology
    2012. A stay is a row of event ids, int64 [length]: variable v measured in bin b of its values
    gives `1 + v * bins + b`; bins are quantiles of the training stays (one a value where there are
    few values). Padding, id 0, stands in front, so that the last state of a recurrent net is the
    one after the last event. Descriptors come first; of longer stays the oldest events in between
    are dropped. Unknown values (-1 in descriptors and Weight) are left out.

    Training and validation stays are from set a; the test part is set b, None where it is absent.

    Args:
        root: Folder with set-a/*.txt and Outcomes-a.txt (and b), or with physionet2012.npz.
        bins: Most bins of a variable's values.
        length: Events of a row.
        window: Minutes in which a variable counts once, the last value; 0 keeps every event.
        validation: Stays of set a that are held out, drawn by the seed.
        seed: Decides which.

    Raises:
        DataError: Files are missing or malformed.
    """
    if bins < 2 or length <= len(DESCRIPTORS) or window < 0:
        raise ConfigError(
            f"bins={bins}, length={length}, window={window}: expected bins of at least 2, a length "
            f"above {len(DESCRIPTORS)} and a window of at least 0 minutes"
        )
    first, second = (_stays(root, part) for part in "ab")
    if first is None:
        raise DataError(f"{root} has no set a; expected set-a/*.txt and Outcomes-a.txt")
    first = thinned(first, window)
    train, held = _held_out(len(first.death), validation, seed)
    edges = quantile_edges(first, train, bins)
    x, y = encoded_stays(first, edges, bins, length), torch.from_numpy(first.death)
    test = None
    if second is not None:
        second = thinned(second, window)
        test = encoded_stays(second, edges, bins, length), torch.from_numpy(second.death)
    return EventData(
        name="physionet2012",
        task="binary",
        train=(x[train], y[train]),
        validation=(x[held], y[held]) if validation else None,
        test=test,
        classes=("survived", "died"),
        edges=edges,
        bins=bins,
        window=window,
    )


def thinned(stays: Stays, window: int) -> Stays:
    """One event a stay, variable and window of so many minutes: the last; 0 keeps all."""
    if not window:
        return stays
    slots = 2 + int(stays.minute.max(initial=0)) // window
    key = (stays.stay * slots + 1 + stays.minute // window) * len(VARIABLES) + stays.variable
    _, last = np.unique(key[::-1], return_index=True)
    return _kept(stays, np.sort(len(key) - 1 - last))


def quantile_edges(stays: Stays, rows: Tensor, bins: int) -> Edges:
    """Upper ends of the bins of every variable over the stays `rows`, all but the last bin's.

    A variable of at most `bins` values has one bin a value; otherwise edge k is the k / bins
    quantile, itself a value of the data, and equal edges are one.
    """
    chosen = np.isin(stays.stay, rows.numpy())
    levels = np.arange(1, bins) / bins
    edges = []
    for variable in range(len(VARIABLES)):
        values = stays.value[chosen & (stays.variable == variable)]
        ends = np.unique(values)[:-1]
        if len(ends) >= bins:
            ends = np.unique(np.quantile(values, levels, method="lower"))
        edges.append(tuple(ends.tolist()))
    return tuple(edges)


def encoded_stays(stays: Stays, edges: Edges, bins: int, length: int) -> Tensor:
    """Event ids int64 [N, length], 0 in front of shorter stays; see `physionet2012`."""
    binned = np.zeros(len(stays.value), np.int64)
    for variable, ends in enumerate(edges):
        mine = stays.variable == variable
        binned[mine] = np.searchsorted(np.array(ends), stays.value[mine], side="left")
    ids = 1 + stays.variable * bins + binned
    total = np.bincount(stays.stay, minlength=len(stays.death))
    heads = np.bincount(stays.stay[stays.minute < 0], minlength=len(stays.death))
    place = np.arange(len(ids)) - (np.cumsum(total) - total)[stays.stay]  # within the stay
    over = np.maximum(total - length, 0)[stays.stay]
    head = stays.minute < 0
    keep = head | (place >= heads[stays.stay] + over)
    column = length - total[stays.stay] + place + np.where(head, over, 0)
    out = np.zeros((len(stays.death), length), np.int64)
    out[stays.stay[keep], column[keep]] = ids[keep]
    return torch.from_numpy(out)


def _kept(stays: Stays, index: NDArray[Any]) -> Stays:
    stay, minute, variable = (v[index] for v in (stays.stay, stays.minute, stays.variable))
    return Stays(stay, minute, variable, stays.value[index], stays.death)


def _held_out(count: int, validation: int, seed: int) -> tuple[Tensor, Tensor]:
    if not 0 <= validation < count:
        raise ConfigError(f"validation={validation}: expected 0 to {count - 1}, set a has {count}")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(count))
    return order[validation:].sort().values, order[:validation].sort().values


def _stays(root: str, part: str) -> Stays | None:
    """Set a or b; None where there is none."""
    if found(root, "physionet2012.npz"):
        return _packed(find(root, "physionet2012.npz", what="PhysioNet 2012"), part)
    if not found(root, f"set-{part}") and part != "a":
        return None
    return _files(find(root, f"set-{part}", what="PhysioNet 2012"), part)


def _packed(path: Path, part: str) -> Stays | None:
    arrays = load_arrays(path)
    keys = [f"{part}_{key}" for key in ("offsets", "minute", "param", "value", "death")]
    if not any(key in arrays for key in keys):
        return None
    absent = {"params", *keys} - set(arrays)
    if absent:
        raise DataError(f"{path} holds {sorted(arrays)}; expected also {sorted(absent)}")
    _check_arrays(path, {key: arrays[key] for key in keys})
    offsets, minute, param, value, death = (arrays[key] for key in keys)
    known = np.array([_variable(path, str(name)) for name in arrays["params"]])
    if len(param) and not 0 <= param.min() <= param.max() < len(known):
        raise DataError(
            f"{path}: {part}_param is {param.min()} to {param.max()}; expected 0 to "
            f"{len(known) - 1}, the rows of params"
        )
    counts: Whole = offsets[1:].astype(np.int64) - offsets[:-1].astype(np.int64)
    stay = np.repeat(np.arange(len(death)), counts)
    return _ordered(path, stay, minute.astype(np.int64), known[param], value, death)


def _check_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    offsets, minute, param, value, death = arrays.values()
    kinds = [array.dtype.kind in "iub" for array in (offsets, minute, param, death)]
    flat = all(array.ndim == 1 for array in arrays.values()) and len(offsets) == len(death) + 1
    if not (flat and all(kinds) and value.dtype.kind in "fiu"):
        found = {key: f"{array.dtype} {array.shape}" for key, array in arrays.items()}
        raise DataError(
            f"{path}: {found}; expected offsets [N + 1], minute, param and value [E] and death "
            "[N], all but value whole numbers"
        )
    ends = {len(minute), len(param), len(value), int(offsets[-1])}
    steps = offsets.astype(np.int64)
    if len(ends) > 1 or steps[0] or (steps[1:] < steps[:-1]).any():
        raise DataError(f"{path}: the arrays {list(arrays)} do not fit each other")
    if not np.isin(death, (0, 1)).all():
        raise DataError(f"{path}: death is {death.min()} to {death.max()}; expected 0 or 1")


def _files(folder: Path, part: str) -> Stays:
    deaths = _outcomes(find(folder.parent, f"Outcomes-{part}.txt", what=f"outcomes of set {part}"))
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise DataError(f"{folder} holds no *.txt; expected one file a stay")
    absent = [path.name for path in paths if path.stem not in deaths]
    if absent:
        raise DataError(f"Outcomes-{part}.txt lacks {absent[0]}; expected a line for every stay")
    events = [(stay, *event) for stay, path in enumerate(paths) for event in _events(path)]
    stay, minute, variable, value = np.array(events, dtype=np.float64).reshape(-1, 4).T
    death = np.array([deaths[path.stem] for path in paths])
    return _ordered(folder, stay, minute, variable.astype(np.int64), value, death)


def _events(path: Path) -> list[tuple[int, int, float]]:
    """(minute, variable, value) of every line but the header and the record's number."""
    events = []
    for number, line in enumerate(_lines(path, 3)[1:], 2):
        time, name, value = line
        if name in ("RecordID", ""):  # a line without a name tells nothing
            continue
        try:
            hours, minutes = (int(part) for part in time.split(":"))
            events.append((60 * hours + minutes, _variable(path, name), float(value)))
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{path}, line {number}: {','.join(line)!r}; expected HH:MM,variable,number"
            ) from error
    return events


def _outcomes(path: Path) -> dict[str, int]:
    lines = _lines(path, 6)
    deaths = {line[0].strip(): line[5].strip() for line in lines[1:]}
    wrong = [record for record, death in deaths.items() if death not in ("0", "1")]
    if wrong:
        raise DataError(f"{path}: In-hospital_death of {wrong[0]} is not 0 or 1")
    return {record: int(death) for record, death in deaths.items()}


def _lines(path: Path, cells: int) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = [line for line in csv.reader(stream) if line]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a text file of comma-separated lines: {error}") from error
    for number, line in enumerate(lines, 1):
        if len(line) != cells:
            raise DataError(f"{path}, line {number}: {len(line)} cells; expected {cells}")
    return lines


def _variable(path: Path, name: str) -> int:
    if name not in VARIABLES:
        raise DataError(f"{path}: unknown variable {name!r}; expected one of {VARIABLES}")
    return VARIABLES.index(name)


def _ordered(path: Path, stay: Any, minute: Any, variable: Any, value: Any, death: Any) -> Stays:
    """Checked, without unknown values, descriptors first and the rest in the order of time."""
    value = np.asarray(value, np.float64)
    if not np.isfinite(value).all():
        row = int(np.flatnonzero(~np.isfinite(value))[0])
        raise DataError(f"{path}: event {row} is {value[row]}; expected finite numbers")
    if len(minute) and not 0 <= minute.min() <= minute.max() <= 60 * HOURS:
        raise DataError(f"{path}: minutes {minute.min()} to {minute.max()}; expected 0 to 2880")
    minute = np.where(variable < len(DESCRIPTORS), -1, minute)
    order = np.lexsort((minute, stay))
    order = order[~((value == -1) & (variable < UNKNOWN_IS_MINUS_ONE))[order]]
    empty = np.setdiff1d(np.arange(len(death)), stay[order])
    if len(empty):
        raise DataError(f"{path}: stay {empty[0]} has no event; expected at least one")
    stay, minute, variable = (part[order].astype(np.int64) for part in (stay, minute, variable))
    return Stays(stay, minute, variable, value[order], death.astype(np.int64))
