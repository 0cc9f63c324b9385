"""Every file of results that a comparison has written: one row of it runs again, small.

The command is that of the row; the data are made up in the format of the real ones.
"""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
DATA = ("camvid", "physionet2012")


def rows():
    """The first row of every file that starts from fresh weights."""
    for path in sorted((ROOT / "results").glob("*.json")):
        found = json.loads(path.read_text())
        if isinstance(found, dict) and found.get("data") in DATA:
            fresh = [row for row in found["rows"] if not row["config"]["model"]["weights"]]
            yield pytest.param(found["data"], fresh[0], id=path.stem)


def camvid(root):
    """Frames of all classes; the size of the real ones is in the settings."""
    generator = np.random.default_rng(0)
    for part in ("train", "val", "test"):
        for name, shape in ((part, (16, 24, 3)), (f"{part}annot", (16, 24))):
            (root / name).mkdir(parents=True)
            for at in range(4):
                most = 256 if len(shape) == 3 else 11
                pixels = generator.integers(0, most, shape, np.uint8)
                Image.fromarray(pixels).save(root / name / f"{at}.png")
    return ["data.options.size=[16, 24]", "model.options.widths=[4, 4]"]


def physionet2012(root):
    """Stays of a few hours, half of which end in death."""
    for part in "ab":
        (root / f"set-{part}").mkdir(parents=True)
        outcomes = ["RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death"]
        for record in range(100, 124):
            lines = ["Time,Parameter,Value", f"00:00,RecordID,{record}", "00:00,Age,60"]
            lines += [f"{hour:02d}:07,HR,{60 + record % 7 + hour}" for hour in range(5)]
            (root / f"set-{part}" / f"{record}.txt").write_text("\n".join(lines) + "\n")
            outcomes.append(f"{record},1,2,3,-1,{record % 2}")
        (root / f"Outcomes-{part}.txt").write_text("\n".join(outcomes) + "\n")
    return ["data.options.validation=8", "data.options.length=12", "data.options.window=0"]


@pytest.mark.parametrize(("data", "row"), list(rows()))
def test_a_row_of_the_results_runs_again(data, row, leanbayes, tmp_path):
    changes = {"camvid": camvid, "physionet2012": physionet2012}[data](tmp_path / data)
    words = shlex.split(row["command"])[1:]
    words[words.index("--root") + 1] = str(tmp_path / data)
    words[words.index("--config") + 1] = str(ROOT / words[words.index("--config") + 1])
    words[words.index("--seeds") + 1] = "1"
    words = ["fit.device=cpu" if word == "fit.device=cuda" else word for word in words]
    sets = [word for change in changes for word in ("--set", change)]
    result = leanbayes(*words, *sets, "--smoke", "--json")
    assert result.code == 0, result.err
    (again,) = json.loads(result.out)["rows"]
    assert again["method"] == row["method"]
    # Figures may have come since; none that a result has may be gone.
    assert named(again["figures"]) >= named(row["figures"])


def named(figures):
    """Names of figures, with the part where there are several."""
    whole = all("mean" in values for values in figures.values())
    parts = {"": figures} if whole else figures
    return {(part, name) for part, values in parts.items() for name in values}
