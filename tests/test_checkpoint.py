"""Damaged, edited, foreign and truncated checkpoints: one error class, and nothing is changed."""

import copy
import json

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.storage import read_directory, write_directory


def make_net():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.fixture
def saved(tmp_path):
    model = lb.bayesianize(make_net(), lb.MeanField(prior_std=0.4), likelihood=lb.Categorical())
    lb.save(model, tmp_path / "model")
    return tmp_path / "model", model


FILES = ["model.safetensors", "leanbayes.json", "MANIFEST.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["truncate", "empty", "flip", "remove", "garbage"])
def test_a_damaged_file_is_named_and_the_network_unchanged(saved, name, damage):
    path, _ = saved
    data = (path / name).read_bytes()
    middle = len(data) // 2
    changed = {
        "truncate": data[:middle],
        "empty": b"",
        "flip": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
        "garbage": b"\x80\x04cposix\nsystem\n",
        "remove": None,
    }[damage]
    (path / name).unlink() if changed is None else (path / name).write_bytes(changed)
    net = make_net()
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(
        lb.CheckpointError, match=name if name == "MANIFEST.json" else "MANIFEST|" + name
    ):
        lb.load(net, path)
    assert type(net[0]) is nn.Linear
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def rewrite(path, edit):
    """Edit the description and make the manifest fit again: an attacker, or a careful user."""
    files = read_directory(path)
    description = json.loads(files["leanbayes.json"])
    edit(description)
    files["leanbayes.json"] = json.dumps(description).encode()
    write_directory(path, files)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d["method"].update(name="mean_feild"), "did you mean mean_field"),
        (lambda d: d["method"].update(name="map"), "map has no slots|no fields"),
        (lambda d: d["method"]["fields"].update(prior="wide"), "no fields"),
        (lambda d: d.update(format=99), "format 99"),
        (lambda d: d.pop("layers"), "lacks 'layers'"),
        (lambda d: d["layers"].update({"9": ["weight"]}), "another network"),
        (lambda d: d["layers"].pop("0"), "another network"),
        (lambda d: d["layers"].update({"0": ["weight", "gate"]}), "no slots"),
    ],
)
def test_an_edited_description_is_refused(saved, edit, words):
    path, _ = saved
    rewrite(path, edit)
    with pytest.raises(lb.CheckpointError, match=words):
        lb.load(make_net(), path)


def test_settings_prior_and_likelihood_come_from_the_file(saved):
    path, model = saved
    again = lb.load(make_net(), path)
    assert again.method == model.method
    assert again.net[0].slots["weight"].prior_std == 0.4
    x = torch.randn(3, 4)
    assert torch.equal(lb.predict(again, x, seed=1).probs, lb.predict(model, x, seed=1).probs)


def test_learnt_noise_is_saved_with_the_model(tmp_path):
    likelihood = lb.Gaussian(precision=2.0, learn=True)
    model = lb.bayesianize(nn.Linear(3, 1), lb.MeanField(), likelihood=likelihood)
    with torch.no_grad():
        likelihood.log_precision.add_(0.3)
    lb.save(model, tmp_path / "m")
    again = lb.load(nn.Linear(3, 1), tmp_path / "m")
    assert torch.equal(again.likelihood.log_precision, likelihood.log_precision)


def test_posterior_only_needs_the_network_that_was_converted(tmp_path):
    net = make_net()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    lb.save(lb.bayesianize(net, lb.MeanField()), tmp_path / "m", posterior_only=True)
    with pytest.raises(lb.CheckpointError, match="needs the pre-trained network"):
        lb.load(make_net(), tmp_path / "m")
    right = make_net()
    right.load_state_dict(state)
    assert torch.equal(lb.load(right, tmp_path / "m").net[0].weight, state["0.weight"])


def test_a_converted_network_is_no_place_to_load_into(saved):
    path, model = saved
    for target in (model, model.net):
        with pytest.raises(lb.ConversionError, match="Bayesian already"):
            lb.load(target, path)


