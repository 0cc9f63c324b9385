"""SWAG's law: the draws of a whole network at once are those of its tensors."""

import pytest
import torch

from leanbayes.ahead import drawn_by_key, in_groups
from leanbayes.noise import KeyedNoise, PortableNoise
from leanbayes.plan import Plan, Scope
from leanbayes.posteriors import swag
from leanbayes.posteriors.swag import LowRankGaussian

SHAPES = ((4, 3, 2, 2), (4,), (5, 4), (5,), (1,))


def sites(rank, layout):
    g = torch.Generator().manual_seed(0)
    found = []
    for at, shape in enumerate(SHAPES):
        base = torch.randn(shape, generator=g)
        base = base.to(memory_format=layout) if base.dim() == 4 else base
        law = LowRankGaussian(base, rank=rank, std=0.1)
        law.key = f"layer{at}.weight"
        for r in range(rank):
            law.set_deviation(r, torch.randn(shape, generator=g))
        found.append((law, base))
    return found


@pytest.mark.parametrize("joined", [1, 30, 2**22])
@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("source", [KeyedNoise, PortableNoise])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_sample_of_the_network_is_that_of_every_tensor(joined, rank, source, layout, monkeypatch):
    monkeypatch.setattr(swag, "JOINED", joined)
    laws = sites(rank, layout)
    scope = Scope(Plan(groups=1, noise=source(2, [6])), rows=4)
    groups = in_groups(laws)
    assert len(groups) == 1
    with torch.no_grad():
        together = drawn_by_key(groups, scope)
        for law, base in laws:
            noise = law.noise(base, 1, source(2, [6]))
            expected = law.draw(base, noise)[0]
            assert torch.equal(together[law.key].value, expected)
            assert not torch.equal(expected, base)


def test_portions_keep_the_order_and_leave_nothing_out(monkeypatch):
    monkeypatch.setattr(swag, "JOINED", 50)
    laws = sites(0, torch.contiguous_format)
    portions = list(swag._portions(laws))
    assert [law for portion in portions for law in portion] == laws
    entries = [sum(base.numel() for _, base in portion) for portion in portions]
    assert entries == [48, 4 + 20 + 5 + 1]
