"""`leanbayes landscape`: the loss on the plane through the members' weights of a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from leanbayes.cli.predict import DeviceFlag, RunArgument, SeedFlag, TrustFlag, device_of
from leanbayes.cli.run_data import (
    Asked,
    DataFlag,
    OutFlag,
    PartFlag,
    RootFlag,
    RowsFlag,
    SetFlag,
    typed,
)


def landscape(  # noqa: PLR0913
    run: RunArgument,
    out: OutFlag,
    data: DataFlag = None,
    root: RootFlag = None,
    part: PartFlag = "test",
    change: SetFlag = None,
    rows: RowsFlag = 1000,
    points: Annotated[int, typer.Option(min=2, help="Points on a side of the grid.")] = 25,
    margin: Annotated[
        float, typer.Option(min=0, help="How far the grid reaches beyond the outermost member.")
    ] = 0.25,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1, help="Draws of every member; or of the method, if it has no members (8)."
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option(help="Measure BatchNorm's statistics anew at every point.")
    ] = False,
    seed: SeedFlag = 0,
    device: DeviceFlag = "auto",
    model: TrustFlag = None,
) -> None:
    """Loss of a run's network on the plane of its members' first two components.

    Methods without members are shown by draws (8 by default).

    Example: leanbayes landscape runs/one --points 9 --rows 200 --out landscape.json
    """
    import leanbayes as lb
    from leanbayes.cli.card import load_run
    from leanbayes.cli.progress import stage
    from leanbayes.cli.record_file import check_place, save
    from leanbayes.records import provenance, shown

    check_place(out)
    asked = Asked(data, root, part, change, rows)
    card, net = load_run(run, model)
    net.to(device_of(device))
    batches = asked.read(card)
    options: dict[str, Any] = {"points": points, "margin": margin, "draws": draws, "seed": seed}
    with stage("landscape", points**2) as tick:
        found = lb.landscape(net, batches, rows=rows, refresh=refresh, tick=tick, **options)
    own = typed({**options, "model": model, "out": shown(out)})
    words = ["leanbayes", "landscape", shown(run), *asked.words(), *own]
    words += ["--refresh"] if refresh else []
    record = {
        "kind": "landscape",
        **provenance(shlex.join(words), next(net.parameters()).device),
        "method": net.method.name,
        "data": {"name": batches.name, "part": part},
        "landscape": found,
    }
    save(out, json.dumps(record, allow_nan=False) + "\n")
    typer.echo(_summary(found, str(out)))


def _summary(found: Mapping[str, Any], out: str) -> str:
    first, second = found["explained"]
    lines = [
        f"{len(found['members'])} {found['of']} on {found['rows']:,} rows; the axes explain "
        f"{first:.1%} and {second:.1%}"
    ]
    wide = max(len(place["label"]) for place in (*found["members"], *found["marks"]))
    for place in (*found["members"], *found["marks"]):
        loss = "not finite" if place["loss"] is None else f"loss {place['loss']:.4f}"
        lines.append(f"{place['label']:<{wide}}  {loss}")
    return "\n".join([*lines, *(f"note: {note}" for note in found["notes"]), f"wrote {out}"])
