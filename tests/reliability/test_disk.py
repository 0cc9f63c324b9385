"""A full disk, a read-only directory, a disk that fails: a clear error, and the last save loads."""

import errno
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.train.state import pack, unpack
from leanbayes.train.store import Store

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Faults:
    """Counts what a save asks of the disk, and fails from a given request on, or once."""

    def __init__(self, monkeypatch):
        self.count, self.at, self.last, self.code = 0, None, True, errno.EIO
        for name in ("fsync", "rename", "mkdir"):
            monkeypatch.setattr(os, name, self.failing(getattr(os, name)))
        monkeypatch.setattr(io, "open", self.opened(io.open))

    def request(self):
        self.count += 1
        if self.at is not None and (self.count == self.at or (self.last and self.count > self.at)):
            raise OSError(self.code, os.strerror(self.code))

    def failing(self, function):
        def call(*arguments, **keywords):
            self.request()
            return function(*arguments, **keywords)

        return call

    def opened(self, function):
        def call(path, mode="r", *arguments, **keywords):
            if "w" not in mode:
                return function(path, mode, *arguments, **keywords)
            self.request()
            file = function(path, mode, *arguments, **keywords)
            return Torn(file, self)

        return call

    def arm(self, at, code, last):
        self.count, self.at, self.code, self.last = 0, at, code, last

    def disarm(self):
        self.at = None


class Torn:
    """A file of which a failing write leaves the first half."""

    def __init__(self, file, faults):
        self.file, self.faults = file, faults

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        try:
            self.faults.request()
        except OSError:
            self.file.write(data[: len(data) // 2])
            raise
        self.file.write(data)


@pytest.fixture
def faults(monkeypatch):
    return Faults(monkeypatch)


def state(step):
    return {"step": step, "weight": torch.full((50,), float(step))}


def loaded(store):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a failed save leaves nothing that looks damaged
        step, files = store.newest()
    tree = unpack(files)
    assert torch.equal(tree["weight"], torch.full((50,), float(tree["step"])))
    return step, tree["step"]


def attempt(store, step, value):
    """True where the save said that it was done."""
    try:
        store.save(step, pack(state(value)))
    except lb.CheckpointError as error:
        message = str(error)
    else:
        return True
    assert f"step-{step:08d}" in message
    assert "What was there still is" in message
    return False


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=os.strerror)
@pytest.mark.parametrize("last", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("again", [False, True], ids=["next step", "same step"])
def test_a_fault_at_any_request_keeps_what_was_there(tmp_path, faults, code, last, again):
    step, failures, kept = (1 if again else 2), 0, 0
    for at in range(1, 100):
        store = Store(tmp_path / str(at), keep=1)
        store.save(1, pack(state(1)))
        faults.arm(at, code, last)
        done = attempt(store, step, 2)
        reached = faults.count >= at
        faults.disarm()
        failures += not done
        # If the disk is lost between the last rename and its sync, the new one stands in its place.
        stands = [(1, 1)] * (not done) + [(step, 2)] * (done or last)
        assert loaded(store) in stands
        kept += loaded(store) == (1, 1)
        store.save(3, pack(state(3)))  # when there is room again
        assert loaded(store) == (3, 3)
        assert [path.name for path in store.folder.iterdir()] == ["step-00000003"]
        if not reached:
            break
    assert failures - kept <= last
    assert failures >= 13  # three files opened, written and synced; two directories; a rename


@pytest.mark.parametrize("last", [False, True], ids=["once", "from then on"])
def test_a_fault_while_a_model_is_saved_keeps_the_model_before(tmp_path, faults, last):
    def model(value):
        made = lb.bayesianize(nn.Linear(2, 2), lb.MeanField())
        with torch.no_grad():
            made.net.weight.fill_(value)
        return made

    for at in range(1, 100):
        faults.disarm()
        lb.save(model(1.0), tmp_path / "m")
        faults.arm(at, errno.ENOSPC, last)
        try:
            lb.save(model(2.0), tmp_path / "m")
            expected, words = [2.0], "No space left on device"
        except lb.CheckpointError as error:
            expected, words = [1.0, 2.0] if last else [1.0], str(error)
        reached = faults.count >= at
        faults.disarm()
        again = lb.load(nn.Linear(2, 2), tmp_path / "m")
        assert "No space left on device" in words
        assert set(again.net.weight.flatten().tolist()) in [{value} for value in expected]
        if not reached:
            break
    assert at > 10


SAVES = """
import sys, torch
from pathlib import Path
import leanbayes as lb
from leanbayes.train.state import pack, unpack
from leanbayes.train.store import Store
store = Store(Path(sys.argv[1]))

def save(step, size):
    store.save(step, pack({"step": step, "weight": torch.full((size,), float(step))}))

def refused(step, size):
    try:
        save(step, size)
    except lb.CheckpointError as error:
        print(error)
        assert unpack(store.newest()[1])["step"] == step - 1
        return
    raise SystemExit("the save was not refused")
"""

LIMITED = """
import resource
save(1, 1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
refused(2, 1_000_000)
save(2, 1000)
"""

FULL = """
save(1, 100_000)
refused(2, 1_000_000)
assert [path.name for path in store.folder.iterdir()] == ["step-00000001"]
save(2, 1000)
"""

READ_ONLY = """
import subprocess
save(1, 1000)
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
refused(2, 1000)
"""


def in_process(code, folder, *before):
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [*before, sys.executable, "-W", "error", "-c", SAVES + code, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_limit_on_the_size_of_files_is_a_clear_error(tmp_path):
    assert "File too large" in in_process(LIMITED, tmp_path)


def small_disk(folder):
    """A command that runs another one with a disk of 2 MB at `folder`, seen by it alone."""
    mount = 'mount -t tmpfs -o size=2m small "$0" && exec "$@"'
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    command = [*own, "sh", "-c", mount, str(folder)]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode:
        pytest.skip("this user may not mount a disk")
    return command


def test_a_full_disk_is_a_clear_error(tmp_path):
    assert "No space left on device" in in_process(FULL, tmp_path, *small_disk(tmp_path))


def test_a_read_only_disk_is_a_clear_error(tmp_path):
    assert "Read-only file system" in in_process(READ_ONLY, tmp_path, *small_disk(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_directory_is_a_clear_error(tmp_path):
    store = Store(tmp_path)
    store.save(1, pack(state(1)))
    store.folder.chmod(0o555)
    try:
        assert not attempt(store, 2, 2)
        assert loaded(store) == (1, 1)
    finally:
        store.folder.chmod(0o755)


def test_a_file_where_the_folder_should_be_is_a_clear_error(tmp_path):
    (tmp_path / "checkpoints").write_text("mine")
    store = Store(tmp_path)
    with pytest.raises(lb.CheckpointError, match="checkpoints"):
        store.save(1, pack(state(1)))
    with pytest.raises(lb.CheckpointError, match="checkpoints"):
        store.newest()
    assert (tmp_path / "checkpoints").read_text() == "mine"
