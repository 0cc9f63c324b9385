"""The file of `--out` belongs to one command at a time."""

import subprocess
import sys

import pytest

from leanbayes.cli.compare.kept import folder_of
from leanbayes.cli.record_file import alone, alone_in, check_place
from leanbayes.errors import ConfigError

COMMANDS = (
    ("compare", "fashion_mini", "--methods", "map", "--smoke", "--no-price", "--resume"),
    ("experiment", "toy", "--smoke"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_second_command_is_refused_and_the_rows_of_the_first_stay(command, leanbayes, tmp_path):
    out = tmp_path / "rows.json"
    out.write_text("rows of the first")
    with alone(out):
        result = leanbayes(*command, "--out", out)
    assert result.code == 2, result.err
    assert "rows.json is being written by another command" in result.err
    assert out.read_text() == "rows of the first"
    assert list(tmp_path.iterdir()) == [out]  # no lock is left


def test_an_evaluation_has_its_file_alone_too(leanbayes, finished, tmp_path):
    out = tmp_path / "one.json"
    words = ("evaluate", finished, "--suite", "test", "--rows", 5, "--out", out)
    with alone(out):
        result = leanbayes(*words)
    assert (result.code, "one.json is being written by another command" in result.err) == (2, True)
    assert leanbayes(*words).code == 0
    assert list(tmp_path.iterdir()) == [out]


def test_a_look_at_the_place_leaves_what_another_command_is_writing(tmp_path):
    beside = tmp_path / ".rows.json.new"  # of `write_file`, on its way to rows.json
    beside.write_text("half of it")
    check_place(tmp_path / "rows.json")
    assert list(tmp_path.iterdir()) == [beside]
    assert beside.read_text() == "half of it"


def test_the_file_is_free_again_after_an_end_of_any_kind(tmp_path):
    out = tmp_path / "rows.json"
    with pytest.raises(ZeroDivisionError), alone(out):
        raise ZeroDivisionError
    killed = (
        "import os, pathlib, sys\n"
        "from leanbayes.cli.record_file import alone\n"
        "with alone(pathlib.Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", killed, out], check=False).returncode == -9
    with alone(out), pytest.raises(ConfigError, match="another command"), alone(out):
        pass
    with alone(out), alone(None):
        pass


def test_a_folder_of_starts_and_scores_belongs_to_one_command_whatever_its_file(
    leanbayes, tmp_path
):
    keep = tmp_path / "kept"
    words = ("compare", "fashion_mini", "--methods", "map", "--smoke", "--no-price")
    with folder_of(keep, tmp_path / "one.json", needed=False):
        result = leanbayes(*words, "--keep", keep, "--out", tmp_path / "two.json")
    assert result.code == 2, result.err
    assert f"--keep {keep} is in use by another command" in result.err
    assert list(tmp_path.iterdir()) == [keep]
    assert not list(keep.iterdir())  # no lock is left


def test_a_folder_where_nothing_can_be_written_needs_no_lock(tmp_path):
    with alone_in(tmp_path / "missing"):
        assert not list(tmp_path.iterdir())


def test_a_run_belongs_to_one_command_at_a_time(leanbayes, tmp_path):
    """Two that train into one folder would mix checkpoints, and the log has every line twice."""
    folder = tmp_path / "run"
    folder.mkdir()
    words = ("train", "--data", "digits", "--model", "lenet", "--method", "map", "--smoke")
    with alone_in(folder):
        result = leanbayes(*words, "--folder", folder)
        assert result.code == 2, result.err
        assert f"--folder {folder} is in use by another command" in result.err
        assert [file.name for file in folder.iterdir()] == [".lock"]
    assert leanbayes(*words, "--folder", folder).code == 0
    assert not (folder / ".lock").exists()
