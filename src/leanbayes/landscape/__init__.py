"""The loss on the plane through the members' weights: where did they settle?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset

from leanbayes.budget import rows_between, slices
from leanbayes.devices import device_of
from leanbayes.errors import ConfigError, DataError
from leanbayes.landscape.networks import Place, landmarks, places
from leanbayes.landscape.plane import Plane
from leanbayes.likelihood import Bernoulli, Categorical, Likelihood, tensor_of
from leanbayes.model import BayesianModel, unwrap
from leanbayes.plan import call, count_rows
from leanbayes.prediction import is_label, matched
from leanbayes.refresh import refresh_batchnorm

ROWS = 256  # of a pass
Batch = tuple[Any, Tensor]
Found = dict[str, Any]


def landscape(  # noqa: PLR0913
    model: nn.Module,
    data: Any,
    *,
    likelihood: Likelihood | None = None,
    points: int = 25,
    margin: float = 0.25,
    members: Sequence[int] | None = None,
    rows: int = 1000,
    draws: int | None = None,
    seed: int = 0,
    refresh: Any = False,
    tick: Callable[[], object] = lambda: None,
) -> Found:
    """Loss of the deterministic network on the plane of the members' first two components.

    A member's weights are those that its layers apply: `W * (out_k in_k^T)` where factors multiply
    a shared W, its own copies in an ensemble. Axes are the first two principal components, the
    origin is the members' average; see `landscape.plane.Plane`. iBNN's Fig. 2 (Trinh et al. 2020).

    Methods without an index for the whole network (MeanField, Partial, SWAG, Laplace, Patching by
    layer) are shown by draws: those of `lb.predict` with the same seed. In many dimensions draws
    are almost orthogonal, so two axes explain little of them; `explained` says how much.

    BatchNorm: a place has the statistics of the same combination of the members, so that a
    member's place is the member as it predicts. That is right where members share statistics, as
    all but DeepEnsemble do. Between networks that were trained apart averages of statistics fit
    the weights of no place; `refresh` measures them anew at every place and for every member, as
    Garipov et al. (2018) do on their curves.

    Cost: `points^2` passes over the rows, twice that with `refresh`; memory for the members, and
    four networks more.

    Args:
        model: A BayesianModel or its wrapper; it stays as it is.
        data: (inputs, targets), a Dataset of such, or a loader of such batches.
        likelihood: By default the one kept with the model.
        points: Places a side; of an odd number the middle one is the origin.
        margin: How far the grid goes beyond the outermost member, as a part of its distance.
        members: Which ones; all if None.
        rows: Of the data, from the first on.
        draws: Of every member, instead of its location; of a method without members (8).
        seed: Key of the draws, and of the second axis where there are two members.
        refresh: Measure BatchNorm's statistics anew on the rows (True), or on other data.
        tick: Called after every place.

    Returns:
        Plain data: `x`, `y` [P], `loss` and `error` [P][P] (rows are y; error where targets are
        labels; None where not finite), `members` and `marks` (the mean network, and the shared
        weights where there are factors) with label, x, y, loss, error and `distance` from the
        plane, `explained` [2], `rows`, `of` (members or draws), `statistics`, `notes`.

    Example:
        >>> import leanbayes as lb, torch
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 3
        >>> method = lb.Implicit(members=3, init_std=0.5)
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), method, likelihood=lb.Categorical())
        >>> found = lb.landscape(model, (x, y), points=5)
        >>> [member["label"] for member in found["members"]], len(found["loss"])
        (['member 0', 'member 1', 'member 2'], 5)
    """
    inner = unwrap(model)
    _check(points, margin, rows)
    device = device_of(inner)
    batches = [*_batches(data, rows, device)]
    chosen = _likelihood(inner, likelihood)
    # A loader gives the same rows to every place only if it is read once.
    anew = batches if refresh is True else [*_batches(refresh, rows, device)] if refresh else []
    shown = places(inner, members, draws, seed, _few(batches))
    plane = Plane.through([place.net for place in shown], seed)
    judge = _Judge(batches, chosen, anew)
    of_members = [judge.at(plane, place) for place in shown]
    marks = [judge.at(plane, place) for place in landmarks(inner)]
    x, y = _sides(plane, [*of_members, *marks], points, margin)
    grid = [[_ticked(judge.figures(plane.at(a, b)), tick) for a in x] for b in y]
    names = list(grid[0][0])
    return {
        "x": x,
        "y": y,
        **{name: [[place[name] for place in row] for row in grid] for name in names},
        "members": of_members,
        "marks": marks,
        "explained": list(plane.explained),
        "rows": judge.rows,
        "of": "members" if inner.method.index_members and draws is None else "draws",
        "statistics": _statistics(inner, anew),
        "notes": [*_notes(plane, anew)],
    }


@dataclass(frozen=True)
class _Judge:
    """Loss, and of labels the share of errors, on given rows."""

    batches: Sequence[Batch]
    likelihood: Likelihood
    anew: Sequence[Batch]

    @property
    def rows(self) -> int:
        return sum(count_rows((inputs,), {}) for inputs, _ in self.batches)

    def at(self, plane: Plane, place: Place) -> Found:
        """A network of its own: where it lies, and its figures."""
        x, y, distance = plane.place_of(place.net)
        found = {"label": place.label, "x": x, "y": y, "distance": distance}
        return {**found, **self.figures(place.net)}

    @torch.no_grad()
    def figures(self, net: nn.Module) -> dict[str, float | None]:
        """Negative log-likelihood a datum, and errors a label."""
        if self.anew:
            refresh_batchnorm(net, self.anew)
        loss = count = wrong = labels = 0.0
        for inputs, target in self.batches:
            output = tensor_of(call(net, inputs))
            log_prob = self.likelihood.log_prob(output, target)
            loss -= float(log_prob.sum(dtype=torch.float64))
            count += float(self.likelihood.count(log_prob, target))
            errors = _errors(self.likelihood, output, target)
            if errors is not None:
                wrong, labels = wrong + float(errors.sum()), labels + errors.numel()
        if not count:
            raise DataError("the data hold no labels: there is no loss to show")
        found = {"loss": loss / count} | ({"error": wrong / labels} if labels else {})
        return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _errors(likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor | None:
    """True where a label is missed; None where targets are numbers."""
    if isinstance(likelihood, Bernoulli):
        return (output > 0) != (matched(target, output) > 0.5)
    if not isinstance(likelihood, Categorical):
        return None
    return (output.argmax(1) != target)[is_label(target, likelihood.ignore_index)]


def _sides(
    plane: Plane, shown: Sequence[Found], points: int, margin: float
) -> tuple[list[float], list[float]]:
    """The same way to both sides of the origin, so that it is a place of the grid."""
    far = [max(abs(place[axis]) for place in shown) for axis in ("x", "y")]
    if plane.random:
        far[1] = far[0]
    steps = [2 * i / (points - 1) - 1 for i in range(points)]
    x, y = ([(1 + margin) * size * step for step in steps] for size in far)
    return x, y


def _batches(data: Any, rows: int, device: torch.device) -> Iterator[Batch]:
    """The first rows, in pieces, on the device."""
    left = rows
    for inputs, target in _pairs(data):
        have = count_rows((inputs,), {})
        pair = rows_between((inputs, target), have, 0, min(left, have))
        left -= min(left, have)
        for piece in slices(pair, count_rows((pair,), {}), ROWS):
            on_device = pytree.tree_map_only(Tensor, lambda x: x.to(device), piece)
            yield on_device[0], on_device[1]
        if not left:
            return
    if left == rows:
        raise DataError("nothing to measure the loss on: the data are empty")


def _pairs(data: Any) -> Iterable[Batch]:
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor):
        return [(data[0], data[1])]
    if isinstance(data, Dataset):
        return DataLoader(data, ROWS)
    if isinstance(data, Iterable) and not isinstance(data, Tensor | dict):
        return data
    raise ConfigError(
        "landscape takes (inputs, targets), a Dataset or a loader of such; found "
        f"{type(data).__name__}"
    )


def _few(batches: Sequence[Batch]) -> Any:
    inputs = batches[0][0]
    have = count_rows((inputs,), {})
    return rows_between(inputs, have, 0, min(have, 8))


def _likelihood(model: BayesianModel, given: Likelihood | None) -> Likelihood:
    chosen = model.likelihood if given is None else given
    if not isinstance(chosen, Likelihood):
        raise ConfigError(
            "landscape needs a likelihood, whose loss it shows: lb.landscape(..., "
            f"likelihood=lb.Categorical()); found {chosen!r}"
        )
    return chosen


def _check(points: int, margin: float, rows: int) -> None:
    if points < 2 or rows < 1:
        raise ConfigError(
            f"expected at least 2 points a side and 1 row, found points={points}, rows={rows}"
        )
    if not 0 <= margin < math.inf:
        raise ConfigError(f"margin must be a number of at least 0, found {margin!r}")


def _statistics(model: BayesianModel, anew: Sequence[Batch]) -> str:
    """What BatchNorm normalised by."""
    kept = [m for m in model.net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    return "none" if not kept else "refreshed" if anew else "of the members"


def _notes(plane: Plane, anew: Sequence[Batch]) -> Iterator[str]:
    if plane.random:
        yield "the networks span a line: the second axis is a random direction"
    if plane.buffers and not anew:
        yield (
            "members have BatchNorm statistics of their own, which are averaged between them: "
            "refresh=True measures them anew at every place"
        )


def _ticked(found: dict[str, float | None], tick: Callable[[], object]) -> dict[str, float | None]:
    tick()
    return found
