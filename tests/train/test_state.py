"""A state that goes through bytes comes back bit for bit, and only as what it was."""

import json
import math
import random
import struct
from collections import OrderedDict

import numpy as np
import pytest
import torch

import leanbayes as lb
from leanbayes.train.state import TENSORS, TREE, generators, pack, set_generators, unpack


def again(tree):
    return unpack(pack(tree))


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    *(torch.complex64, torch.complex128),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 1, 5)], ids=str)
def test_tensors_come_back_bit_for_bit(dtype, shape):
    raw = torch.randint(0, 256, (math.prod(shape) * 16,), dtype=torch.uint8)
    if dtype == torch.bool:
        raw = raw % 2
    tensor = raw[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)  # NaNs and all
    back = again({"t": tensor})["t"]
    assert (back.dtype, back.shape) == (dtype, shape)
    assert bits(back) == bits(tensor)


FLOATS = [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("value", [*FLOATS, struct.unpack(">d", b"\xff\xf8\0\0\0\0\0\x07")[0]])
def test_floats_come_back_bit_for_bit(value):
    assert struct.pack(">d", again([value])[0]) == struct.pack(">d", value)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        True,
        0,
        -(10**40),
        "lone \ud800 and ☃",
        [],
        (),
        {},
        [1, (2, [3, ()]), {"a": (None,)}],
        {0: "int", "0": "text", (1, "x"): 2, None: 3, True: 4},
        {"~tuple": [1], "~": 2},
        {"~tensor": "no tensor", "a": {"~float": 1}},
    ],
    ids=str,
)
def test_plain_trees_keep_values_types_and_order(tree):
    back = again(tree)
    assert back == tree
    assert repr(back) == repr(tree)


def test_numpy_values_keep_type_and_bits():
    tree = [
        np.float64(0.1),
        np.int32(-7),
        np.bool_(True),
        np.float16(np.nan),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.array(3.5),
        np.zeros((0, 2), np.complex128),
    ]
    for found, value in zip(again(tree), tree, strict=True):
        assert type(found) is type(value)
        assert found.dtype == value.dtype.newbyteorder("=")
        assert found.shape == value.shape
        assert found.tobytes() == value.astype(found.dtype).tobytes()


def test_tensors_of_any_layout_are_stored_as_they_look():
    base = torch.arange(12.0).reshape(3, 4)
    tree = {
        "row": base[0],
        "column": base[:, 1],
        "all": base,
        "turned": base.T,
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "parameter": torch.nn.Parameter(base.clone()),
    }
    back = again(tree)
    assert all(torch.equal(back[key], value) for key, value in tree.items())
    assert len({tensor.data_ptr() for tensor in back.values()}) == len(tree)
    assert len(pack({"row": torch.zeros(10**6)[:10]})[TENSORS]) < 1000


def test_a_tensor_that_appears_twice_is_stored_once_and_stays_one():
    tensor = torch.randn(1000)
    files = pack({"a": tensor, "b": [tensor]})
    assert len(files[TENSORS]) < 4500
    back = unpack(files)
    assert back["a"] is back["b"][0]


def test_paths_that_read_the_same_are_told_apart():
    tree = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, "a/b'": torch.full((1,), 2.0)}
    back = again(tree)
    assert [back["a/b"].item(), back["a"]["b"].item(), back["a/b'"].item()] == [0, 1, 2]


def test_equal_trees_give_equal_bytes():
    def tree():
        torch.manual_seed(3)
        return OrderedDict(a=torch.randn(5), b=[1.5, (torch.zeros(2, dtype=torch.int8),)])

    assert pack(tree()) == pack(tree())
    assert type(again(tree())) is dict


def test_an_optimizer_goes_on_as_if_nothing_had_happened():
    def run(interrupt):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(7))
        optimizer = torch.optim.AdamW([weight], lr=0.1, amsgrad=True)
        for step in range(6):
            if interrupt and step == 3:
                tree = again({"w": weight, "o": optimizer.state_dict(), "g": generators()})
                torch.manual_seed(99)
                weight = torch.nn.Parameter(tree["w"].clone())
                optimizer = torch.optim.AdamW([weight], lr=9.0)
                optimizer.load_state_dict(tree["o"])
                set_generators(tree["g"])
            optimizer.zero_grad()
            (weight * torch.randn(7)).square().sum().backward()
            optimizer.step()
        return weight.detach()

    assert torch.equal(run(interrupt=True), run(interrupt=False))


