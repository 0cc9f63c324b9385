"""`leanbayes serve` as a process: it prints its address, answers, and ends by a signal."""

import json
import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
import torch

import leanbayes as lb


@pytest.fixture
def started(finished, tmp_path):
    """A server in a process of its own, and where it listens."""
    processes = []

    def start(*options):
        command = [sys.executable, "-W", "error", "-m", "leanbayes", "serve", str(finished)]
        process = subprocess.Popen(
            [*command, "--port", "0", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        processes.append(process)
        return process, json.loads(process.stdout.readline())["url"]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_answers_and_a_signal_ends_it(started, finished, number, code):
    process, url = started()
    place = urlsplit(url)
    assert place.hostname == "127.0.0.1"
    x = lb.data.fashion_mini().x_test[:1]
    connection = HTTPConnection(place.hostname, place.port, timeout=60)
    connection.request("POST", "/predict?samples=5&seed=2", json.dumps({"inputs": x[0].tolist()}))
    answer = json.loads(connection.getresponse().read())  # the connection stays open
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    connection.close()
    assert (process.returncode, out, err) == (code, "", "")
    net = lb.models.create("mlp", inputs=784, hidden=[8], outputs=10)
    p = lb.predict(lb.load(net, finished / "model"), x, samples=5, seed=2)
    torch.testing.assert_close(torch.tensor(answer["probabilities"]).double(), p.probs[0].cpu())
    assert answer["label"] == lb.data.fashion_mini().classes[p.label]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "--host 0.0.0.0 lets other machines ask the model"),
        (["--host", "192.0.2.1", "--allow-remote"], 2, "cannot listen on 192.0.2.1"),
        (["--port", "70000"], 2, "--port"),
        (["--device", "cudo"], 2, "--device 'cudo' cannot be used"),
        (["--max-upload", "0"], 2, "max-upload"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_served(leanbayes, finished, options, code, words):
    result = leanbayes("serve", finished, *options)
    assert result.code == code
    assert words in result.err
    assert result.out == ""


def test_a_folder_that_is_no_run_is_refused(leanbayes, tmp_path):
    result = leanbayes("serve", tmp_path)
    assert (result.code, "has no card.json" in result.err) == (5, True)


def test_other_machines_are_let_in_with_a_warning(leanbayes, finished):
    options = ["--host", "0.0.0.0", "--allow-remote", "--port", "0", "--check"]
    result = leanbayes("serve", finished, *options)
    assert result.code == 0
    assert "without a password" in result.err
    assert json.loads(result.out)["answer"]["task"] == "classes"
