import json
import math
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from leanbayes.data.tables import encoded, read_cells, scale_of, split_rows, table
from leanbayes.errors import ConfigError, DataError

COLOURS = ("blue", "red")


def written(folder, text, name="table.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def houses(tmp_path):
    """40 rows: a number, a colour, a code; price = 2 size + 1, and a kind that follows it."""
    lines = [
        f"{i * 0.5},{COLOURS[i % 2]},{i % 3},{i + 1},{'big' if i > 19 else 'small'}"
        for i in range(40)
    ]
    return written(tmp_path, "\n".join(["size,colour,code,price,kind", *lines]) + "\n")


def every(data, index):
    return torch.cat([part[index] for part in (data.train, data.validation, data.test)])


def test_numbers_are_standardised_by_the_training_rows_alone(houses):
    data = table(root=houses, target="price", drop=["kind", "code", "colour"])
    raw = (data.train[1] - 1) / 2
    torch.testing.assert_close(data.train[0], (raw - raw.mean()) / raw.std(correction=0))
    held = (data.test[1] - 1) / 2
    torch.testing.assert_close(data.test[0], (held - raw.mean()) / raw.std(correction=0))
    torch.testing.assert_close(data.normalize.undo(data.test[0]), held)
    assert data.target_scale.mean[0] == pytest.approx(data.train[1].mean().item())


def test_every_row_is_in_one_part_and_the_seed_decides_which(houses):
    first, again, other = (
        table(root=houses, target="price", validation=0.2, test=0.1, seed=s) for s in (3, 3, 4)
    )
    assert [len(p[1]) for p in (first.train, first.validation, first.test)] == [28, 8, 4]
    assert sorted(every(first, 1).flatten().tolist()) == list(range(1, 41))
    assert torch.equal(every(first, 0), every(again, 0))
    assert not torch.equal(first.test[1], other.test[1])


def test_words_and_codes_become_one_input_a_category(houses):
    data = table(root=houses, target="price", drop="kind", categorical="code")
    colour = (every(data, 1).long().flatten() - 1) % 2
    assert torch.equal(every(data, 0)[:, 1:3], torch.nn.functional.one_hot(colour, 2).float())
    assert data.columns[2].categories == ("0", "1", "2")
    assert torch.equal(every(data, 0)[:, 3:].sum(1), torch.ones(40))


def test_card_is_json_and_says_how_a_later_table_is_read(houses):
    card = json.loads(json.dumps(table(root=houses, target="price", drop="kind").card()))
    assert card["columns"][1] == {"name": "colour", "categories": ["blue", "red"]}
    assert card["task"] == "regression"
    assert len(card["normalize"]["mean"]) == 4


def test_a_category_that_training_never_saw_gives_zeros(houses):
    columns = table(root=houses, target="price", drop=["kind", "code"]).columns
    found = encoded(columns, {"size": ["1"], "colour": ["green"]})
    assert found.tolist() == [[1.0, 0.0, 0.0]]


def test_later_words_in_a_column_of_numbers_are_refused(houses):
    columns = table(root=houses, target="price", drop=["kind", "code"]).columns
    with pytest.raises(DataError, match=r"'size': row 2 is no number: 'big'"):
        encoded(columns, {"size": ["1", "big"], "colour": ["red", "red"]})


def test_labels_are_numbered_in_their_order(houses):
    data = table(root=houses, target="kind", task="binary", drop=["code", "colour", "size"])
    assert data.classes == ("big", "small")
    raw = data.normalize.undo(every(data, 0)).flatten()
    assert torch.equal(every(data, 1), (raw < 20.5).long())


def test_numeric_labels_are_ordered_as_numbers(tmp_path):
    rows = "\n".join(f"{i},{label}" for i, label in enumerate([10, 2, 9, 2, 10, 9, 2, 2, 2, 2]))
    root = written(tmp_path, f"x,y\n{rows}\n")
    assert table(root=root, target="y", task="classification").classes == ("2", "9", "10")


def test_several_targets_keep_their_order_and_units(houses):
    data = table(root=houses, target=["price", "size"], drop=["kind", "colour"])
    torch.testing.assert_close(data.train[1][:, 0], 2 * data.train[1][:, 1] + 1)
    assert len(data.target_scale.mean) == 2


def test_no_held_out_rows_is_possible(houses):
    data = table(root=houses, target="price", validation=0.0, test=0.0)
    assert data.validation is None
    assert data.test is None
    assert len(data.train[1]) == 40


@pytest.mark.parametrize("gap", ["", "NA", "nan", "?"])
def test_a_missing_cell_is_named_or_filled_with_the_training_mean(tmp_path, gap):
    rows = "\n".join(f"{gap if i == 2 else i},{i}" for i in range(10))
    root = written(tmp_path, f"x,y\n{rows}\n")
    with pytest.raises(
        DataError, match=r'row 3 of column \'x\' is missing.*; write missing="mean"'
    ):
        table(root=root, target="y")
    data = table(root=root, target="y", missing="mean", validation=0.0, test=0.0)
    assert data.train[0][2].item() == 0.0
    assert data.normalize.mean[0] == pytest.approx((45 - 2) / 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3\n", "row 2 has 1 cells; expected 2"),
        ("x,x\n1,2\n", "names a column twice"),
        ("x,y\n", "has 1 lines"),
        ("", "has 0 lines"),
        ("x,y\ninf,1\n2,2\n", "row 1 is infinite"),
        ("x,y\n1,1\nbig,2\n", "holds numbers, but row 2 says 'big'"),
        ("x,y\n1,\n2,2\n", "row 1 of column 'y' is missing; expected a target"),
        ("x,y\n1,big\n2,2\n", "row 1 of target 'y' is 'big'.*task=\"classification\""),
        ("x,y\n,1\n,2\n", "empty in the training rows"),
        (",x,y\n0,1,2\n1,2,3\n", r"a column has no name \(''\), such as an index"),
        ("Unnamed: 0,x,y\n0,1,2\n1,2,3\n", r"such as an index.*drop=\['Unnamed: 0'\]"),
        ("x,y,__index_level_0__\n0,1,2\n1,2,3\n", r"drop=\['__index_level_0__'\]"),
        ('x,y\n"1,5",1\n"-2,0",2\n', "column 'x' holds '1,5', which is no number here"),
        ('x,y\n"1,234,567",1\n"20,000",2\n', "'1,234,567'.*1234.5, or categorical"),
        ("x,y\n5%,1\n7.5 %,2\n", "'5%', which is no number"),
        ("x,y\n$1.50,1\n$20,2\n", "which is no number"),
    ],
)
def test_a_bad_file_is_refused_by_row_and_column(tmp_path, text, message):
    root = written(tmp_path, text)
    with pytest.raises(DataError, match=message):
        table(root=root, target="y", missing="mean", validation=0.0, test=0.0)


