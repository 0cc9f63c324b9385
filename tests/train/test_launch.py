"""`leanbayes launch`: exit codes, signals, restarts; the launched scripts are a few lines each."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import leanbayes as lb
from leanbayes.cli.launch import COMMAND, FOLDER, launch, outcome
from leanbayes.cli.worker import exit_code, work

# The command by itself, so that this does not hang on what else the command line offers.
PROGRAM = """
import typer
from leanbayes.cli.launch import SETTINGS, launch
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(context_settings=SETTINGS)(launch)
app()
"""
PATIENCE = 240
TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.fixture
def launched(tmp_path):
    """Start a script under `launch`; ends with the test."""
    started = []

    def start(script, *arguments, options=("--nproc", "2")):
        path = tmp_path / "script.py"
        path.write_text(script)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *options, str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def ended(process):
    out, err = process.communicate(timeout=PATIENCE)
    return SimpleNamespace(code=process.returncode, out=out, err=err)


def wait_for(folder, pattern, count=2):
    deadline = time.monotonic() + PATIENCE
    while len(list(folder.glob(pattern))) < count:
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("failed", "codes", "received", "expected"),
    [
        (False, {0: 0, 1: 0}, [], 0),
        (False, {0: 0, 1: 0}, [TERM], 0),  # it had just ended by itself
        (True, {0: 143, 1: 143}, [TERM], 143),
        (True, {0: 143, 1: 143}, [], 143),  # the signal went to the workers
        (True, {0: 130, 1: 130}, [INT], 130),
        (True, {0: 0, 1: 143}, [TERM], 143),
        (True, {}, [TERM], 143),  # before a worker had begun
        (True, {0: None, 1: 143}, [TERM], 1),  # killed before it had saved
        (True, {0: 143}, [], 1),  # the agent stopped it because the other had died
        (True, {0: None, 1: 143}, [], 1),
        (True, {0: 3, 1: 3}, [], 3),
        (True, {0: 143, 1: 4}, [], 4),
        (True, {0: 5, 1: 143}, [TERM], 5),
        (True, {0: 1, 1: 143}, [], 1),
        (True, {0: 0, 1: 0}, [], 1),  # died after its work
        (True, {0: None, 1: None}, [TERM, TERM], 143),
        (True, {}, [], 1),
    ],
)
def test_the_exit_code_follows_from_what_the_workers_left(failed, codes, received, expected):
    assert outcome(failed, codes, 2, received) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lb.errors.NonFinite("x"), 3),
        (lb.errors.OutOfMemory("x"), 4),
        (lb.CheckpointError("x"), 5),
        (lb.errors.DataError("x"), 5),
        (lb.ConfigError("x"), 2),
    ],
)
def test_errors_have_their_exit_codes(error, code):
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nnodes": "2"}, "--rdzv-endpoint"),
        ({"nnodes": "two"}, "'two'"),
        ({"nnodes": "1:2:3"}, "'1:2:3'"),
        ({"nnodes": "0"}, "'0'"),
    ],
)
def test_machines_need_a_place_to_meet(options, words):
    with pytest.raises(lb.ConfigError, match=words):
        launch(["train"], nproc=1, **options)


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker in this process, at the second attempt; gives its exit code and what it noted."""
    for name, value in {FOLDER: tmp_path, "RANK": 1, "TORCHELASTIC_RESTART_COUNT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("leanbayes.cli.worker._end_where_stuck", lambda _note: None)
    handlers = {number: signal.getsignal(number) for number in (TERM, INT)}

    def run(*arguments):
        (tmp_path / COMMAND).write_text(json.dumps(arguments))
        return work(), (tmp_path / "1-1.code").read_text()

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("x = 1", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('words')", 1),
        ("raise ValueError('a defect')", 1),
        ("import leanbayes as lb; raise lb.errors.NonFinite('step 3')", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM); print()", 143),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT); print()", 130),
    ],
)
def test_a_worker_notes_how_its_script_ended(worker, tmp_path, script, code):
    path = tmp_path / "s.py"
    path.write_text(script)
    assert worker(str(path)) == (code, str(code))


def test_a_worker_runs_commands_of_leanbayes(worker, capsys):
    assert worker("methods", "--json") == (0, "0")
    assert "mean_field" in capsys.readouterr().out
    assert worker("methods", "--colour")[0] == 2


