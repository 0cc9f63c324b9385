"""Data and settings that cannot be used: an error that says what was found and what to write."""

import pytest
import torch
from data_cases import Flow, N, Numbers, make, ready, tensors
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leanbayes as lb
from leanbayes.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (tensors(0), "empty"),
        (Numbers(0), "empty"),
        ([], "no batches"),
        (DataLoader(Flow(given=0), 6), "no batches"),
        (DataLoader(Numbers(5), 6, drop_last=True), "5 examples do not make one batch.*drop_last"),
        ((torch.zeros(4, 2), torch.zeros(5)), r"\(4, 2\), \(5,\).*same number"),
        (({"a": torch.zeros(4), "b": torch.zeros(3)}, torch.zeros(4)), "same number"),
        ((torch.zeros(4), torch.tensor(1)), "same number"),
        ((["cat"], torch.zeros(1)), r"found \['str'\]"),
        ((torch.zeros(2).numpy(), torch.zeros(2).numpy()), "torch.from_numpy"),
        ((batch for batch in ready()), r"generator can be read once only.*list\(batches\)"),
        (zip([1], [2], strict=True), "zip can be read once only"),
        (torch.zeros(4, 2), "are a Tensor; expected a pair"),
        (None, "are a NoneType; expected"),
        (7, "are a int; expected"),
        ({"x": torch.zeros(3)}, "are a dict; expected"),
        ([torch.zeros(4, 2)], r"a batch is a Tensor; expected a pair"),
        ([(torch.zeros(4), torch.zeros(4), torch.zeros(4))], "tuple of 3; expected a pair"),
        ([(torch.zeros(4, 2), torch.zeros(3))], r"4 rows and targets of shape \(3,\)"),
        ([(torch.zeros(1, 8, 8), torch.tensor(3))], "single examples go into a Dataset"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used_are_refused_in_words(train, words):
    with pytest.raises(DataError, match=words):
        make(train)


@pytest.mark.parametrize("targets", [[0, 1, 0, 1], {"y": torch.zeros(4)}, torch.zeros(4).numpy()])
def test_targets_that_are_no_tensor_are_refused_before_the_training(targets):
    """They ended a step with an AttributeError."""
    train = [(torch.zeros(4, 2), targets)]
    words = f"the targets of a batch are a {type(targets).__name__}.*torch.tensor"
    with pytest.raises(DataError, match=words):
        lb.fit(lb.bayesianize(nn.Linear(2, 2), lb.MAP()), train, lb.Categorical())


class NoLength:
    def __getitem__(self, index):
        return index


def test_a_dataset_without_a_length_is_refused():
    with pytest.raises(DataError, match="define __len__"):
        make(NoLength())


def test_examples_that_are_no_pairs_are_refused_when_they_are_read():
    with pytest.raises(DataError, match="expected a pair"):
        next(make(TensorDataset(*tensors(), torch.zeros(N))).epoch(0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, found 0"),
        ({"batch_size": 2.5}, "batch_size must be"),
        ({"batch_size": True}, "batch_size must be"),
        ({"world": 0}, "world must be"),
        ({"world": 2, "rank": 2}, "rank must be 0 to 1"),
        ({"smallest": 0}, "smallest must be"),
        ({"workers": -1}, "workers must be"),
        ({"world": 3, "smallest": 4}, "gives 2 rows a process.*batch_size=12 or more"),
    ],
)
def test_settings_out_of_range_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        make(tensors(), **options)


def test_an_epoch_or_start_that_does_not_exist_is_refused():
    batches = make(tensors())
    assert list(batches.epoch(0, 4)) == []
    for number, start in ((-1, 0), (0, 5), (0, -1)):
        with pytest.raises(ConfigError, match="does not exist"):
            batches.epoch(number, start)
