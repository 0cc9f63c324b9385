"""`leanbayes serve` under load: latency, throughput and errors of concurrent requests.

    python benchmarks/serve_load.py --json results/serve_load.json

A LeNet on the embedded garments is trained for some steps and served by a process of its own, as
`leanbayes serve` does it, on loopback. So many clients as `--concurrent` says, each with a
connection of its own that it keeps, send `--requests` images in all, as fast as they are answered:
a closed loop. Latency is that of the client, from the first byte sent to the last one read. The
same load with batches of one shows what batching brings.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import leanbayes as lb
from leanbayes.cli.run import run
from leanbayes.cli.settings_file import settings_of
from record import write_record


def trained(folder: Path, args: argparse.Namespace) -> None:
    """A finished run of a few steps."""
    fit = {"steps": args.steps, "lr": 0.05, "batch_size": 64, "folder": str(folder)}
    tables = {
        "model": {"name": args.model},
        "data": {"name": "fashion_mini"},
        "method": {"name": args.method},
        "fit": {**fit, "progress": False},
    }
    run(settings_of(tables))


@contextmanager
def served(folder: Path, batch: int, device: str) -> Iterator[str]:
    """A server in a process of its own; its address."""
    command = [sys.executable, "-m", "leanbayes", "serve", str(folder), "--port", "0", "--json"]
    command += ["--batch", str(batch), "--device", device]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def images(number: int) -> list[bytes]:
    """Test images as PNG files."""
    from PIL import Image

    found = []
    for image in lb.data.fashion_mini().x_test[:number, 0]:
        file = io.BytesIO()
        Image.fromarray((image * 255).round().byte().numpy()).save(file, "PNG")
        found.append(file.getvalue())
    return found


class Load:
    """Clients that ask until all requests are made."""

    def __init__(self, url: str, bodies: list[bytes], args: argparse.Namespace) -> None:
        self.place, self.bodies, self.args = urlsplit(url), bodies, args
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self._next, self._lock = count(), threading.Lock()
        self._start = threading.Barrier(args.concurrent + 1)

    def run(self) -> float:
        """All requests; seconds that they took together."""
        clients = [threading.Thread(target=self._client) for _ in range(self.args.concurrent)]
        for client in clients:
            client.start()
        self._start.wait()
        begin = time.perf_counter()
        for client in clients:
            client.join()
        return time.perf_counter() - begin

    def _client(self) -> None:
        connection = HTTPConnection(self.place.hostname or "", self.place.port, timeout=120)
        self._start.wait()
        while (at := next(self._next)) < self.args.requests:
            begin = time.perf_counter()
            status = self._ask(connection, self.bodies[at % len(self.bodies)])
            with self._lock:
                self.statuses[status] += 1
                self.seconds.append(time.perf_counter() - begin)
        connection.close()

    def _ask(self, connection: HTTPConnection, body: bytes) -> str:
        try:
            connection.request("POST", f"/predict?samples={self.args.samples}", body)
            reply = connection.getresponse()
            reply.read()
        except (OSError, HTTPException) as error:
            connection.close()
            return type(error).__name__
        return str(reply.status)


def measured(folder: Path, batch: int, args: argparse.Namespace) -> dict[str, Any]:
    """Figures of the load on a fresh server."""
    with served(folder, batch, args.device) as url:
        load = Load(url, images(100), args)
        seconds = load.run()
        health = _health(url)
    cuts = quantiles(load.seconds, n=100, method="inclusive")
    good = load.statuses["200"]
    return {
        "batch": batch,
        "requests": sum(load.statuses.values()),
        "errors": sum(load.statuses.values()) - good,
        "statuses": dict(load.statuses),
        "seconds": seconds,
        "requests_a_second": good / seconds,
        "p50_ms": 1e3 * cuts[49],
        "p99_ms": 1e3 * cuts[98],
        "most_ms": 1e3 * max(load.seconds),
        "requests_a_pass": (health["answered"] - 1) / (health["passes"] - 1),
    }


def _health(url: str) -> dict[str, Any]:
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    connection.request("GET", "/health")
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--concurrent", type=int, default=200, help="clients at a time")
    parser.add_argument("--requests", type=int, default=2000, help="in all")
    parser.add_argument("--samples", type=int, default=20, help="of an answer")
    parser.add_argument("--batch", type=int, default=64, help="requests of a pass")
    parser.add_argument("--alone", type=int, default=400, help="requests with batches of one")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--method", default="mean_field")
    parser.add_argument("--steps", type=int, default=100, help="of the training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", help="write figures, versions and the command here")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    with TemporaryDirectory() as folder:
        trained(Path(folder) / "run", args)
        results = {"batched": measured(Path(folder) / "run", args.batch, args)}
        fewer = argparse.Namespace(**{**vars(args), "requests": args.alone})
        results["one_by_one"] = measured(Path(folder) / "run", 1, fewer)
    for name, figures in results.items():
        print(
            f"{name}: {figures['requests']} requests of {args.concurrent} clients, "
            f"{figures['errors']} errors, p50 {figures['p50_ms']:.0f} ms, p99 "
            f"{figures['p99_ms']:.0f} ms, {figures['requests_a_second']:.0f} a second, "
            f"{figures['requests_a_pass']:.1f} a pass"
        )
    if args.json:
        write_record(args.json, results, vars(args))


if __name__ == "__main__":
    main()
