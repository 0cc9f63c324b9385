"""Which rows train which member: every batch size, copies and members, up to the layers' outputs.

Rows are draw-major: row t * B + b is copy t of example b.
"""

import itertools

import pytest
import torch
from torch import nn

import leanbayes as lb
from leanbayes.methods.assignment import assigned, blocks

F64 = torch.float64
PRIMES = torch.tensor([2, 3, 5, 7, 11, 13, 17, 19], dtype=F64)
SIZES = list(itertools.product(range(1, 34), range(1, 5), range(1, 9)))  # B, S, K


def cases(fits=True):
    return [(b, s, k) for b, s, k in SIZES if (b >= k) is fits]


def table(rule, batch, samples, members, step):
    """Members by copy and example, [S, B]."""
    rows = assigned(rule, batch * samples, members, samples=samples, step=step)
    assert rows.shape == (batch * samples,)
    return rows.reshape(samples, batch)


def test_split_gives_contiguous_blocks_whose_sizes_differ_by_at_most_one():
    for batch, samples, members in cases():
        of = table("split", batch, samples, members, step=0)
        sizes = torch.bincount(of[0], minlength=members)
        assert sizes.max() - sizes.min() <= 1
        assert (of[0].diff() >= 0).all()  # rising, so every member has one block
        assert (of == of[0]).all()  # all copies of an example train one member


def test_split_and_interleave_rotate_by_step_and_reach_every_member():
    for batch, samples, members in cases():
        for rule in ("split", "interleave"):
            at = [table(rule, batch, samples, members, step) for step in range(members + 1)]
            for step, of in enumerate(at):
                assert torch.equal(of, (at[0] + step) % members)
            assert torch.equal(at[0], at[members])
            seen = torch.stack(at[:members]).sort(0).values
            assert (seen == torch.arange(members)[:, None, None]).all()


def test_interleave_gives_row_b_of_copy_t_the_member_after_b_times_s_plus_t():
    for batch, samples, members in cases():
        of = table("interleave", batch, samples, members, step=2)
        t, b = torch.meshgrid(torch.arange(samples), torch.arange(batch), indexing="ij")
        assert torch.equal(of, (b * samples + t + 2) % members)
        if samples == 1:
            assert torch.equal(of[0], (torch.arange(batch) + 2) % members)
        sizes = torch.bincount(of.flatten(), minlength=members)
        assert sizes.max() - sizes.min() <= 1


def test_two_copies_meet_two_members_by_interleave_and_one_by_split():
    # Algorithm 1 of the iBNN paper is the latter, its code the former (T2.6).
    assert assigned("interleave", 8, 4, samples=2, step=0).tolist() == [0, 2, 0, 2, 1, 3, 1, 3]
    assert assigned("split", 8, 4, samples=2, step=0).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    # 128 examples twice for 24 members: 10 or 11 rows each.
    uneven = torch.bincount(assigned("interleave", 256, 24, samples=2, step=0))
    assert sorted(set(uneven.tolist())) == [10, 11]


def test_tile_gives_every_member_whole_copies_of_the_batch():
    for batch, samples, members in SIZES:
        of = table("tile", batch, samples * members, members, step=3)
        assert (of == of[:, :1]).all()
        assert torch.equal(of[:, 0], torch.arange(members).repeat_interleave(samples))


def test_tile_without_copies_is_split():
    for batch, _, members in cases():
        if members > 1:
            same = [table(rule, batch, 1, members, step=1) for rule in ("tile", "split")]
            assert torch.equal(*same)


def test_random_members_are_uniform_and_independent_of_the_place():
    rows, members = 40_000, 8
    of = assigned("random", rows, members)
    counts = torch.bincount(of, minlength=members).double()
    assert ((counts - rows / members).square() / (rows / members)).sum() < 24.3  # chi2, 7, 0.999
    pairs = torch.bincount(of[:-1] * members + of[1:], minlength=members**2).double()
    expected = rows / members**2
    assert ((pairs - expected).square() / expected).sum() < 103.4  # chi2, 63, 0.999
    assert not torch.equal(of, assigned("random", rows, members))


