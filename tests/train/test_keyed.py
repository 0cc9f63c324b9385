"""Random augmentation: the same bits whatever workers, start and process; nothing else moves."""

import os
import random
import signal

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from leanbayes.train.data import Batches
from leanbayes.train.keyed import Stream, Worker, guarded, seed_all, states

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

N = 11


class Augmented(Dataset):
    """Rows (index, torch number, `random` number, numpy number)."""

    def __init__(self, examples=N):
        self.examples = examples

    def __len__(self):
        return self.examples

    def __getitem__(self, index):
        for _ in range(index % 3):  # examples that draw unequally many numbers
            torch.rand(1)
            random.random()
        numbers = [float(torch.rand(())), random.random(), np.random.rand()]  # noqa: NPY002
        return torch.tensor([float(index), *numbers], dtype=torch.float64), index % 3


def read(train=None, epoch=0, start=0, **options):
    options = {"batch_size": 4, "seed": 3} | options
    batches = Batches(Augmented() if train is None else train, **options)
    return list(batches.epoch(epoch, start))


def same(left, right):
    return len(left) == len(right) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(left, right, strict=True)
    )


def by_index(batches):
    rows = torch.cat([inputs for inputs, _ in batches])
    return rows[rows[:, 0].argsort()]


def equal(left, right):
    one, other = left.numpy["state"], right.numpy["state"]
    numpy = np.array_equal(one["key"], other["key"]) and one["pos"] == other["pos"]
    return torch.equal(left.torch, right.torch) and left.python == right.python and numpy


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_are_bitwise_the_same_for_any_number_of_workers_from_any_start(workers):
    for start in (0, 1, 2) if workers < 2 else (0, 1):
        assert same(read(start=start, workers=workers), read()[start:])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_random_collation_gives_the_same_bits_too(workers):
    loader = DataLoader(Augmented(), 4, shuffle=True, num_workers=workers, collate_fn=mixed)
    alone = DataLoader(Augmented(), 4, shuffle=True, collate_fn=mixed)
    assert same(read(loader, start=1), read(alone)[1:])


def mixed(examples):
    inputs, targets = default_collate(examples)
    return inputs * torch.rand(()).double() + random.random(), targets


def test_an_example_does_not_depend_on_its_process_place_or_batch_size():
    whole = by_index(read(batch_size=N))
    parts = [by_index(read(batch_size=2, world=2, rank=rank)) for rank in (0, 1)]
    together = torch.cat(parts)
    indices = together[:, 0].long()
    assert len(set(indices.tolist())) == N - 1  # the odd one rests
    assert torch.equal(together, whole[indices])
    assert torch.equal(by_index(read(batch_size=N, shuffle=False)), whole)


def test_another_epoch_another_seed_and_another_example_draw_other_numbers():
    first = by_index(read())
    for other in (read(epoch=1), read(seed=4)):
        assert not (by_index(other)[:, 1:] == first[:, 1:]).any()
    assert all(len(column.unique()) == N for column in first[:, 1:].T)
    assert same(read(), read())


def test_numbers_of_examples_are_uniform_and_the_three_generators_uncorrelated():
    numbers = by_index(read(Augmented(3000), batch_size=500))[:, 1:]
    torch.testing.assert_close(numbers.mean(0), torch.full((3,), 0.5).double(), rtol=0, atol=0.02)
    correlation = torch.corrcoef(numbers.T) - torch.eye(3)
    assert correlation.abs().max() < 0.07  # 4 standard errors of 1 / sqrt(3000)
    lag = torch.corrcoef(torch.stack([numbers[1:, 0], numbers[:-1, 0]]))[0, 1]
    assert abs(lag) < 0.07  # neighbouring indices


@pytest.mark.parametrize("workers", [0, 1])
def test_the_generators_of_the_process_are_untouched(workers):
    seed_all(99)
    before = states()
    batches = Batches(Augmented(), batch_size=4, seed=3, workers=workers)
    iterator = batches.epoch(0)
    next(iterator)
    assert equal(states(), before)
    del iterator  # in the middle
    assert len(list(batches.epoch(1))) == 3
    assert equal(states(), before)


def test_draws_between_batches_neither_change_batches_nor_are_changed_by_them():
    seed_all(5)
    alone = [torch.rand(()) for _ in range(3)]
    seed_all(5)
    pairs = [
        (batch, torch.rand(())) for batch in Batches(Augmented(), batch_size=4, seed=3).epoch(0)
    ]
    assert same([batch for batch, _ in pairs], read())
    assert [number for _, number in pairs] == alone


class Broken(Augmented):
    def __getitem__(self, index):
        torch.rand(3), random.random()
        raise KeyError("a damaged file")


def test_an_error_in_an_example_leaves_the_generators_as_they_were():
    seed_all(99)
    before = states()
    with pytest.raises(KeyError, match="damaged"):
        read(Broken())
    assert equal(states(), before)


class OwnGenerator(Augmented):
    def __getitem__(self, index):
        return torch.tensor(np.random.default_rng(torch.initial_seed()).random()), index


def test_augmentation_with_its_own_generator_takes_the_key_from_torch():
    assert same(read(OwnGenerator(), workers=1), read(OwnGenerator()))
    assert len(torch.cat([x for x, _ in read(OwnGenerator())]).unique()) == N


class Stopped(Augmented):
    """Every worker gets the signals that a whole process group gets."""

    def __getitem__(self, index):
        if get_worker_info() is not None and index % 2:
            os.kill(os.getpid(), signal.SIGINT)
        if get_worker_info() is not None and index == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__getitem__(index)


@pytest.mark.parametrize("as_loader", [False, True])
def test_workers_go_on_after_signals_that_are_for_the_training_process(as_loader):
    data = DataLoader(Stopped(), 4, num_workers=2) if as_loader else Stopped()
    plain = DataLoader(Augmented(), 4) if as_loader else Augmented()
    assert same(read(data, workers=2), read(plain))


def test_a_second_sigterm_ends_a_worker():
    pid = os.fork()
    if pid == 0:
        Worker()(0)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGTERM


class Initialised(Augmented):
    offset = 0.0

    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return inputs + self.offset, target


def set_offset(number):
    get_worker_info().dataset.examples.offset = 100.0 + 0 * number


def test_the_worker_init_fn_of_a_loader_still_runs():
    loader = DataLoader(Initialised(), 4, num_workers=1, worker_init_fn=set_offset)
    assert torch.equal(by_index(read(loader)), by_index(read(Augmented())) + 100)


def test_a_stream_goes_on_where_it_left_off():
    seed_all(1)
    stream, found = Stream(7), []
    for _ in range(2):
        with stream.active():
            found += [float(torch.rand(())), random.random(), np.random.rand()]  # noqa: NPY002
        torch.rand(5), random.random()
    seed_all(7)
    expected = [[float(torch.rand(())), random.random(), np.random.rand()] for _ in range(2)]  # noqa: NPY002
    assert found == [*expected[0], *expected[1]]


def test_items_made_in_a_stream_are_those_of_a_seeded_generator():
    def numbers():
        for _ in range(3):
            yield torch.rand(())

    seed_all(7)
    expected = list(numbers())
    assert list(guarded(numbers(), Stream(7).active)) == expected
