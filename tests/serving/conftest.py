"""Models to serve that need no training, servers on a free port, and clients for them."""

import io
import json
import socket
from contextlib import suppress
from http.client import HTTPConnection
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn

import leanbayes as lb
from leanbayes.data.dataset import as_float
from leanbayes.data.tables import Column
from leanbayes.serving import Limits, Served, Server

NAMES = ("shirt", "shoe <b>", "bag")


def image_model(method=None):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
    method = method or lb.MeanField(init_std=0.3)
    return lb.bayesianize(net, method, example=torch.rand(4, 1, 8, 8), likelihood=lb.Categorical())


def images(model=None, **changes):
    """An image classifier of 8x8 grey pixels."""
    about = {"name": "own", "data": "made up", "classes": NAMES, "shape": (1, 8, 8)}
    about |= {"prepared": as_float}
    return Served(model=model or image_model(), **{**about, **changes})


def table():
    """A regression of two columns, one of them of categories, in raw units around 1000."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    likelihood = lb.Gaussian(precision=0.04, target_mean=1000.0, target_std=50.0)
    model = lb.bayesianize(
        net, lb.MeanField(init_std=0.2), example=torch.rand(4, 3), likelihood=likelihood
    )
    columns = (Column("size"), Column("colour", ("blue", "red")))
    about = {"name": "own", "data": "made up", "classes": (), "shape": (3,)}
    return Served(model=model, prepared=as_float, columns=columns, **about)


def png(pixels, kind="PNG"):
    """Bytes of an image file of uint8 pixels, [H, W] or [H, W, 3]."""
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, kind)
    return file.getvalue()


def random_pixels(seed=0, size=(8, 8)):
    return torch.randint(256, size, generator=torch.Generator().manual_seed(seed)).byte()


class Client:
    """Asks a server; every answer has `.status`, `.headers`, `.json`, `.body`."""

    def __init__(self, server):
        self.server, self.address = server, server.server_address[:2]

    def ask(self, body=None, path="/predict", method="POST", **headers):
        connection = HTTPConnection(*self.address, timeout=20)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            return self._read(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask(None, path, "GET", **headers)

    def send(self, body, half_close=False):
        """Bytes as they are, then whatever comes back until the server closes."""
        return self.send_pieces([body], half_close)

    def send_pieces(self, pieces, half_close=False):
        with socket.create_connection(self.address, timeout=20) as connection:
            with suppress(ConnectionError):  # refused before all of it was sent
                for piece in pieces:
                    connection.sendall(piece)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def lives(self):
        return self.get("/health").json["status"] == "ok"

    @staticmethod
    def _read(reply):
        body = reply.read()
        found = SimpleNamespace(status=reply.status, headers=reply.headers, body=body)
        if reply.headers["Content-Type"] == "application/json" and body:
            found.json = json.loads(body)
        return found


@pytest.fixture
def serving():
    """Start a server for something served; it is closed at the end."""
    opened = []

    def start(served=None, **limits):
        server = Server(served or images(), limits=Limits(**limits)).start()
        opened.append(server)
        return Client(server)

    yield start
    for server in opened:
        server.close()


@pytest.fixture(scope="session")
def client():
    """One server of images for tests that leave it as it is."""
    with Server(images()) as server:
        yield Client(server)


@pytest.fixture
def made():
    """What tests build of."""
    return SimpleNamespace(
        images=images, table=table, png=png, pixels=random_pixels, image_model=image_model
    )