def test_names_that_were_not_written_as_a_list_are_told_how(tmp_path):
    root = written(tmp_path, "a,b,y\n1,2,3\n2,3,4\n")
    with pytest.raises(ConfigError, match=r"no column 'a,b'.*several are a list"):
        table(root=root, target="y", drop="a,b")


def test_an_identifier_is_not_taken_for_a_category(tmp_path):
    rows = "\n".join(f"name{i},{i}" for i in range(1100))
    root = written(tmp_path, f"who,y\n{rows}\n")
    with pytest.raises(DataError, match=r"1100 categories.*drop=\['who'\]"):
        table(root=root, target="y", validation=0.0, test=0.0)


def test_codes_with_underscores_are_words(tmp_path):
    """Python's float("1_2") is 12."""
    root = written(tmp_path, "x,y\n" + "".join(f"{i % 3}_2,{i}\n" for i in range(30)))
    assert table(root=root, target="y").columns[0].categories == ("0_2", "1_2", "2_2")
    with pytest.raises(DataError, match="target 'x' is '0_2'"):
        table(root=root, target="x")


def test_free_text_is_not_taken_for_categories_unless_it_is_asked_for(tmp_path):
    root = written(tmp_path, "text,y\n" + "".join(f"note no {i},{i}\n" for i in range(50)))
    with pytest.raises(DataError, match=r"40 different words in 40 training rows.*drop=\['text'\]"):
        table(root=root, target="y")
    assert table(root=root, target="y", categorical="text").train[0].shape == (40, 40)


def test_a_missing_label_is_shown_as_it_is_written(tmp_path):
    root = written(tmp_path, "x,y\n1,none\n2,scratch\n3,dent\n")
    with pytest.raises(DataError, match=r"row 1 of column 'y' is missing \(none\)"):
        table(root=root, target="y", task="classification")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "cost"}, "no column 'cost'"),
        ({"target": "price", "missing": "zero"}, "missing is one of error, mean"),
        ({"target": "price", "task": "ranking"}, "task is one of"),
        ({"target": "price", "validation": 0.5, "test": 0.5}, "less than 1 together"),
        ({"target": ["kind", "code"], "task": "binary"}, "binary has one target"),
        ({"target": ["size", "colour", "code", "price", "kind"]}, "a target and a feature"),
    ],
)
def test_wrong_options_are_refused(houses, options, message):
    with pytest.raises(ConfigError, match=message):
        table(root=houses, **options)


