"""EMP and ECMP: which copy acts when, what trains, and Table 2 of the paper as settings."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leanbayes as lb
from leanbayes.layers import Host

F64 = torch.float64
SCOPES = ["layer", "element", "input", "network"]


def network():
    torch.manual_seed(2)
    tail = (nn.ReLU(), nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), *tail).to(F64)
    for p in net.parameters():  # jitter is relative: copies of a bias of 0 would all be 0
        nn.init.normal_(p, 0.5, 0.5)
    return net


def converted(net=None, **options):
    return lb.bayesianize(net or network(), lb.Patching(**{"init_std": 0.4, **options})).train()


def batch(rows=6):
    return torch.randn(rows, 4, dtype=F64), torch.arange(rows) % 3


@pytest.fixture
def picked(monkeypatch):
    """Values that the slots took in the last pass, by key, [draws, *shape]."""
    values, realise = {}, lb.posteriors.bank.Bank.realise

    def recording(self, base, drawn, scope):
        component = scope.component(self.granularity)
        same = self.draw(base, drawn.values, component)[:, None] == self.values(base)
        values[self.key] = same.long().argmax(1)
        return realise(self, base, drawn, scope)

    monkeypatch.setattr(lb.posteriors.bank.Bank, "realise", recording)
    monkeypatch.setattr(lb.posteriors.bank.Bank, "joins", lambda *_: None)  # tensor by tensor
    return values


def chi_square(index, cells):
    counts = torch.bincount(index, minlength=cells).double()
    expected = len(index) / cells
    return ((counts - expected) ** 2 / expected).sum()


def test_emp_draws_one_index_a_layer_for_weight_and_bias_and_layers_differ(picked):
    model = converted()
    model(batch(20_000)[0], plan=lb.Plan(groups=20_000))
    index = {key: value.flatten(1) for key, value in picked.items()}
    assert set(index) == {f"{n}.{t}" for n in "145" for t in ("weight", "bias")}
    for layer in "145":
        weight, bias = index[f"{layer}.weight"], index[f"{layer}.bias"]
        assert torch.equal(weight, weight[:, :1].expand_as(weight))
        assert torch.equal(bias, weight[:, :1].expand_as(bias))
        assert chi_square(weight[:, 0], 5) < 18.47  # 99.9 %, 4 degrees of freedom
    for a, b in ("14", "15", "45"):  # 25 cells of two layers: independent
        joint = index[f"{a}.bias"][:, 0] * 5 + index[f"{b}.bias"][:, 0]
        assert chi_square(joint, 25) < 51.18


def test_ecmp_draws_one_index_an_element_weight_and_bias_apart(picked):
    model = converted(cross=True, members=3)
    assert model.method.scope == "element"
    model(batch(9_000)[0], plan=lb.Plan(groups=9_000))
    scale, shift = picked["1.weight"], picked["1.bias"]
    for entry in (*scale.T, *shift.T, *picked["5.weight"].flatten(1).T):
        assert chi_square(entry, 3) < 20.7  # 2 degrees of freedom, corrected for 30 entries
    for a, b in (
        (scale[:, 0], scale[:, 1]),
        (scale[:, 0], shift[:, 0]),
        (shift[:, 0], shift[:, 5]),
    ):
        assert chi_square(a * 3 + b, 9) < 26.12


@pytest.mark.parametrize(("granularity", "distinct"), [("batch", 1), ("row", 64)])
def test_training_draws_once_a_batch_or_once_a_row(granularity, distinct, picked):
    model = converted(granularity=granularity)
    x = batch()[0][:1].expand(64, 4)
    y = model(x)
    assert len(picked["1.weight"]) == distinct
    if granularity == "batch":
        torch.testing.assert_close(y, y[:1].expand_as(y), rtol=1e-12, atol=1e-12)
    else:
        assert len({tuple(row) for row in y.detach().round(decimals=9).tolist()}) > 30


@pytest.mark.parametrize("scope", ["layer", "element", "network"])
def test_a_single_copy_is_the_plain_network_bit_for_bit(scope):
    plain, x = network(), batch()[0]
    model = converted(copy.deepcopy(plain), members=1, scope=scope, where="all")
    assert not list(model.net[0].slots["weight"].parameters())
    for mode in (True, False):
        assert torch.equal(model.train(mode)(x, plan=lb.Plan()), plain.train(mode)(x))
    found = lb.predict(model, x, likelihood=lb.Categorical(), samples=3, seed=0).probs
    torch.testing.assert_close(found, torch.softmax(plain(x), 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("where", "layers"),
    [("norm", "14"), ("output", "5"), ("norm+output", "145"), ("all", "01345")],
)
def test_where_names_the_patched_layers(where, layers):
    model = converted(where=where)
    assert [layer.name for layer in model.report.converted] == list(layers)
    chosen = converted(where=lb.select.by_name("3"))
    assert [layer.name for layer in chosen.report.converted] == ["3"]


def test_a_step_moves_the_drawn_copies_alone(picked):
    model = converted()
    banks = {q.key: (q, base) for _, _, q, base in model.posteriors()}
    before = {key: q.values(base).detach().clone() for key, (q, base) in banks.items()}
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1))
    lb.objective(model, batch(), lb.Categorical(), include_kl=False).loss.backward()
    optimizer.step()
    for key, (q, base) in banks.items():
        moved = (q.values(base) != before[key]).flatten(1).any(1)
        assert moved.nonzero().flatten().tolist() == [int(picked[key].flatten()[0])], key


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("scope", SCOPES)
def test_copies_without_a_gradient_never_break_an_optimiser(scope, optimizer):
    model = converted(scope=scope, members=2, zero_copy=True, where="all")
    steps = optimizer(lb.param_groups(model, lr=0.01, weight_decay=0.1))
    for _ in range(4):
        steps.zero_grad()
        lb.objective(model, batch(), lb.Categorical(), num_data=100).loss.backward()
        steps.step()
    assert all(p.isfinite().all() for p in model.parameters())


def layer_of(kind, **options):
    torch.manual_seed(4)
    return getattr(nn, kind)(4, 6, **options).to(F64)


DROPPED = [
    ("Linear", {}, (4,)),
    ("Linear", {}, (3, 4)),
    ("Conv1d", {"kernel_size": 2}, (4, 3)),
    ("Conv2d", {"kernel_size": 2}, (4, 3, 3)),
    ("Conv2d", {"kernel_size": 2, "groups": 2}, (4, 3, 3)),
    ("ConvTranspose2d", {"kernel_size": 2}, (4, 2, 2)),
    ("ConvTranspose2d", {"kernel_size": 2, "groups": 2}, (4, 2, 2)),
]


@pytest.mark.parametrize(("kind", "options", "shape"), DROPPED)
def test_a_zero_copy_by_input_unit_is_dropout(kind, options, shape):
    """Table 2: `K = 2, M_2 = 0, z by input unit`, as F.dropout without its 1 / keep."""
    layer = layer_of(kind, **options)
    rows, keep = 3_000, 0.6
    x = torch.randn(1, *shape, dtype=F64)
    channel = (1, *(4 if i == (len(shape) - 1 if kind == "Linear" else 0) else 1
                    for i in range(len(shape))))  # fmt: skip
    masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)), dtype=F64)
    expected = torch.cat([layer(x * mask.reshape(channel)) for mask in masks]).detach()
    model = converted(
        layer, scope="input", members=2, zero_copy=True, keep=keep, where="all", granularity="row"
    )
    y = model(x.expand(rows, *shape)).detach()
    gap = (y.flatten(1)[:, None] - expected.flatten(1)[None]).abs().amax(2)
    assert gap.min(1).values.max() < 1e-12, "some row is no dropout mask of the inputs"
    counts = torch.bincount(gap.argmin(1), minlength=16).double()
    kept = masks.sum(1)
    law = rows * keep**kept * (1 - keep) ** (4 - kept)
    assert ((counts - law) ** 2 / law).sum() < 37.7  # 99.9 %, 15 degrees of freedom


def test_a_zero_copy_by_element_is_dropconnect():
    """Table 2: every entry of the weight is kept or 0, independently."""
    layer = nn.Linear(3, 1, bias=False).to(F64)
    weight, x = layer.weight.detach().clone(), torch.eye(3, dtype=F64)
    model = converted(
        layer, cross=True, members=2, zero_copy=True, keep=0.6, where="all", granularity="batch"
    )
    y = model(x.repeat(3_000, 1), plan=lb.Plan(groups=3_000)).detach().reshape(3_000, 3)
    kept = y == weight
    assert torch.equal(y, F.linear(x, weight).T * kept)
    index = (kept.long() * torch.tensor([1, 2, 4])).sum(1)
    counts = torch.bincount(index, minlength=8).double()
    size = torch.tensor([bin(i).count("1") for i in range(8)])
    law = 3_000 * 0.6**size * 0.4 ** (3 - size)
    assert ((counts - law) ** 2 / law).sum() < 24.32  # 7 degrees of freedom


def explicit(model, k, x):
    """The plain network of copy k, built by hand."""
    plain = network()
    state = {key: value for key, value in model.net.state_dict().items() if ".slots." not in key}
    if k:
        state |= {q.key: q.further[k - 1] for _, _, q, _ in model.posteriors()}
    plain.load_state_dict(state)
    return plain.eval()(x)


def test_one_index_for_all_layers_is_an_explicit_ensemble():
    """Table 2: member t mod K predicts as a network of its own, and their mean is theirs."""
    model, x = converted(scope="network", where="all", members=3), batch()[0]
    outputs = torch.stack([explicit(model, k, x) for k in range(3)])
    assert (outputs[0] - outputs[1]).abs().max() > 0.01
    options = {"likelihood": lb.Categorical(), "seed": 0, "keep_samples": True}
    for chunk in (1, 3):
        found = lb.predict(model, x, samples=3, chunk=chunk, **options)
        torch.testing.assert_close(found.samples, outputs.softmax(2), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.probs, outputs.softmax(2).mean(0), rtol=1e-12, atol=1e-12)


def test_an_ensemble_of_points_predicts_with_every_member_once_by_default():
    """api.md: the default number of samples of Dirac ensembles is their members."""
    assert lb.Patching(scope="network", members=3).default_samples == 3
    assert lb.Patching(members=3).default_samples == 20


def test_an_output_bank_is_enumerated_and_its_trunk_runs_once():
    model, x = converted(scope="network", where="output", members=4), batch()[0]
    calls = []
    model.net[0].register_forward_hook(lambda *_: calls.append(1))
    found = lb.predict(model, x, likelihood=lb.Categorical(), samples=4, seed=0).probs
    assert len(calls) <= 2  # once to measure the memory of a pass
    feature, head = model.eval().net[:5](x), model.net[5]
    values = [head.slots[n].values(head.base(n)) for n in ("weight", "bias")]
    heads = [torch.softmax(F.linear(feature, w, b), 1) for w, b in zip(*values, strict=True)]
    torch.testing.assert_close(found, sum(heads) / 4, rtol=1e-12, atol=1e-12)


def test_a_probability_of_the_trained_copy_needs_an_index_that_is_drawn():
    """A network index takes its copies in turn: `keep` would weigh the KL and nothing else."""
    with pytest.raises(lb.ConfigError, match="keep"):
        lb.Patching(members=2, zero_copy=True, keep=0.8, scope="network")


@pytest.mark.parametrize("samples", [1, 7, 200])
def test_the_mean_of_identical_outputs_is_that_output(samples):
    """T4.2: the paper's running mean gives S / (S + 1) of it."""
    net, x = network(), batch()[0]
    expected = torch.softmax(copy.deepcopy(net).eval()(x), 1)
    model = converted(net, init_std=0.0)
    found = lb.predict(model, x, likelihood=lb.Categorical(), samples=samples, seed=0).probs
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    loud = lb.predict(converted(), x, likelihood=lb.Categorical(), samples=samples, seed=0).probs
    torch.testing.assert_close(loud.sum(1), torch.ones(6, dtype=F64), rtol=1e-12, atol=0)


