"""The checkpoints of a run: which stay, which is read, and what a crash leaves."""

import os
import warnings

import pytest

import leanbayes as lb
from leanbayes.train.store import Store


def files(step):
    return {
        "state.json": f'{{"step": {step}}}'.encode(),
        "state.safetensors": bytes([step % 256] * 50),
    }


def filled(folder, steps, keep=2, best=()):
    store = Store(folder, keep=keep)
    for step in steps:
        store.save(step, files(step), best=step in best)
    return store


def names(store):
    return sorted(path.name for path in store.folder.iterdir())


def test_what_is_saved_is_read(tmp_path):
    store = Store(tmp_path / "runs" / "one")
    assert (store.newest(), store.best(), store.steps()) == (None, None, [])
    path = store.save(7, files(7))
    assert path == tmp_path / "runs" / "one" / "checkpoints" / "step-00000007"
    assert store.newest() == (7, files(7))
    assert store.read(7) == files(7)
    assert store.best() is None


def test_the_newest_and_the_best_stay(tmp_path):
    store = filled(tmp_path, [1, 2, 3, 4, 5], keep=2, best=[1, 2])
    assert store.steps() == [2, 4, 5]
    assert store.newest() == (5, files(5))
    assert store.best() == (2, files(2))
    store.save(6, files(6), best=True)
    assert store.steps() == [5, 6]
    assert store.best() == (6, files(6))


def test_steps_are_ordered_by_number(tmp_path):
    store = filled(tmp_path, [9, 99_999_999, 100_000_000])
    assert store.steps() == [99_999_999, 100_000_000]


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "manifest", "empty", "file", "link"])
def test_a_damaged_checkpoint_is_passed_over_with_its_name(tmp_path, damage):
    store = filled(tmp_path, [1, 2])
    path = store.folder / "step-00000002"
    target = path / ("MANIFEST.json" if damage == "manifest" else "state.safetensors")
    if damage == "flip":
        target.write_bytes(b"\xff" + target.read_bytes()[1:])
    elif damage == "cut":
        os.truncate(target, 20)
    elif damage in ("gone", "manifest"):
        target.unlink()
    else:
        for file in path.iterdir():
            file.unlink()
    if damage in ("file", "link"):
        path.rmdir()
        path.write_text("x") if damage == "file" else path.symlink_to("nowhere")
    with pytest.warns(UserWarning, match=r"checkpoint 2 is passed over: .*step-00000002"):
        assert store.newest() == (1, files(1))
    with pytest.raises(lb.CheckpointError, match="step-00000002"):
        store.read(2)
    store.save(2, files(2))  # the run comes by again
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.newest() == (2, files(2))
    assert names(store) == ["step-00000001", "step-00000002"]


def test_nothing_valid_is_nothing(tmp_path):
    store = filled(tmp_path, [3])
    (store.folder / "step-00000003" / "state.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"state\.json is damaged"):
        assert store.newest() is None


def test_later_checkpoints_of_an_abandoned_run_do_not_outlive_a_save(tmp_path):
    store = filled(tmp_path, [10, 20, 30], keep=3)
    for step in (20, 30):
        (store.folder / f"step-{step:08d}" / "state.json").write_text("damaged")
    with pytest.warns(UserWarning, match="passed over"):
        assert store.newest()[0] == 10
    Store(tmp_path, keep=1).save(15, files(15))  # a save out of turn, before the next regular one
    assert store.newest() == (15, files(15))
    assert store.steps() == [15]


def test_a_crash_while_a_checkpoint_is_replaced_loses_neither(tmp_path):
    store = filled(tmp_path, [1, 2])
    path = store.folder / "step-00000002"
    path.rename(store.folder / ".step-00000002.old")
    assert store.newest() == (2, files(2))
    store.save(3, files(3))
    assert store.steps() == [2, 3]
    assert store.read(2) == files(2)
    store.save(4, files(4))
    assert names(store) == ["step-00000003", "step-00000004"]


def test_the_best_one_is_found_after_such_a_crash(tmp_path):
    store = filled(tmp_path, [1, 2], best=[2])
    (store.folder / "step-00000002").rename(store.folder / ".step-00000002.old")
    assert store.best() == (2, files(2))
    store.save(3, files(3))
    store.save(4, files(4))
    assert store.best() == (2, files(2))


def test_what_crashes_left_is_swept_away(tmp_path):
    store = filled(tmp_path, [1])
    for name in (".step-00000009.new", ".step-00000001.old", ".step-00000000.gone"):
        (store.folder / name).mkdir()
        (store.folder / name / "state.json").write_text("half")
    (store.folder / "notes.txt").write_text("mine")
    assert store.newest() == (1, files(1))
    store.save(2, files(2))
    assert names(store) == ["notes.txt", "step-00000001", "step-00000002"]


def test_saving_a_step_again_replaces_it(tmp_path):
    store = filled(tmp_path, [1, 2])
    store.save(2, files(5), best=True)
    assert store.newest() == (2, files(5))
    assert store.best() == (2, files(5))


def test_names_of_files_stay_inside(tmp_path):
    store = filled(tmp_path, [1])
    for name in ("../x", "a/b", "", "..", "MANIFEST.json", "a\0"):
        with pytest.raises(lb.CheckpointError, match="no plain file name"):
            store.save(2, {name: b"x"})
    assert names(store) == ["step-00000001"]


def test_a_store_keeps_at_least_one(tmp_path):
    with pytest.raises(lb.ConfigError, match="at least 1"):
        Store(tmp_path, keep=0)
