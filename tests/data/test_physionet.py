import json

import numpy as np
import pytest
import torch

from leanbayes.data.physionet import VARIABLES, Stays, encoded_stays, physionet2012, thinned
from leanbayes.errors import ConfigError, DataError
from leanbayes.models import create

OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
SMALL = {"bins": 4, "length": 8, "window": 0, "validation": 0}


def event_id(name, bin_, bins=4):
    return 1 + VARIABLES.index(name) * bins + bin_


def write_set(root, part, stays):
    """Stays as (record, death, lines), in the files of the challenge."""
    folder = root / f"set-{part}"
    folder.mkdir(parents=True, exist_ok=True)
    for record, _, lines in stays:
        head = f"Time,Parameter,Value\n00:00,RecordID,{record}\n"
        (folder / f"{record}.txt").write_text(head + "\n".join(lines) + "\n")
    rows = "".join(f"{record},1,2,3,-1,{death}\n" for record, death, _ in stays)
    (root / f"Outcomes-{part}.txt").write_text(OUTCOMES + rows)


def stay(record, death, *, gender=0, rates=()):
    """A stay with a heart rate an hour."""
    lines = ["00:00,Age,60", f"00:00,Gender,{gender}", "00:00,Height,-1", "00:00,Weight,-1"]
    return record, death, lines + [f"{hour:02d}:07,HR,{rate}" for hour, rate in enumerate(rates)]


@pytest.fixture
def root(tmp_path):
    """Heart rates 1 to 8 in set a, so that four bins hold two each."""
    write_set(
        tmp_path,
        "a",
        [
            stay(11, 0, gender=0, rates=(1, 2, 3)),
            stay(12, 1, gender=1, rates=(4, 5, 6, 7, 8)),
        ],
    )
    write_set(tmp_path, "b", [stay(21, 1, gender=1, rates=(0, 100)), stay(22, 0, rates=(4.5,))])
    return tmp_path


def pack(stays_by_set, path):
    """The same stays in the packed layout, variables in another order than ours."""
    names = [*reversed(VARIABLES)]
    arrays = {"params": np.array(names)}
    for part, stays in stays_by_set.items():
        events = [
            [
                (60 * int(t[:2]) + int(t[3:]), names.index(n), float(v))
                for t, n, v in map(cut, lines)
            ]
            for _, _, lines in stays
        ]
        minute, param, value = np.array([e for rows in events for e in rows]).T
        arrays |= {
            f"{part}_offsets": np.cumsum([0, *map(len, events)]).astype(np.int32),
            f"{part}_minute": minute.astype(np.uint16),
            f"{part}_param": param.astype(np.uint8),
            f"{part}_value": value.astype(np.float32),
            f"{part}_death": np.array([death for _, death, _ in stays], np.uint8),
        }
    np.savez(path, **arrays)


def cut(line):
    return line.split(",")


def test_a_stay_is_its_descriptors_then_its_events_behind_the_padding(root):
    data = physionet2012(root=str(root), **SMALL)
    rates = [event_id("HR", b) for b in (0, 0, 1)]
    first = [0, 0, 0, event_id("Age", 0), event_id("Gender", 0), *rates]
    assert data.train[0][0].tolist() == first
    assert data.train[1].tolist() == [0, 1]
    assert data.task == "binary"
    assert data.classes == ("survived", "died")


def test_bins_are_quantiles_of_the_training_stays_and_catch_what_lies_outside(root):
    data = physionet2012(root=str(root), **SMALL)
    assert data.edges[VARIABLES.index("HR")] == (2, 4, 6)
    assert data.edges[VARIABLES.index("Gender")] == (0,)
    assert data.edges[VARIABLES.index("Age")] == ()
    assert data.test[0][0, -2:].tolist() == [event_id("HR", 0), event_id("HR", 3)]
    assert data.test[0][1, -1] == event_id("HR", 2)


def test_validation_stays_do_not_shape_the_bins(tmp_path):
    stays = [stay(100 + i, i % 2, rates=(float(i),)) for i in range(10)]
    write_set(tmp_path, "a", stays)
    data = physionet2012(root=str(tmp_path), **(SMALL | {"validation": 4}))
    again = physionet2012(root=str(tmp_path), **(SMALL | {"validation": 4}))
    other = physionet2012(root=str(tmp_path), **(SMALL | {"validation": 4, "seed": 1}))
    assert (len(data.train[1]), len(data.validation[1])) == (6, 4)
    assert data.test is None
    edges = data.edges[VARIABLES.index("HR")]
    assert torch.equal(data.train[0], again.train[0])
    assert edges == again.edges[VARIABLES.index("HR")]
    assert edges != other.edges[VARIABLES.index("HR")]
    counts = torch.bincount(data.train[0][:, -1] - event_id("HR", 0), minlength=4)
    assert counts.sum() == 6
    assert counts.min() >= 1


def test_a_long_stay_loses_its_oldest_events_but_no_descriptor(root):
    data = physionet2012(root=str(root), **(SMALL | {"length": 5}))
    heads = [event_id("Age", 0), event_id("Gender", 1)]
    assert data.train[0][1].tolist() == heads + [event_id("HR", b) for b in (2, 3, 3)]


def test_a_variable_counts_once_a_window_by_its_last_value(tmp_path):
    lines = ["00:10,HR,1", "00:20,Temp,36", "00:50,HR,2", "01:00,HR,3", "00:00,Age,50"]
    write_set(tmp_path, "a", [(1, 0, lines)])
    data = physionet2012(root=str(tmp_path), **(SMALL | {"window": 60}))
    temp, rate = event_id("Temp", 0), event_id("HR", 0)
    assert data.train[0][0].tolist() == [0, 0, 0, 0, event_id("Age", 0), temp, rate, rate + 1]


