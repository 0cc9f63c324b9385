"""Ways to damage or forge a checkpoint directory; each is drawn from a random generator.

`damaged` changes a file behind the manifest's back; `forged` changes contents and writes a manifest
with the right hashes, as an attacker would.
"""

import hashlib
import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np

from leanbayes.storage import MANIFEST, read_directory, remove


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, sentinel):
        self.sentinel = str(sentinel)

    def __reduce__(self):
        return os.system, (f"touch '{self.sentinel}'",)


def bombs(sentinel):
    """Files that run code in a careless reader, or that grow without bound in memory."""
    pickled = pickle.dumps(Bomb(sentinel))
    array, archive = io.BytesIO(), io.BytesIO()
    np.savez(array, a=np.array([Bomb(sentinel)], dtype=object))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/zeros", bytes(10**6))
    return {
        "pickle": pickled,
        "npz": array.getvalue(),
        "torch zip": archive.getvalue(),
        "yaml": f"!!python/object/apply:os.system ['touch {sentinel}']".encode(),
        "deep lists": b"[" * 200_000,
        "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "empty lists": b'{"a": [' + b"[]," * 1_000_000 + b"[]]}",
        "small objects": b'{"a": [' + b'{"a":1},' * 300_000 + b"{}]}",
        "texts": b'{"a": [' + b'"abc",' * 900_000 + b'""]}',
        "wide text": b'{"a": "' + b"x" * 20_000_000 + b'\\ud83d\\ude00"}',
        "huge number": b'{"a": ' + b"9" * 100_000 + b"}",
        "infinite number": b'{"format": 1, "tree": 1e999}',
        "not a number": b'{"format": 1, "tree": NaN}',
        "huge header": struct.pack("<Q", 2**63 - 1) + b"{}",
        "long header": struct.pack("<Q", 99_000_000) + b"{}" + b" " * 1000,
        "many tensors": many_tensors(100_000),
        "huge shape": header({"a": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 0]}}),
        "overflow": header({"a": {"dtype": "F32", "shape": [2**33] * 2, "data_offsets": [0, 0]}}),
        "no numbers": header({"a": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}),
        "nothing": b"",
        "zeros": bytes(4096),
    }


def header(entries, data=b""):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def many_tensors(count):
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    return header({str(i): entry for i in range(count)})


def edited(data, random):
    """Bytes with a random edit; never the same bytes."""
    size = len(data)
    a, b = sorted((random.randrange(size + 1), random.randrange(size + 1)))
    junk = random.randbytes(random.choice([1, 1, 8, 100]))
    at = random.randrange(size) if size else 0
    edits = [
        lambda: data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :],
        lambda: data[:at] + junk + data[at + len(junk) :],
        lambda: data[:at] + junk + data[at:],
        lambda: data[:a] + data[b:],
        lambda: data[:a] + bytes(b - a) + data[b:],
        lambda: data[:b] + data[a:b] + data[b:],
        lambda: data[:at],
        lambda: data + junk,
        lambda: data[at:] + data[:at],
    ]
    changed = random.choice(edits)() if size else junk
    return changed if changed != data else data + junk


def damaged(folder: Path, random, payloads) -> str:
    """Damage one file of the directory, or two; says what was done."""
    name = random.choice(sorted(path.name for path in folder.iterdir()))
    path, kind = folder / name, random.randrange(10)
    if kind < 5:
        path.write_bytes(edited(path.read_bytes(), random))
        return f"{name} edited"
    if kind == 5:
        bomb = random.choice(sorted(payloads))
        path.write_bytes(payloads[bomb])
        return f"{name} is {bomb}" if payloads[bomb] or name != "best" else damaged_place(path, 0)
    if kind == 6:
        return swapped(path, random)
    return damaged_place(path, random.randrange(6))


