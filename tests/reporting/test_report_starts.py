"""Findings compare two rows by the starts that both have; raw means only where they share none."""

import json

import pytest

from leanbayes.reporting import read
from leanbayes.reporting.sections.findings import findings


def row(label, **values):
    """A row with the NLL of every start; the mean is that of the file."""
    runs = [
        {"seed": at, **({"start": key} if key[0] == "s" else {}), "figures": {"nll": value}}
        for at, (key, value) in enumerate(values.items())
    ]
    mean = sum(values.values()) / len(values)
    error = 0.001 if len(values) > 1 else None
    figures = {"nll": {"mean": mean, "standard_error": error}}
    price = {"step_ratio": 1.0 if label == "cheap" else 2.0}
    return {"method": label, "runs": runs, "figures": figures, "prices": price}


@pytest.fixture
def told(tmp_path):
    """All findings of rows, by heading."""

    def find(*rows, **more):
        path = tmp_path / "compare.json"
        record = {"command": "leanbayes compare", "data": "digits", "seeds": [0], "rows": rows}
        path.write_text(json.dumps({**record, **more}))
        return {found.what: found for found in findings(read(path))}

    return find


def test_the_best_stands_against_the_baseline_of_its_own_start(told):
    found = told(row("map", s0=0.5, s1=0.3, s2=0.3), row("other", s0=0.25))["Best NLL"]
    assert found.than == "50.0% lower than map's 0.5000, over 1 common start"


def test_all_starts_in_common_need_no_word_and_none_leave_the_means(told):
    every = told(row("map", s0=0.5, s1=0.3), row("other", s1=0.15, s0=0.25))["Best NLL"]
    assert every.than == "50.0% lower than map's 0.4000"
    none = told(row("map", s0=0.5, s1=0.3), row("other", s7=0.2))["Best NLL"]
    assert none.than == "50.0% lower than map's 0.4000"
    seeds = told(row("map", x=0.5, y=0.3), row("other", x=0.25))["Best NLL"]
    assert seeds.than == "50.0% lower than map's 0.5000, over 1 common start"


def test_near_the_best_is_what_is_near_at_the_same_start(told):
    """The mean of the best is lower for its second start alone, which the cheap row lacks."""
    best = row("best", s0=0.3, s1=0.1)
    found = told(row("map", s0=0.5, s1=0.4), best, row("cheap", s0=0.3))
    assert found["Cheapest within 1 standard error"].who == "cheap"
    found = told(row("map", s0=0.5, s1=0.4), best, row("cheap", s0=0.2005))
    assert found["Cheapest within 1 standard error"].who == "best"


def test_of_several_parts_it_is_the_last_one(told):
    def parted(found):
        parts = {"validation": {"nll": 9.0}}
        runs = [{**run, "figures": {**parts, "test": run["figures"]}} for run in found["runs"]]
        mean = {"validation": {"nll": {"mean": 9.0, "standard_error": None}}}
        return {**found, "runs": runs, "figures": {**mean, "test": found["figures"]}}

    rows = [parted(row("map", s0=0.5, s1=0.3)), parted(row("other", s0=0.25))]
    found = told(*rows, parts=["validation", "test"])["Best NLL"]
    assert found.than == "50.0% lower than map's 0.5000, over 1 common start"
