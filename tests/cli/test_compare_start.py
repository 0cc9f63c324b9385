"""`leanbayes compare` from a shared start: trained once a seed, kept, gone on with."""

import json
import re
import shutil

import pytest
import torch

import leanbayes as lb
from leanbayes.cli.card import load_run
from leanbayes.cli.compare.start import Starts

TABLE = ("compare", "sklearn_table-wine", "--smoke", "--no-price")
FILE = """
[fit]
lr = 0.05
[start]
fit = { steps = 9, lr = 0.1 }
[methods.there]
name = "map"
fit = { epochs = 0 }
[methods.afresh]
name = "mean_field"
from = "scratch"
"""


@pytest.fixture
def compare(leanbayes, tmp_path):
    file, out = tmp_path / "c.toml", tmp_path / "c.json"
    file.write_text(FILE)

    def run(*words, methods="there,mean_field,afresh", code=0):
        flags = ("--config", file, "--methods", methods, "--out", out, "--seeds", 2)
        result = leanbayes(*TABLE, *flags, *words)
        assert result.code == code, result.err
        return result, json.loads(out.read_text()) if out.exists() else None

    run.file, run.out, run.kept = file, out, tmp_path / "c-kept"
    return run


@pytest.fixture
def trained(monkeypatch):
    """Methods and steps of every training."""
    found, adapt = [], lb.adapt

    def noted(net, method, **options):
        found.append((method.name, options["config"].steps, options["config"].lr))
        return adapt(net, method, **options)

    monkeypatch.setattr(lb, "adapt", noted)
    return found


def rows_of(record):
    return {row["method"]: row for row in record["rows"]}


def test_methods_begin_at_the_point_estimate_that_is_trained_once_a_seed(compare, trained):
    _, record = compare()
    one_seed = [
        ("map", 4, 0.1),  # the start; --smoke: 4 steps
        ("map", 0, 0.05),
        ("mean_field", 4, 0.05),
        ("mean_field", 4, 0.1),  # from scratch: as the start was trained
    ]
    assert trained == one_seed * 2
    rows, starts = rows_of(record), {s["seed"]: s for s in record["start"]["seeds"]}
    assert record["start"]["config"]["fit"]["lr"] == 0.1
    for label in ("there", "mean_field"):
        assert [run["start"] for run in rows[label]["runs"]] == [starts[k]["hash"] for k in (0, 1)]
        assert rows[label]["config"]["model"]["weights"] is True
        assert rows[label]["config"]["start"]["fit"]["lr"] == 0.1
    assert "start" not in rows["afresh"]["runs"][0]
    assert starts[0]["hash"] != starts[1]["hash"]


def test_a_point_estimate_without_further_epochs_is_the_start_itself(compare, leanbayes):
    _, record = compare(methods="there")
    figures = rows_of(record)["there"]["runs"][1]["figures"]
    kept = compare.kept / "start-1"
    told = json.loads(leanbayes("evaluate", kept, "--seed", 1, "--json").out)
    data = lb.data.read("sklearn_table", name="wine")
    few = {name: told[name] for name in figures}
    assert len(data.test[0]) == told["count"] < 64
    assert few == pytest.approx(figures, rel=1e-6)
    assert sorted(path.name for path in compare.kept.iterdir()) == ["start-0", "start-1"]
    assert not (kept / "checkpoints").exists()


def test_the_start_is_there_when_a_comparison_goes_on(compare, trained):
    _, first = compare(methods="there")
    del trained[:]
    _, second = compare("--resume", methods="there,mean_field")
    assert trained == [("mean_field", 4, 0.05)] * 2
    assert second["start"] == first["start"]
    assert rows_of(second)["mean_field"]["runs"][0]["start"] == first["start"]["seeds"][0]["hash"]


def test_a_start_of_other_settings_is_refused(compare):
    _, first = compare(methods="there")
    result, record = compare("--set", "start.fit.lr=0.3", methods="mean_field", code=2)
    assert record == first  # before anything is trained or written
    assert "start-0 holds a start with other settings: fit.lr: 0.1 there, 0.3 now" in result.err
    shutil.rmtree(compare.kept)
    result, _ = compare("--resume", "--set", "start.fit.lr=0.3", methods="there", code=2)
    assert "start.fit.lr: 0.1 there, 0.3 now" in result.err


