"""Requests are answered together, and none of them can tell."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import leanbayes as lb
from leanbayes.serving import Batching, Limits, Refusal


class Gate:
    """A `prepared` that waits, so that a queue builds up behind the first pass."""

    def __init__(self):
        self.open = threading.Event()
        self.entered = threading.Event()

    def __call__(self, x):
        self.entered.set()
        assert self.open.wait(20)
        return x.float() / 255


@pytest.fixture
def batching():
    made = []

    def start(served, **limits):
        made.append(Batching(served, Limits(**limits)))
        return made[-1]

    yield start
    for each in made:
        assert each.close()


def together(batching, gate, requests):
    """Ask all of them at a time when the worker is busy with another; answers in their order."""
    first = torch.zeros(1, 8, 8, dtype=torch.uint8)
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        pool.submit(batching.ask, first, 1, 999)
        assert gate.entered.wait(20)
        futures = [pool.submit(batching.ask, *request) for request in requests]
        while batching.waiting < len(requests):
            threading.Event().wait(0.005)
        before = batching.passes
        gate.open.set()
        answers = [future.result(20) for future in futures]
    return answers, batching.passes - before


METHODS = [
    lb.MeanField(init_std=0.3),
    lb.MAP(),
    lb.MCDropout(rate=0.3),
    lb.SharedEnsemble(members=4),
    lb.Implicit(),
    lb.Patching(where="norm+output", exact_output=True),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_an_answer_is_the_same_alone_and_in_company(batching, made, method):
    model, gate = made.image_model(method), Gate()
    worker = batching(made.images(model, prepared=gate), linger=0)
    pixels = [made.pixels(seed)[None] for seed in range(9)]
    answers, passes = together(worker, gate, [(x, 5, 3) for x in pixels])
    assert passes == 1  # all nine of them
    for x, answer in zip(pixels, answers, strict=True):
        alone = worker.ask(x, 5, 3)
        for name in ("probabilities", "total", "aleatoric", "epistemic"):
            assert answer[name] == pytest.approx(alone[name], abs=1e-6), name
        for level, values in answer["spread"].items():
            assert values == pytest.approx(alone["spread"][level], abs=1e-6)


def test_randomised_sets_do_not_depend_on_the_place_in_a_batch(batching, made):
    model, gate = made.image_model(), Gate()
    x, y = torch.rand(40, 1, 8, 8), torch.arange(40) % 3
    options = {"method": "conformal", "score": "aps", "randomised": True}
    lb.calibrate(model, (x, y), samples=5, seed=3, alpha=0.4, **options)
    worker = batching(made.images(model, prepared=gate), linger=0)
    pixels = [made.pixels(seed)[None] for seed in range(12)]
    answers, _ = together(worker, gate, [(each, 5, 3) for each in pixels])
    alone = [worker.ask(each, 5, 3)["set"] for each in pixels]
    assert [answer["set"] for answer in answers] == alone
    assert len({tuple(each) for each in alone}) > 1


def test_requests_with_other_samples_or_seeds_are_not_mixed(batching, made):
    gate = Gate()
    worker = batching(made.images(prepared=gate), linger=0)
    x = made.pixels()[None]
    keys = [(5, 1), (5, 2), (6, 1), (5, 1), (5, 2)]
    answers, passes = together(worker, gate, [(x, *key) for key in keys])
    assert passes == 3
    for key, answer in zip(keys, answers, strict=True):
        assert (answer["samples"], answer["seed"]) == key
        assert answer["probabilities"] == pytest.approx(worker.ask(x, *key)["probabilities"])


def test_a_batch_has_at_most_its_size_and_the_rest_follows(batching, made):
    gate = Gate()
    worker = batching(made.images(prepared=gate), linger=0, batch=4)
    requests = [(made.pixels(seed)[None], 2, 0) for seed in range(10)]
    _, passes = together(worker, gate, requests)
    assert passes == 3  # 4 + 4 + 2


def test_rows_that_would_change_each_other_are_answered_one_by_one(batching, made):
    net = torch.nn.Sequential(
        torch.nn.BatchNorm2d(1, track_running_stats=False),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 3),
    )
    model = lb.bayesianize(net, lb.MeanField(), likelihood=lb.Categorical())
    worker = batching(made.images(model))
    assert worker.batch == 1


def test_one_bad_input_spoils_no_other(batching, made):
    gate = Gate()

    def prepared(x):
        x = gate(x)
        if (x == 1).all(dim=(1, 2, 3)).any():
            raise IndexError("an input that the network cannot take")
        return x

    worker = batching(made.images(prepared=prepared), linger=0)
    good = [(made.pixels(seed)[None], 2, 0) for seed in range(3)]
    bad = (torch.full((1, 8, 8), 255, dtype=torch.uint8), 2, 0)
    with pytest.raises(Refusal, match=r"422.*cannot take"):
        together(worker, gate, [good[0], bad, *good[1:]])
    assert [worker.ask(*each)["samples"] for each in good] == [2, 2, 2]


def test_a_full_queue_is_503_and_the_server_recovers(serving, made):
    gate = Gate()
    gate.open.set()
    client = serving(made.images(prepared=gate), waiting=2, linger=0)
    worker, body = client.server.routes.batching, made.png(made.pixels())
    gate.open.clear()
    gate.entered.clear()
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(client.ask, body)]
        assert gate.entered.wait(20)
        futures += [pool.submit(client.ask, body) for _ in range(2)]
        while worker.waiting < 2:
            threading.Event().wait(0.005)
        reply = client.ask(body)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        assert reply.json["error"] == "2 requests wait already"
        gate.open.set()
        assert [future.result(20).status for future in futures] == [200] * 3
    assert client.ask(body).status == 200


def test_a_request_that_waits_too_long_is_given_up(serving, made):
    gate = Gate()
    gate.open.set()
    client = serving(made.images(prepared=gate), answer=0.2)
    gate.open.clear()
    reply = client.ask(made.png(made.pixels()))
    assert (reply.status, reply.json["error"]) == (503, "no answer within 0.2 seconds")
    gate.open.set()
    assert client.lives()


def test_200_concurrent_requests_are_all_answered(serving, made):
    client = serving()
    bodies = [made.png(made.pixels(seed)) for seed in range(20)]
    expected = [client.ask(body).json["probabilities"] for body in bodies]
    start = threading.Barrier(200)

    def ask(at):
        start.wait()
        return client.ask(bodies[at % 20])

    with ThreadPoolExecutor(200) as pool:
        replies = list(pool.map(ask, range(200)))
    assert [reply.status for reply in replies] == [200] * 200
    for at, reply in enumerate(replies):
        assert reply.json["probabilities"] == pytest.approx(expected[at % 20], abs=1e-6)
    health = client.get("/health").json
    assert health["answered"] == 221  # with the first one, of zeros
    assert health["passes"] < 221
