"""Parts of a batch: together they are the batch, whatever is labelled and however few rows."""

import pytest
import torch
from fit_cases import model_of, problem, settings
from torch import nn

import leanbayes as lb


class Pixels(nn.Conv2d):
    """A class a pixel."""

    def __init__(self):
        super().__init__(1, 3, 3, padding=1, dtype=torch.float64)


class Rows(nn.Sequential):
    """A class an image."""

    def __init__(self, norm=nn.Identity):
        super().__init__(nn.Flatten(), nn.Linear(16, 8), norm(8), nn.Tanh(), nn.Linear(8, 3))


def some_labels():
    y = problem()[1]
    y[torch.arange(48) % 7 > 1] = -100
    return y


def some_images():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (48, 4, 4), generator=generator)
    y[torch.rand(48, 4, 4, generator=generator) < 0.4] = -100
    y[torch.arange(48) % 5 > 0] = -100
    return y


CASES = {
    "rows without a label": (lambda: Rows().double(), some_labels, {}),
    "images without a label": (Pixels, some_images, {}),
    "class weights": (
        lambda: Rows().double(),
        lambda: problem()[1],
        {"class_weights": [1, 5, 0.2]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_count_as_their_labels_do(case):
    make, targets, options = CASES[case]
    found = []
    for accumulate in (1, 3, 6):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = lb.bayesianize(make(), lb.MAP())
        data = problem()[0].double(), targets()
        config = settings(accumulate=accumulate, steps=6)
        lb.fit(model, data, lb.Categorical(**options), config=config)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "method", "norm"),
    [(40, lb.MAP(), nn.BatchNorm1d), (45, lb.RankOne(members=4), nn.Identity)],
)
def test_a_short_batch_is_cut_into_fewer_parts(rows, method, norm):
    """The last batch of an epoch would have had parts of one row, and of fewer than members."""
    model = model_of(method, net=Rows(norm))
    config = settings(accumulate=3 if rows == 45 else 4, steps=None, epochs=2)
    assert lb.fit(model, problem(rows), lb.Categorical(), config=config).steps == 8


def test_parts_of_one_row_are_made_where_members_need_no_row_each():
    seen = []
    method = lb.RankOne(members=4, assign="random")
    model = model_of(method, net=Rows())
    model.net.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    config = settings(accumulate=12, steps=1)
    lb.fit(model, problem(), lb.Categorical(), config=config)
    assert seen[-12:] == [1] * 12


@pytest.mark.parametrize("passes", [1, 2])
def test_there_may_be_fewer_ood_inputs_than_parts(passes):
    regularizer = lb.OODRegularizer(passes=passes)
    config = settings(accumulate=6, ood_batch_size=4, regularizer=regularizer, steps=2)
    x = torch.randn(8, 1, 4, 4)
    model = model_of()
    result = lb.fit(model, problem(), lb.Categorical(), ood=(x, torch.zeros(8)), config=config)
    assert result.steps == 2


def test_the_kl_in_the_graph_counts_once_where_a_batch_has_no_label():
    """Parts were weighted by their labels, all of them by 0, and the KL with them."""
    targets = problem()[1]
    targets[12:24] = -100
    inputs = problem()[0].double().split(12)
    batches = list(zip(inputs, targets.split(12), strict=True))
    found = []
    for accumulate in (1, 3):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = lb.bayesianize(Rows().double(), lb.MeanField(init_std=0))
        config = settings(accumulate=accumulate, kl="graph", steps=4)
        lb.fit(model, batches, lb.Categorical(), config=config)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)
