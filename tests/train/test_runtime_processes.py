"""Two gloo processes under DDP and FSDP2: gradients, KL, noise, state, and a change of number."""

import pytest
import torch
import torch.distributed as dist
from process_cases import NUM_DATA, assert_same, batch, model_of, optimizer_of, train

import leanbayes as lb
from leanbayes.train.runtime import Runtime
from two_processes import two_processes

pytestmark = pytest.mark.distributed
STRATEGIES, OPTIMIZERS = ("ddp", "fsdp2"), ("SGD", "AdamW")


def resumed(strategy, name):
    """Five steps at one go, and with a break after the third; both with their losses."""
    with Runtime(strategy, timeout=60) as runtime:
        runtime.seed(4)
        module = runtime.prepare(model_of(seed=runtime.rank), lb.Categorical())
        optimizer = optimizer_of(name, module)
        early = train(runtime, module, optimizer, 3)
        saved, generator = runtime.full_state(module, optimizer), torch.get_rng_state()
        losses = train(runtime, module, optimizer, 2)
        final = runtime.full_state(module, optimizer)
    with Runtime(strategy, timeout=60) as runtime:
        module = runtime.prepare(model_of(seed=7))
        optimizer = optimizer_of(name, module)
        runtime.load_full_state(module, optimizer, *saved)
        torch.set_rng_state(generator)
        again = train(runtime, module, optimizer, 2)
        refinal = runtime.full_state(module, optimizer)
    return {
        "saved": saved,
        "early": early,
        "losses": (losses, again),
        "final": final,
        "again": refinal,
    }


def kl_step(strategy):
    """Parameters after a step whose gradient is that of the KL alone."""
    model = model_of()
    with Runtime(strategy, timeout=60) as runtime:
        module = runtime.prepare(model)
        optimizer = torch.optim.SGD(lb.param_groups(module, lr=1.0))
        handle = lb.attach_kl(optimizer, module, num_data=NUM_DATA)
        runtime.backward(module(batch(runtime.rank)[0]).sum() * 0)
        runtime.step(optimizer)
        handle.remove()
    return {name: p.detach() for name, p in model.named_parameters()}


def accumulated(strategy, parts):
    """Gradients of a batch in parts, without noise and with frozen statistics."""
    with Runtime(strategy, timeout=60) as runtime:
        model = model_of(lb.MAP())
        module = runtime.prepare(model)
        model.net.norm.eval()
        x, y = batch(runtime.rank)
        for number, (a, b) in enumerate(zip(x.chunk(parts), y.chunk(parts), strict=True)):
            with runtime.synchronising(module, last=number == parts - 1):
                found = lb.objective(module, (a, b), lb.Categorical(), include_kl=False)
                runtime.backward(found.loss / parts)
        grads = {n: p.grad for n, p in model.named_parameters()}
        return {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in grads.items()}


def overflow(strategy):
    """Whether a step was taken after one process alone had an infinite loss, in fp16."""
    with Runtime(strategy, precision="fp16", timeout=60) as runtime:
        model = model_of()
        module = runtime.prepare(model)
        optimizer = optimizer_of("SGD", module)
        with runtime.autocast():
            loss = module(batch(runtime.rank)[0]).float().sum()
        runtime.backward(loss * (float("inf") if runtime.rank == 1 else 1.0))
        taken = runtime.step(optimizer)
        return taken, runtime.scaler_state()["scale"]


def together(rank):
    """The collectives, and the gradient of a parameter outside the wrapper."""
    likelihood = lb.Gaussian(precision=1.0 + rank, learn=True)
    with Runtime(timeout=60) as runtime:
        assert runtime.strategy == "ddp"
        runtime.prepare(model_of(), likelihood)
        likelihood.log_precision.grad = torch.tensor(1.0 + 2 * rank, dtype=torch.float64)
        runtime.average_gradients(likelihood.parameters())
        found = {
            "gradient": likelihood.log_precision.grad.item(),
            "value": likelihood.log_precision.item(),
            "any": runtime.any(torch.tensor([float(rank), 0.0])).tolist(),
            "mean": runtime.mean(torch.tensor([2.0 * rank])).item(),
            "gather": runtime.gather({"rank": rank}),
            "broadcast": runtime.broadcast(f"from {rank}"),
        }
        with Runtime("single", timeout=60) as alone:  # a member by itself, say
            found["alone"] = (alone.rank, alone.world, alone.gather(rank))
        assert dist.is_initialized()  # the inner one leaves the group alone
    assert not dist.is_initialized()
    return found


