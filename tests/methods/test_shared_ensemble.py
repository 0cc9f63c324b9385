"""SharedEnsemble: one candidate an example for the whole network, at any shape, with its prior."""

import copy
import math

import pytest
import torch
from torch import nn

import leanbayes as lb

F64 = torch.float64
variants = pytest.mark.parametrize(
    ("rank", "per_channel"), [(1, False), (1, True), (3, False), (3, True)]
)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.conv2 = nn.Conv2d(4, 4, 3, groups=2)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        return self.fc(torch.relu(self.conv2(x)).mean((2, 3)))


def converted(net=None, **options):
    torch.manual_seed(1)
    net = Convolutional() if net is None else net
    options = {"members": 4, "init_std": 0.5, **options}
    return lb.bayesianize(net.to(F64), lb.SharedEnsemble(**options)).train()


def member_outputs(model, x):
    """Outputs of the plain networks of all candidates, [K, rows, ...]."""
    with torch.no_grad():
        nets = [lb.collapse(copy.deepcopy(model), k) for k in range(model.method.members)]
        return torch.stack([net.eval()(x) for net in nets])


def nearest(y, outputs):
    """The candidate that every row ran through, and how far it is off."""
    gap = (outputs - y).flatten(2).abs().amax(2)
    return gap.argmin(0), gap.min(0).values.max()


@variants
def test_an_example_has_one_candidate_in_all_layers(rank, per_channel):
    """Independent ids a layer would give rows that are no candidate's (64 networks of 4)."""
    model = converted(rank=rank, per_channel=per_channel)
    x = torch.randn(400, 2, 5, 5, dtype=F64)
    outputs = member_outputs(model, x)
    ids, gap = nearest(model(x), outputs)
    assert gap < 1e-12
    counts = torch.bincount(ids, minlength=4).double()
    assert ((counts - 100) ** 2 / 100).sum() < 16.27  # 99.9 %, 3 degrees of freedom
    assert (ids != nearest(model(x), outputs)[0]).any()  # drawn anew every step


@variants
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_with_groups_a_block_of_rows_has_one_candidate(rank, per_channel, layout):
    """A new one for every block until all have had one, and every candidate as often as others."""
    model = converted(rank=rank, per_channel=per_channel, groups=3)
    model = model.to(memory_format=layout)
    x = torch.randn(30, 2, 5, 5, dtype=F64).contiguous(memory_format=layout)
    outputs, counts = member_outputs(model, x), torch.zeros(4)
    for _ in range(100):
        ids, gap = nearest(model(x), outputs)
        blocks = ids.reshape(3, 10)
        assert gap < 1e-12
        assert (blocks == blocks[:, :1]).all()
        assert len(blocks[:, 0].unique()) == 3
        counts += torch.bincount(blocks[:, 0], minlength=4)
    # Each is left out of a step with probability 1/4: 99.9 %, 3 degrees of freedom.
    missing = 100 - counts
    assert ((missing - 25) ** 2 / 25).sum() < 16.27


def test_groups_divide_any_batch_and_every_copy_of_it():
    method = lb.SharedEnsemble(members=4, groups=8)
    found = [method.training_plan(rows, samples) for rows, samples in ((256, 1), (60, 2), (7, 1))]
    assert [plan.groups for plan in found] == [8, 12, 7]
    assert [len(plan.component) for plan in found] == [8, 12, 7]
    assert not any(plan.per_row for plan in found)
    assert found[0].component.bincount().tolist() == [2, 2, 2, 2]


def test_gradients_of_groups_are_those_of_the_same_candidates_by_row():
    model = converted(rank=3, per_channel=True, groups=2)
    x, y = torch.randn(32, 2, 5, 5, dtype=F64), torch.randint(3, (32,))
    plan = lb.Plan(groups=2, component=torch.tensor([3, 1]))
    loss = nn.functional.cross_entropy(model(x, plan=plan), y)
    factors = [q.left for _, _, q, _ in model.posteriors()]
    found = torch.autograd.grad(loss, factors)
    by_row = lb.Plan(per_row=True, component=torch.tensor([3, 1]).repeat_interleave(16))
    loss = nn.functional.cross_entropy(model(x, plan=by_row), y)
    expected = torch.autograd.grad(loss, factors)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)
        assert a[[0, 2]].abs().max() == 0 < a[[1, 3]].abs().min(0).values.max()


