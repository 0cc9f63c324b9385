"""Half precision: autocast is the route to train in; a whole module in bfloat16 predicts."""

import copy

import pytest
import torch
from nets import ROWS, cast, converted, gradients, labels, predicted, silent, slot_parameters

import leanbayes as lb


def objective_of(model, inputs, **options):
    return lb.objective(model, (inputs, labels()), lb.Categorical(), num_data=ROWS, **options)


def flat(grads):
    return torch.cat([grads[name].flatten().double() for name in sorted(grads)])


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def test_autocast_trains_in_float32_parameters(model_and_inputs):
    model, inputs = model_and_inputs
    model.train()
    before = {name: p.detach().clone() for name, p in slot_parameters(model).items()}
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1))
    with autocast():
        result = objective_of(model, inputs)
    result.loss.backward()
    grads = gradients(model)
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert grads[name].dtype == torch.float32, name
            assert grads[name].isfinite().all(), name
    optimizer.step()
    assert result.loss.isfinite()
    for name, p in slot_parameters(model).items():  # a bias in front of a BatchNorm gets none
        assert bool(grads[name].any()) != torch.equal(p, before[name]), name


def test_kl_is_the_same_under_autocast(model_and_inputs):
    model, inputs = model_and_inputs
    plain = model.kl()
    with autocast():
        assert torch.equal(model.kl(), plain)
        assert torch.equal(objective_of(model.train(), inputs).kl, plain)


def test_autocast_gradients_are_near_those_of_float32(method, net_name):
    quiet = silent(method)
    if quiet is None:
        pytest.skip(f"the noise of {method.name} cannot be switched off")
    model, inputs = converted(quiet, net_name)
    model.train()
    grads = []
    for enabled in (False, True):
        model.zero_grad()
        torch.manual_seed(4)  # members are assigned to rows at random
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = objective_of(model, inputs, include_kl=False).loss
        loss.backward()
        grads.append(flat(gradients(model)))
    error = (grads[1] - grads[0]).norm() / grads[0].norm()
    assert 0 < error < 0.15  # eight bits, and ReLUs that switch


def test_autocast_prediction_is_near_that_of_float32(model_and_inputs):
    model, inputs = model_and_inputs
    expected = predicted(model, inputs)
    with autocast():
        probs = predicted(model, inputs)
    torch.testing.assert_close(probs, expected, rtol=0, atol=0.03)


def test_a_whole_module_in_bfloat16_is_near_float32(model_and_inputs):
    model, inputs = model_and_inputs
    mean, probs = model.eval()(inputs), predicted(model, inputs)
    model.to(torch.bfloat16)
    half = cast(inputs, torch.bfloat16)
    torch.testing.assert_close(model(half).float(), mean, rtol=0, atol=0.05)
    torch.testing.assert_close(predicted(model, half), probs, rtol=0, atol=0.03)
    assert model.train()(half).isfinite().all()


def test_kl_of_a_bfloat16_module_is_summed_in_more_digits(model_and_inputs):
    model, _ = model_and_inputs
    model.to(torch.bfloat16)
    exact = copy.deepcopy(model).double().kl()
    torch.testing.assert_close(model.kl(), exact, rtol=1e-5, atol=1e-5)


def test_training_a_posterior_in_bfloat16_warns(model_and_inputs):
    model, inputs = model_and_inputs
    model.to(torch.bfloat16).train()
    if not slot_parameters(model):
        pytest.skip("no posterior to train")
    with pytest.warns(UserWarning, match="bfloat16.*autocast"):
        loss = objective_of(model, cast(inputs, torch.bfloat16)).loss
    loss.backward()
    assert all(p.grad.isfinite().all() for p in slot_parameters(model).values())
