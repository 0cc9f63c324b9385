"""`leanbayes serve`: a finished run behind a live page and a JSON endpoint."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.predict import DeviceFlag, TrustFlag, device_of

if TYPE_CHECKING:
    from leanbayes.serving import Served, Server

RunArgument = Annotated[
    Path, typer.Argument(help="Folder of a finished run.", metavar="CHECKPOINT")
]
HostFlag = Annotated[str, typer.Option(help="Address to listen on.")]
PortFlag = Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)]
RemoteFlag = Annotated[
    bool, typer.Option("--allow-remote", help="Let other machines ask; there is no password.")
]
UploadFlag = Annotated[float, typer.Option(help="Largest request in MiB.", min=0.001)]
MostFlag = Annotated[int, typer.Option(help="Largest number of draws of an answer.", min=1)]
BatchFlag = Annotated[
    int, typer.Option(help="Largest number of requests that are answered together.", min=1)
]
WaitingFlag = Annotated[int, typer.Option(help="Requests that may wait; more get a 503.", min=1)]
CheckFlag = Annotated[bool, typer.Option("--check", help="Answer one request, print it and end.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the address as JSON.")]


def serve(  # noqa: PLR0913
    checkpoint: RunArgument,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8000,
    allow_remote: RemoteFlag = False,
    device: DeviceFlag = "auto",
    model: TrustFlag = None,
    max_upload: UploadFlag = 8.0,
    max_samples: MostFlag = 200,
    batch: BatchFlag = 64,
    waiting: WaitingFlag = 256,
    check: CheckFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Serve a finished run on this machine: a page to try it, and POST /predict for programs.

    Ctrl-C ends it. GET /openapi.json describes the endpoints.

    Example: leanbayes serve runs/one --port 0 --check
    """
    from leanbayes.serving import Limits, Server
    from leanbayes.serving.hosts import bind_address, is_loopback

    address = bind_address(host, allow_remote)
    limits = Limits(
        upload=round(max_upload * 2**20), samples=max_samples, batch=batch, waiting=waiting
    )
    server = Server(served_run(checkpoint, device, model), address, port, limits)
    if not is_loopback(host):
        typer.echo("leanbayes: other machines can ask this model, without a password", err=True)
    _run(server, check, as_json)


def served_run(run: Path, device: str = "auto", allowed: str | None = None) -> Served:
    """The model of a finished run, and what its card says about inputs.

    Args:
        run: Its folder.
        device: Where it predicts.
        allowed: A network from outside leanbayes that may be used.
    """
    from leanbayes.cli.card import load_run
    from leanbayes.data.tables import Column
    from leanbayes.serving import Served

    card, net = load_run(run, allowed)
    known = card.data.get("columns") or []
    return Served(
        model=net.to(device_of(device)),
        name=card.name,
        data=str(card.data.get("name")),
        classes=card.classes,
        shape=card.shape,
        prepared=card.prepared,
        whole=card.whole,
        images=card.bytes_fit,
        resize=card.data.get("resize"),
        columns=[Column(each["name"], tuple(each["categories"])) for each in known],
    )


def _run(server: Server, check: bool, as_json: bool) -> None:
    from leanbayes.cli.jobs import obeying_signals
    from leanbayes.errors import Interrupted

    code = 0
    try:
        with obeying_signals():
            server.start()
            if check:
                typer.echo(json.dumps(_asked(server)))
            else:
                _say(server, as_json)
                threading.Event().wait()
    except Interrupted as stop:
        code = int(stop.code or 0)
    if not server.close():  # a pass that takes long: Python cannot end its thread in order
        sys.stdout.flush()
        os._exit(code)
    if code:
        raise Interrupted(code)


def _say(server: Server, as_json: bool) -> None:
    info = server.routes.info
    words = f"{info['method']['name']} on {info['network']} at {server.url} (Ctrl-C ends it)"
    typer.echo(json.dumps({"url": server.url}) if as_json else words)
    sys.stdout.flush()


def _asked(server: Server) -> dict[str, Any]:
    """The server's own answer to an input of zeros, by way of HTTP."""
    from http.client import HTTPConnection

    host, port = server.server_address[:2]
    inputs = [0] * server.routes.served.inputs
    connection = HTTPConnection(str(host), int(port), timeout=server.limits.answer)
    try:
        connection.request("POST", "/predict", json.dumps({"inputs": inputs}))
        found: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return {"url": server.url, "answer": found}
