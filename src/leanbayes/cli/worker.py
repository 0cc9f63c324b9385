"""One process of `leanbayes launch`: runs the command, and notes how it ended.

Started by torchrun's agent as `python -m leanbayes.cli.worker`.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from leanbayes.cli.launch import COMMAND, FOLDER, SIGNALS, incurable
from leanbayes.errors import CheckpointError, DataError, LeanBayesError, NonFinite, OutOfMemory

EXIT_CODES: dict[type[LeanBayesError], int] = {
    NonFinite: 3,
    OutOfMemory: 4,
    CheckpointError: 5,
    DataError: 5,
}


def work() -> int:
    """Run the command that the folder of the launch names; leave the exit code there."""
    folder, attempt = Path(os.environ[FOLDER]), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = f"{attempt}-{os.environ.get('RANK', '0')}"
    arguments = json.loads((folder / COMMAND).read_text(encoding="utf-8"))
    earlier = incurable(folder)
    _write(folder / f"{name}.pid", os.getpid())
    for number in SIGNALS:  # until the run notes them by itself
        signal.signal(number, _stop)
    _end_where_stuck(folder / f"{name}.code")
    code = _run(arguments) if earlier is None else earlier
    _write(folder / f"{name}.code", code)
    return code


def _end_where_stuck(note: Path) -> None:
    """Obey a signal where Python cannot: in a wait for other processes that may be dead.

    Handlers of Python run between two of its instructions; torchrun would wait for half a minute
    and then kill. While a run trains it has its own handlers, and is left to them.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reader, note), daemon=True).start()


def _listen(reader: int, note: Path) -> None:
    while received := os.read(reader, 1):
        number = received[0]
        if number in SIGNALS and signal.getsignal(number) is _stop:
            time.sleep(1.0)  # the orderly way out comes first
            _write(note, 128 + number)
            os._exit(128 + number)


def _run(arguments: list[str]) -> int:
    try:
        _call(arguments)
    except SystemExit as stop:
        return _number(stop)
    except LeanBayesError as error:
        traceback.print_exc()
        return exit_code(error)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _call(arguments: list[str]) -> None:
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
        return
    from leanbayes.cli import main

    sys.argv = ["leanbayes", *arguments]
    main()


def exit_code(error: LeanBayesError) -> int:
    """3: not finite; 4: out of memory; 5: a bad file or bad data; 2: a wrong setting or use."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 2)


def _number(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _write(path: Path, number: int) -> None:
    """Whole or not at all: a reader may come at any moment."""
    beside = path.with_suffix(".new")
    beside.write_text(str(number))
    beside.rename(path)


if __name__ == "__main__":
    sys.exit(work())
