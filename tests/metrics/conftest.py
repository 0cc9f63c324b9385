import pytest
import torch


@pytest.fixture(scope="session")
def random_cases():
    """200 pairs of float64 probabilities [B, C] and targets [B], soft to sharp, B from 1."""
    generator = torch.Generator().manual_seed(20)
    cases = []
    for number in range(200):
        batch = 1 + number % 60
        classes = 2 + number % 9
        sharpness = 0.3 + 4 * torch.rand((), generator=generator, dtype=torch.float64)
        logits = torch.randn(batch, classes, generator=generator, dtype=torch.float64)
        target = torch.randint(classes, (batch,), generator=generator)
        cases.append(((sharpness * logits).softmax(dim=1), target))
    return cases


@pytest.fixture(scope="session")
def random_scores():
    """200 pairs of float64 scores; every other pair is rounded so that many scores tie."""
    generator = torch.Generator().manual_seed(21)
    cases = []
    for number in range(200):
        inside = torch.randn(1 + number % 37, generator=generator, dtype=torch.float64)
        outside = torch.randn(1 + number % 41, generator=generator, dtype=torch.float64) + 0.5
        if number % 2:
            inside, outside = (2 * inside).round(), (2 * outside).round()
        cases.append((30 * inside, 30 * outside))
    return cases
