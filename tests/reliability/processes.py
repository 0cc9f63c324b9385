"""Start, kill and await the target; shared by the reliability tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"


def environment(**extra):
    paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **extra}


def start(folder, *, method="mean_field", **extra):
    return opened([sys.executable, str(HERE / "target.py"), str(folder), method], **extra)


def opened(command, **extra):
    """A process in a session of its own, its words kept."""
    return subprocess.Popen(
        command,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process, patience=240):
    """Exit code and output; a process that hangs is killed and fails the test."""
    try:
        output, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"hung for {patience} s:\n{output[-2000:]}") from None
    return process.returncode, output


def has_begun(folder, patience=240):
    """Wait for the first checkpoint, so that kills fall into the run and not into imports."""
    return _appears(folder, "checkpoints/step-*", patience)


def has_ended(folder, patience=240):
    """Wait for the digest that follows the last step."""
    return _appears(folder, "digest", patience)


def _appears(folder, pattern, patience):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if any(Path(folder).glob(pattern)):
            return True
        time.sleep(0.01)
    return False


def digest_of(folder):
    return (Path(folder) / "digest").read_text()
