"""OOD batches of another size than the clean ones."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb


def run(**options):
    """Rows of every pass of a run."""
    seen = []
    x, y = torch.randn(32, 6), torch.arange(32) % 3
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 3))
    model = lb.bayesianize(net, lb.MeanField(), example=x)
    model.net[0].register_forward_hook(lambda _layer, inputs, _y: seen.append(len(inputs[0])))
    config = lb.FitConfig(
        steps=3, batch_size=16, regularizer=lb.OODRegularizer(), device="cpu", progress=False,
        **options,
    )  # fmt: skip
    lb.fit(model, (x, y), lb.Categorical(), ood=(x.flip(0), y), config=config)
    return seen[-3:]


def test_a_step_has_as_many_ood_inputs_as_clean_ones_unless_told_otherwise():
    assert run() == [16 + 2 * 16] * 3
    assert run(ood_batch_size=4) == [16 + 2 * 4] * 3


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("loader", [False, True])
def test_there_may_be_fewer_of_them_than_members(passes, loader):
    """They were refused, with the advice to make the clean batches larger."""
    x, y = torch.randn(32, 6), torch.arange(32) % 3
    model = lb.bayesianize(torch.nn.Linear(6, 3), lb.SharedEnsemble(members=8), example=x)
    ood = DataLoader(TensorDataset(x, y), 2) if loader else x
    regularizer = lb.OODRegularizer(passes=passes)
    config = lb.FitConfig(
        steps=3, batch_size=16, ood_batch_size=2, regularizer=regularizer, device="cpu",
        progress=False,
    )  # fmt: skip
    assert lb.fit(model, (x, y), lb.Categorical(), ood=ood, config=config).steps == 3


@pytest.mark.parametrize("resident", [False, True])
def test_inputs_need_no_targets(resident):
    """What `lb.ood_inputs` gives was refused as training data."""
    x, y = torch.randn(32, 6), torch.arange(32) % 3
    weights = []
    for ood in (x.flip(0), (x.flip(0), y)):
        torch.manual_seed(0)
        config = lb.FitConfig(
            steps=3, batch_size=16, regularizer=lb.OODRegularizer(), resident=resident,
            device="cpu", progress=False,
        )  # fmt: skip
        net = torch.nn.Linear(6, 3)
        lb.adapt(net, lb.MeanField(), (x, y), ood=ood, config=config)
        weights.append(net.weight.detach())
    assert torch.equal(*weights)


def test_the_price_counts_so_many():
    x, y = torch.randn(16, 6), torch.arange(16) % 3
    model = lb.bayesianize(torch.nn.Linear(6, 3), lb.MeanField(estimator="shared"), example=x)
    options = {"likelihood": lb.Categorical(), "rounds": 1, "regularizer": lb.OODRegularizer()}
    ratio = {
        rows: lb.price(model, torch.nn.Linear(6, 3), (x, y), ood_rows=rows, **options)
        for rows in (None, 8)
    }
    assert ratio[None].flops_step_ratio == pytest.approx(1.5 * ratio[8].flops_step_ratio)


def test_it_is_a_whole_number():
    with pytest.raises(lb.ConfigError, match="ood_batch_size"):
        lb.FitConfig(ood_batch_size=0)
