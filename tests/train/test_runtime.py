"""A runtime of one process: settings, number formats, wrappers that come off again, state."""

import copy

import pytest
import torch
import torch.distributed as dist
from process_cases import NUM_DATA, Net, assert_same, batch, model_of, optimizer_of, train
from torch import nn

import leanbayes as lb
from leanbayes.layers.norm import BayesianSyncBatchNorm
from leanbayes.model import unwrap
from leanbayes.train.runtime import Runtime
from leanbayes.train.wrapping import blocks, leaves_out, synchronise_norms


@pytest.fixture(autouse=True)
def without_torchrun(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def trained(strategy="single", name="SGD", steps=3, **options):
    """Model state and optimiser state after a few noisy steps."""
    model = model_of()
    with Runtime(strategy, device="cpu", **options) as runtime:
        runtime.seed(4)
        module = runtime.prepare(model, lb.Categorical())
        optimizer = optimizer_of(name, module)
        train(runtime, module, optimizer, steps)
        return model, runtime.full_state(module, optimizer)


def test_without_torchrun_auto_is_a_single_process():
    with Runtime(device="cpu") as runtime:
        assert (runtime.strategy, runtime.rank, runtime.world) == ("single", 0, 1)
        assert runtime.is_first
        assert runtime.device == torch.device("cpu")
        assert not dist.is_initialized()


def test_the_collectives_of_one_process_give_back_what_they_get():
    with Runtime(device="cpu") as runtime:
        runtime.barrier()
        assert runtime.any(torch.tensor([0.0, 2.0])).tolist() == [0.0, 2.0]
        assert runtime.any(True).item() == 1.0
        assert runtime.mean(3.0).item() == 3.0
        assert runtime.gather("a") == ["a"]
        assert runtime.broadcast({"b": 1}) == {"b": 1}


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        ({"strategy": "dp"}, {}, "'dp'"),
        ({"precision": "int8"}, {}, "'int8'"),
        ({"device": "abacus"}, {}, "'abacus'"),
        ({"compile": True, "checkpoint_activations": True}, {}, "choose"),
        ({}, {"RANK": "2", "WORLD_SIZE": "2"}, "2 and 2"),
        ({}, {"RANK": "one", "WORLD_SIZE": "2"}, "RANK.*'one'"),
        ({}, {"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT"),
    ],
)
def test_wrong_settings_are_named(options, environment, words, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(lb.ConfigError, match=words), Runtime(**{"device": "cpu"} | options):
        pass


def test_single_is_this_process_alone_whatever_torchrun_says(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Runtime("single", device="cpu") as runtime:
        assert (runtime.rank, runtime.world) == (0, 1)
        assert not dist.is_initialized()


@pytest.mark.distributed
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_one_process_in_a_wrapper_trains_as_without(strategy, name):
    model, found = trained(strategy, name)
    assert not dist.is_initialized()
    alone, expected = trained("single", name)
    if strategy == "ddp":
        assert_same(found, expected)
    tolerance = 0.0 if strategy == "ddp" else 1e-5  # shards are drawn and edited one by one
    for key, tensor in alone.state_dict().items():
        torch.testing.assert_close(
            model.state_dict()[key], tensor, rtol=tolerance, atol=tolerance, msg=key
        )


@pytest.mark.distributed
@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "ddp"},
        {"strategy": "fsdp2"},
        {"strategy": "fsdp2", "compile": "aot_eager"},
        {"strategy": "fsdp2", "checkpoint_activations": True},
    ],
    ids=["ddp", "fsdp2", "compiled", "checkpointed"],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_after_a_run_the_model_wears_nothing(options):
    torch._dynamo.reset()
    model = model_of()
    model.likelihood = lb.Gaussian(learn=True)  # of an earlier run; no pass uses its parameter
    parts = list(model.modules())
    before = [(type(m), sorted(m.__dict__), len(m._forward_hooks)) for m in parts]
    parameters = list(model.parameters())
    with Runtime(device="cpu", **options) as runtime:
        module = runtime.prepare(model, lb.Categorical())
        train(runtime, module, optimizer_of("SGD", module), 2)
        held = module  # whoever still holds the wrapper does no harm
    assert [(type(m), sorted(m.__dict__), len(m._forward_hooks)) for m in parts] == before
    assert all(map(lambda a, b: a is b, model.parameters(), parameters))
    assert model(batch()[0]).isfinite().all()
    assert copy.deepcopy(model).likelihood is not None
    assert getattr(held, "reducer", None) is None


