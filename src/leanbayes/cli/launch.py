"""`leanbayes launch`: the same command in several processes, on one machine or many.

Three layers: this process, which passes signals on and answers with an exit code; torchrun's agent,
which starts the workers and starts them again when one dies; the workers (`cli/worker.py`), which
note their process ids and exit codes in a folder, since the agent only says that one has failed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, Any

import typer

FOLDER, COMMAND = "LEANBAYES_LAUNCH", "command.json"
OWN_CODES = (2, 3, 4, 5)  # a worker's own word on what went wrong
INCURABLE = (2, 3, 5)  # a new start would end in the same way
# Everything from the first word on belongs to the command that is launched.
SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
AGENT = "from leanbayes.cli.launch import agent; agent()"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
TOGETHER = ("train", "adapt", "evaluate")  # processes of other commands would not share the work


def launch(
    command: Annotated[
        list[str],
        typer.Argument(help="A leanbayes command with its options, or a script.py with its own."),
    ],
    nproc: Annotated[int, typer.Option(min=1, help="Processes on this machine: one a GPU.")],
    nnodes: Annotated[str, typer.Option(help="Machines: 2, or 1:4 for one to four.")] = "1",
    rdzv_endpoint: Annotated[
        str, typer.Option(help="host:port of one of the machines, the same on all of them.")
    ] = "",
    rdzv_id: Annotated[
        str, typer.Option(help="Name of the run, the same on all machines.")
    ] = "leanbayes",
    max_restarts: Annotated[
        int, typer.Option(min=0, help="How often to start again after a process has died.")
    ] = 3,
) -> None:
    """Run a command in several processes; the ones that die are started again and resume.

    Exit codes are those of the command: 143 and 130 where a signal has ended it and it has saved.

    Example: leanbayes launch --nproc 2 train --config run.toml
    """
    _check_command(command[0])
    meeting = _meeting(nnodes, rdzv_endpoint, rdzv_id)
    arguments = ["--nproc-per-node", str(nproc), "--nnodes", nnodes, *meeting]
    arguments += ["--max-restarts", str(max_restarts), "-m", "leanbayes.cli.worker"]
    with TemporaryDirectory(prefix="leanbayes-launch-") as folder:
        # By way of a file: torchrun would take options of the command for abbreviations of its own.
        (Path(folder) / COMMAND).write_text(json.dumps(command), encoding="utf-8")
        raise typer.Exit(supervise(arguments, Path(folder), nproc))


def _check_command(name: str) -> None:
    """Before processes start: each would die of it and be started again, or do all of the work."""
    from leanbayes.errors import ConfigError

    if name.endswith(".py"):
        if not Path(name).is_file():
            raise ConfigError(f"no script at {name}; expected a file, or a command of leanbayes")
    elif name not in TOGETHER:
        raise ConfigError(
            f"{name!r} is nothing that several processes do together; expected a script.py, or "
            f"{', '.join(TOGETHER)} (compare and experiment have --jobs)"
        )


def _meeting(nnodes: str, endpoint: str, name: str) -> list[str]:
    from leanbayes.errors import ConfigError

    bounds = nnodes.split(":")
    if len(bounds) > 2 or not all(b.isdecimal() and int(b) > 0 for b in bounds):
        raise ConfigError(f"--nnodes is a number of machines or a range 1:4, found {nnodes!r}")
    if endpoint:
        return ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", name]
    if nnodes != "1":
        raise ConfigError(
            f"{nnodes} machines need a place to meet: write --rdzv-endpoint HOST:29400 with the "
            "name of one of them, the same on all"
        )
    return ["--standalone"]


def environment(folder: Path) -> dict[str, str]:
    """What makes restarts work: a store of its own for every attempt."""
    return {
        "OMP_NUM_THREADS": "1",  # torchrun's choice too, but it warns of it
        **os.environ,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        FOLDER: str(folder),
    }


def supervise(arguments: Sequence[str], folder: Path, nproc: int) -> int:
    """Run torchrun's agent to its end, pass signals on to it, and give the exit code of it all."""
    # A session of its own, so that Ctrl-C reaches the agent once, from here.
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, *arguments], env=environment(folder), start_new_session=True
    )
    received: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            process.send_signal(number)
        else:  # asked twice: nobody wants to wait
            _kill([process.pid, *_workers(folder).values()])

    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        failed = _wait(process, folder) != 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return incurable(folder) or outcome(failed, codes(folder), nproc, received)


def _wait(process: subprocess.Popen[bytes], folder: Path) -> int:
    """The agent's exit code; it is stopped where starting the workers again would be in vain."""
    while True:
        try:
            return process.wait(0.2)
        except subprocess.TimeoutExpired:
            if incurable(folder):
                break
    with suppress(subprocess.TimeoutExpired):
        return process.wait(1.0)  # processes that fail together get the time to say so
    process.terminate()
    return process.wait()


def incurable(folder: Path) -> int | None:
    """The exit code, of any attempt, that makes all further ones pointless."""
    found = [_read(file) for file in sorted(folder.glob("*.code"))]
    return next((code for code in found if code in INCURABLE), None)


def outcome(
    failed: bool, found: Mapping[int, int | None], nproc: int, received: Sequence[int]
) -> int:
    """The exit code of a launch.

    Args:
        failed: The agent said that something failed.
        found: Exit codes of the last attempt by rank; None of a process that left none.
        nproc: Processes that there should have been.
        received: Signals that came in here.
    """
    if len(received) > 1:
        return 128 + received[-1]
    if not failed:
        return 0
    own = [code for _, code in sorted(found.items()) if code in OWN_CODES]
    if own:
        return own[0]
    if received and not found:  # nothing had begun
        return 128 + received[0]
    for number in SIGNALS:
        stopped = 128 + number
        if (received or len(found) == nproc) and set(found.values()) | {0} == {0, stopped}:
            return stopped
    return 1


def codes(folder: Path) -> dict[int, int | None]:
    """What the processes of the last attempt left: exit codes by rank."""
    return {rank: _read(folder / f"{_last(folder)}-{rank}.code") for rank in _workers(folder)}


def _workers(folder: Path) -> dict[int, int]:
    """Process ids of the last attempt by rank."""
    found = {f: _read(f) for f in folder.glob(f"{_last(folder)}-*.pid")}
    return {int(f.stem.split("-")[1]): pid for f, pid in found.items() if pid is not None}


def _last(folder: Path) -> int:
    return max((int(f.stem.split("-")[0]) for f in folder.glob("*.pid")), default=0)


def _read(path: Path) -> int | None:
    text = path.read_text() if path.exists() else ""
    return int(text) if text.strip().isdecimal() else None


def _kill(processes: Sequence[int]) -> None:
    """End sessions at once; every worker and the agent lead one of their own."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)


def agent() -> None:
    """Torchrun in this process, with a line instead of a page when a worker fails."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    start: Any = run
    parse: Any = parse_args
    try:
        start(parse(sys.argv[1:]))
    except SignalException as stop:
        sys.exit(128 + int(stop.sigval))
    except ChildFailedError as error:
        for rank, failure in sorted(error.failures.items()):
            typer.echo(f"leanbayes: process {rank} ended with {failure.exitcode}", err=True)
        sys.exit(1)