def test_batch_statistics_come_before_the_affine_map_and_are_shared(picked):
    """T4.7: whichever copy acts, the running statistics are those of the stock layer."""
    layer, x = nn.BatchNorm1d(4).to(F64), 3 + 2 * torch.randn(8, 4, dtype=F64)
    stock = copy.deepcopy(layer)
    model = converted(layer, where="norm", granularity="row")
    for _ in range(3):
        y = model(x)
        normed = stock(x)
        q = layer.slots
        scale, shift = (q[n].values(layer.base(n)) for n in ("weight", "bias"))
        index = picked["weight"][:, 0]
        torch.testing.assert_close(y, normed * scale[index] + shift[index], rtol=1e-12, atol=1e-12)
    for name, buffer in stock.named_buffers():
        torch.testing.assert_close(layer.get_buffer(name), buffer, rtol=1e-12, atol=1e-12)
    assert not [n for n, _ in model.named_buffers() if "slots" in n]


@pytest.mark.parametrize("granularity", ["batch", "row"])
@pytest.mark.parametrize("scope", SCOPES)
def test_seeded_draws_and_rows_do_not_depend_on_chunks_or_neighbours(scope, granularity):
    model, x = converted(scope=scope, granularity=granularity, where="all"), batch()[0]
    options = {"likelihood": lb.Categorical(), "samples": 10, "seed": 3, "keep_samples": True}
    whole = lb.predict(model, x, **options).samples
    for chunk in (3, 10):
        found = lb.predict(model, x, chunk=chunk, **options).samples
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
    alone = lb.predict(model, x[2:3], **options).samples
    torch.testing.assert_close(alone, whole[:, 2:3], rtol=1e-12, atol=1e-12)


