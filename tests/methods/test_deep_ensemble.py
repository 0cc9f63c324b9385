"""Deep ensembles: every member trains and predicts as the network it would be alone."""

import copy
import json
import pickle

import pytest
import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64


def small_net(momentum=0.1):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4, momentum=momentum),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 16, 3),
    ).to(F64)


def images(rows=12, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 2, 6, 6, generator=generator, dtype=F64)


def labels(rows):
    return torch.arange(rows) % 3


def ensemble(members=3, example=None, momentum=0.1, **options):
    """The model, and the same networks apart."""
    torch.manual_seed(0)
    nets = [small_net(momentum) for _ in range(members)]
    alone = copy.deepcopy(nets)
    rest = iter(nets[1:])
    method = lb.DeepEnsemble(members=members, factory=lambda: next(rest), **options)
    return lb.bayesianize(nets[0], method, example=example), alone


def assert_members(model, alone, **tolerance):
    """Parameters and buffers of every member are those of the networks apart."""
    for k, net in enumerate(alone):
        for key, value in lb.collapse(model, member=k).state_dict().items():
            torch.testing.assert_close(value, net.state_dict()[key], **tolerance, msg=f"{k} {key}")


def test_members_are_the_network_and_those_of_the_factory():
    model, alone = ensemble(example=images())
    assert_members(model, alone, rtol=0, atol=0)
    size = sum(p.numel() for p in alone[0].parameters())
    assert (model.report.base, model.report.added) == (size, 2 * size)
    assert (model.kl().item(), model.kl_kind) == (0.0, "none")


def test_prediction_is_the_average_over_the_networks():
    model, alone = ensemble(example=images())
    expected = sum(torch.softmax(net.eval()(images()), 1) for net in alone) / 3
    for chunk in (1, 2, 3):
        p = lb.predict(model, images(), likelihood=lb.Categorical(), chunk=chunk)
        torch.testing.assert_close(p.probs, expected)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_member_predicts_bit_for_bit_what_its_network_does(dtype):
    """Kernel and bias of a convolution, and all of a norm, are one call, as in the stock layer."""
    model, _ = ensemble(example=images())
    model.train()
    for step in range(3):  # statistics of their own, and maps that are neither 1 nor 0
        model(images(seed=step)).square().sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.1 * parameter.grad)
    model, x = model.to(dtype).eval(), images().to(dtype)
    with torch.inference_mode():
        for k in range(3):
            found = model(x, plan=lb.Plan(groups=1, component=torch.tensor([k])))
            assert torch.equal(found, lb.collapse(model, member=k).eval()(x))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_whole_batches_in_turns_train_every_member_as_if_alone(momentum):
    model, alone = ensemble(example=images(), momentum=momentum, assign="turns")
    groups = lb.param_groups(model, lr=0.05, weight_decay=0.01)
    optimizer = torch.optim.Adam(groups)
    apart = [torch.optim.Adam(net.parameters(), lr=0.05, weight_decay=0.01) for net in alone]
    model.train()
    for step in range(7):
        x, y = images(seed=step), labels(12)
        optimizer.zero_grad()
        plan = model.training_plan(12, step=step)
        nn.functional.cross_entropy(model(x, plan=plan), y).backward()
        optimizer.step()
        k = step % 3
        apart[k].zero_grad()
        nn.functional.cross_entropy(alone[k].train()(x), y).backward()
        apart[k].step()
    assert_members(model, alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("assign", ["split", "interleave", "random", "turns"])
def test_members_end_where_networks_with_the_decay_end_that_train_alone(assign):
    """Ridge regression: a member of a batch that is shared has its share of the decay too."""
    torch.manual_seed(0)
    x = torch.randn(240, 3, dtype=F64)
    y = x @ torch.tensor([[1.0], [2.0], [-1.0]], dtype=F64)
    net = nn.Linear(3, 1, bias=False).double()
    model = lb.bayesianize(net, lb.DeepEnsemble(members=4, assign=assign), example=x).train()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.1, weight_decay=0.5))
    for step in range(1500):
        optimizer.param_groups[0]["lr"] = 0.1 if step < 700 else 0.01
        optimizer.zero_grad()
        lb.objective(model, (x, y), lb.Gaussian(), include_kl=False, step=step).loss.backward()
        optimizer.step()
    alone = torch.linalg.solve(x.T @ x / 240 + 0.5 * torch.eye(3, dtype=F64), x.T @ y / 240)
    found = torch.stack([lb.collapse(model, member=k).weight[0] for k in range(4)]).mean(0)
    torch.testing.assert_close(found, alone[:, 0], rtol=0, atol=0.03)  # 0.3 with all of it