def test_a_damaged_start_is_named(compare):
    compare(methods="there")
    file = compare.kept / "start-1" / "start.json"
    known = json.loads(file.read_text())
    del known["hash"]
    file.write_text(json.dumps(known))
    result, _ = compare("--resume", methods="mean_field,there", code=5)
    assert "start.json is damaged: it has no 'hash'. Remove " in result.err
    file.write_text("cut off")
    result, _ = compare("--resume", methods="mean_field,there", code=5)
    assert re.search(
        "start.json is damaged: not JSON .*start-1, and the start is trained again", result.err
    )
    assert "Traceback" not in result.err


def test_side_by_side_starts_are_trained_once_and_give_the_same(compare):
    _, one = compare()
    compare.out.unlink()
    shutil.rmtree(compare.kept)
    result, two = compare("--jobs", 2)
    assert result.err.count("start, seed") == 2
    assert [[start["jobs"] for start in f["start"]["seeds"]] for f in (one, two)] == [
        [1, 1],
        [2, 2],
    ]
    hashes = [[start["hash"] for start in found["start"]["seeds"]] for found in (one, two)]
    assert hashes[0] == hashes[1]
    assert {k: row["figures"] for k, row in rows_of(one).items()} == {
        k: row["figures"] for k, row in rows_of(two).items()
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_where_a_start_fails_its_runs_have_failed_and_others_go_on(compare, jobs):
    words = ("--set", "start.fit.lr=1e30", "--set", "start.fit.momentum=0.0")
    words += ("--set", "methods.afresh.fit.lr=0.1")
    result, record = compare(*words, "--jobs", jobs, code=3)
    rows = rows_of(record)
    assert rows["there"]["failed"].startswith("its start failed: ")
    assert rows["mean_field"]["failed_seeds"] == [0, 1]
    assert rows["afresh"]["figures"]["accuracy"]["mean"] >= 0
    assert "Traceback" not in result.err


def test_a_flag_asks_for_a_start_too_and_without_a_file_nothing_is_left(
    leanbayes, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ("--methods", "map,implicit", "--start", "--set", "start.fit.lr=0.2", "--seeds", 1)
    result = leanbayes(*TABLE, *words, "--json")
    record = json.loads(result.out)
    assert record["start"]["config"]["fit"]["lr"] == 0.2
    assert "--start" in record["rows"][0]["command"]
    assert "start.fit.lr=0.2" in record["rows"][0]["command"]
    assert not list(tmp_path.iterdir())


def test_a_deep_ensemble_and_a_network_of_its_own_are_trained_from_scratch(leanbayes, tmp_path):
    """At the full length, since a fine-tuning would not do."""
    file = tmp_path / "c.toml"
    file.write_text(
        FILE + '[model]\nname = "mlp"\noptions = { inputs = 13, hidden = [8], outputs = 3 }\n'
        '[methods.narrow]\nname = "deep_ensemble"\nfields = { members = 2 }\n'
        "[methods.narrow.model]\noptions = { hidden = [3] }\n"
    )
    words = ("--config", file, "--methods", "there,deep_ensemble,narrow", "--seeds", 1, "--json")
    result = leanbayes("compare", "sklearn_table-wine", "--smoke", *words)
    assert result.code == 0, result.err
    there, ensemble, narrow = json.loads(result.out)["rows"]
    assert "start" in there["config"]
    assert "start" not in ensemble["config"]
    assert ensemble["config"]["fit"]["lr"] == 0.1
    size, small = 13 * 8 + 8 + 8 * 3 + 3, 13 * 3 + 3 + 3 * 3 + 3
    assert (ensemble["parameters"], narrow["parameters"]) == (size, small)
    assert narrow["config"]["model"]["options"]["hidden"] == [3]
    assert narrow["prices"]["parameters_added"] == 2 * small - size
    assert ensemble["prices"]["flops_step_ratio"] == 5
    assert narrow["prices"]["flops_step_ratio"] < 1


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("from = 'nowhere'", 'expected "start", "starts" or "scratch", found .nowhere.'),
        ("from = 'start'\nweights = 'x.th'", "it has weights of its own"),
        ("fit = 3", "methods.a.fit: expected a table, found 3"),
        ("seeds = 0", "methods.a.seeds: expected a whole number of at least 1"),
        ("[start]\nepochs = 3", "start: expected fit"),
    ],
)
def test_a_wrong_word_is_said_before_anything_is_trained(leanbayes, tmp_path, entry, words):
    file = tmp_path / "c.toml"
    begin = "[methods.a]\nname = 'map'\n"
    file.write_text(f"{begin}{entry}" if entry[0] == "[" else f"[start]\n{begin}{entry}\n")
    result = leanbayes(*TABLE, "--config", file, "--methods", "a")
    assert result.code == 2
    import re

    assert re.search(words, result.err), result.err