def test_thinning_does_not_mix_stays():
    stays = Stays(
        stay=np.array([0, 0, 1]),
        minute=np.array([-1, 59, 0]),
        variable=np.array([0, 6, 6]),
        value=np.array([50.0, 80.0, 90.0]),
        death=np.array([0, 1]),
    )
    assert thinned(stays, 60).value.tolist() == [50.0, 80.0, 90.0]
    ids = encoded_stays(stays, ((),) * len(VARIABLES), bins=2, length=2)
    assert ids.tolist() == [[1, 13], [0, 13]]


def test_both_layouts_give_the_same(root, tmp_path):
    sets = {
        "a": [
            stay(11, 0, gender=0, rates=(1, 2, 3)),
            stay(12, 1, gender=1, rates=(4, 5, 6, 7, 8)),
        ],
        "b": [stay(21, 1, gender=1, rates=(0, 100)), stay(22, 0, rates=(4.5,))],
    }
    folder = tmp_path / "packed"
    folder.mkdir()
    pack(sets, folder / "physionet2012.npz")
    one, two = (physionet2012(root=str(r), **SMALL) for r in (root, folder))
    assert one.edges == two.edges
    for part in ("train", "test"):
        for a, b in zip(getattr(one, part), getattr(two, part), strict=True):
            assert torch.equal(a, b)


def test_the_classifier_of_events_takes_the_rows_as_they_are(root):
    data = physionet2012(root=str(root), **SMALL)
    assert data.events == 1 + 4 * 41
    net = create("lstm_classifier", events=data.events, num_classes=1, width=8)
    shown = net(data.test[0])
    changed = net(data.test[0].index_fill(1, torch.tensor([7]), data.events - 1))
    assert shown.shape == (2, 1)
    assert not torch.allclose(shown, changed)


def test_card_is_json_with_the_encoding(root):
    card = json.loads(json.dumps(physionet2012(root=str(root), **SMALL).card()))
    assert card["events"] == 165
    assert card["edges"][VARIABLES.index("HR")] == [2, 4, 6]
    assert (card["bins"], card["window"], card["task"]) == (4, 0, "binary")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("00:10,Pulse,1", "unknown variable 'Pulse'"),
        ("00:10,HR,fast", r"line 7.*expected HH:MM,variable,number"),
        ("morning,HR,1", r"line 7.*expected HH:MM,variable,number"),
        ("00:10,HR", "line 7: 2 cells; expected 3"),
        ("00:10,HR,nan", "is nan; expected finite"),
        ("99:00,HR,1", "expected 0 to 2880"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    record, death, lines = stay(1, 0)
    write_set(tmp_path, "a", [(record, death, [*lines, line])])
    with pytest.raises(DataError, match=message):
        physionet2012(root=str(tmp_path), **SMALL)


def test_missing_files_and_outcomes_are_named(root):
    (root / "Outcomes-a.txt").write_text(OUTCOMES + "11,1,2,3,-1,0\n")
    with pytest.raises(DataError, match=r"lacks 12\.txt"):
        physionet2012(root=str(root), **SMALL)
    (root / "Outcomes-a.txt").write_text(OUTCOMES + "11,1,2,3,-1,0\n12,1,2,3,-1,2\n")
    with pytest.raises(DataError, match="of 12 is not 0 or 1"):
        physionet2012(root=str(root), **SMALL)
    (root / "Outcomes-a.txt").unlink()
    with pytest.raises(DataError, match=r"expected Outcomes-a\.txt"):
        physionet2012(root=str(root), **SMALL)


def test_an_empty_folder_and_an_empty_stay_are_refused(tmp_path):
    with pytest.raises(DataError, match="expected set-a"):
        physionet2012(root=str(tmp_path), **SMALL)
    write_set(tmp_path, "a", [(1, 0, ["00:00,Height,-1"])])
    with pytest.raises(DataError, match="stay 0 has no event"):
        physionet2012(root=str(tmp_path), **SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a_value": np.zeros(2)}, "do not fit each other"),
        ({"a_offsets": np.array([1, 6])}, "do not fit each other"),
        ({"a_offsets": np.array([6])}, r"expected offsets \[N \+ 1\]"),
        ({"a_param": np.zeros(6)}, "all but value whole numbers"),
        ({"a_param": np.full(6, -1)}, "a_param is -1 to -1; expected 0 to 40"),
        ({"params": np.array(["Age"])}, "a_param is 34 to 40; expected 0 to 0"),
        ({"params": np.array(["Pulse"] * 41)}, "unknown variable 'Pulse'"),
        ({"a_death": np.array([2])}, "death is 2 to 2; expected 0 or 1"),
    ],
)
def test_an_archive_whose_arrays_do_not_fit_is_refused(tmp_path, change, message):
    path = tmp_path / "physionet2012.npz"
    pack({"a": [stay(1, 0, rates=(1, 2))]}, path)
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **(arrays | change))
    with pytest.raises(DataError, match=message):
        physionet2012(root=str(tmp_path), **SMALL)


@pytest.mark.parametrize("options", [{"bins": 1}, {"length": 4}, {"window": -1}, {"validation": 2}])
def test_wrong_options_are_refused(root, options):
    with pytest.raises(ConfigError, match="expected"):
        physionet2012(root=str(root), **(SMALL | options))