def swapped(path, random):
    others = [p for p in path.parent.iterdir() if p.read_bytes() != path.read_bytes()]
    other = random.choice(sorted(others))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)
    return f"{path.name} and {other.name} swapped"


def damaged_place(path, kind):
    """Something else stands where the file was."""
    remove(path)
    if kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("nowhere")
    elif kind == 3:
        path.symlink_to("/dev/zero")
    elif kind == 4:
        os.mkfifo(path)
    elif kind == 5:
        path.symlink_to(path.parent)
    words = ["nothing", "a directory", "a loose link", "/dev/zero", "a pipe", "a link upwards"]
    return f"{path.name} is {words[kind]}"


def rewritten(folder: Path, name: str, data: bytes) -> None:
    """Change a file and make the manifest fit; without the slow syncs of a real save."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (folder / name).write_bytes(data)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def forged(folder: Path, random, payloads) -> tuple[str, bool]:
    """Forge one file; says what was done, and whether it must be refused.

    Other values that are written in the right form are another checkpoint, not a damaged one.
    """
    files = read_directory(folder)
    name = random.choice(sorted(set(files) - {"best"}))
    kind = random.randrange(3)
    if kind == 0:
        bomb = random.choice(sorted(payloads))
        rewritten(folder, name, payloads[bomb])
        return f"{name} forged as {bomb}", True
    if name.endswith(".json"):
        content = json.loads(files[name])
        words = replaced_node(content, random)
        rewritten(folder, name, json.dumps(content).encode())
        return f"{name} forged: {words}", False
    data, words = lying(files[name], random)
    rewritten(folder, name, data)
    return f"{name} forged: {words}", True


VALUES = [
    *(None, True, -1, 10**30, 1e300, "", "x", "__import__('os')", [], {}, [[]], {"a": {}}),
    *({"~tensor": "float32 1 /w"}, {"~dict": [[{}, 1]]}, {"op": "or", "args": 3}, 10**9, [1] * 50),
]


def replaced_node(content, random):
    """Put a value of another kind, or nothing, in a random place of parsed JSON."""
    node, key, path = content, None, ""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = random.choice(keys)
        path += f"/{key}"
        if not isinstance(node[key], dict | list) or not node[key] or random.random() < 0.3:
            break
        node = node[key]
    if random.random() < 0.25:
        del node[key]
        return f"{path[-80:]} gone"
    node[key] = random.choice([value for value in VALUES if value != node[key]])
    return f"{path[-80:]} = {node[key]!r}"[:160]


SAME_SIZE = {"F32": "I32", "I32": "F32", "I64": "F64", "F64": "I64", "U8": "I8", "F16": "BF16"}


def lying(data, random):
    """A safetensors file whose header says something else about the same values."""
    size = int.from_bytes(data[:8], "little")
    entries, values = json.loads(data[8 : 8 + size]), data[8 + size :]
    entries.pop("__metadata__", None)
    key = random.choice(sorted(entries))
    entry, kind = entries[key], random.randrange(7)
    if kind == 0:
        entry["dtype"] = SAME_SIZE.get(entry["dtype"], "F8_E5M2")
    elif kind == 1:
        entry["shape"] = [1, *entry["shape"]]
    elif kind == 2:
        entry["data_offsets"] = [entry["data_offsets"][0], entry["data_offsets"][1] + 4]
    elif kind == 3:
        entries[f"{key}.more"] = entries.pop(key)
    elif kind == 4:
        entries["extra"] = {"dtype": "U8", "shape": [3], "data_offsets": [len(values)] * 2}
        entries["extra"]["data_offsets"] = [len(values), len(values) + 3]
        values += b"abc"
    elif kind == 5:
        entry["dtype"] = random.choice(["OBJECT", "F4", "", "U128"])
    else:
        entry["shape"] = random.choice([[-1], [2**64], ["2"], "2", None])
    return header(entries, values), f"{key} {['type', 'shape', 'size', 'name', 'more'][kind % 5]}"
