"""All heads of an output bank, averaged exactly."""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import leanbayes as lb


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.first(x))))


class Named(Net):
    def forward(self, x):
        return self.head(input=torch.relu(self.norm(self.first(x))))


class Scaled(Net):
    def forward(self, x):
        return 2 * super().forward(x)


def converted(net_type=Net, **options):
    torch.manual_seed(0)
    x = torch.randn(5, 4, dtype=torch.float64)
    method = lb.Patching(init_std=0.5, **options)
    return lb.bayesianize(net_type().double(), method, example=x), x


def probs_of_heads(model, x):
    """Class probabilities of every copy of the head, by hand: what an exact average is over."""
    net, head = model.net, model.net.head
    features = torch.relu(net.norm(net.first(x)))
    weight, bias = (head.posterior(s).values(getattr(head, s)) for s in ("weight", "bias"))
    return torch.stack([F.linear(features, weight[k], bias[k]).softmax(-1) for k in range(5)])


@pytest.mark.parametrize("net_type", [Net, Named])
def test_an_output_bank_alone_gives_the_average_over_its_copies_whatever_the_samples(net_type):
    model, x = converted(net_type, where="output", exact_output=True)
    heads = probs_of_heads(model, x)
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=1, seed=0)
    torch.testing.assert_close(p.probs, heads.mean(0), rtol=1e-12, atol=1e-12)
    entropy = -(heads * heads.log()).sum(-1).mean(0)
    torch.testing.assert_close(p.aleatoric, entropy, rtol=1e-12, atol=1e-12)


def test_enumeration_is_the_conditional_mean_of_sampling_and_its_variance_is_smaller():
    drawn, x = converted()
    exact, _ = converted(exact_output=True)
    exact.load_state_dict(drawn.state_dict())

    def spread(model, samples):
        runs = [
            lb.predict(model, x, likelihood=lb.Categorical(), samples=samples, seed=s).probs
            for s in range(150)
        ]
        return torch.stack(runs).mean(0), torch.stack(runs).var(0)

    (mean, variance), (exact_mean, exact_variance) = spread(drawn, 2), spread(exact, 2)
    error = ((variance + exact_variance) / 150).sqrt()
    assert ((mean - exact_mean).abs() < 4.5 * error).all()
    assert (exact_variance < variance).all()


@pytest.mark.parametrize("chunk", [2, 3, 5])
def test_chunks_do_not_change_an_enumerated_prediction(chunk):
    model, x = converted(exact_output=True)
    options = {"likelihood": lb.Categorical(), "samples": 5, "seed": 3, "keep_samples": True}
    whole = lb.predict(model, x, **options)
    parts = lb.predict(model, x, chunk=chunk, **options)
    torch.testing.assert_close(parts.probs, whole.probs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(parts.samples, whole.samples, rtol=1e-12, atol=1e-12)
    assert whole.samples.shape == (25, 5, 3)
    torch.testing.assert_close(whole.samples.mean(0), whole.probs, rtol=1e-12, atol=1e-12)


def test_a_network_that_changes_its_output_is_refused():
    model, x = converted(Scaled, exact_output=True)
    with pytest.raises(lb.ConfigError, match="exact_output=False"):
        lb.predict(model, x, likelihood=lb.Categorical(), seed=0)


def test_there_must_be_an_output_bank_with_an_index_a_layer():
    model, x = converted(where="norm", exact_output=True)
    with pytest.raises(lb.ConfigError, match="nothing to enumerate"):
        lb.predict(model, x, likelihood=lb.Categorical(), seed=0)
    with pytest.raises(lb.ConfigError, match="scope='layer'"):
        lb.Patching(cross=True, exact_output=True)


def test_a_composition_enumerates_the_output_bank_of_its_part():
    torch.manual_seed(0)
    x = torch.randn(5, 4, dtype=torch.float64)
    bank = lb.Patching(where="output", init_std=0.5, exact_output=True)
    method = lb.Compose([(lb.select.output, bank)])
    model = lb.bayesianize(Net().double(), method, example=x)
    heads = probs_of_heads(model, x)
    p = lb.predict(model, x, likelihood=lb.Categorical(), samples=1, seed=0)
    torch.testing.assert_close(p.probs, heads.mean(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 2])
def test_the_heads_of_a_sharded_network_are_gathered(chunk, tmp_path):
    """A pass has put the layer back into shards before its other heads are asked; FSDP2."""
    torch.manual_seed(0)
    net, x = nn.Sequential(Net(), nn.Identity()), torch.randn(5, 4)
    method = lb.Patching(where="norm+output", members=3, exact_output=True)
    model = lb.bayesianize(net, method, example=x, likelihood=lb.Categorical())
    whole = lb.predict(model, x, samples=4, seed=0).probs
    address = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        for part in (model.net[0], model):
            fully_shard(part, mesh=mesh)
        for _ in range(2):
            found = lb.predict(model, x, samples=4, seed=0, chunk=chunk).probs
            torch.testing.assert_close(found, whole)
        with pytest.raises(lb.ConversionError, match=r"in shards \(FSDP2\).*lb.save"):
            lb.collapse(model)
    finally:
        torch.distributed.destroy_process_group()
