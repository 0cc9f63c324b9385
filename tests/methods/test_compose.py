"""Compose: different methods on different layers, one index, one KL, on three kinds of networks."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import leanbayes as lb
from leanbayes.noise import KeyedNoise

F64 = torch.float64
S = lb.select
ROWS, CLASSES = 8, 3


class ConvNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3)
        self.norm2 = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        return self.head(torch.tanh(self.norm2(self.conv2(x))).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.block(x).mean(1))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 5, padding_idx=0)
        self.lstm = nn.LSTM(5, 4, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0].mean(1))


INNER = S.linears & ~S.output
CASES = {
    "conv_norm": (
        ConvNorm,
        lambda: torch.randn(ROWS, 2, 6, 6, dtype=F64),
        [
            (S.norms, lb.Patching(members=3, where="norm", init_std=0.2)),
            (S.convs, lb.RankOne(members=4, kl="sum", init_std=0.2)),
            (S.output, lb.MeanField(prior_std=0.5, init_std=0.1)),
        ],
    ),
    "transformer": (
        Encoder,
        lambda: torch.randn(ROWS, 4, 8, dtype=F64),
        [
            (S.norms, lb.Patching(members=2, cross=True, where="norm", init_std=0.2)),
            (S.attentions, lb.SharedEnsemble(members=4, rank=2, assign="split", init_std=0.2)),
            (INNER, lb.Implicit(members=4, init_std=0.2)),
            (S.output, lb.MeanField(estimator="shared", init_std=0.1)),
        ],
    ),
    "lstm": (
        Language,
        lambda: torch.randint(0, 7, (ROWS, 5)),
        [
            (S.embeddings, lb.MeanField(init_std=0.1)),
            (S.recurrents, lb.RankOne(members=4, law="cauchy", init_std=0.2)),
            (S.output, lb.Patching(members=4, scope="network", where="output", init_std=0.2)),
        ],
    ),
}


def build(name):
    torch.manual_seed(0)
    cls, inputs, parts = CASES[name]
    return cls().to(F64), inputs(), parts


def composed(name):
    net, inputs, parts = build(name)
    return lb.bayesianize(net, lb.Compose(parts), example=inputs), inputs


@pytest.fixture(params=list(CASES))
def name(request):
    return request.param


def alone(name, which):
    """The part on its own in a fresh copy of the network."""
    net, inputs, parts = build(name)
    selector, method = parts[which]
    method = dataclasses.replace(method, select=selector & method.select)
    return lb.bayesianize(net, method, example=inputs)


def copied(source, target):
    """The target with the source's values of all tensors that it has."""
    state = source.state_dict()
    target.load_state_dict({key: state[key] for key in target.state_dict()})
    return target


def slot_parameters(model):
    return {n: p for n, p in model.named_parameters() if ".slots." in n}


def test_the_kl_and_the_slots_are_those_of_the_parts(name):
    model, _ = composed(name)
    parts = [copied(model, alone(name, i)) for i in range(len(CASES[name][2]))]
    terms = [part.kl() for part in parts]
    assert all(term > 0 for term in terms)
    assert torch.allclose(model.kl(), sum(terms), rtol=1e-12)
    own = [set(slot_parameters(part)) for part in parts]
    assert sum(map(len, own)) == len(set.union(*own))
    assert set.union(*own) == set(slot_parameters(model))
    assert model.report.added == sum(part.report.added for part in parts)
    assert model.report.random_dimensions == sum(p.report.random_dimensions for p in parts)


def test_a_single_part_is_the_method_itself(name):
    settings = {"likelihood": lb.Categorical(), "samples": 8, "seed": 2}
    for i, (selector, method) in enumerate(CASES[name][2]):
        one = alone(name, i)
        net, inputs, _ = build(name)
        other = lb.bayesianize(net, lb.Compose([(selector, method)]), example=inputs)
        copied(one, other)
        probs = [lb.predict(model, inputs, **settings).probs for model in (one, other)]
        assert torch.equal(*probs)
        assert torch.equal(one.kl(), other.kl())
        assert (one.kl_kind, one.method.index_members) == (
            other.kl_kind,
            other.method.index_members,
        )


