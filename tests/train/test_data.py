"""Batches of a run: order, parts of processes, loaders taken over or used as they are."""

import pytest
import torch
from data_cases import Flow, N, Numbers, make, ready, tensors
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data.distributed import DistributedSampler

from leanbayes.errors import DataError
from leanbayes.train.order import Order


def rows(train, epoch=0, start=0, **options):
    """Indices of the examples, batch by batch; targets must be those of the inputs."""
    found = list(make(train, **options).epoch(epoch, start))
    for inputs, targets in found:
        assert torch.equal(targets, inputs[:, 0].long() % 5)
    return [inputs[:, 0].long().tolist() for inputs, _ in found]


def flat(batches):
    return [index for batch in batches for index in batch]


@pytest.mark.parametrize("train", [Numbers(), tensors(), TensorDataset(*tensors())])
def test_every_example_comes_once_an_epoch_in_another_order_each_epoch_and_seed(train):
    first = rows(train)
    assert [len(batch) for batch in first] == [6, 6, 6, 5]
    assert sorted(flat(first)) == list(range(N))
    others = [rows(train, epoch=1), rows(train, seed=2), rows(train, seed=2, epoch=1)]
    orders = {tuple(flat(found)) for found in [first, *others]}
    assert len(orders) == 4
    assert all(sorted(order) == list(range(N)) for order in orders)
    assert rows(train) == first


def test_all_kinds_of_data_have_the_same_order_and_any_start():
    kinds = [
        Numbers(),
        tensors(),
        TensorDataset(*tensors()),
        DataLoader(Numbers(), 6, shuffle=True),
    ]
    first = rows(kinds[0])
    for kind in kinds:
        for start in range(5):
            assert rows(kind, start=start) == first[start:]


def test_every_place_is_equally_likely():
    order = Order(examples=5, batch_size=5)
    counts = torch.zeros(5, 5)
    for epoch in range(2000):
        counts[torch.arange(5), order.of_epoch(epoch)] += 1
    assert ((counts / 2000 - 0.2).abs() < 0.045).all()  # 5 standard errors


