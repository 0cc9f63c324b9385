"""What a conversion proves on an example, and that a network it refuses is as it was."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Counted(torch.autograd.Function):
    """Identity that counts its backward passes."""

    calls = 0

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        Counted.calls += 1
        return gradient


class Counting(nn.Sequential):
    def forward(self, x):
        return Counted.apply(super().forward(x))


@pytest.mark.parametrize("name", ["mean_field", "patching", "drop_connect"])
def test_nothing_is_differentiated_to_prove_that_layers_act(name):
    """PyTorch dies in a GroupNorm channels last whose input needs no gradient."""
    Counted.calls = 0
    lb.bayesianize(Counting(nn.Linear(4, 4), nn.Linear(4, 2)), lb.methods()[name](), example=X)
    assert Counted.calls == 0


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        with torch.no_grad():
            x = self.body(x)
        return self.head(x)


def test_a_layer_that_no_gradient_reaches_is_told():
    net = Cut()
    with pytest.raises(
        lb.ConversionError, match=r"body\.bias runs, but the output does not depend"
    ):
        lb.bayesianize(net, lb.MeanField(), example=X)
    assert type(net.body) is nn.Linear


class Deeply(nn.Module):
    """Its head supervises an early layer as well, while it trains."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        early = torch.tanh(self.body(x))
        late = self.head(torch.tanh(self.body(early)))
        return late, F.linear(early, self.head.weight) if self.training else None


def test_a_weight_that_is_read_in_training_alone_is_found():
    net = Deeply()
    with pytest.raises(lb.ConversionError, match=r"head\.weight is used by the network itself"):
        lb.bayesianize(net, lb.MeanField(), example=X)
    assert type(net.head) is nn.Linear


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    count: int


class Rich(nn.Linear):
    """A network of one layer that returns an object of its own."""

    as_object = Output

    def forward(self, x):
        return self.as_object(super().forward(x), 1)


class Opaque(Rich):
    as_object = staticmethod(lambda logits, _: iter([logits]))


def test_tensors_are_found_in_a_dataclass():
    net = nn.Sequential(nn.Linear(4, 4), Rich(4, 2))
    model = lb.bayesianize(net, lb.MeanField(init_std=0.3), example=X)
    assert len(model.report.converted) == 2
    p = lb.predict(model, X, likelihood=lb.Categorical(), samples=4, seed=0)
    assert p.epistemic.min() > 0
    model = lb.bayesianize(
        nn.Sequential(nn.Linear(4, 4), Rich(4, 2)), lb.Laplace(predictive="linearised"), example=X
    )
    lb.fit_posterior(model, [(X, torch.tensor([0, 1, 0, 1, 0, 1]))], lb.Categorical())
    p = lb.predict(model, X, likelihood=lb.Categorical(), samples=4, seed=0)
    assert p.epistemic.min() > 0  # of a tensor that nobody looks at the tangent would be lost
    net = nn.Sequential(nn.Linear(4, 4), Opaque(4, 2))
    with pytest.raises(lb.ConversionError, match=r"returned \w+_iterator"):
        lb.bayesianize(net, lb.MeanField(), example=X)


class Widened(nn.Module):
    """A dozen layers in half precision, logits in float32."""

    def __init__(self, autocast):
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Tanh()) for _ in range(12)]
        self.body, self.autocast = nn.Sequential(*layers, nn.Linear(64, 3)), autocast
        if not autocast:
            self.body.bfloat16()

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            return self.body(x if self.autocast else x.bfloat16()).float()


@pytest.mark.parametrize("name", ["mean_field", "patching", "shared_ensemble"])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_inside_is_no_mixing_of_rows(autocast, name):
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(1))
    model = lb.bayesianize(Widened(autocast), lb.methods()[name](), example=x)
    assert model.report.converted


class Masked(nn.LayerNorm):
    """A name that the host of norms has for a method."""

    def __init__(self, size):
        super().__init__(size)
        self.masked = True


class Private(nn.BatchNorm1d):
    def __init__(self, size):
        super().__init__(size)
        self._normed = False


@pytest.mark.parametrize("kind", [Masked, Private])
def test_a_layer_with_a_name_of_its_host_is_left(kind):
    model = lb.bayesianize(nn.Sequential(nn.Linear(4, 4), kind(4)), lb.MeanField(), example=X)
    (left,) = model.report.skipped
    assert left.name == "1"
    assert "of its own" in left.reason


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4, dtype=torch.complex64), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x.to(torch.complex64)).abs())


