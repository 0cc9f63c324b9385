"""On a network without randomness the attacks are those of public libraries, step by step."""

import warnings

import pytest
import torch
from torch import nn

import leanbayes as lb

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
EPS, STEP, STEPS = 8 / 255, 2 / 255, 10


def imported(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def setting():
    torch.manual_seed(4)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5)
    ).eval()
    return net, torch.rand(8, 3, 8, 8), torch.randint(0, 5, (8,))


def by_definition(net, x, y, steps, norm):
    """Madry et al. 2018, equation by equation."""
    found = x.clone()
    for _ in range(steps):
        found = found.detach().requires_grad_(True)
        nn.functional.cross_entropy(net(found), y).backward()
        slope = found.grad
        if norm == "inf":
            shift = (found + STEP * slope.sign() - x).clamp(-EPS, EPS)
        else:
            shift = found + STEP * slope / slope.flatten(1).norm(dim=1)[:, None, None, None] - x
            length = shift.flatten(1).norm(dim=1)[:, None, None, None]
            shift = torch.where(length > EPS, shift * EPS / length, shift)
        found = (x + shift).clamp(0, 1)
    return found.detach()


def ours(net, x, y, steps, **options):
    model = lb.bayesianize(net, lb.MAP(), likelihood=lb.Categorical())
    found = lb.attacks.pgd(
        model, x, y, eps=EPS, step_size=STEP, steps=steps, random_start=False, **options
    )
    return found, lb.collapse(model)


@pytest.mark.parametrize("norm", ["inf", "2"])
@pytest.mark.parametrize("steps", range(1, STEPS + 1, 3))
def test_equal_to_the_definition(steps, norm):
    net, x, y = setting()
    expected = by_definition(net, x, y, steps, norm)
    found, plain = ours(net, x, y, steps, norm=norm)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    again = lb.attacks.pgd(
        plain, x, y, eps=EPS, step_size=STEP, steps=steps, random_start=False, norm=norm
    )
    torch.testing.assert_close(again, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("steps", range(1, STEPS + 1))
def test_equal_to_torchattacks(steps):
    library = imported("torchattacks")
    net, x, y = setting()
    expected = library.PGD(net, eps=EPS, alpha=STEP, steps=steps, random_start=False)(x, y)
    expected_2 = library.PGDL2(net, eps=EPS, alpha=STEP, steps=steps, random_start=False)(x, y)
    found, plain = ours(net, x, y, steps)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    found_2, _ = ours(plain, x, y, steps, norm="2")
    torch.testing.assert_close(found_2, expected_2, rtol=0, atol=1e-6)


def test_equal_to_torchattacks_on_normalised_inputs_and_in_one_step():
    library = imported("torchattacks")
    net, pixels, y = setting()
    scale = lb.data.Normalize(MEAN, STD)
    attack = library.PGD(net, eps=EPS, alpha=STEP, steps=STEPS, random_start=False)
    attack.set_normalization_used(mean=MEAN, std=STD)
    expected = attack(scale(pixels), y)
    found, plain = ours(net, scale(pixels), y, STEPS, normalize=scale)
    torch.testing.assert_close(scale.undo(found), scale.undo(expected), rtol=0, atol=1e-5)
    expected = library.FGSM(plain, eps=EPS)(pixels, y)
    found = lb.attacks.fgsm(plain, pixels, y, eps=EPS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 4, STEPS])
def test_equal_to_foolbox(steps):
    library = imported("foolbox")
    net, x, y = setting()
    attack = library.attacks.LinfPGD(abs_stepsize=STEP, steps=steps, random_start=False)
    target = library.PyTorchModel(net, bounds=(0, 1), device="cpu")
    _, expected, _ = attack(target, x, y, epsilons=EPS)
    found, _ = ours(net, x, y, steps)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