@pytest.mark.parametrize("train", [Numbers(), tensors()])
@pytest.mark.parametrize("world", [2, 3])
def test_the_parts_of_the_processes_are_the_global_batch_in_order(train, world):
    parts = [rows(train, world=world, rank=rank) for rank in range(world)]
    together = [flat(batch) for batch in zip(*parts, strict=True)]
    whole = rows(train)
    assert together[:3] == whole[:3]
    assert together[3] == whole[3][: 5 // world * world]  # the stated remainder
    assert {len(part[3]) for part in parts} == {5 // world}


def test_batches_with_too_few_rows_a_process_are_left_out_and_not_counted():
    batches = make(tensors(), smallest=3, world=2, rank=1)  # the last one has 5 // 2 rows
    assert batches.steps_per_epoch == len(list(batches.epoch(0))) == 3
    assert make(tensors(), smallest=2, world=2).steps_per_epoch == 4
    assert rows(ready((4, 2, 4)), smallest=3) == [[0, 1, 2, 3], [6, 7, 8, 9]]


def test_without_shuffling_the_order_is_that_of_the_data():
    assert flat(rows(Numbers(), shuffle=False)) == list(range(N))
    assert rows(Numbers(), shuffle=False, epoch=3) == rows(tensors(), shuffle=False)


def test_inputs_may_be_any_pytree_and_are_copies():
    x, y = tensors()
    inputs = {"a": x, "b": (x.int(), -x)}
    for found, targets in make((inputs, y)).epoch(0):
        assert torch.equal(found["a"], found["b"][0].float())
        assert torch.equal(found["a"], -found["b"][1])
        assert torch.equal(targets, found["a"][:, 0].long() % 5)
        found["a"].zero_()
    assert torch.equal(x, tensors()[0])


def test_tensors_are_read_without_a_loader(monkeypatch):
    monkeypatch.setattr("leanbayes.train.sources.DataLoader", None)
    assert len(rows(tensors())) == len(rows(TensorDataset(*tensors()))) == 4


def test_a_tensor_stays_on_its_device():
    x, y = torch.empty(N, 2, device="meta"), torch.empty(N, device="meta")
    inputs, targets = next(make((x, y)).epoch(0))
    assert inputs.device.type == targets.device.type == "meta"
    assert inputs.shape == (6, 2)


def test_the_settings_of_a_loader_are_taken_over():
    loader = DataLoader(Numbers(), 7, drop_last=True, collate_fn=doubled)
    batches = make(loader)
    assert (batches.num_data, batches.steps_per_epoch, batches.batch_size) == (N, 3, 7)
    found = [x[:, 0].tolist() for x, _ in batches.epoch(1)]
    assert found == [[2.0 * i for i in range(k, k + 7)] for k in (0, 7, 14)]  # it does not shuffle
    assert batches.source is loader


def doubled(examples):
    inputs, targets = default_collate(examples)
    return 2 * inputs, targets


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_timeout_and_prefetching_of_a_loader_are_taken_over():
    loader = DataLoader(Numbers(), 6, shuffle=True, num_workers=1, timeout=60, prefetch_factor=3)
    settings = make(loader).reader.settings
    assert (settings["num_workers"], settings["timeout"], settings["prefetch_factor"]) == (1, 60, 3)
    assert rows(loader, start=2) == rows(Numbers())[2:]


def test_a_loader_with_its_own_sampler_is_used_as_it_is_with_any_start():
    torch.manual_seed(0)
    sampler = WeightedRandomSampler(torch.arange(1.0, N + 1), 20)
    loader = DataLoader(Numbers(), 6, sampler=sampler)
    before = torch.get_rng_state()
    first = rows(loader)
    assert [len(batch) for batch in first] == [6, 6, 6, 2]
    assert len(set(flat(first))) < 20  # with replacement
    assert all(rows(loader, start=start) == first[start:] for start in range(5))
    assert rows(loader, epoch=1) != first
    assert torch.equal(torch.get_rng_state(), before)
    assert make(loader).num_data == N


def test_the_generator_of_a_sampler_starts_anew_every_epoch():
    sampler = SubsetRandomSampler(range(3, 15), generator=torch.Generator().manual_seed(5))
    loader = DataLoader(Numbers(), 4, sampler=sampler)
    batches = make(loader)
    assert (batches.num_data, batches.steps_per_epoch, batches.batch_size) == (12, 3, 4)
    second = rows(loader, epoch=1)
    assert sorted(flat(second)) == list(range(3, 15))
    assert rows(loader, epoch=0) != second  # another epoch in between changes nothing
    assert rows(loader, epoch=1, start=1) == second[1:]


def test_a_distributed_sampler_is_told_of_the_epoch():
    loaders = [
        DataLoader(Numbers(), 3, sampler=DistributedSampler(Numbers(), 2, rank)) for rank in (0, 1)
    ]
    assert make(loaders[0], world=2).num_data == N
    epochs = [[flat(rows(each, epoch=epoch)) for each in loaders] for epoch in (0, 1)]
    assert epochs[0] != epochs[1]
    for halves in epochs:
        assert set(flat(halves)) == set(range(N))


def test_an_own_batch_sampler_is_used_as_it_is():
    """It was taken to draw from all examples, so that the KL of a subset counted too little."""
    subset = SubsetRandomSampler(range(10))
    loader = DataLoader(Numbers(), batch_sampler=BatchSampler(subset, 4, drop_last=False))
    batches = make(loader, smallest=3)
    assert (batches.num_data, batches.steps_per_epoch, batches.batch_size) == (10, 2, 4)
    assert make(DataLoader(Numbers(), 4, sampler=subset), smallest=3).num_data == 10
    assert rows(loader, smallest=3, start=1) == rows(loader, smallest=3)[1:]


@pytest.mark.parametrize("length", [None, N])
@pytest.mark.parametrize("bare", [False, True])
def test_a_flow_of_examples_is_counted_or_believed_and_started_by_skipping(length, bare):
    flow = Flow(length) if bare else DataLoader(Flow(length), 6)
    batches = make(flow)
    assert (batches.num_data, batches.steps_per_epoch, batches.batch_size) == (N, 4, 6)
    first = rows(flow)
    assert sorted(flat(first)) == list(range(N))
    assert rows(flow, start=2) == first[2:]
    assert rows(flow, epoch=1) != first


def test_a_flow_longer_than_its_length_is_cut_and_a_shorter_one_is_an_error():
    assert len(rows(DataLoader(Flow(12), 6))) == 2
    with pytest.raises(DataError, match=r"epoch 0 .* after 4 of 5.*__len__"):
        rows(DataLoader(Flow(N + 4), 6))


def test_ready_batches_are_used_as_they_are_and_skipped():
    batches = make(ready())
    assert (batches.num_data, batches.steps_per_epoch, batches.batch_size) == (11, 3, 4)
    assert rows(ready(), start=1) == rows(ready(), epoch=5)[1:] == [[4, 5, 6, 7], [8, 9, 10]]
    with pytest.warns(UserWarning, match="give each its own"):
        make(ready(), world=2)


class Again:
    """An iterable that starts anew and knows no length."""

    def __iter__(self):
        return iter(ready())


def test_an_iterable_that_starts_anew_is_counted():
    assert rows(Again(), start=1) == rows(ready(), start=1)
    assert make(Again()).num_data == 11