def test_a_script_that_is_not_there_starts_no_process(tmp_path):
    with pytest.raises(lb.ConfigError, match=r"no script at .*nope.py; expected a file"):
        launch([str(tmp_path / "nope.py")], nproc=2)


@pytest.mark.parametrize("name", ["compare", "predict", "leanbayes", "--config"])
def test_what_processes_do_not_share_is_not_started(name):
    """Each of them would do all of it, or be kept out by the other's lock."""
    with pytest.raises(lb.ConfigError, match=f"'{name}' is nothing .* train, adapt, evaluate"):
        launch([name, "fashion_mini"], nproc=2)


def test_an_attempt_after_an_incurable_one_ends_at_once(worker, tmp_path):
    (tmp_path / "0-0.code").write_text("3")
    assert worker("no-such-file.py") == (3, "3")


TOGETHER = """
import os, sys
from pathlib import Path
from leanbayes.train.runtime import Runtime
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    os.kill(os.getpid(), 9)
with Runtime(device="cpu", timeout=60) as runtime:
    ranks = runtime.gather(runtime.rank)
    Path(f"rank{runtime.rank}").write_text(f"{ranks} {sys.argv[1:]}")
assert os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
"""


@pytest.mark.distributed
def test_a_killed_process_is_started_again_and_arguments_are_passed_on(launched, tmp_path):
    found = ended(launched(TOGETHER, "--nproc", "9", "--unknown=1", "-m"))
    assert found.code == 0, found.err
    for rank in range(2):
        text = (tmp_path / f"rank{rank}").read_text()
        assert text == "[0, 1] ['--nproc', '9', '--unknown=1', '-m']"


INCURABLE = """
import os
from pathlib import Path
import leanbayes as lb
Path("attempt" + os.environ["TORCHELASTIC_RESTART_COUNT"]).touch()
raise lb.errors.NonFinite("step 3: net.head.weight")
"""


@pytest.mark.distributed
def test_an_incurable_error_keeps_its_exit_code_and_is_not_tried_again(launched, tmp_path):
    start = time.monotonic()
    found = ended(launched(INCURABLE))
    assert found.code == 3, found.err
    assert time.monotonic() - start < 30
    assert "net.head.weight" in found.err
    assert [f.name for f in tmp_path.glob("attempt*")] == ["attempt0"]


SAVING = """
import os, signal, sys, time
from pathlib import Path
rank = os.environ["RANK"]
def stop(number, frame):
    Path("saved" + rank).touch()
    sys.exit(128 + number)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, stop)
Path("ready" + rank).touch()
time.sleep(100)
"""


@pytest.mark.distributed
@pytest.mark.parametrize("number", [TERM, pytest.param(INT, marks=pytest.mark.slow)])
def test_a_signal_reaches_the_workers_and_gives_its_exit_code(launched, tmp_path, number):
    process = launched(SAVING)
    wait_for(tmp_path, "ready*")
    start = time.monotonic()
    process.send_signal(number)
    assert ended(process).code == 128 + number
    assert time.monotonic() - start < 10
    assert len(list(tmp_path.glob("saved*"))) == 2


def is_alive(pid):
    """True but for processes that are gone, or dead and waiting for somebody to ask how."""
    stat = Path("/proc") / pid / "stat"
    if not Path("/proc/self").exists():
        return subprocess.run(["ps", "-p", pid], capture_output=True, check=False).returncode == 0
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


STUBBORN = """
import os, signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path("ready" + str(os.getpid())).touch()
time.sleep(100)
"""


WAITING = """
import os
from datetime import timedelta
from pathlib import Path
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
Path("ready" + os.environ["RANK"]).touch()
store.wait(["a word from a process that is dead"], timedelta(seconds=100))
"""


@pytest.mark.distributed
def test_a_signal_ends_workers_that_wait_for_dead_ones(launched, tmp_path):
    process = launched(WAITING)
    wait_for(tmp_path, "ready*")
    start = time.monotonic()
    process.send_signal(TERM)
    assert ended(process).code == 143
    assert time.monotonic() - start < 10


@pytest.mark.distributed
def test_a_second_signal_ends_everything_at_once(launched, tmp_path):
    process = launched(STUBBORN)
    wait_for(tmp_path, "ready*")
    process.send_signal(TERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(TERM)
    assert ended(process).code == 143
    deadline = time.monotonic() + 10
    while any(is_alive(mark.name.removeprefix("ready")) for mark in tmp_path.glob("ready*")):
        assert time.monotonic() < deadline, "a worker lives on"