def test_a_fresh_draw_that_names_no_member_takes_any():
    model, alone = ensemble()
    model.eval()
    with torch.no_grad():
        found = [model(images(2), plan=lb.Plan()) for _ in range(60)]
        members = [net.eval()(images(2)) for net in alone]
    counts = [sum(torch.allclose(y, member) for y in found) for member in members]
    assert sum(counts) == 60
    assert min(counts) >= 5


def test_a_member_that_a_step_does_not_use_gets_no_gradient():
    model, _ = ensemble(assign="turns")
    model.train()
    model(images(), plan=model.training_plan(12, step=1)).sum().backward()
    weight = model.net[0].slots["weight"]
    assert model.net[0].weight.grad is None
    assert weight.further[0].grad is not None
    assert weight.further[1].grad is None


@pytest.mark.parametrize("assign", ["split", "interleave"])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_rows_of_several_members_train_them_as_their_own_batches_would(assign, momentum):
    model, alone = ensemble(example=images(), momentum=momentum, assign=assign)
    model.train()
    for step in range(2):  # rotated: every member gets other rows
        plan = model.training_plan(11, step=step)
        y = model(images(11), plan=plan)
        y.square().sum().backward()
        for k, net in enumerate(alone):
            rows = plan.component == k
            expected = net.train()(images(11)[rows])
            torch.testing.assert_close(y[rows], expected)
            expected.square().sum().backward()
    assert_members(model, alone, rtol=1e-10, atol=1e-12)
    for k, net in enumerate(alone):
        weight = model.net[0].weight if k == 0 else model.net[0].slots["weight"].further[k - 1]
        torch.testing.assert_close(weight.grad, net[0].weight.grad)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_member_without_rows_in_a_batch_keeps_its_statistics(momentum):
    model, _ = ensemble(example=images(), momentum=momentum, assign="random")
    further = model.net[1].posterior("statistics")
    before = {name: value.clone() for name, value in further.named_buffers()}
    model.train()
    model(images(), plan=lb.Plan(per_row=True, component=torch.arange(12) % 2))
    for name, value in further.named_buffers():  # of the members 1 and 2
        assert not torch.equal(value[0], before[name][0])
        assert torch.equal(value[1], before[name][1])


def test_running_statistics_of_several_members_act_in_one_pass():
    model, alone = ensemble(example=images())
    model.train()
    for step in range(3):
        model(images(seed=step))
    model.eval()
    component = torch.tensor([2, 0, 1])
    with torch.no_grad():
        y = model(images(), plan=lb.Plan(groups=3, component=component))
        for rows, k in zip(range(0, 12, 4), component.tolist(), strict=True):
            member = lb.collapse(model, member=k)
            part = slice(rows, rows + 4)
            torch.testing.assert_close(y[part], member.eval()(images()[part]))
    means = [lb.collapse(model, member=k)[1].running_mean for k in range(3)]
    assert (means[0] - means[1]).abs().max() > 1e-3
    torch.testing.assert_close(lb.collapse(model)[1].running_mean, torch.stack(means).mean(0))
    assert not torch.equal(means[0], alone[0][1].running_mean)


def test_the_mean_network_averages_tensor_by_tensor():
    model, alone = ensemble()
    plain = lb.collapse(model)
    average = torch.stack([net[4].weight for net in alone]).mean(0)
    torch.testing.assert_close(plain[4].weight, average)
    torch.testing.assert_close(model.eval()(images()), plain.eval()(images()))


def test_without_a_factory_layers_draw_their_own_fresh_parameters():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(25, 400), nn.BatchNorm1d(400), nn.LSTM(400, 3))
    with torch.no_grad():
        net[0].weight.fill_(7.0)
        net[1].running_mean.fill_(7.0)
    model = lb.bayesianize(net, lb.DeepEnsemble(members=3))
    for weight in net[0].slots["weight"].further:
        assert weight.abs().max() <= 1 / 5  # kaiming_uniform with a = sqrt(5): U(-1/5, 1/5)
        assert abs(weight.std().item() - 0.2 / 3**0.5) < 0.005
    assert not torch.equal(*net[0].slots["weight"].further)
    assert torch.equal(net[1].slots["statistics"].running_mean, torch.zeros(2, 400))
    assert torch.equal(lb.collapse(model, member=0)[0].weight, torch.full((400, 25), 7.0))


def test_copies_start_as_the_network_up_to_a_jitter():
    net = nn.Linear(50, 40)
    lb.bayesianize(net, lb.DeepEnsemble(members=2, init_std=0.1))
    ratio = net.slots["weight"].further[0] / net.weight
    assert abs(ratio.mean().item() - 1) < 0.01
    assert abs(ratio.std().item() - 0.1) < 0.01