def test_without_a_step_the_rotation_is_random():
    first = {int(assigned("split", 8, 4)[0]) for _ in range(50)}
    assert first == {0, 1, 2, 3}


@pytest.mark.parametrize("granularity", ["row", "batch"])
def test_fewer_rows_than_members_is_an_error(granularity):
    for batch, samples, members in cases(fits=False):
        method = lb.Implicit(members=members, granularity=granularity)
        with pytest.raises(lb.PlanError, match=f"{batch} rows cannot train {members} members"):
            method.training_plan(batch * samples, samples)
    with pytest.raises(lb.PlanError, match="3 rows cannot train 4 members"):
        assigned("interleave", 3, 4)
    assert assigned("tile", 4, 4, samples=4).tolist() == [0, 1, 2, 3]  # one row, every member
    assert len(assigned("random", 1, 4)) == 1


def test_batch_granularity_gives_blocks_of_one_draw_with_the_members_of_split():
    for batch, samples, members in cases():
        method = lb.RankOne(members=members, granularity="batch")
        plan = method.training_plan(batch * samples, samples, step=1)
        by_row = assigned("split", batch * samples, members, samples=samples, step=1)
        if batch % members:  # no equal blocks: a draw a row
            assert (plan.groups, plan.per_row) == (samples, True)
            assert torch.equal(plan.component, by_row)
        else:
            assert (plan.groups, plan.per_row) == (samples * members, False)
            assert torch.equal(plan.component.repeat_interleave(batch // members), by_row)
            assert torch.equal(plan.component, blocks(members, samples, 1))


def test_batch_granularity_of_tile_draws_once_a_copy():
    method = lb.RankOne(members=3, assign="tile", granularity="batch")
    plan = method.training_plan(30, 6)
    assert (plan.groups, plan.per_row, plan.component.tolist()) == (6, False, [0, 0, 1, 1, 2, 2])


def test_a_block_shares_its_draw_and_rows_do_not():
    def noise(granularity):
        method = lb.Implicit(members=2, granularity=granularity, init_scale=0.5)
        model = lb.bayesianize(nn.Linear(1, 1, bias=False).to(F64), method).train()
        with torch.no_grad():
            model.net.weight.fill_(1.0)
        return model(torch.ones(8, 1, dtype=F64), plan=model.training_plan(8, 1, 0))[:, 0]

    first, second = noise("batch").reshape(2, 4)
    assert (first == first[0]).all()
    assert (second == second[0]).all()
    assert first[0] != second[0]
    assert len(noise("row").unique()) == 8


# ------------------------------------------------------------------------------ through the layers


def marked(method):
    """Three Linears of one unit whose output is the cube of the prime of the row's member.

    A product of primes of two members is no cube, so one index rules the whole network.
    """
    net = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(3))).to(F64)
    model = lb.bayesianize(net, method).train()
    primes = PRIMES[: method.members]
    with torch.no_grad():
        for layer in net:
            layer.weight.fill_(1.0)
            for slot, q in layer.slots.items():
                if hasattr(q, "left"):
                    q.left.copy_(primes[:, None, None])
                    q.right.fill_(1.0)
                elif hasattr(q, "location"):
                    q.location.copy_(primes[:, None] if "in" in slot else torch.ones(1, 1))
                    if hasattr(q, "rho"):
                        q.rho.fill_(-80.0)
                else:
                    layer.weight.fill_(primes[0])
                    for k, copy in enumerate(q.further, start=1):
                        copy.fill_(primes[k])
    return model


def members_of(model, rows, samples, step):
    """The member that every row really met, by its output."""
    plan = model.training_plan(rows, samples, step)
    with torch.no_grad():
        output = model(torch.ones(rows, 1, dtype=F64), plan=plan)[:, 0]
    matches = output[:, None] == PRIMES[: model.method.members] ** 3
    assert (matches.sum(1) == 1).all()
    return matches.double().argmax(1)


