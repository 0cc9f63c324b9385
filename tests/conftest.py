"""What every test needs: a fixed seed, and one thread, since small tensors lose by more."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CPUINFO, ISA = Path("/proc/cpuinfo"), "ONEDNN_MAX_CPU_ISA"
PRODUCT = (
    "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def pytest_configure():
    torch.set_num_threads(1)
    if ISA not in os.environ and CPUINFO.exists() and "amx_bf16" in CPUINFO.read_text():
        leave_broken_tiles_alone()


def pytest_collection_modifyitems(items):
    """Two processes beside many others are slow: they are waited for, and hangs end before this."""
    for item in items:
        own = item.get_closest_marker("timeout")
        if item.get_closest_marker("distributed") and own is None:
            item.add_marker(pytest.mark.timeout(900))


def pytest_collection_finish():
    """Thousands of tests live until the end: collections of garbage need not look at them."""
    gc.collect()
    gc.freeze()


def leave_broken_tiles_alone():
    """Some virtual machines offer AMX and trap on it: every product in bfloat16 ends the process.

    Workers of xdist and processes of tests inherit what is set here.
    """
    done = subprocess.run([sys.executable, "-c", PRODUCT], check=False)
    if done.returncode == -signal.SIGILL:
        os.environ[ISA] = "AVX512_CORE_FP16"