def test_seeded_predictions_do_not_depend_on_chunks_or_rows(name):
    model, inputs = composed(name)
    settings = {"likelihood": lb.Categorical(), "samples": 8, "seed": 3}
    whole = lb.predict(model, inputs, **settings).probs
    for chunk in (1, 3, 8):
        assert torch.allclose(
            lb.predict(model, inputs, chunk=chunk, **settings).probs, whole, rtol=1e-12
        )
    assert torch.allclose(lb.predict(model, inputs[2:5], **settings).probs, whole[2:5], rtol=1e-12)
    other = lb.predict(model, inputs, **(settings | {"seed": 4})).probs
    assert (other - whole).abs().max() > 1e-4


def test_saved_and_loaded_it_is_the_same_posterior(name, tmp_path):
    model, inputs = composed(name)
    lb.save(model, tmp_path / "model")
    torch.manual_seed(9)
    back = lb.load(CASES[name][0]().to(F64), tmp_path / "model")
    assert back.method == model.method
    assert torch.equal(back.kl(), model.kl())  # every slot knows the part that reduces its terms
    settings = {"likelihood": lb.Categorical(), "samples": 4, "seed": 3}
    probs = [lb.predict(m, inputs, **settings).probs for m in (model, back)]
    assert torch.equal(*probs)


def test_training_reaches_every_parameter_of_every_part(name):
    model, inputs = composed(name)
    model.train()
    target = torch.arange(ROWS) % CLASSES
    for _ in range(12):  # patches are drawn once a batch
        result = lb.objective(model, (inputs, target), lb.Categorical(), num_data=1000, samples=2)
        result.loss.backward()
    for key, parameter in model.named_parameters():
        if not parameter.requires_grad:  # the mask of a padding row
            continue
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0, key


def test_the_edit_adds_the_gradient_of_the_objective(name):
    model, _ = composed(name)
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(
        0.5 * model.kl() / 40, parameters.values(), allow_unused=True, materialize_grads=True
    )
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.0))
    lb.attach_kl(optimizer, model, num_data=40, kl_weight=0.5)
    optimizer.step()
    for (key, parameter), grad in zip(parameters.items(), found, strict=True):
        edit = torch.zeros_like(grad) if parameter.grad is None else parameter.grad
        assert torch.allclose(edit, grad, rtol=1e-10, atol=1e-14), key


def test_unmatched_layers_stay_as_they_are():
    net, inputs, _ = build("conv_norm")
    before = copy.deepcopy(net)
    model = lb.bayesianize(net, lb.Compose([(S.output, lb.MeanField(init_std=0.1))]))
    assert [layer.name for layer in model.report.converted] == ["head"]
    assert type(net.conv1) is nn.Conv2d
    assert torch.equal(model.eval()(inputs), before.eval()(inputs))


@pytest.mark.parametrize("still", [lb.MAP(), lb.Partial(rate=0.0)], ids=lambda method: method.name)
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_a_part_without_noise_leaves_the_draws_of_the_others(still, first):
    """Wherever it stands: the plan of the mean network is that of its own layers alone."""
    net, inputs, _ = build("conv_norm")
    plain = lb.bayesianize(copy.deepcopy(net), lb.MeanField(select=S.output, init_std=0.3))
    parts = [(S.norms, still), (S.output, lb.MeanField(init_std=0.3))]
    model = lb.bayesianize(net, lb.Compose(parts if first else parts[::-1]))
    options = {"likelihood": lb.Categorical(), "samples": 4, "seed": 1}
    found = lb.predict(model, inputs, **options)
    assert found.epistemic.max() > 1e-4
    assert torch.equal(found.probs, lb.predict(plain, inputs, **options).probs)
    plan = model.train().training_plan(2 * ROWS, 2)
    assert (plan.groups, plan.per_row, plan.mean) == (2, True, False)
    batch = inputs, torch.arange(ROWS) % CLASSES
    lb.objective(model, batch, lb.Categorical(), num_data=9, samples=2).loss.backward()


def test_parts_without_noise_plan_the_mean_network():
    method = lb.Compose([(S.norms, lb.Partial(rate=0.0)), (S.output, lb.MAP())])
    assert method.training_plan(ROWS, 2).mean
    assert method.prediction_plan([0, 1], KeyedNoise(0, [0, 1])).mean


