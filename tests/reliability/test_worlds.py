"""`lb.fit` in two gloo processes of 32 rows is `lb.fit` in one of 64, for every method.

Both Gaussian and factor noise is off (`init_std=0`; members and copies are then moved apart). Masks
of MC dropout and DropConnect and the picks of Patching have no spread that could be 0: they stay
on, as numbers by tensor, step and global row, so that no method is left out of the comparison.
"""

import pytest
import torch
from worlds import KLS, STRATEGIES, both_runs, default, quiet_run, two_processes

import leanbayes as lb

pytestmark = pytest.mark.distributed

TOLERANCE = {"ddp": 1e-6, "fsdp2": 1e-5}
FAST = ("mean_field",)
# A row's member is a function of row and step, members are points: training draws nothing at all.
BY_STEP = ("batch_ensemble", "deep_ensemble")
OTHERS = ("nested_residual", "transformer", "lstm", "tied_language")


def cells():
    slow = pytest.mark.slow
    known = sorted(lb.methods())
    small = [(name, ("conv_norm",), () if name in FAST else slow) for name in known]
    cases = [*small, *((name, OTHERS, slow) for name in known)]
    return [pytest.param(m, nets, marks=marks, id=f"{m}-{nets[0]}") for m, nets, marks in cases]


def close(found, expected, tolerance, where):
    """Relative to the largest entry of a tensor."""
    assert found.keys() == expected.keys(), where
    for name, value in expected.items():
        value = torch.as_tensor(value)
        torch.testing.assert_close(
            torch.as_tensor(found[name]),
            value,
            rtol=0.0,
            atol=tolerance * max(1e-6, float(value.abs().max())),
            msg=lambda m, n=name: f"{where} {n}: {m}",
        )


def check_quiet(found, single, tolerance, where):
    close({"kl": found["kl"]}, {"kl": single["kl"]}, tolerance, where)
    close(found["gradients"], single["gradients"], tolerance, f"{where} gradient of")
    assert len(found["figures"]) == len(single["figures"]) == 3
    for step, (one, other) in enumerate(zip(found["figures"], single["figures"], strict=True)):
        close(one, other, tolerance, f"{where} step {step}")
    close(found["state"], single["state"], tolerance, f"{where} in the end")


def check_noisy(first, second, method, where):
    for name, value in first["state"].items():
        assert torch.equal(value, second["state"][name]), f"{where}: {name} differs between ranks"
    # Another opinion of what is best in one process, and they would wait for each other for ever.
    assert len(first["history"]) == 3
    assert first["history"] == second["history"], f"{where}: validation figures"
    draws = method.is_random and not method.trains_as_point and method.name not in BY_STEP
    for step, (one, other) in enumerate(zip(first["draws"], second["draws"], strict=True)):
        # A layer of Patching picks one of few copies a pass: two processes may agree now and then.
        if method.name != "patching":
            assert torch.equal(one, other) != draws, f"{where}: draws after step {step}"
    assert torch.equal(first["draws"], second["draws"]) != draws, f"{where}: draws"


@pytest.mark.parametrize(("method_name", "names"), cells())
def test_two_processes_train_as_one_and_draw_differently(method_name, names, tmp_path):
    method = default(lb.methods()[method_name])
    first, second = two_processes(both_runs, tmp_path, method_name, names)
    for name in names:
        for kl in KLS:
            single = quiet_run(method, name, "single", kl=kl)
            for strategy in STRATEGIES:
                for each in (first, second):
                    where = f"{method_name} {name} {strategy} kl={kl}"
                    check_quiet(each[name, strategy, kl], single, TOLERANCE[strategy], where)
        for strategy in STRATEGIES:
            cell = name, strategy, "noisy"
            check_noisy(first[cell], second[cell], method, f"{method_name} {name} {strategy}")