def test_saving_again_replaces_and_leaves_nothing_beside(saved):
    path, model = saved
    with torch.no_grad():
        model.net[0].weight.add_(1)
    lb.save(model, path)
    assert torch.equal(lb.load(make_net(), path).net[0].weight, model.net[0].weight)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_foreign_directory_is_never_overwritten(saved, tmp_path):
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.txt").write_text("years of work")
    with pytest.raises(lb.CheckpointError, match="not overwritten"):
        lb.save(saved[1], foreign)
    assert (foreign / "chapter.txt").read_text() == "years of work"


def test_a_failed_write_keeps_what_was_there(saved, monkeypatch):
    path, model = saved
    before = {f: (path / f).read_bytes() for f in FILES}

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(lb.CheckpointError, match="No space left"):
        lb.save(model, path)
    assert {f: (path / f).read_bytes() for f in FILES} == before


def test_a_crash_between_the_two_renames_loses_nothing(saved):
    path, _ = saved
    path.rename(path.with_name(".model.old"))
    assert lb.load(make_net(), path).method.name == "mean_field"


def test_a_missing_path_and_a_plain_file_are_refused(tmp_path):
    with pytest.raises(lb.CheckpointError, match="no checkpoint at"):
        lb.load(make_net(), tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(lb.CheckpointError, match="expected a directory"):
        lb.load(make_net(), tmp_path / "file")


def test_names_in_a_manifest_cannot_leave_the_directory(saved):
    path, _ = saved
    manifest = json.loads((path / "MANIFEST.json").read_text())
    manifest["files"]["../secret"] = "0" * 64
    (path / "MANIFEST.json").write_text(json.dumps(manifest))
    with pytest.raises(lb.CheckpointError, match="no manifest"):
        lb.load(make_net(), path)


def tied_or_not(tied):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    if tied:
        net[2].weight = net[0].weight
    return net


@pytest.mark.parametrize("posterior_only", [False, True])
@pytest.mark.parametrize(("tied", "alone"), [(True, "file"), (False, "network")])
def test_ties_of_the_file_are_those_of_the_network(tied, alone, posterior_only, tmp_path):
    """One layer's values would overwrite the other's, or one draw would become two."""
    net, other = tied_or_not(tied), tied_or_not(not tied)
    state = net.state_dict()
    lb.save(lb.bayesianize(net, lb.MeanField()), tmp_path / "m", posterior_only=posterior_only)
    if posterior_only and not tied:
        words = "differs"  # no weights of a tied network have both hashes
    else:
        words = f"'2.weight' is tied to '0.weight' in the {alone} alone"
    other.load_state_dict(state)
    with pytest.raises(lb.CheckpointError, match=words):
        lb.load(other, tmp_path / "m")
    assert type(other[0]) is nn.Linear
    alike = tied_or_not(tied)
    alike.load_state_dict(state)
    lb.load(alike, tmp_path / "m")


class Versioned(nn.Linear):
    """As MNASNet of torchvision: weights of a version it does not know are refused."""

    _version = 2

    def _load_from_state_dict(self, state, prefix, metadata, *rest):
        if metadata.get("version") != 2:
            raise ValueError(f"version should be 2, found {metadata.get('version')}")
        super()._load_from_state_dict(state, prefix, metadata, *rest)


@pytest.mark.parametrize("posterior_only", [False, True])
def test_modules_that_ask_for_the_version_of_their_weights_get_it(posterior_only, tmp_path):
    net, x = nn.Sequential(Versioned(4, 5), nn.Linear(5, 3)), torch.randn(6, 4)
    plain = copy.deepcopy(net)
    model = lb.bayesianize(net, lb.MeanField(), example=x, likelihood=lb.Categorical())
    lb.save(model, tmp_path / "model", posterior_only=posterior_only)
    again = lb.load(plain, tmp_path / "model")
    p, q = (lb.predict(m, x, samples=3, seed=0).probs for m in (model, again))
    assert torch.equal(p, q)