def test_an_error_leaves_no_group_and_no_checkpointed_block_behind():
    model = model_of()

    def fail():
        with Runtime("ddp", device="cpu", checkpoint_activations=True) as runtime:
            runtime.prepare(model)
            assert "forward" in model.net.head.__dict__
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        fail()
    assert not dist.is_initialized()
    assert "forward" not in model.net.head.__dict__


@pytest.mark.parametrize("option", [{"checkpoint_activations": True}, {"compile": "aot_eager"}])
def test_checkpointed_and_compiled_models_train_as_plain_ones(option):
    torch._dynamo.reset()
    _, expected = trained()
    _, found = trained(**option)
    for name, tensor in expected[0].items():
        torch.testing.assert_close(found[0][name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_blocks_are_children_with_hosts_and_the_elements_of_lists():
    net = model_of().net
    assert blocks(net) == [net.conv, net.norm, *net.blocks, net.head]
    assert blocks(net.head) == []


def test_seeds_set_all_three_generators():
    import random

    import numpy as np

    def drawn():
        return torch.rand(()).item(), random.random(), np.random.rand()  # noqa: NPY002

    with Runtime(device="cpu") as runtime:
        runtime.seed(7)
        first = drawn()
        runtime.seed(7)
        assert drawn() == first
        runtime.seed(8)
        assert all(a != b for a, b in zip(drawn(), first, strict=True))


def test_deterministic_is_switched_back():
    with Runtime(device="cpu", deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def edited_by_kl(precision):
    """Parameters after a step whose gradient is that of the KL alone."""
    model = model_of()
    with Runtime(precision=precision, device="cpu") as runtime:
        module = runtime.prepare(model)
        optimizer = torch.optim.SGD(lb.param_groups(module, lr=1.0))
        lb.attach_kl(optimizer, module, num_data=NUM_DATA)
        runtime.backward(sum(p.sum() for p in model.parameters()) * 0)
        runtime.unscale(optimizer)
        runtime.unscale(optimizer)  # for a clip after a norm, say
        assert runtime.step(optimizer)
    return dict(model.named_parameters())


def test_the_kl_edit_is_not_scaled_in_fp16():
    found, expected = edited_by_kl("fp16"), edited_by_kl("fp32")
    start = dict(model_of().named_parameters())
    assert not torch.equal(start["net.head.weight"], expected["net.head.weight"])
    for name, parameter in expected.items():
        torch.testing.assert_close(found[name], parameter, rtol=0, atol=0, msg=name)


def test_an_overflow_in_fp16_leaves_the_step_out_and_halves_the_scale():
    model = model_of()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    with Runtime(precision="fp16", device="cpu") as runtime:
        optimizer = optimizer_of("SGD", runtime.prepare(model))
        scale = runtime.scaler_state()["scale"]
        runtime.backward(model.net.head.weight.sum() * float("inf"))
        assert runtime.step(optimizer) is False
        state = runtime.scaler_state()
        assert state["scale"] == scale / 2
    assert_same({n: p.detach() for n, p in model.named_parameters()}, before)
    with Runtime(precision="fp16", device="cpu") as runtime:
        runtime.load_scaler_state(state)
        assert runtime.scaler_state() == state


def test_bf16_computes_in_bf16_and_keeps_float32():
    model = model_of()
    with Runtime(precision="bf16", device="cpu") as runtime:
        module = runtime.prepare(model)
        with runtime.autocast():
            assert module(batch()[0]).dtype == torch.bfloat16
        assert runtime.scaler_state() == {}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_norms_are_synchronised_in_place_and_set_back():
    model = model_of(lb.MeanField(select=lb.select.everything, init_std=0.1))
    plain, x = Net(), batch()[0]
    host, stock = model.net.norm, plain.norm
    expected = model.eval()(x), plain.eval()(x)
    classes = type(host), type(stock)
    undo = synchronise_norms(model.net), synchronise_norms(plain)
    assert (type(host), type(stock)) == (BayesianSyncBatchNorm, nn.SyncBatchNorm)
    assert model.net.norm is host
    assert torch.equal(model(x), expected[0])
    assert torch.equal(plain(x), expected[1])
    for one in undo:
        one()
    assert (type(host), type(stock)) == classes


def test_norms_with_statistics_by_member_are_left_alone():
    model = model_of(lb.DeepEnsemble(members=2))
    before = type(model.net.norm)
    synchronise_norms(model.net)
    assert type(model.net.norm) is before


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (lb.DeepEnsemble(members=2, assign="turns"), True),
        (lb.DeepEnsemble(members=2, assign="random"), True),
        (lb.DeepEnsemble(members=2), False),
        (lb.RankOne(), False),
        (lb.MeanField(), False),
    ],
)
def test_ddp_looks_for_unused_parameters_only_where_members_rest(method, expected):
    assert leaves_out(model_of(method)) is expected


def test_state_of_the_optimiser_goes_by_name_not_by_order():
    model, (tensors, state) = trained(name="AdamW")
    with Runtime(device="cpu") as runtime:
        module = runtime.prepare(model)
        groups = lb.param_groups(module, lr=9.0)
        turned = [{**g, "params": list(reversed(g["params"]))} for g in reversed(groups)]
        optimizer = torch.optim.AdamW(turned)
        runtime.load_full_state(module, optimizer, tensors, state)
        again = runtime.full_state(module, optimizer)[1]
        names = {id(p): n for n, p in unwrap(module).named_parameters()}
        for parameter, values in optimizer.state.items():
            assert_same(dict(values), state["state"][names[id(parameter)]])
    assert_same(again["state"], {n: state["state"][n] for n in again["state"]})
    assert {g["lr"] for g in again["groups"]} == {0.05}


def test_a_learnt_likelihood_has_its_optimiser_state_saved():
    model, likelihood = model_of(), lb.Gaussian(learn=True)
    with Runtime(device="cpu") as runtime:
        module = runtime.prepare(model, likelihood)
        optimizer = optimizer_of("SGD", module, likelihood)
        likelihood.log_precision.grad = torch.tensor(2.0, dtype=torch.float64)
        runtime.step(optimizer)
        tensors, state = runtime.full_state(module, optimizer)
        saved = state["state"]["likelihood.log_precision"]["momentum_buffer"]
        assert saved.item() == 2.0
        assert not any(name.startswith("likelihood.") for name in tensors)


def test_a_foreign_state_is_refused_and_changes_nothing():
    model, (tensors, state) = trained()
    before = copy.deepcopy(dict(model.state_dict()))
    changed = {name: tensor + 1 for name, tensor in tensors.items()}
    shape = {**changed, "net.head.weight": torch.zeros(2, 2)}
    missing = {name: t for name, t in changed.items() if name != "net.head.bias"}
    with Runtime(device="cpu") as runtime:
        module = runtime.prepare(model)
        optimizer = optimizer_of("SGD", module)
        for wrong, word in ((shape, "net.head.weight"), (missing, "net.head.bias")):
            with pytest.raises(lb.CheckpointError, match=word):
                runtime.load_full_state(module, optimizer, wrong, state)
        fewer = {**state, "groups": state["groups"][1:]}
        with pytest.raises(lb.CheckpointError, match="parameters of the optimiser"):
            runtime.load_full_state(module, optimizer, tensors, fewer)
        stranger = torch.optim.SGD([nn.Parameter(torch.zeros(3))])
        with pytest.raises(lb.CheckpointError, match="neither in the model"):
            runtime.full_state(module, stranger)
    assert_same(dict(model.state_dict()), before)