def test_granularities_mix_in_one_pass():
    """One index of the patched norm a batch, a factor a row, a shared weight a batch."""
    net = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 1)).to(F64)
    parts = [
        (S.by_name("0"), lb.RankOne(members=2)),
        (S.norms, lb.Patching(members=4, where="norm")),
        (S.output, lb.MeanField(estimator="shared", init_std=0.1)),
    ]
    model = lb.bayesianize(net, lb.Compose(parts)).train()
    draws = {}

    def note(name):
        return lambda host, *_: draws.update(
            {name: host.scope.draws(next(iter(host.slots.values())).granularity)}
        )

    for key, layer in net.named_children():
        layer.register_forward_hook(note(key))
    model(torch.randn(6, 2, dtype=F64), plan=model.training_plan(6, 2, 0))
    assert draws == {"0": 6, "1": 2, "2": 2}


PRIMES = torch.tensor([2.0, 3.0, 5.0, 7.0], dtype=F64)


def test_parts_share_one_member_index():
    """Every layer multiplies by the prime of its member: outputs are fourth powers of primes."""
    net = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(4))).to(F64)
    parts = [
        (S.by_name("0"), lb.RankOne(members=4, clip=None)),
        (S.by_name("1"), lb.Implicit(members=4)),
        (S.by_name("2"), lb.SharedEnsemble(members=4, assign="split")),
        (S.by_name("3"), lb.Patching(members=4, scope="network", where="all", granularity="row")),
    ]
    model = lb.bayesianize(net, lb.Compose(parts)).train()
    with torch.no_grad():
        for layer in net:
            layer.weight.fill_(1.0)
        for i in (0, 1):
            net[i].slots["in_scale"].location.copy_(PRIMES[:, None])
            net[i].slots["in_scale"].rho.fill_(-80.0)
        net[0].slots["out_scale"].location.fill_(1.0)
        net[0].slots["out_scale"].rho.fill_(-80.0)
        net[2].slots["weight"].left.copy_(PRIMES[:, None, None])
        net[2].slots["weight"].right.fill_(1.0)
        net[3].weight.fill_(PRIMES[0])
        net[3].slots["weight"].further.copy_(PRIMES[1:, None, None])
        output = model(torch.ones(8, 1, dtype=F64), plan=model.training_plan(8, 1, 1))[:, 0]
    assert torch.allclose(output, PRIMES[[1, 1, 2, 2, 3, 3, 0, 0]] ** 4, rtol=1e-12)
    settings = {"likelihood": lb.Gaussian(), "samples": 4, "seed": 0, "keep_samples": True}
    kept = lb.predict(model, torch.ones(1, 1, dtype=F64), **settings).samples
    assert torch.allclose(kept[:, 0, 0, 0], PRIMES**4, rtol=1e-12)
    assert torch.allclose(lb.collapse(model, member=2)(torch.ones(1, 1, dtype=F64)), PRIMES[2] ** 4)


