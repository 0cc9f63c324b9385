"""Who may ask, from where, and what is left when a server ends."""

import socket
import threading
import time

import pytest

import leanbayes as lb
from leanbayes.serving import Server
from leanbayes.serving.hosts import allowed_hosts, bind_address, is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:9", "127.0.0.1:80", "[::1]:5"]
)
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/info", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "evil.localhost.example:8000",
        "10.0.0.1",
        "0.0.0.0",
        "[::1",
        "",
        "127.0.0.1.nip.io",
    ],
)
def test_a_foreign_host_is_refused_as_dns_rebinding_would_send_it(client, host):
    reply = client.get("/info", Host=host)
    assert reply.status == 403
    assert set(reply.json) == {"error", "expected"}


def test_no_host_and_two_hosts_are_refused(client):
    assert b" 400 " in client.send(b"GET /info HTTP/1.1\r\n\r\n")
    two = b"GET /info HTTP/1.1\r\nHost: localhost\r\nHost: example.com\r\n\r\n"
    assert b" 400 " in client.send(two)


def test_a_page_of_another_origin_cannot_ask(client, made):
    host, port = client.address
    body = made.png(made.pixels())
    assert client.ask(body, Origin=f"http://{host}:{port}").status == 200
    for origin in ("http://example.com", "null", f"http://{host}:{port + 1}"):
        assert client.ask(body, Origin=origin).status == 403


def test_no_answer_lets_other_origins_read_it(client):
    for path in ("/", "/info", "/health", "/openapi.json", "/nowhere"):
        headers = client.get(path).headers
        assert not [name for name in headers if name.lower().startswith("access-control")]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_an_address_for_others_needs_a_word(monkeypatch):
    assert bind_address("127.0.0.1", remote=False) == "127.0.0.1"
    assert bind_address("0.0.0.0", remote=True) == "0.0.0.0"
    with pytest.raises(lb.ConfigError, match="--allow-remote"):
        bind_address("0.0.0.0", remote=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    known = allowed_hosts("0.0.0.0")
    assert [known(name) for name in ("box", "192.168.0.7", "localhost")] == [True] * 3
    assert not known("example.com")
    assert not is_loopback("example.com")


def test_a_port_in_use_and_a_foreign_address_are_configuration_errors(client, made):
    with pytest.raises(lb.ConfigError, match=r"cannot listen on 127\.0\.0\.1 port"):
        Server(made.images(), port=client.address[1])
    with pytest.raises(lb.ConfigError, match=r"cannot listen on 192\.0\.2\.1"):
        Server(made.images(), host="192.0.2.1")


def test_connections_beyond_the_limit_get_503_and_later_ones_an_answer(serving):
    client = serving(connections=2)
    held = [socket.create_connection(client.address, timeout=20) for _ in range(2)]
    deadline = time.monotonic() + 10
    while client.server._free._value and time.monotonic() < deadline:
        time.sleep(0.01)
    reply = client.get("/health")
    assert (reply.status, reply.json["error"]) == (503, "too many connections")
    for each in held:
        each.close()
    while not client.server._free._value and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.lives()


def test_a_connection_serves_several_requests(client, made):
    from http.client import HTTPConnection

    connection = HTTPConnection(*client.address, timeout=20)
    statuses = []
    for body in (made.png(made.pixels()), b"nonsense", made.png(made.pixels(1))):
        connection.request("POST", "/predict", body)
        reply = connection.getresponse()
        reply.read()
        statuses.append(reply.status)
    connection.close()
    assert statuses == [200, 415, 200]


def test_the_end_answers_what_waits_and_frees_the_port_and_the_threads(made):
    gate = threading.Event()
    gate.set()

    def prepared(x):
        gate.wait(20)
        return x.float() / 255

    before = set(threading.enumerate())
    server = Server(made.images(prepared=prepared)).start()
    gate.clear()
    found = []

    def ask():
        from http.client import HTTPConnection

        connection = HTTPConnection(*server.server_address[:2], timeout=20)
        connection.request("POST", "/predict", made.png(made.pixels()))
        found.append(connection.getresponse().status)
        connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    while not server._active:
        time.sleep(0.005)
    threading.Timer(0.2, gate.set).start()
    assert server.close()
    asking.join(20)
    assert found == [200]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.server_address[:2], timeout=5)
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before