def test_binary_refuses_a_third_label(houses):
    with pytest.raises(DataError, match=r"binary expects 2 labels, found \['0', '1', '2'\]"):
        table(root=houses, target="code", task="binary")


def test_files_that_are_not_there_or_no_text_are_refused(tmp_path):
    with pytest.raises(DataError, match="is not a file"):
        table(root=str(tmp_path / "none.csv"), target="y")
    (tmp_path / "bytes.csv").write_bytes(b"x,y\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="not a CSV file in UTF-8"):
        table(root=str(tmp_path / "bytes.csv"), target="y")


def test_other_delimiters_quotes_and_a_byte_order_mark_are_read(tmp_path):
    path = written(tmp_path, '\ufeffx;"a;b"\n"1.5";"2"\n\n3; 4\n')
    assert read_cells(tmp_path / "table.csv", ";") == {"x": ["1.5", "3"], "a;b": ["2", "4"]}
    with pytest.raises(DataError, match="delimiter"):
        read_cells(tmp_path / "table.csv")
    assert path.endswith("table.csv")


@pytest.mark.parametrize("delimiter", ["\\t", "tab", ";;", "", '"', "\n"])
def test_a_delimiter_that_is_no_character_is_refused_in_words(tmp_path, delimiter):
    path = written(tmp_path, "x\ty\n1\t2\n")
    with pytest.raises(ConfigError, match="delimiter is one character"):
        table(root=path, target="y", delimiter=delimiter)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_table_of_one_column_is_told_of_the_delimiter(tmp_path, mark):
    path = written(tmp_path, f"x{mark}y\n1{mark}2\n")
    with pytest.raises(DataError, match=r"one column.*write delimiter="):
        table(root=path, target="y")


def test_quotes_may_stand_behind_a_blank(tmp_path):
    written(tmp_path, '"x", "kind"\n1, "a, b"\n2,  c\n')
    assert read_cells(tmp_path / "table.csv") == {"x": ["1", "2"], "kind": ["a, b", "c"]}


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = written(tmp_path, "PAR1", "table.parquet")
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        table(root=path, target="y")


def test_parquet_is_read_by_pyarrow(tmp_path, monkeypatch):
    """A stand-in with pyarrow's one call; a real file where pyarrow is installed."""
    columns = {"x": [1.5, None, 2.5, 3.5], "c": ["a", "b", "a", "b"], "y": [1, 2, 3, 4]}
    path = tmp_path / "table.parquet"
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    except ImportError:
        path.write_bytes(b"PAR1")
        fake = ModuleType("pyarrow.parquet")
        fake.read_table = lambda _: type("T", (), {"to_pydict": lambda _: columns})()
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", fake)
    data = table(root=str(path), target="y", missing="mean", validation=0.0, test=0.0)
    raw = np.array([1.5, 2.5, 2.5, 3.5])
    np.testing.assert_allclose(data.train[0][:, 0], (raw - 2.5) / math.sqrt(2 / 3), atol=1e-6)
    assert data.train[1].flatten().tolist() == [1, 2, 3, 4]


def test_a_constant_column_becomes_zeros_and_large_offsets_keep_their_digits():
    x = np.stack([np.full(5, 0.1 + 0.2), 1e9 + np.arange(5.0)], 1)
    scale = scale_of(x)
    assert scale.std == (1.0, pytest.approx(math.sqrt(2)))
    assert scale.mean[1] == 1e9 + 2


def test_splits_are_partitions_of_any_count():
    for count in (3, 10, 101):
        parts = split_rows(count, 0.25, 0.25, seed=count)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(count))
    with pytest.raises(DataError, match="leave none to train on"):
        split_rows(1, 0.4, 0.6 - 1e-9, seed=0)


def test_a_table_may_lie_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = [f"{i},{2 * i}" for i in range(20)]
    (tmp_path / "few.csv").write_text("\n".join(["x,y", *rows]))
    found = table(root="~/few.csv", target="y")
    assert len(found.train[0]) == 16
