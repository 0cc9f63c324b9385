"""What a pass draws: groups share it or differ, seeds repeat it, chunks do not matter."""

import math

import pytest
import torch
from nets import ROWS, converted, enough, has_point_members, predicted

import leanbayes as lb
from leanbayes.plan import fold


def loud(model):
    """Larger scales, so that differences stand out of rounding."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("log_std"):
                p.fill_(math.log(0.3))
    return model


def test_training_gives_as_many_rows_and_draws_anew(noisy, net_name):
    if noisy.trains_as_point:
        pytest.skip(f"{noisy.name} trains the mean network")
    model, inputs = converted(noisy, net_name)
    loud(model).train()
    first, *further = (model(inputs) for _ in range(8))
    assert first.shape[0] == ROWS
    # Points under an index repeat when their assignment does, which eight times in turn is rare.
    assert not all(torch.equal(first, other) for other in further)


def test_eval_is_the_mean_network_and_repeats(method, net_name):
    model, inputs = converted(method, net_name)
    loud(model).eval()
    mean = model(inputs, plan=lb.Plan(mean=True))
    assert torch.equal(model(inputs), model(inputs))
    assert torch.equal(model(inputs), mean)


def test_rows_of_a_group_share_the_draw_and_groups_differ(noisy, net_name):
    model, inputs = converted(noisy, net_name, torch.float64)
    loud(model).eval()
    same = inputs[:1].expand(ROWS, *inputs.shape[1:]).contiguous()
    with torch.no_grad():
        y = model(same, plan=lb.Plan(groups=3)).reshape(3, 2, -1)
    torch.testing.assert_close(y[:, 0], y[:, 1], rtol=1e-12, atol=1e-12)
    assert (y[0] - y[1]).abs().max() > 1e-6
    assert (y[1] - y[2]).abs().max() > 1e-6


def test_grad_mode_does_not_change_what_is_drawn(noisy, net_name):
    """A fused path that runs without gradients only would show here."""
    model, inputs = converted(noisy, net_name, torch.float64)
    loud(model).eval()
    torch.manual_seed(3)
    with torch.no_grad():
        quiet = model(inputs, plan=lb.Plan())
    torch.manual_seed(3)
    torch.testing.assert_close(model(inputs, plan=lb.Plan()), quiet, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_folded_looped_and_chunked_prediction_agree(method, net_name, dtype):
    model, inputs = converted(method, net_name, dtype)
    loud(model)
    tight = (
        {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    )
    results = [
        lb.predict(
            model,
            inputs,
            likelihood=lb.Categorical(),
            samples=enough(method, 7),
            seed=3,
            chunk=c,
            keep_samples=True,
        )
        for c in (1, 4, enough(method, 7))
    ]
    for other in results[1:]:
        torch.testing.assert_close(other.samples, results[0].samples, **tight)
        torch.testing.assert_close(other.probs, results[0].probs, **tight)


def test_prediction_is_the_average_of_explicit_passes(noisy, net_name):
    model, inputs = converted(noisy, net_name, torch.float64)
    loud(model).eval()
    from leanbayes.noise import KeyedNoise

    total, samples = 0, enough(noisy, 4)
    with torch.no_grad():
        for sample in range(samples):
            plan = noisy.prediction_plan([sample], KeyedNoise(11, [sample]))
            total = total + torch.softmax(model(inputs, plan=plan), 1) / samples
    probs = predicted(model, inputs, samples=samples, seed=11)
    torch.testing.assert_close(probs, total, rtol=1e-12, atol=1e-12)


def test_a_row_does_not_depend_on_its_neighbours_nor_on_the_order(method, net_name):
    model, inputs = converted(method, net_name, torch.float64)
    loud(model)
    whole = predicted(model, inputs)
    alone = torch.cat([predicted(model, inputs[i : i + 1]) for i in range(ROWS)])
    turned = predicted(model, inputs.flip(0)).flip(0)
    torch.testing.assert_close(alone, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(turned, whole, rtol=1e-12, atol=1e-12)


def test_the_seed_fixes_the_draws_and_the_global_generator_does_without_one(noisy, net_name):
    model, inputs = converted(noisy, net_name)
    loud(model)
    state = torch.get_rng_state()
    assert torch.equal(predicted(model, inputs, seed=4), predicted(model, inputs, seed=4))
    assert torch.equal(torch.get_rng_state(), state)
    if has_point_members(noisy):
        return
    assert not torch.equal(predicted(model, inputs, seed=4), predicted(model, inputs, seed=5))
    torch.manual_seed(8)
    first = predicted(model, inputs, seed=None)
    second = predicted(model, inputs, seed=None)
    torch.manual_seed(8)
    assert torch.equal(predicted(model, inputs, seed=None), first)
    assert not torch.equal(first, second)


def test_uncertainty_is_decomposed_within_its_bounds(method, net_name):
    model, inputs = converted(method, net_name, torch.float64)
    loud(model)
    samples = enough(method, 8)
    p = lb.predict(model, inputs, likelihood=lb.Categorical(), samples=samples, seed=0)
    torch.testing.assert_close(p.probs.sum(1), torch.ones(ROWS, dtype=p.probs.dtype))
    torch.testing.assert_close(p.aleatoric + p.epistemic, p.total, rtol=1e-12, atol=1e-12)
    assert (p.epistemic >= -1e-9).all()
    assert (p.epistemic <= math.log(samples) + 1e-9).all()
    if method.is_random:
        assert (p.epistemic > 1e-8).all()
    else:
        assert (p.epistemic.abs() < 1e-12).all()


def test_prediction_restores_every_mode(method, net_name):
    model, inputs = converted(method, net_name)
    for index, module in enumerate(model.modules()):
        module.training = index % 3 == 0
    modes = [m.training for m in model.modules()]
    predicted(model, inputs)
    assert [m.training for m in model.modules()] == modes


def test_explicit_plans_fold_draw_major(noisy, net_name):
    """Row t * B + b of a folded pass is example b under draw t."""
    model, inputs = converted(noisy, net_name, torch.float64)
    loud(model).eval()
    from leanbayes.noise import KeyedNoise

    with torch.no_grad():
        plan = noisy.prediction_plan(range(3), KeyedNoise(2, range(3)))
        folded = model(fold(inputs, 3), plan=plan).reshape(3, ROWS, -1)
        for t in range(3):
            one = model(inputs, plan=noisy.prediction_plan([t], KeyedNoise(2, [t])))
            torch.testing.assert_close(folded[t], one, rtol=1e-12, atol=1e-12)