@variants
def test_collapsed_members_have_the_written_out_weights(rank, per_channel):
    model = converted(rank=rank, per_channel=per_channel)
    q, conv = model.net.conv2.slots["weight"], model.net.conv2
    product = q.left[2] @ q.right[2]
    shape = (4, 2, 1, 1) if per_channel else (4, 2, 3, 3)
    expected = conv.weight * product.reshape(shape)
    plain = lb.collapse(copy.deepcopy(model), 2)
    torch.testing.assert_close(plain.conv2.weight, expected.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(plain.fc.bias, model.net.fc.bias)


def test_only_weights_of_products_have_factors():
    model = converted()
    slots = {layer.name: layer.slots for layer in model.report.converted}
    assert slots == {"conv1": ("weight",), "conv2": ("weight",), "fc": ("weight",)}
    assert type(model.net.norm) is nn.GroupNorm


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_one_row_one_output_and_no_bias_work(rows, outputs, bias):
    """T1.7: `.squeeze()` broke B = 1 and O = 1, and a falsy bias made one."""
    model = converted(nn.Linear(4, outputs, bias=bias))
    x = torch.randn(rows, 4, dtype=F64)
    y = model(x)
    assert y.shape == (rows, outputs)
    assert nearest(y, member_outputs(model, x))[1] < 1e-12
    assert (model.net.bias is not None) == bias
    assert len(list(model.parameters())) == 3 + bias


def test_a_convolution_of_one_row_and_one_channel_works():
    for bias in (True, False):
        model = converted(nn.Conv2d(1, 1, 2, bias=bias))
        x = torch.randn(1, 1, 3, 3, dtype=F64)
        y = model(x)
        assert nearest(y, member_outputs(model, x))[1] < 1e-12
        assert (model.net.bias is not None) == bias


def test_prediction_takes_every_candidate_once_and_averages_probabilities():
    model, x = converted(), torch.randn(5, 2, 5, 5, dtype=F64)
    assert model.method.default_samples == 4
    found = lb.predict(model, x, likelihood=lb.Categorical(), keep_samples=True)
    outputs = member_outputs(model, x).softmax(2)
    torch.testing.assert_close(found.samples, outputs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.probs, outputs.mean(0), rtol=1e-12, atol=1e-12)
    assert (found.epistemic <= math.log(4)).all()


def test_a_single_draw_has_no_epistemic_uncertainty():
    """T1.9: the mutual information of one draw is 0."""
    model, x = converted(), torch.randn(5, 2, 5, 5, dtype=F64)
    with pytest.warns(UserWarning, match="1 samples of 4 members"):
        found = lb.predict(model, x, likelihood=lb.Categorical(), samples=1)
    assert found.epistemic.abs().max() < 1e-12


@variants
@pytest.mark.parametrize("options", [{}, {"chunk": 1}, {"chunk": 3}, {"chunk": 8}])
def test_rows_and_samples_do_not_depend_on_chunks_or_neighbours(rank, per_channel, options):
    model = converted(rank=rank, per_channel=per_channel)
    x = torch.randn(5, 2, 5, 5, dtype=F64)
    outputs = member_outputs(model, x[1:2]).softmax(2).repeat(2, 1, 1)
    found = lb.predict(
        model, x, likelihood=lb.Categorical(), samples=8, seed=1, keep_samples=True, **options
    )
    torch.testing.assert_close(found.samples[:, 1:2], outputs, rtol=1e-12, atol=1e-12)


@variants
def test_the_complexity_is_that_of_the_paper_and_its_edit_is_eq_6(rank, per_channel):
    """(decay / 2K) sum_k |A_k * W|^2 over all layers, added by the optimiser without a graph."""
    decay, num_data = 2e-3, 500
    options = {"rank": rank, "per_channel": per_channel}
    model = converted(weight_decay=decay, num_data=num_data, **options)
    total = 0.0
    for layer in (model.net.conv1, model.net.conv2, model.net.fc):
        q = layer.slots["weight"]
        product = q.left @ q.right
        dims = (1,) * (layer.weight.dim() - 2)
        full = product.shape[2] == layer.weight[0].numel()
        shape = layer.weight.shape if full else (*product.shape[1:], *dims)
        total = total + (product.reshape(4, *shape) * layer.weight).square().sum() / 4
    torch.testing.assert_close(model.kl() / num_data, decay / 2 * total, rtol=1e-10, atol=0)
    targets = [p for _, _, q, base in model.posteriors() for p in (base, *q.parameters())]
    expected = torch.autograd.grad(decay / 2 * total, targets)
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=0.0), lr=0.0)
    lb.attach_kl(optimizer, model, num_data=num_data)
    optimizer.step()
    for target, gradient in zip(targets, expected, strict=True):
        torch.testing.assert_close(target.grad, gradient, rtol=1e-9, atol=1e-12)
    assert model.net.fc.bias.grad is None  # shared points have weight decay instead
    assert model.net.norm.weight.grad is None


def test_the_sum_over_candidates_is_k_times_the_mean():
    mean, summed = converted(), converted(kl="sum")
    torch.testing.assert_close(summed.kl(), 4 * mean.kl(), rtol=1e-12, atol=0)
    assert mean.kl_kind == "cross_entropy"


def test_prior_from_the_decay_of_pretraining():
    """sigma_0^2 = 1 / (lambda n): 0.1 for CIFAR-10 in the paper."""
    model = converted(weight_decay=2e-4, num_data=50_000)
    assert model.net.fc.slots["weight"].prior_std ** 2 == pytest.approx(0.1, rel=1e-12)
    assert converted().net.fc.slots["weight"].prior_std == 1.0


def test_training_moves_candidates_apart_from_the_shared_weight():
    """Rows of a candidate train its factors alone; all rows train the shared weight."""
    model = converted(nn.Linear(4, 3))
    x = torch.randn(6, 4, dtype=F64)
    component = torch.tensor([2, 2, 0, 2, 0, 0])
    model(x, plan=lb.Plan(per_row=True, component=component)).square().sum().backward()
    left, right = (getattr(model.net.slots["weight"], n).grad for n in ("left", "right"))
    for grad in (left, right):
        assert (grad.flatten(1).abs().sum(1) > 0).tolist() == [True, False, True, False]
    assert model.net.weight.grad.abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3, 5, 8, 200])
def test_without_spread_every_candidate_is_the_network_to_the_bit(rank, per_channel, dtype):
    net = Convolutional().to(dtype)
    for members in (1, 3, 20):
        method = lb.SharedEnsemble(
            members=members, rank=rank, per_channel=per_channel, init_std=0, assign="random"
        )
        model = lb.bayesianize(copy.deepcopy(net), method)
        for member in (None, 0):
            back = lb.collapse(copy.deepcopy(model), member=member)
            for name, value in net.state_dict().items():
                assert torch.equal(back.state_dict()[name], value), name
        left = model.net.conv1.slots["weight"].left
        product = left @ model.net.conv1.slots["weight"].right
        assert torch.equal(product, torch.ones_like(product))
