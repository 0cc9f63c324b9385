"""Plans, rows and the one fold helper."""

import pytest
import torch

import leanbayes as lb
from leanbayes.plan import Scope, call, count_rows, fold, unfold


def test_fold_is_draw_major_and_unfold_its_inverse():
    x = torch.arange(6.0).reshape(3, 2)
    folded = fold({"x": x, "mask": torch.tensor([1, 2, 3])}, 4)
    for t in range(4):
        for b in range(3):
            assert torch.equal(folded["x"][t * 3 + b], x[b])
            assert folded["mask"][t * 3 + b] == b + 1
    assert torch.equal(unfold(folded["x"], 4), x.expand(4, 3, 2))


def test_fold_leaves_scalars_and_other_objects_alone():
    scalar = torch.tensor(3.0)
    folded = fold((torch.ones(2), scalar, "text", 5), 3)
    assert torch.equal(folded[1], scalar)
    assert folded[2:] == ("text", 5)


@pytest.mark.parametrize("groups", [0, -1, True])
def test_groups_below_one_are_refused(groups):
    with pytest.raises(lb.PlanError, match="at least 1"):
        lb.Plan(groups=groups)


def test_groups_must_divide_the_rows():
    with pytest.raises(lb.PlanError, match="5 rows cannot be cut into 2 equal groups"):
        lb.Plan(groups=2).check(5)
    model = lb.bayesianize(torch.nn.Linear(2, 1), lb.MeanField())
    with pytest.raises(lb.PlanError, match="5 rows cannot be cut into 2 equal groups"):
        model(torch.zeros(5, 2), plan=lb.Plan(groups=2))


def test_component_has_one_entry_a_group_or_a_row():
    plan = lb.Plan(groups=2, component=torch.zeros(3, dtype=torch.long))
    with pytest.raises(lb.PlanError, match="component has 3 entries"):
        plan.check(4)
    by_row = torch.zeros(4, dtype=torch.long)
    lb.Plan(groups=2, per_row=True, component=by_row).check(4)
    with pytest.raises(lb.PlanError, match=r"one a row, but slots draw once a group.*per_row=True"):
        lb.Plan(groups=2, component=by_row).check(4)


def test_only_row_slots_draw_once_a_row_and_only_when_asked():
    scope = Scope(plan=lb.Plan(groups=2, per_row=True), rows=6)
    assert (scope.draws("row"), scope.draws("batch")) == (6, 2)
    scope = Scope(plan=lb.Plan(groups=2), rows=6)
    assert (scope.draws("row"), scope.draws("batch")) == (2, 2)


def test_a_slot_reads_the_members_of_its_draws_whether_they_are_given_by_row_or_by_group():
    by_row, by_group = torch.tensor([1, 1, 1, 2, 2, 2]), torch.tensor([1, 2])
    for given in (by_row, by_group):
        scope = Scope(plan=lb.Plan(groups=2, per_row=True, component=given), rows=6)
        assert torch.equal(scope.component("row"), by_row)
        assert torch.equal(scope.component("batch"), by_group)


def test_rows_are_counted_in_the_first_tensor_of_any_input():
    assert count_rows((torch.zeros(3, 2),), {}) == 3
    assert count_rows((), {"ids": torch.zeros(4, 2)}) == 4
    assert count_rows((("text", torch.zeros(5)),), {}) == 5
    with pytest.raises(lb.PlanError, match=r"no tensor with a batch .* \(Tensor, str\).*x\[None\]"):
        count_rows(("text", torch.tensor(1.0)), {})
    with pytest.raises(lb.PlanError, match=r"\(ndarray\).*torch.from_numpy"):
        count_rows((torch.zeros(3, 2).numpy(),), {})


def test_inputs_may_be_a_tensor_a_tuple_or_a_dict():
    bilinear = torch.nn.Bilinear(2, 3, 1)
    a, b = torch.randn(4, 2), torch.randn(4, 3)
    expected = bilinear(a, b)
    assert torch.equal(call(bilinear, (a, b)), expected)
    assert torch.equal(call(bilinear, {"input1": a, "input2": b}), expected)


def test_what_has_no_rows_is_not_repeated():
    x, mask = torch.randn(3, 2), torch.ones(5, 5)
    folded = fold((x, mask), 2)
    assert len(folded[0]) == 6
    assert folded[1] is mask
