"""What every test needs: a fixed seed, and one thread, since small tensors lose by more."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def pytest_configure():
    torch.set_num_threads(1)
