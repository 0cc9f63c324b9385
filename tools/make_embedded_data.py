"""Make the data sets that ship inside the package: a Fashion-MNIST subset and the optical digits.

    python tools/make_embedded_data.py fashion_mnist.npz

The argument is the full Fashion-MNIST as an npz (optionally xz-packed) with x_train, y_train,
x_test and y_test. The same input gives the same arrays: the seed is fixed, and so are time stamps.
Members are LZMA-packed, which np.load reads as it does any npz and which is 14 % smaller than
np.savez_compressed here. NOTICE.md lists the licences and the hashes of the arrays.
"""

import io
import lzma
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

TARGET = Path(__file__).resolve().parents[1] / "src/leanbayes/data/embedded"
SEED = 0
TRAIN_PER_CLASS = 600
TEST_PER_CLASS = 200
Images = npt.NDArray[np.uint8]


def read(path: Path) -> dict[str, Images]:
    """Read an npz, unpacking it first when its name ends in xz."""
    raw = path.read_bytes()
    with np.load(io.BytesIO(lzma.decompress(raw) if path.suffix == ".xz" else raw)) as arrays:
        return {name: arrays[name] for name in arrays.files}


def balanced(labels: Images, per_class: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Choose per_class positions of every class, in their original order."""
    chosen = [
        rng.choice(np.flatnonzero(labels == c), per_class, replace=False) for c in np.unique(labels)
    ]
    return np.sort(np.concatenate(chosen))


def write(path: Path, arrays: Mapping[str, Images]) -> None:
    """Write an npz without time stamps, so that the same arrays give the same file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(info, member.getvalue(), zipfile.ZIP_LZMA)


def fashion_mini(full: Mapping[str, Images]) -> dict[str, Images]:
    """Take the class-balanced subset, each part from the official split of its name."""
    rng = np.random.default_rng(SEED)
    train = balanced(full["y_train"], TRAIN_PER_CLASS, rng)
    test = balanced(full["y_test"], TEST_PER_CLASS, rng)
    return {
        "x_train": full["x_train"][train],
        "y_train": full["y_train"][train],
        "x_test": full["x_test"][test],
        "y_test": full["y_test"][test],
    }


def digits() -> dict[str, Images]:
    """Take scikit-learn's copy of the optical digits (the UCI test part), values 0 to 16."""
    images, labels = load_digits(return_X_y=True)
    return {"x": images.astype(np.uint8), "y": labels.astype(np.uint8)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} fashion_mnist.npz")
    write(TARGET / "fashion_mini.npz", fashion_mini(read(Path(sys.argv[1]))))
    write(TARGET / "digits.npz", digits())
