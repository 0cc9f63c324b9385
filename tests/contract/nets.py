"""Small networks that every method must convert, and what the contract tests share.

Plain classes at module level: they pickle, and started processes can import them. Every network
gives class logits [ROWS, CLASSES] and has no noise of its own, so that all noise is the method's.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import leanbayes as lb
from leanbayes.model import unwrap

ROWS, CLASSES = 6, 3

Built = tuple[nn.Module, Tensor]


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class NestedResidual(nn.Module):
    """Blocks inside lists inside blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 6)
        self.stages = nn.ModuleList([nn.ModuleList([Residual(6)]), nn.ModuleList([Residual(6)])])
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            for block in stage:
                x = block(x)
        return self.head(x)


class ConvNorm(nn.Module):
    """Convolutions with BatchNorm and ReLU in place; a stride and reflected padding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, stride=2, padding=1, padding_mode="reflect")
        self.bn2 = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu_(self.bn1(self.conv1(x)))
        x = torch.relu_(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class GroupedConv(nn.Module):
    """A depthwise and a grouped convolution, with GroupNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 8, 3, padding=1, groups=4)
        self.norm = nn.GroupNorm(2, 8)
        self.grouped = nn.Conv2d(8, 4, 3, groups=2)
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.depthwise(x)))
        return self.fc(torch.relu(self.grouped(x)).mean((2, 3)))


class Tokens(nn.Module):
    """Linear layers and LayerNorm on [B, T, I]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.mix(self.norm(self.embed(x))))
        return self.head(x.mean(1))


class Transformer(nn.Module):
    """torch's own encoder, whose fused path would bypass converted layers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