def draws():
    legacy = np.random.standard_normal(3).tolist()  # noqa: NPY002 - the global one is kept
    return torch.randn(3).tolist(), [random.random(), random.gauss(0, 1)], legacy


def test_every_generator_goes_on_from_its_state():
    random.gauss(0, 1)  # leaves a second number in the state
    np.random.standard_normal()  # noqa: NPY002
    states = again(generators())
    expected = draws()
    draws()
    set_generators(states)
    assert draws() == expected


@pytest.mark.parametrize("states", [{}, {"torch": 1}, [], {"torch": torch.zeros(3)}])
def test_what_is_no_state_of_generators_is_refused(states):
    with pytest.raises(lb.CheckpointError, match="generators"):
        set_generators(states)


class Odd:
    pass


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"a": [Odd()]}, "Odd at /a/0"),
        ({"a": {1, 2}}, "set at /a"),
        ({"a": np.array([Odd()])}, "object at /a"),
        ({"a": np.datetime64(1, "s")}, "datetime64"),
        ({"a": torch.zeros(2, device="meta")}, "meta"),
        ({"a": torch.eye(2).to_sparse()}, "sparse"),
        ({"a": 10**5000}, "JSON"),
        ({"a": [0.5] * 10**6}, "MB"),
    ],
    ids=["object", "set", "objects", "date", "meta", "sparse", "huge", "long"],
)
def test_what_cannot_be_kept_is_named_when_it_is_saved(tree, words):
    with pytest.raises(lb.CheckpointError, match=words):
        pack(tree)


def test_a_tree_that_contains_itself_is_refused():
    tree = []
    tree.append(tree)
    with pytest.raises(lb.CheckpointError, match="contains itself"):
        pack(tree)


def forged(tree, name="tree"):
    files = pack({"w": torch.zeros(2, 3)})
    content = json.loads(files[TREE])
    content[name] = tree
    return {**files, TREE: json.dumps(content).encode()}


W = {"~tensor": "float32 2x3 /w"}


@pytest.mark.parametrize(
    "tree",
    [
        [W, math.nan],
        [W, math.inf],
        [W, {"~float": "3ff0000000000000"}],
        [W, {"~float": 3}],
        [W, {"~float": "7ff0"}],
        [W, {"~tuple": {}}],
        [W, {"~tuple": "ab"}],
        [W, {"~dict": {"ab": 1}}],
        [W, {"~dict": [[1, 2, 3]]}],
        [W, {"~dict": [[1, 2], [1, 3]]}],
        [W, {"~dict": [[[1], 2]]}],
        [W, {"~eval": "1"}],
        [W, {"~tuple": [], "more": 1}],
        [W, {"~number": "object 00"}],
        [W, {"~number": "float64 00"}],
        [W, {"~number": "U1 00000000"}],
        [W, {"~array": "float64 -1 /w"}],
        {"~tensor": "float32 3x2 /w"},
        {"~tensor": "int32 2x3 /w"},
        {"~tensor": "load 2x3 /w"},
        {"~tensor": "complex64 2 /w"},
        {"~tensor": "float32 2x3 /x"},
        {"~tensor": "float32"},
        {"~tensor": None},
        {"~array": "float32 2x3 /w"},
        [],
    ],
    ids=str,
)
def test_a_forged_tree_is_refused_with_the_name_of_the_file(tree):
    with pytest.raises(lb.CheckpointError, match=r"run/state\.(json|safetensors)"):
        unpack(forged(tree), "run")


def test_other_formats_and_missing_files_are_refused():
    with pytest.raises(lb.CheckpointError, match=r"format '?7"):
        unpack(forged(7, "format"))
    files = pack({})
    for name in files:
        with pytest.raises(lb.CheckpointError, match=f"{name} is missing"):
            unpack({key: data for key, data in files.items() if key != name})