@pytest.mark.parametrize("name", ["mean_field", "rank_one", "partial"])
def test_complex_parameters_are_left(name):
    """Of `mean.square()` the KL took the real part, which is no square of an absolute value."""
    more = {"criterion": "magnitude", "rate": 0.5} if name == "partial" else {}
    model = lb.bayesianize(Complex(), lb.methods()[name](**more), example=X)
    assert [layer.name for layer in model.report.converted] == ["head"]
    assert "complex64" in model.report.skipped[0].reason


class Expanded(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.register_buffer("ones", torch.ones(1, 4).expand(3, 4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.head(x * self.ones[0])


def test_an_expanded_buffer():
    net = Expanded()
    lb.bayesianize(net, lb.MeanField(), example=X)
    assert net.ones.stride() == (0, 1)
    assert net.count == 0


class Observing(nn.Module):
    """As an observer of torch.ao does, it gives its buffer a size when it sees the first rows."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.register_buffer("largest", torch.empty(0))

    def forward(self, x):
        if not len(self.largest):
            self.largest.resize_(4)
            self.largest.fill_(0)
        self.largest.copy_(torch.maximum(self.largest, x.detach().amax(0)))
        return self.head(x)


def test_a_buffer_that_grows_in_place_is_as_it_was():
    net = Observing()
    lb.bayesianize(net, lb.MeanField(), example=X)
    assert net.largest.shape == (0,)


class Registered(nn.Linear):
    def __init_subclass__(cls, *, key, **more):
        super().__init_subclass__(**more)


class Own(Registered, key="own"):
    pass


def test_a_class_that_cannot_be_inherited_leaves_the_network_as_it_was():
    net = nn.Sequential(nn.Linear(4, 4), Own(4, 2))
    with pytest.raises(TypeError, match="key"):
        lb.bayesianize(net, lb.MeanField(), example=X)
    assert [type(layer) for layer in net] == [nn.Linear, Own]


class OwnHead(nn.Linear):
    """Not convertible, and proved by nobody."""

    def forward(self, x):
        return F.linear(x, self.weight)


class Words(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), kind(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids).mean(1))


@pytest.mark.parametrize(
    ("kind", "select", "told"),
    [
        (OwnHead, lb.select.everything, True),
        (nn.Linear, lb.select.embeddings, True),
        (nn.Linear, lb.select.everything, False),
    ],
)
def test_a_tied_weight_that_another_layer_uses_without_noise_is_told_of(kind, select, told):
    model = lb.bayesianize(
        Words(kind), lb.MeanField(select=select), example=torch.randint(0, 7, (5, 3))
    )
    found = [
        note for note in model.report.notes if "'head.weight' is tied to 'embed.weight'" in note
    ]
    assert bool(found) is told


@pytest.mark.parametrize(
    "method",
    [
        lb.SharedEnsemble(members=3),
        lb.SharedEnsemble(members=3, groups=2),
        lb.MCDropout(rate=0.3),
        lb.RankOne(members=2),
        lb.Patching(granularity="row"),
        lb.MeanField(estimator="exemplar", groups=2),
    ],
    ids=lambda method: method.name,
)
def test_a_batch_without_rows_trains_nothing(method):
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model = lb.bayesianize(net, method, example=X).train()
    y = model(X[:0])
    y.sum().backward()
    assert y.shape == (0, 2)


class Latents(nn.Module):
    """Learned queries attend to one another before they see a row."""

    def __init__(self):
        super().__init__()
        self.learned = nn.Parameter(torch.randn(1, 3, 4))
        self.among = nn.MultiheadAttention(4, 2, batch_first=True)
        self.across = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        q, _ = self.among(self.learned, self.learned, self.learned)
        y, _ = self.across(q.expand(len(x), -1, -1), x, x)
        return self.head(y.mean(1))


@pytest.mark.parametrize("name", ["mean_field", "rank_one"])
def test_an_attention_layer_without_rows_is_left_as_a_whole(name):
    x = torch.randn(5, 6, 4)
    model = lb.bayesianize(Latents(), lb.methods()[name](), example=x)
    found = {layer.name for layer in model.report.converted}
    assert found == {"across", "across.out_proj", "head"}
    left = {layer.name for layer in model.report.skipped}
    assert {"among", "among.out_proj"} <= left
