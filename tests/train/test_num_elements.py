"""The number of data that divides the KL: rows, or labelled elements of dense targets."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

import leanbayes as lb
from leanbayes.errors import DataError
from leanbayes.train.data import Batches, num_elements


class Maps(Dataset):
    """Label maps of 3 x 3 of which example i has i + 1 labels; `reads` says how many were read."""

    def __init__(self, examples=7):
        self.examples, self.reads = examples, 0

    def __len__(self):
        return self.examples

    def __getitem__(self, index):
        self.reads += 1
        target = torch.full((9,), -100)
        target[: index + 1] = 1
        return torch.zeros(2, 3, 3), target.reshape(3, 3)


class Labels(Maps):
    def __getitem__(self, index):
        self.reads += 1
        return torch.zeros(2), index % 2


class Several(Maps):
    def __getitem__(self, index):
        self.reads += 1
        return torch.zeros(2), torch.ones(4)


LABELLED = sum(range(1, 8))


def collated(dataset):
    inputs, targets = zip(*[dataset[i] for i in range(len(dataset))], strict=True)
    return torch.stack(inputs), torch.stack(targets)


@pytest.mark.parametrize(
    "train",
    [
        Maps(),
        collated(Maps()),
        DataLoader(Maps(), 2),
        DataLoader(Maps(), 4, drop_last=True, shuffle=True),
        [collated(Maps())],
        Batches(Maps(), batch_size=4, seed=0, world=2, rank=1, smallest=2),
    ],
)
def test_labelled_elements_of_dense_targets_are_counted_over_the_whole_set(train):
    assert num_elements(train, lb.Categorical()) == LABELLED


def test_another_ignored_label_counts_otherwise():
    assert num_elements(Maps(), lb.Categorical(ignore_index=1)) == 7 * 9 - LABELLED


def test_plain_labels_cost_a_look_at_one_batch():
    dataset = Labels(1000)
    batches = Batches(dataset, batch_size=8, seed=0)
    assert num_elements(batches, lb.Categorical()) == 1000
    assert dataset.reads == 8


def test_ignored_rows_of_tensors_do_not_count():
    targets = torch.tensor([0, 1, -100, 2])
    assert num_elements((torch.zeros(4, 2), targets), lb.Categorical()) == 3
    with pytest.raises(DataError, match="all are ignored"):
        num_elements((torch.zeros(4, 2), torch.full((4,), -100)), lb.Categorical())


class Half(Maps):
    """Every other example has no label."""

    def __getitem__(self, index):
        return torch.zeros(2), -100 if index % 2 else 1


@pytest.mark.parametrize("make", [Half, lambda n: DataLoader(Half(n), 4), lambda n: [*half(n)]])
def test_rows_without_a_label_are_counted_where_a_batch_has_some(make):
    """The KL was divided by twice the number of labels, unless the data were tensors."""
    assert num_elements(make(20), lb.Categorical()) == 10


@pytest.mark.parametrize("drawn", [2, 14])
def test_a_sampler_that_draws_other_examples_than_there_are_changes_no_count(drawn):
    """Pixels were those of an epoch, however often a sampler had drawn them."""
    dataset = [(torch.zeros(2, 3, 3), torch.ones(3, 3).long())] * 7
    for sampler in (range(drawn), WeightedRandomSampler(torch.ones(7), drawn)):
        indices = [index % 7 for index in sampler]
        loader = DataLoader(dataset, 2, sampler=indices)
        assert num_elements(loader, lb.Categorical()) == 7 * 9


def half(examples):
    return DataLoader(Half(examples), 4)


def test_several_binary_labels_count_each_without_a_pass():
    dataset = Several(1000)
    assert num_elements(Batches(dataset, batch_size=8, seed=0), lb.Bernoulli()) == 4000
    assert dataset.reads == 8
    assert num_elements((torch.zeros(3, 2), torch.ones(3, 5)), lb.Bernoulli()) == 15
    assert num_elements((torch.zeros(3, 2), torch.ones(3, 1)), lb.Bernoulli()) == 3


def test_a_row_of_a_regression_is_one_datum_however_many_targets():
    for train in (Several(), collated(Several()), [collated(Several())]):
        assert num_elements(train, lb.Gaussian(learn=True)) == 7
    dataset = Several(1000)
    batches = Batches(dataset, batch_size=8, seed=0)
    assert num_elements(batches, lb.HeteroscedasticGaussian()) == 1000
    assert dataset.reads == 8  # looked at, not read through


class Numbers(Maps):
    """Maps of two numbers a pixel."""

    def __getitem__(self, index):
        self.reads += 1
        return torch.zeros(2, 3, 5), torch.ones(2, 3, 5)


def test_a_pixel_of_a_map_of_numbers_is_one_datum_however_many_targets():
    """As of labels (api: dense targets count by element); it was an image, with summed pixels."""
    for train in (Numbers(), collated(Numbers()), [collated(Numbers())], DataLoader(Numbers(), 2)):
        assert num_elements(train, lb.Gaussian()) == 7 * 15
    dataset = Numbers(1000)
    assert num_elements(Batches(dataset, batch_size=8, seed=0), lb.Gaussian()) == 15_000
    assert dataset.reads == 8
    torch.manual_seed(0)
    x, y = torch.randn(6, 2, 4, 5), torch.randn(6, 3, 4, 5)
    model = lb.bayesianize(torch.nn.Conv2d(2, 3, 1), lb.MeanField(init_std=0), example=x)
    with torch.no_grad():
        log_prob = torch.distributions.Normal(lb.collapse(model)(x), 0.5).log_prob(y).sum(1)
        options = {"num_data": num_elements((x, y), lb.Gaussian()), "kl_weight": 2.0}
        for kind in ("average", "mixture"):
            found = lb.objective(
                model, (x, y), lb.Gaussian(precision=4.0), likelihood_of=kind, samples=2, **options
            )
            torch.testing.assert_close(found.nll, -log_prob.mean())
            torch.testing.assert_close(found.loss, found.nll + 2 * model.kl().float() / 120)


def test_maps_without_the_dimension_of_the_targets_are_refused():
    """Counted by themselves they would be a third of what they are."""
    x, y = torch.randn(6, 2, 4, 5), torch.randn(6, 4, 5)
    model = lb.bayesianize(torch.nn.Conv2d(2, 1, 1), lb.MeanField(), example=x)
    with pytest.raises(lb.errors.ConfigError, match=r"lack the dim.*write targets\[:, None\]"):
        lb.objective(model, (x, y), lb.Gaussian(), num_data=120)
    torch.testing.assert_close(
        lb.Gaussian().log_prob(x[:, :1], y[:, None]),
        torch.distributions.Normal(x[:, 0], 1.0).log_prob(y),
    )


class SummedBernoulli(lb.Bernoulli):
    """An own likelihood: a row of labels is one datum."""

    def log_prob(self, output, target):
        return super().log_prob(output, target).flatten(1).sum(1)


def test_an_own_likelihood_decides_what_a_datum_is():
    assert num_elements(Several(), SummedBernoulli()) == 7


@pytest.mark.parametrize("train", [Maps(), Several(), [collated(Maps())]])
def test_what_is_counted_is_what_the_objective_divides_by(train):
    """The mean over the data of the objective's nll, with the counts as weights."""
    likelihood = lb.Categorical() if not isinstance(train, Several) else lb.Bernoulli()
    total = 0
    for _, target in Batches(train, batch_size=3, seed=0).epoch(0):
        shape = (len(target), 4, 3, 3) if isinstance(likelihood, lb.Categorical) else target.shape
        log_prob = likelihood.log_prob(torch.zeros(shape), target)
        total += int(likelihood.count(log_prob, target))
    assert num_elements(train, likelihood) == total


def test_counting_leaves_the_generators_alone():
    before = torch.get_rng_state()
    num_elements(DataLoader(Maps(), 2, shuffle=True), lb.Categorical())
    assert torch.equal(torch.get_rng_state(), before)