def test_there_is_no_start_to_begin_at_without_one(leanbayes):
    result = leanbayes(*TABLE, "--methods", "map", "--set", "methods.map.from=start")
    assert result.code == 2
    assert "there is none: write a table [start], or --start" in result.err


def test_a_label_may_have_fewer_seeds(leanbayes):
    words = ("--methods", "map,mean_field", "--set", "methods.mean_field.seeds=1", "--json")
    record = json.loads(leanbayes(*TABLE, *words).out)
    assert [len(row["runs"]) for row in record["rows"]] == [2, 1]
    assert "unfinished" not in record


def test_the_start_of_a_seed_is_that_of_train_with_it(leanbayes, tmp_path, compare):
    """The folder of a start is a finished run, and the one that `train` would have made."""
    compare(methods="there")
    train = ("train", "--data", "sklearn_table", "--set", "data.options.name=wine", "--smoke")
    net = ("--model", "mlp", "--set", "model.options={inputs=13,hidden=[50],outputs=3}")
    fit = ("--method", "map", "--set", "fit.lr=0.1", "--seed", 1, "--folder", tmp_path / "one")
    assert leanbayes(*train, *net, *fit).code == 0
    nets = [lb.models.create("mlp", inputs=13, hidden=[50], outputs=3) for _ in range(2)]
    pair = [
        lb.load(net, folder / "model").state_dict()
        for net, folder in zip(nets, (tmp_path / "one", compare.kept / "start-1"), strict=True)
    ]
    assert all(torch.equal(pair[0][name], pair[1][name]) for name in pair[0])
    assert json.loads((compare.kept / "start-1" / "start.json").read_text())["steps"] == 4


def test_starts_travel_to_other_processes_without_their_data():
    import pickle

    from leanbayes.cli.compare.ask import Ask
    from leanbayes.cli.settings_file import settings_of

    settings = settings_of(
        {"model": {"name": "lenet"}, "data": {"name": "digits"}, "method": {"name": "map"}}
    )
    starts = Starts(settings, Ask(), "somewhere")
    again = pickle.loads(pickle.dumps(starts))
    assert again.place(3) == starts.place(3)
    assert again.found(3) is None