def turns(rank):
    """Members of a deep ensemble in turn: most parameters rest in a pass."""
    with Runtime("ddp", timeout=60) as runtime:
        model = model_of(lb.DeepEnsemble(members=3, assign="turns"))
        module = runtime.prepare(model)
        optimizer = torch.optim.SGD(lb.param_groups(module, lr=0.1))
        for step in range(3):
            x, y = batch(rank)
            output = module(x, plan=model.training_plan(len(x), step=step))
            runtime.backward(torch.nn.functional.cross_entropy(output, y))
            runtime.step(optimizer)
            optimizer.zero_grad()
        return runtime.full_state(module, optimizer)[0]


def everything(rank):
    torch.manual_seed(rank)
    found = {(s, o): resumed(s, o) for s in STRATEGIES for o in OPTIMIZERS}
    for strategy in STRATEGIES:
        found["kl", strategy] = kl_step(strategy)
        found["parts", strategy] = accumulated(strategy, 2), accumulated(strategy, 1)
        found["overflow", strategy] = overflow(strategy)
    return found | {"together": together(rank), "turns": turns(rank)}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return two_processes(everything, tmp_path_factory.mktemp("both"))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_saved_state_goes_on_bitwise(both, strategy, name):
    for found in (each[strategy, name] for each in both):
        assert_same(found["again"], found["final"])
        losses, again = found["losses"]
        assert losses == again


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_processes_draw_differently_and_agree_on_the_state(both, strategy):
    first, second = (each[strategy, "AdamW"] for each in both)
    assert_same(first["saved"], second["saved"])
    assert_same(first["final"], second["final"])
    assert all(a != b for a, b in zip(first["early"], second["early"], strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_shards_train_as_copies_do(both, name):
    ddp, fsdp2 = (both[0][strategy, name] for strategy in STRATEGIES)
    for key, tensor in ddp["final"][0].items():
        torch.testing.assert_close(fsdp2["final"][0][key], tensor, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_kl_counts_once(both, strategy):
    model = model_of()
    optimizer = torch.optim.SGD(lb.param_groups(model, lr=1.0))
    lb.attach_kl(optimizer, model, num_data=NUM_DATA)
    optimizer.step()
    for each in both:
        for name, parameter in model.named_parameters():
            found = each["kl", strategy][name]
            torch.testing.assert_close(found, parameter.detach(), rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_parts_of_a_batch_give_the_gradient_of_the_whole(both, strategy):
    for each in both:
        parts, at_once = each["parts", strategy]
        for name, grad in at_once.items():
            torch.testing.assert_close(parts[name], grad, rtol=1e-5, atol=1e-6, msg=name)
    assert_same(both[0]["parts", strategy], both[1]["parts", strategy])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_overflow_in_one_process_leaves_the_step_out_in_all(both, strategy):
    first, second = (each["overflow", strategy] for each in both)
    assert first == second
    assert first[0] is False


def test_collectives_and_gradients_outside_the_wrapper(both):
    first, second = (each["together"] for each in both)
    assert (first.pop("alone"), second.pop("alone")) == ((0, 1, [0]), (0, 1, [1]))
    assert first == second
    assert first["gradient"] == 2.0
    assert first["value"] == 0.0  # the precision of the first process
    assert (first["any"], first["mean"]) == ([1.0, 0.0], 1.0)
    assert first["gather"] == [{"rank": 0}, {"rank": 1}]
    assert first["broadcast"] == "from 0"


def test_members_that_take_turns_all_learn_under_ddp(both):
    assert_same(both[0]["turns"], both[1]["turns"])
    start = model_of(lb.DeepEnsemble(members=3, assign="turns")).state_dict()
    weights = [name for name in start if "head" in name]
    assert len(weights) == 6
    for name in weights:
        assert not torch.equal(both[0]["turns"][name], start[name]), name


def loaded(_rank, saved, name):
    """A state of one process in two, read back before and after a step."""
    found = {}
    for strategy in STRATEGIES:
        with Runtime(strategy, timeout=60) as runtime:
            module = runtime.prepare(model_of(seed=9))
            optimizer = optimizer_of(name, module)
            runtime.load_full_state(module, optimizer, *saved)
            found[strategy] = runtime.full_state(module, optimizer)
            train(runtime, module, optimizer, 1)
    return found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_from_two_processes_to_one_and_back(both, name, tmp_path):
    saved = both[0]["fsdp2", name]["saved"]
    with Runtime(device="cpu") as runtime:
        module = runtime.prepare(model_of(seed=8))
        optimizer = optimizer_of(name, module)
        runtime.load_full_state(module, optimizer, *saved)
        assert_same(runtime.full_state(module, optimizer), saved)
        train(runtime, module, optimizer, 1)
        alone = runtime.full_state(module, optimizer)
    for each in two_processes(loaded, tmp_path, alone, name):
        for strategy in STRATEGIES:
            assert_same(each[strategy], alone)
