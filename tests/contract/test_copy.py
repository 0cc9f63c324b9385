"""Copies, types and state: a converted network is an ordinary module."""

import copy
import pickle

import pytest
import torch
from nets import cast, converted, labels, nets, predicted, slot_parameters

import leanbayes as lb
from leanbayes.layers import Host


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def trained_one_step(model, inputs):
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1))
    batch = (inputs, labels())
    lb.objective(model.train(), batch, lb.Categorical(), num_data=6).loss.backward()
    optimizer.step()
    return model


def is_slot(key):
    return ".slots." in f".{key}"


@pytest.fixture(params=[copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
def duplicate(request):
    return request.param


def test_a_copy_draws_and_predicts_the_same_bit_for_bit(model_and_inputs, duplicate):
    model, inputs = model_and_inputs
    trained_one_step(model, inputs)  # a used model copies too
    twin = duplicate(model)
    assert torch.equal(predicted(twin, inputs), predicted(model, inputs))
    assert torch.equal(twin.kl(), model.kl())
    outputs = []
    for each in (model, twin):
        torch.manual_seed(3)
        outputs.append(each.train()(inputs))
    assert torch.equal(*outputs)


def test_training_a_copy_leaves_the_original(model_and_inputs, duplicate):
    model, inputs = model_and_inputs
    before, twin = predicted(model, inputs), duplicate(model)
    trained_one_step(twin, inputs)
    assert torch.equal(predicted(model, inputs), before)
    assert not torch.equal(predicted(twin, inputs), before)


def test_a_copy_has_parts_and_a_scope_of_its_own(model_and_inputs, duplicate):
    model, _ = model_and_inputs
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1))
    handle = lb.attach_kl(optimizer, model, num_data=6)
    twin = duplicate(model)
    assert twin.scope is not model.scope
    assert all(m.scope is twin.scope for m in twin.modules() if isinstance(m, Host))
    assert set(twin.modules()).isdisjoint(model.modules())
    assert all(host in set(twin.modules()) for host, _ in twin.shared)
    assert len(twin.shared) == len(model.shared)
    # Without doubles: what was tied is tied.
    assert [n for n, _ in twin.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert [q.key for _, _, q, _ in twin.posteriors()] == [
        q.key for _, _, q, _ in model.posteriors()
    ]
    # The edit of the gradients belongs to the original's optimiser.
    assert (model.kl_attached, twin.kl_attached) == (True, False)
    handle.remove()


def test_a_copy_of_a_model_that_predicted_holds_no_noise(noisy, duplicate):
    model, inputs = converted(noisy, "mlp")
    before = model.scope.plan
    predicted(model, inputs)
    assert model.scope.plan is before
    assert duplicate(model).scope.plan.noise is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_to_keeps_slot_parameters_in_step(model_and_inputs, dtype):
    model, inputs = model_and_inputs
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    mean = model.eval()(inputs)
    assert model.to(dtype) is model
    assert {p.dtype for p in model.parameters()} == {dtype}
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name].to(dtype)), name
    inputs, loose = cast(inputs, dtype), 1e-5 if dtype == torch.float64 else 0.05
    torch.testing.assert_close(model(inputs), mean.to(dtype), rtol=loose, atol=loose)
    assert predicted(model, inputs).isfinite().all()


def test_state_has_the_original_keys_and_slots(method, net_name):
    plain, _ = nets()[net_name]()
    model, _ = converted(method, net_name)
    state, original = model.net.state_dict(), plain.state_dict()
    assert [key for key in state if not is_slot(key)] == list(original)
    assert all(torch.equal(state[key], value) for key, value in original.items())
    assert any(map(is_slot, state)) == any(is_slot(name) for name, _ in model.named_parameters())
    assert list(model.state_dict()) == [f"net.{key}" for key in state]


def test_a_pretrained_checkpoint_loads_and_only_slots_are_missing(method, net_name):
    pretrained, _ = nets(seed=7)[net_name]()
    pretrained.eval()
    model, inputs = converted(method, net_name)
    slots = {n: p.detach().clone() for n, p in slot_parameters(model).items()}
    missing, unexpected = model.net.load_state_dict(pretrained.state_dict(), strict=False)
    assert unexpected == []
    assert all(map(is_slot, missing))
    assert set(missing) == set(filter(is_slot, model.net.state_dict()))
    if not method.members:  # the mean of a mixture holds further copies
        torch.testing.assert_close(model.eval()(inputs), pretrained(inputs))
    assert all(torch.equal(slots[n], p) for n, p in slot_parameters(model).items())


def test_the_own_state_loads_strictly_into_another_conversion(method, net_name):
    model, inputs = converted(method, net_name)
    trained_one_step(model, inputs)
    other = lb.bayesianize(nets(seed=7)[net_name]()[0], method, example=inputs)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(predicted(other, inputs), predicted(model, inputs))
