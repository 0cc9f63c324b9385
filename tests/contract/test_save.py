"""Saving and loading every method on every network."""

import json

import pytest
import torch
from nets import converted, labels, nets, predicted
from safetensors.torch import load_file

import leanbayes as lb


def trained_a_little(method, net_name):
    model, inputs = converted(method, net_name)
    model.train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.05))
    for _ in range(2):
        optimizer.zero_grad()
        lb.objective(model, (inputs, labels()), lb.Categorical(), num_data=20).loss.backward()
        optimizer.step()
    return model, inputs


def fresh(net_name, seed=7):
    return nets(seed)[net_name]()[0]


@pytest.mark.parametrize("posterior_only", [False, True])
def test_a_saved_model_predicts_the_same_when_loaded(method, net_name, posterior_only, tmp_path):
    model, inputs = trained_a_little(method, net_name)
    lb.save(model, tmp_path / "saved", posterior_only=posterior_only)
    net = fresh(net_name, seed=0 if posterior_only else 7)
    again = lb.load(net, tmp_path / "saved")
    assert again.net is net
    assert again.method == model.method
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
    assert torch.equal(predicted(again, inputs), predicted(model, inputs))
    again.train()  # layers that run twice still take one draw
    assert again(inputs).isfinite().all()
    assert [s for _, s in again.shared] == [s for _, s in model.shared]


def test_posterior_only_leaves_out_what_did_not_change(noisy, net_name, tmp_path):
    model, _ = converted(noisy, net_name)
    lb.save(model, tmp_path / "full")
    lb.save(model, tmp_path / "posterior", posterior_only=True)
    kept = load_file(tmp_path / "posterior" / "model.safetensors")
    assert bool(kept) == any(q.state_dict() for _, _, q, _ in model.posteriors())
    assert all(".slots." in f".{key}" for key in kept)
    full = load_file(tmp_path / "full" / "model.safetensors")
    assert {k for k in full if ".slots." in f".{k}"} == set(kept)


def test_tied_tensors_are_stored_once(method, net_name, tmp_path):
    model, _ = converted(method, net_name)
    lb.save(model, tmp_path / "saved")
    stored = sum(t.numel() for t in load_file(tmp_path / "saved" / "model.safetensors").values())
    unique = sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in model.buffers())
    assert stored == unique
    description = json.loads((tmp_path / "saved" / "leanbayes.json").read_text())
    assert description["method"]["name"] == method.name


def test_a_checkpoint_of_another_network_is_refused_and_the_network_unchanged(
    method, net_name, tmp_path
):
    model, _ = converted(method, net_name)
    lb.save(model, tmp_path / "saved")
    for other in nets():
        if other == net_name:
            continue
        net = fresh(other)
        before = {k: v.clone() for k, v in net.state_dict().items()}
        classes = [type(m) for m in net.modules()]
        with pytest.raises(lb.CheckpointError, match="another network"):
            lb.load(net, tmp_path / "saved")
        assert [type(m) for m in net.modules()] == classes
        assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