class SharedModule(nn.Module):
    """One Linear under two names, used twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = self.first
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class TiedLanguage(nn.Module):
    """An Embedding whose weight is also that of the Linear that scores words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.words = nn.Linear(6, 7, bias=False)
        self.words.weight = self.embed.weight
        self.head = nn.Linear(7, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        scores = self.words(torch.tanh(self.norm(self.embed(ids))))
        return self.head(scores.mean(1))


class EmbeddedLSTM(nn.Module):
    """Embedded ids, an LSTM, a mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.lstm = nn.LSTM(5, 12, batch_first=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(ids))[0].mean(1))


class DeepGRU(nn.Module):
    """Two bidirectional layers of a GRU; the head reads the states in between and at the ends."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(4 * 5 + 2 * 5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y, ends = self.gru(x)
        return self.head(torch.cat([y.mean(1), *ends.unbind()], 1))


class TinyUNet(nn.Module):
    """Down, up by a transposed convolution, and past it by a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, padding=1)
        self.inner = nn.Conv2d(4, 6, 3, padding=1)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.join = nn.Conv2d(8, 4, 3, padding=1)
        self.pixels = nn.Conv2d(4, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.down(x))
        low = torch.relu(self.inner(nn.functional.max_pool2d(x, 2)))
        x = torch.relu(self.join(torch.cat([x, self.up(low)], 1)))
        return self.pixels(x).mean((2, 3))


def mlp() -> Built:
    # Flatten comes first: prediction runs this deterministic beginning once for all samples.
    layers = (nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    return nn.Sequential(*layers), torch.randn(ROWS, 2, 3)


def nested_residual() -> Built:
    return NestedResidual(), torch.randn(ROWS, 5)


def conv_norm() -> Built:
    return ConvNorm(), torch.randn(ROWS, 2, 6, 6)


def grouped_conv() -> Built:
    return GroupedConv(), torch.randn(ROWS, 4, 5, 5)


def tokens() -> Built:
    return Tokens(), torch.randn(ROWS, 4, 5)


def transformer() -> Built:
    return Transformer(), torch.randn(ROWS, 4, 8)


def shared_module() -> Built:
    return SharedModule(), torch.randn(ROWS, 5)


def tied_language() -> Built:
    return TiedLanguage(), torch.randint(0, 7, (ROWS, 4))


def lstm() -> Built:
    return EmbeddedLSTM(), torch.randint(0, 7, (ROWS, 4))


def gru() -> Built:
    return DeepGRU(), torch.randn(ROWS, 3, 4)


def unet() -> Built:
    return TinyUNet(), torch.randn(ROWS, 2, 4, 4)


def bare_linear() -> Built:
    return nn.Linear(4, CLASSES), torch.randn(ROWS, 4)


BUILDERS = (
    mlp,
    nested_residual,
    conv_norm,
    grouped_conv,
    tokens,
    transformer,
    shared_module,
    tied_language,
    lstm,
    gru,
    unet,
    bare_linear,
)


# What costs seconds a cell (graphs, processes) runs on these in `make test`, on all in `test-all`.
FEW = ("mlp", "conv_norm", "transformer", "lstm")
SOME = (*FEW, "tied_language", "unet")  # one of every kind


def nets(seed: int = 0) -> dict[str, Callable[[], Built]]:
    """Every network by name; each call builds equal weights and inputs, whatever the generator."""

    def seeded(build: Callable[[], Built]) -> Callable[[], Built]:
        def make() -> Built:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return build()

        return make

    return {build.__name__: seeded(build) for build in BUILDERS}


def converted(
    method: lb.Method, name: str, dtype: torch.dtype = torch.float32
) -> tuple[lb.BayesianModel, Tensor]:
    """A Bayesian network and its inputs; equal in every process and every call."""
    net, inputs = nets()[name]()
    net, inputs = net.to(dtype), cast(inputs, dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return lb.bayesianize(net, method, example=inputs), inputs


def default(cls: type[lb.Method]) -> lb.Method:
    """A method with its default arguments; Partial ranks by data, which the suite has none of."""
    # Seeded ranks are the same in every network, so that a state fits another conversion.
    if cls is lb.Compose:  # a bare layer has room for one part only
        return lb.Compose([(lb.select.everything, lb.RankOne())])
    if cls in (lb.MCDropout, lb.DropConnect):  # two rare masks on a few units are often equal
        return cls(rate=0.5)
    return cls(rate=0.25, criterion="random") if cls is lb.Partial else cls()


def labels(rows: int = ROWS) -> Tensor:
    """Targets: the classes in turn."""
    return torch.arange(rows) % CLASSES


def cast(tree: Any, dtype: torch.dtype) -> Any:
    """Floating-point leaves in another type; ids stay."""
    return pytree.tree_map_only(Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, tree)


def slot_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that a method added and that learn, by name."""
    named = model.named_parameters()
    return {name: p for name, p in named if ".slots." in f".{name}" and p.requires_grad}


def silent(method: lb.Method) -> lb.Method | None:
    """The method without noise at the start; None where it has noise that cannot be set to 0."""
    if not method.is_random:
        return method
    if isinstance(method, lb.Compose):
        return lb.Compose([(selector, silent(part)) for selector, part in method.parts])
    has_scale = any(field.name == "init_std" for field in dataclasses.fields(method))
    return dataclasses.replace(method, init_std=0.0) if has_scale else None


def predicted(model: nn.Module, inputs: Any, *, samples: int = 5, seed: int = 0) -> Tensor:
    """Seeded predictive probabilities."""
    likelihood = lb.Categorical()
    samples = enough(unwrap(model).method, samples)
    return lb.predict(model, inputs, likelihood=likelihood, samples=samples, seed=seed).probs


def enough(method: lb.Method, samples: int) -> int:
    """At least so many samples, and one of every member."""
    return max(samples, method.members)


def has_point_members(method: lb.Method) -> bool:
    """Members without a law of their own: a seed has nothing to draw."""
    return method.members > 0 and method.kl_kind in ("none", "cross_entropy")


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Every gradient by name, whole where it is sharded."""
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in grads.items()}
