"""Data that lie on the device: the same batches and the same numbers, images as bytes."""

import pytest
import torch

import leanbayes as lb
from leanbayes.data import Normalize
from leanbayes.train.data import Batches, num_elements
from leanbayes.train.resident import Bytes, resident

CPU = torch.device("cpu")


def images(rows=40, channels=3):
    """Normalised images that were bytes."""
    torch.manual_seed(0)
    pixels = torch.randint(256, (rows, channels, 6, 6), dtype=torch.uint8)
    scale = Normalize((0.49, 0.48, 0.45)[:channels], (0.25, 0.24, 0.26)[:channels])
    return scale(pixels), torch.arange(rows) % 10


def test_images_that_were_bytes_come_back_bit_for_bit_from_a_quarter_of_the_memory():
    x, _ = images()
    kept = Bytes.of(x, CPU)
    assert kept.codes.dtype == torch.uint8
    rows = torch.tensor([3, 0, 39])
    assert torch.equal(kept.rows(rows), x[rows])


def test_channels_of_more_values_and_other_inputs_are_moved_as_they_are():
    x, y = images()
    assert Bytes.of(torch.randn(300, 1, 2, 2), CPU) is None
    late = torch.cat([x, torch.randn(300, 3, 6, 6)])
    assert Bytes.of(late, CPU) is None
    table = torch.randn(5, 4)
    assert resident((table, y[:5]), CPU)[0] is table
    inputs, _ = resident(({"a": table}, y[:5]), CPU)
    assert torch.equal(inputs["a"], table)
    dataset = object()
    assert resident(dataset, CPU) is dataset


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_are_those_of_the_tensors(shuffle):
    data = images()
    options = {"batch_size": 16, "seed": 3, "shuffle": shuffle, "rank": 1, "world": 2}
    plain, kept = (Batches(d, **options) for d in (data, resident(data, CPU)))
    assert (plain.num_data, len(plain)) == (kept.num_data, len(kept)) == (40, 3)
    for one, two in zip(plain.epoch(2, 1), kept.epoch(2, 1), strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])
    assert sum(len(y) for _, y in kept.reader.every()) == 40
    assert num_elements(kept, lb.Categorical()) == 40
    assert num_elements(kept, lb.Categorical(ignore_index=3)) == 36  # as of tensors
    assert num_elements(plain, lb.Categorical(ignore_index=3)) == 36


def test_rows_are_copies():
    kept = resident(images(), CPU)
    first = next(Batches(kept, batch_size=8, seed=0, shuffle=False).epoch(0))[0]
    first.zero_()
    again = next(Batches(kept, batch_size=8, seed=0, shuffle=False).epoch(0))[0]
    assert torch.equal(again, images()[0][:8])


@pytest.mark.parametrize(
    "method",
    [lb.MeanField(), lb.Partial(rate=0.1), lb.SWAG(rank=0), lb.MAP()],
    ids=lambda m: m.name,
)
def test_a_run_is_the_same_bit_for_bit(method):
    x, y = images()
    found = []
    for kept in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
            torch.nn.Linear(64, 10),
        )  # fmt: skip
        config = lb.FitConfig(
            *(), epochs=2, batch_size=16, lr=1e-2, resident=kept, device="cpu",
            batchnorm="refresh", progress=False,
        )  # fmt: skip
        done = lb.adapt(
            net, method, (x, y), config=config, validation=(x[:8], y[:8]),
            augment=lb.data.augment_named("crop+flip", padding=1),
            fitting={"epochs": 3} if method.name == "swag" else None,
        )  # fmt: skip
        found.append(done)
    assert found[0].figures == found[1].figures
    for key, one in found[0].model.state_dict().items():
        assert torch.equal(one, found[1].model.state_dict()[key])


def test_inputs_of_the_regulariser_move_too():
    x, y = images()
    found = []
    for kept in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 10))
        model = lb.bayesianize(net, lb.MeanField(), example=x)
        config = lb.FitConfig(
            steps=3, batch_size=16, regularizer=lb.OODRegularizer(), resident=kept,
            device="cpu", progress=False,
        )  # fmt: skip
        torch.manual_seed(1)
        lb.fit(model, (x, y), lb.Categorical(), ood=(x.flip(0), y), config=config)
        found.append(model.state_dict())
    assert all(torch.equal(one, found[1][key]) for key, one in found[0].items())