def test_a_start_that_was_cut_off_goes_on(compare, trained, monkeypatch):
    _, whole = compare(methods="there")
    shutil.rmtree(compare.kept)
    save, calls = lb.save, []

    def cut_off(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return save(*given)

    monkeypatch.setattr(lb, "save", cut_off)
    compare(methods="there", code=130)
    assert (compare.kept / "start-0" / "start.json").is_file()
    assert not (compare.kept / "start-1" / "start.json").is_file()
    assert (compare.kept / "start-1" / "checkpoints").is_dir()
    del trained[:]
    _, again = compare("--resume", methods="there")
    assert trained == [("map", 4, 0.1), ("map", 0, 0.05)]  # the first seed is in the file
    hashes = [[start["hash"] for start in found["start"]["seeds"]] for found in (whole, again)]
    assert hashes[0] == hashes[1]


def test_the_example_with_everything_runs(leanbayes, tmp_path):
    from pathlib import Path

    file = Path(__file__).parents[2] / "results" / "configs" / "fashion_start.toml"
    names = "map,unsure,laplace,afresh,ensemble,narrow"
    flags = ("--config", file, "--methods", names, "--smoke", "--rows", 4, "--seeds", 1)
    flags += ("--samples", 12, "--suite", "test,ood")
    result = leanbayes("compare", "fashion_mini", *flags, "--out", tmp_path / "c.json")
    assert result.code == 0, result.err
    record = json.loads((tmp_path / "c.json").read_text())
    rows = rows_of(record)
    begins = {label for label, row in rows.items() if "start" in row["config"]}
    assert begins == {"map", "unsure", "laplace"}
    assert rows["narrow"]["parameters"] * 4 == pytest.approx(
        rows["ensemble"]["parameters"], rel=0.03
    )
    assert rows["unsure"]["prices"]["flops_step_ratio"] > 3
    splits = rows["map"]["runs"][0]["evaluation"]["splits"]
    assert list(splits) == ["test", "ood/digits"]
    assert rows["laplace"]["config"]["fitting"] == {"probes": 1}


def test_an_ensemble_of_the_starts_is_those_networks(compare, trained):
    compare.file.write_text(
        FILE + '\n[methods.five]\nname = "deep_ensemble"\nfrom = "starts"\nseeds = 1\n'
        "fields = { members = 3 }\n"
    )
    result, record = compare(methods="there,five")
    assert result.err.count("start, seed") == 3
    assert [name for name, *_ in trained].count("deep_ensemble") == 0
    row = rows_of(record)["five"]
    assert row["config"]["from"] == "starts"
    seconds = [start["seconds"] for start in record["start"]["seeds"]]
    assert row["runs"][0]["training_seconds"] > sum(seconds)
    starts = [start["hash"] for start in record["start"]["seeds"]]
    assert row["runs"][0]["start"] not in starts
    data = lb.data.read("sklearn_table", name="wine")
    probs = []
    for k in range(3):
        _, model = load_run(compare.kept / f"start-{k}")
        probs.append(lb.predict(model, data.test[0], likelihood=lb.Categorical()).probs)
    expected = lb.metrics.nll(torch.stack(probs).mean(0), data.test[1])
    assert row["figures"]["nll"]["mean"] == pytest.approx(float(expected), rel=1e-5)


def test_starts_make_ensembles_alone(compare):
    compare.file.write_text(FILE + '\n[methods.odd]\nname = "map"\nfrom = "starts"\n')
    result, _ = compare(methods="odd", code=2)
    assert "starts of several seeds make a deep_ensemble, found map" in result.err


def test_a_start_that_is_gone_is_trained_again_when_a_comparison_goes_on(compare, trained):
    compare(methods="there")
    shutil.rmtree(compare.kept)
    del trained[:]
    compare("--resume", methods="there,mean_field")
    assert trained == [("map", 4, 0.1), ("mean_field", 4, 0.05)] * 2


ONCE = '\n[methods.once]\nname = "mean_field"\nseeds = 1\n'


def test_a_label_with_one_seed_takes_that_of_the_start_that_is_there(compare, trained):
    compare.file.write_text(FILE + ONCE)
    _, first = compare(methods="there")
    shutil.rmtree(compare.kept / "start-0")
    del trained[:]
    _, second = compare("--resume", methods="there,once,afresh")
    assert trained == [("mean_field", 4, 0.05), *[("mean_field", 4, 0.1)] * 2]
    assert second["start"] == first["start"]
    once = rows_of(second)["once"]["runs"]
    assert [(run["seed"], run["start"]) for run in once] == [
        (1, first["start"]["seeds"][1]["hash"])
    ]
    shutil.rmtree(compare.kept)
    assert compare("--resume", methods="there,once,afresh")[1] == second  # nothing is missing
    # The command gives this very seed again.
    told = {label: row["command"] for label, row in rows_of(second).items()}
    assert "--methods once --config c.toml --seeds 1 --seed 1 " in told["once"]
    assert "--methods there --config c.toml --seeds 2 --seed 0 " in told["there"]


def test_without_a_start_a_label_with_one_seed_takes_the_first(compare):
    compare.file.write_text(FILE + ONCE)
    _, record = compare(methods="there,once")
    assert [run["seed"] for run in rows_of(record)["once"]["runs"]] == [0]


def test_a_start_that_was_trained_twice_is_told_twice(compare):
    _, first = compare(methods="there")
    first["start"]["seeds"][0]["hash"] = other = "0" * 64
    compare.out.write_text(json.dumps(first))
    shutil.rmtree(compare.kept)
    _, second = compare("--resume", methods="there,mean_field")
    starts = second["start"]["seeds"]
    assert [start["seed"] for start in starts] == [0, 0, 1]
    assert starts[0]["hash"] == other
    assert rows_of(second)["mean_field"]["runs"][0]["start"] == starts[1]["hash"]


def test_a_price_needs_no_start(compare, trained):
    compare.file.write_text(
        FILE + '\n[methods.two]\nname = "deep_ensemble"\nfrom = "starts"\nseeds = 1\n'
        "fields = { members = 2 }\n"
    )
    _, first = compare(methods="there,two")
    shutil.rmtree(compare.kept)
    del trained[:]
    _, second = compare("--resume", "--price", methods="there,two")
    assert ("map", 4, 0.1) not in trained
    assert not list(compare.kept.iterdir())
    for label, factor in (("there", 1), ("two", 2)):
        prices = rows_of(second)[label].pop("prices")
        assert prices["flops_predict_ratio"] == prices["flops_step_ratio"] == factor
        assert rows_of(second)[label]["runs"] == rows_of(first)[label]["runs"]
