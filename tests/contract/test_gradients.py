"""Every new parameter learns, and the gradient edit is the gradient of the objective."""

import pytest
import torch
from nets import converted, gradients, labels, slot_parameters

import leanbayes as lb


def test_every_new_parameter_gets_a_gradient(noisy, net_name):
    model, inputs = converted(noisy, net_name, torch.float64)
    model.train()
    lb.objective(model, (inputs, labels()), lb.Categorical(), num_data=50).loss.backward()
    for name, parameter in slot_parameters(model).items():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def step_gradients(method, net_name, attach):
    """Gradients at the moment of the step, by either way of adding the KL."""
    model, inputs = converted(method, net_name, torch.float64)
    model.train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.0, posterior_lr=0.0), lr=0.0)
    if attach:
        lb.attach_kl(optimizer, model, num_data=50, kl_weight=0.7)
    torch.manual_seed(9)
    result = lb.objective(
        model,
        (inputs, labels()),
        lb.Categorical(),
        num_data=50,
        kl_weight=0.7,
        include_kl=not attach,
    )
    result.loss.backward()
    optimizer.step()
    return gradients(model)


def test_attached_edit_gives_the_gradients_of_the_objective(method, net_name):
    in_graph = step_gradients(method, net_name, attach=False)
    edited = step_gradients(method, net_name, attach=True)
    assert in_graph.keys() <= edited.keys()
    for name, gradient in in_graph.items():
        torch.testing.assert_close(edited[name], gradient, rtol=1e-9, atol=1e-11)


def test_optimisers_that_share_parameters_out_give_the_gradients_of_one(method, net_name):
    """Every third parameter to each; none moves, so that all see the same values."""
    found = []
    for count in (1, 3):
        model, _ = converted(method, net_name, torch.float64)
        random = {id(p): p for _, _, q, b in model.posteriors() for p in (b, *q.parameters())}
        learnt = [p for p in random.values() if p.requires_grad] or list(model.parameters())
        parts = [learnt[k::count] for k in range(count) if learnt[k::count]]
        optimizers = [torch.optim.SGD(part, lr=0.0) for part in parts]
        for optimizer in optimizers:
            lb.attach_kl(optimizer, model, num_data=50)
        for optimizer in optimizers:
            optimizer.step()
        found.append(gradients(model))
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-12, atol=0.0)


def test_kl_has_the_stated_kind_and_a_gradient(method, net_name):
    model, _ = converted(method, net_name)
    kl = model.kl()
    assert kl.shape == ()
    assert kl.dtype == torch.float64
    assert kl.isfinite()
    if model.kl_kind == "none":
        assert kl == 0
    else:
        assert kl > 0
        kl.backward()
        assert any(p.grad is not None for p in slot_parameters(model).values())


def test_decay_never_meets_a_scale_and_every_parameter_is_in_one_group(method, net_name):
    model, _ = converted(method, net_name)
    groups = lb.param_groups(model, lr=1e-4, posterior_lr=1e-3, weight_decay=2e-4)
    listed = [id(p) for group in groups for p in group["params"]]
    trainable = {id(p) for p in model.parameters() if p.requires_grad}
    assert sorted(listed) == sorted(trainable)
    decayed = {id(p) for g in groups if g["weight_decay"] > 0 for p in g["params"]}
    for _, _, posterior, base in model.posteriors():
        scales = {id(p) for n, p in posterior.named_parameters() if "std" in n}
        assert not scales & decayed
        if posterior.regularises_base:
            assert id(base) not in decayed


@pytest.mark.parametrize("samples", [1, 3])
def test_the_objective_averages_over_rows_and_divides_the_kl_once(method, net_name, samples):
    model, inputs = converted(method, net_name, torch.float64)
    model.train()
    result = lb.objective(
        model, (inputs, labels()), lb.Categorical(), num_data=40, samples=samples, kl_weight=0.5
    )
    torch.testing.assert_close(result.loss, result.nll + 0.5 * result.kl / 40)
    torch.testing.assert_close(result.kl, model.kl())