class Bare(nn.Linear):
    """A layer that cannot start anew."""

    reset_parameters = None

    def __init__(self):
        nn.Module.__init__(self)
        self.in_features, self.out_features = 4, 3
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.bias = nn.Parameter(torch.randn(3))


def make_bare():
    return Bare()


def test_a_layer_that_cannot_start_anew_needs_a_factory():
    net = Bare()
    with pytest.raises(lb.ConversionError, match=r"no reset_parameters.*factory=make_net"):
        lb.bayesianize(net, lb.DeepEnsemble())
    assert type(net) is Bare
    model = lb.bayesianize(net, lb.DeepEnsemble(members=2, factory=make_bare))
    assert model.report.added == 15


@pytest.mark.parametrize(
    ("factory", "error", "message"),
    [
        (lambda: nn.Linear(4, 5), lb.ConversionError, "another architecture"),
        (lambda: nn.Sequential(nn.Conv1d(4, 3, 1)), lb.ConversionError, "another architecture"),
        (lambda: 3, lb.ConfigError, "must give a network, found int"),
        ("torch.nn.Linear", lb.ConfigError, "'package.module:name'"),
        ("torch.nn:Linea", lb.ConfigError, "no factory torch.nn:Linea"),
    ],
)
def test_a_factory_of_something_else_is_refused(factory, error, message):
    net = nn.Linear(4, 3)
    with pytest.raises(error, match=message):
        lb.bayesianize(net, lb.DeepEnsemble(factory=factory))
    assert type(net) is nn.Linear


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 0}, "at least 1"),
        ({"assign": "tiles"}, "split, interleave, random, turns"),
        ({"init_std": -1.0}, "at least 0"),
        ({"init_std": 0.1, "factory": make_bare}, "give one"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(lb.ConfigError, match=message):
        lb.DeepEnsemble(**options)


def test_a_single_row_cannot_train_the_batchnorm_of_a_member():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model = lb.bayesianize(net, lb.DeepEnsemble(members=3), example=torch.randn(4, 4)).train()
    with pytest.raises(lb.PlanError, match="a member of the ensemble got one row"):
        model(torch.randn(4, 4))
    assert model(torch.randn(6, 4)).isfinite().all()


def test_a_model_pickles_saves_and_loads_whatever_its_factory_was(tmp_path):
    model, _ = ensemble(example=images())
    twin = pickle.loads(pickle.dumps(model))
    lb.save(model, tmp_path / "saved")
    again = lb.load(small_net(), tmp_path / "saved")
    probs = [
        lb.predict(m, images(), likelihood=lb.Categorical()).probs for m in (model, twin, again)
    ]
    assert torch.equal(probs[0], probs[1])
    assert torch.equal(probs[0], probs[2])
    named = lb.DeepEnsemble(factory=make_bare).to_json()
    assert json.loads(json.dumps(named))["fields"]["factory"] == f"{__name__}:make_bare"


def test_the_liveness_check_passes_in_turns_and_still_finds_dead_layers():
    class Dead(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            self.unused(x)
            return self.used(x)

    for assign in ("turns", "split"):
        with pytest.raises(lb.ConversionError, match=r"unused\..*does not depend on it"):
            lb.bayesianize(Dead(), lb.DeepEnsemble(assign=assign), example=torch.randn(6, 4))


def test_embeddings_of_several_members_are_looked_up_in_one_pass():
    torch.manual_seed(0)
    net = nn.Embedding(7, 4, padding_idx=0)
    model = lb.bayesianize(net, lb.DeepEnsemble(members=3)).train()
    ids = torch.tensor([[1, 0], [2, 3], [4, 1], [5, 0]])
    component = torch.tensor([1, 0, 2, 1])
    y = model(ids, plan=lb.Plan(per_row=True, component=component))
    tables = [net.weight, *net.slots["weight"].further]
    expected = torch.stack([tables[k][row] for k, row in zip(component, ids, strict=True)])
    assert torch.equal(y, expected)


def test_norm_layers_without_running_statistics_keep_members_apart():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, affine=False, track_running_stats=False))
    x = torch.randn(6, 4)
    model = lb.bayesianize(net, lb.DeepEnsemble(members=3), example=x).train()
    plan = model.training_plan(6, step=0)
    y = model(x, plan=plan)
    for k in range(3):
        rows = plan.component == k
        torch.testing.assert_close(y[rows], lb.collapse(model, member=k)(x[rows]))