def mixtures(members):
    return [
        lb.Implicit(members=members),
        lb.Implicit(members=members, assign="interleave"),
        lb.Implicit(members=members, granularity="batch"),
        lb.RankOne(members=members, clip=None),
        lb.RankOne(members=members, clip=None, assign="interleave"),
        lb.BatchEnsemble(members=members),
        lb.BatchEnsemble(members=members, assign="interleave", granularity="row"),
        lb.SharedEnsemble(members=members, assign="split"),
        lb.SharedEnsemble(members=members, assign="interleave"),
        lb.Patching(members=members, scope="network", where="all", granularity="row"),
        lb.DeepEnsemble(members=members, init_std=0.0),
        lb.DeepEnsemble(members=members, init_std=0.0, assign="interleave"),
    ]


@pytest.mark.parametrize("members", [2, 3, 5])
@pytest.mark.parametrize("which", range(12))
def test_members_receive_exactly_the_rows_of_the_policy(which, members):
    method = mixtures(members)[which]
    rule = getattr(method, "assign", "split")
    model = marked(method)
    for batch, samples, step in itertools.product((5, 6, 11, 15), (1, 2, 3), (0, 1)):
        rows = batch * samples
        expected = assigned(rule, rows, members, samples=samples, step=step)
        assert torch.equal(members_of(model, rows, samples, step), expected)


@pytest.mark.parametrize("granularity", ["row", "batch"])
def test_the_objective_tiles_every_row_for_every_member(granularity):
    model = marked(lb.RankOne(members=3, assign="tile", clip=None, granularity=granularity))
    assert members_of(model, 2 * 3 * 4, 2 * 3, None).tolist() == [0] * 8 + [1] * 8 + [2] * 8
    x, y = torch.ones(4, 1, dtype=F64), torch.zeros(4, 1, dtype=F64)
    likelihood = lb.Gaussian()
    found = lb.objective(model, (x, y), likelihood, num_data=1, include_kl=False).nll
    every = torch.stack([-likelihood.log_prob(p**3 * x, y).mean() for p in PRIMES[:3]])
    assert torch.allclose(found, every.mean())


def test_turns_of_a_deep_ensemble_train_one_member_a_batch():
    model = marked(lb.DeepEnsemble(members=3, init_std=0.0, assign="turns"))
    for step in range(7):
        assert members_of(model, 4, 2, step).tolist() == [step % 3] * 4


def test_prediction_sample_t_uses_member_t_mod_k():
    model = marked(lb.RankOne(members=3, clip=None))
    x = torch.ones(2, 1, dtype=F64)
    p = lb.predict(model, x, likelihood=lb.Gaussian(), samples=6, seed=0, keep_samples=True)
    expected = PRIMES[[0, 1, 2, 0, 1, 2]] ** 3
    assert torch.allclose(p.samples[:, :, 0, 0], expected[:, None].expand(6, 2))


# ------------------------------------------------------------------------------------- gradients


def gradients(model, batch, plan):
    x, y = batch
    model.zero_grad()
    (model(x, plan=plan) - y).square().mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("assign", ["split", "interleave"])
@pytest.mark.parametrize("rows", [4, 6, 9])
def test_over_all_rotations_a_member_gets_its_share_of_its_full_batch_gradient(assign, rows):
    members = 4
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(F64)
    method = lb.BatchEnsemble(members=members, init_std=0.3, assign=assign)
    model = lb.bayesianize(net, method).train()
    batch = torch.randn(rows, 3, dtype=F64), torch.randn(rows, 2, dtype=F64)
    plans = [model.training_plan(rows, 1, step) for step in range(members)]
    found = [gradients(model, batch, plan) for plan in plans]
    alone = [gradients(model, batch, lb.Plan(component=torch.tensor([k]))) for k in range(members)]
    for name in found[0]:
        average = sum(grads[name] for grads in found) / members
        # A member's factors have a gradient in its own pass only, so the sum keeps them apart.
        assert torch.allclose(average, sum(grads[name] for grads in alone) / members, atol=1e-12)
    factors = "net.0.slots.in_scale.location"
    for k in range(members):
        assert (alone[k][factors][torch.arange(members) != k] == 0).all()
        assert (alone[k][factors][k] != 0).any()