def test_pairwise_parts_count_their_common_index_once():
    """Bounds by part would claim ln K of entropy each, and fall below the KL itself (T2.4)."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).to(F64)
    far = lb.Implicit(members=4, kl="pairwise", init_std=1.0)
    one = lb.bayesianize(copy.deepcopy(net), far)
    other = lb.bayesianize(net, lb.Compose([(S.by_name("0"), far), (S.by_name("1"), far)]))
    copied(one, other)
    banks = [layer.slots["in_scale"] for layer in other.net]
    means = torch.cat([q.location for q in banks], 1).detach()
    z = means[torch.arange(20_000) % 4] + 0.05 * torch.randn(20_000, 4, dtype=F64)
    log_q = Normal(means, 0.05).log_prob(z[:, None]).sum(-1).logsumexp(1) - math.log(4)
    terms = log_q - Normal(1.0, 0.1).log_prob(z).sum(1)
    assert other.kl() >= terms.mean() - 5 * terms.std() / math.sqrt(20_000)
    assert torch.allclose(other.kl(), one.kl(), rtol=1e-12)


def test_a_nested_composition_is_the_flat_one():
    inner = lb.Compose([(S.convs, lb.Implicit(kl="sum")), (S.output, lb.Implicit(kl="mean"))])
    nested = lb.Compose([(S.convs | S.output, inner), (S.norms, lb.Patching(where="norm"))])
    flat = lb.Compose([*inner.parts, nested.parts[-1]])
    one, other = (lb.bayesianize(build("conv_norm")[0], method) for method in (nested, flat))
    copied(other, one)
    assert torch.allclose(one.kl(), other.kl(), rtol=1e-12)


@pytest.mark.parametrize("rows", [7, 8])
def test_points_of_a_batch_ensemble_go_with_every_other_part(rows):
    parts = [(S.convs, lb.BatchEnsemble()), (S.output, lb.MeanField())]
    model = lb.bayesianize(build("conv_norm")[0], lb.Compose(parts)).train()
    plan = model.training_plan(rows, 1, 1)
    assert torch.equal(plan.component, lb.RankOne().training_plan(rows, 1, 1).component)
    assert model(torch.randn(rows, 2, 6, 6, dtype=F64)).isfinite().all()


# ------------------------------------------------------------------------------------- refusals


def assert_refused(parts, words, error=lb.ConfigError):
    net = build("conv_norm")[0]
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(error, match=words):
        lb.bayesianize(net, lb.Compose(parts))
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert type(net.conv1) is nn.Conv2d


def test_overlapping_selectors_are_named_with_the_layer():
    assert_refused(
        [(S.convs, lb.RankOne()), (S.by_name("conv2"), lb.MeanField())],
        r"overlap: kind\(conv\) and name\(conv2\) both pick 'conv2'.*selector & ~other",
    )


def test_a_tied_tensor_belongs_to_one_part():
    """The second part's posterior would be dropped: both layers use one draw of one law."""
    net = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 5), nn.Linear(5, 7))
    net[2].weight = net[0].weight
    both = lb.Compose([(S.embeddings, lb.MeanField()), (S.output, lb.Patching(where="all"))])
    with pytest.raises(lb.ConfigError, match=r"overlap: '0' and '2' share their weight"):
        lb.bayesianize(net, both)
    assert type(net[0]) is nn.Embedding
    # Factors beside a tied weight are tensors of their own.
    factors = lb.Compose([(S.embeddings, lb.MeanField()), (S.output, lb.Implicit())])
    assert len(list(lb.bayesianize(net, factors).posteriors())) == 2


def test_a_part_without_a_layer_is_named():
    assert_refused(
        [(S.convs, lb.RankOne()), (S.by_name("conv9"), lb.MeanField())],
        r"mean_field in Compose picks no layer: name\(conv9\)",
    )
    # EMP's place is norms and the output, unless it is told otherwise.
    assert_refused([(S.convs, lb.Patching())], r"patching in Compose picks no layer: kind\(conv\)")


def test_a_part_that_cannot_act_on_its_layers_is_named():
    assert_refused(
        [(S.norms, lb.Implicit()), (S.output, lb.MeanField())],
        r"implicit in Compose .*kind\(norm\)",
    )


def test_members_under_one_index_are_equally_many_and_assigned_alike():
    assert_refused(
        [(S.convs, lb.RankOne(members=4)), (S.output, lb.Implicit(members=3))], "equally many"
    )
    layered = lb.Patching(members=3)  # an index of its own a layer
    lb.Compose([(S.norms, layered), (S.convs, lb.RankOne(members=4))])
    for one, other in (("tile", "split"), ("interleave", "split")):
        parts = [(S.convs, lb.RankOne(assign=one)), (S.output, lb.Implicit(assign=other))]
        assert_refused(parts, "share one `assign`")


def test_parts_are_pairs_of_a_selector_and_a_method():
    assert_refused([], r"needs parts: lb.Compose\(\[")
    assert_refused([(lb.RankOne(), S.convs)], r"a part is \(selector, method\)")
    assert_refused([lb.RankOne()], r"a part is \(selector, method\)")
    assert_refused([(S.output, lb.Laplace())], "laplace is fitted after training")


def test_data_for_parts_that_look_at_none_are_refused():
    net = build("conv_norm")[0]
    method = lb.Compose([(S.output, lb.MeanField())])
    with pytest.raises(lb.ConfigError, match="without data or scores"):
        lb.bayesianize(net, method, data=[(torch.zeros(1), torch.zeros(1))])