def test_the_cross_entropy_is_a_decay_of_one_kth_a_copy():
    """T4.4: with prior_std = 1 / sqrt(decay N) its gradient is what param_groups decays."""
    decay, num_data = 1e-3, 500
    model = converted(weight_decay=decay, num_data=num_data)
    same = converted(prior_std=1 / math.sqrt(decay * num_data))
    same.load_state_dict(model.state_dict())
    torch.testing.assert_close(same.kl(), model.kl(), rtol=1e-12, atol=0)
    (model.kl() / num_data).backward()
    bank = {g["name"]: g for g in lb.param_groups(model, lr=0.1, weight_decay=decay)}["bank"]
    assert bank["weight_decay"] == pytest.approx(decay / 5)
    assert len(bank["params"]) == 12  # weights and biases of three layers, bases and copies
    for p in bank["params"]:
        torch.testing.assert_close(p.grad, bank["weight_decay"] * p.detach(), rtol=1e-9, atol=0)
    assert isinstance(model.net[1], Host)


@pytest.mark.parametrize("keep", [0.8, 0.3])
def test_a_sample_alone_picks_the_copies_that_it_picks_among_others(keep):
    """Alone its index is compared on the host, among others on the device."""
    model = converted(where="all", scope="layer", members=2, zero_copy=True, keep=keep)
    x, _ = batch()
    options = {"likelihood": lb.Categorical(), "samples": 30, "seed": 0, "keep_samples": True}
    alone, together = (lb.predict(model, x, chunk=c, **options).samples for c in (1, 30))
    torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-12)
