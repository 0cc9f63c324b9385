"""Images that are closer to photographs than white noise is."""

import pytest
import torch


def waves(rows=3, channels=3, height=32, width=32):
    generator = torch.Generator().manual_seed(7)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    phase = 6 * torch.rand(rows, channels, 1, 1, generator=generator)
    pace = 0.2 + 0.3 * torch.rand(rows, 1, 1, 1, generator=generator)
    smooth = 0.45 + 0.3 * torch.sin(pace * x + phase) * torch.cos(0.8 * pace * y + phase)
    grain = 0.04 * torch.randn(rows, channels, height, width, generator=generator)
    return ((smooth + grain).clamp(0, 1) * 255).round() / 255


@pytest.fixture
def photos():
    """Makes images of 8 bits: photos(rows, channels, height, width)."""
    return waves
